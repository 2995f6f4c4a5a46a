/* SPDX-License-Identifier: MIT
 *
 * shared_program.h - a random program of operations for tests of the data plane, and what each must bring. Every
 * element of every buffer is a small integer that tells peer, operation and place, so sums are exact in every dtype.
 */
#ifndef PCCL_TESTS_SHARED_PROGRAM_H
#define PCCL_TESTS_SHARED_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "pccl.h"

enum { PROGRAM_COUNT_MAX = 200000, PROGRAM_MEMBERS_MAX = 16 };

struct program_step {
    pccl_call call; /* without buffers, counts, root */
    uint32_t number;
    bool in_place, uneven, root_is_last;
    uint32_t tensors;        /* of an all_reduce: so many make up its vector; 0: it is one */
    uint32_t source, target; /* of a SEND, and the RECV that it is for `target`: numbers of peers */
};

/* `all_links`: also what needs a view of all links: a fixed order. */
struct program_step program_draw(uint32_t number, bool all_links, uint64_t *random);

/* Makes a step something that one peer sends to another. */
void program_make_pair(struct program_step *step, uint32_t source, uint32_t target);

/* Who is in the group, by rank: the numbers of peers. */
struct program_group {
    uint32_t size, rank;
    const uint32_t *members;
};

/* Memory and counts of one call; `before` is a copy of the input. Tensors lie in `apart`, the last one first, and are
 * brought together in `input` and `output` when these are looked at. */
struct program_buffers {
    uint8_t *memory, *other;
    uint8_t *input, *output, *before;
    uint64_t input_bytes, output_bytes;
    pccl_tensor *tensors;
    uint32_t tensors_count;
    size_t element;
    uint8_t *apart;
    uint64_t input_counts[PROGRAM_MEMBERS_MAX], output_counts[PROGRAM_MEMBERS_MAX];
};
/* Fills the input. What points to the counts is valid as long as `buffers` stays where it is. */
pccl_call program_prepare(const struct program_step *step, struct program_group group, struct program_buffers *buffers);
void program_release(struct program_buffers *buffers);

/* Is the input as it was? */
bool program_input_intact(const struct program_buffers *buffers);
/* The first element of the output that is wrong, UINT64_MAX: none. `group` is that of the epoch that it ran in. */
uint64_t program_first_wrong(const struct program_step *step, struct program_group group,
                             const struct program_buffers *buffers);
/* Of the output's bits, once that has been looked at. */
uint64_t program_hash(const struct program_buffers *buffers);
/* Does peer `number` take part? */
bool program_has(const struct program_step *step, uint32_t number);
/* Does it only make sense in the group that it was prepared for? */
bool program_is_bound(const struct program_step *step);

#endif
