/* SPDX-License-Identifier: MIT
 *
 * piece.h - one segment of one chunk: where it lies in our buffers, how long it is, whether it moves. Of tensors that
 * are reduced together it may lie in several.
 *
 * Must not know: channels, tasks, when anything moves.
 *
 * Private uneven parts (layout.h) that go straight are known to both ends of their transfer. Where links are down they
 * pass through others, who must make room for them. So their lengths go first, by the same plan: segment 0 of each
 * chunk is its length, and its data are segments 1 and up, of which nobody can say how many there are before all the
 * lengths that pass him have come.
 */
#ifndef PCCL_ENGINE_PIECE_H
#define PCCL_ENGINE_PIECE_H

#include "engine/operation.h"

enum { PCCL__LENGTH_BYTES = 8 };

struct pccl__piece {
    uint32_t chunk;
    struct pccl__place place; /* in elements; of a length, nowhere */
    uint32_t bytes;           /* of its transfer */
    bool moves;               /* it has a transfer */
    bool is_length;           /* of the chunk; it lies at pccl__length_at */
};

/* Are lengths known to the two only that a part passes between? */
bool pccl__pieces_are_private(const struct pccl_operation *operation);
/* What segments there are, as far as it is known: of lengths that go first, these alone. `segment_bytes` may be 0.
 * `crowded`: all members are on one host and share its cores. Both ends of every transfer cut alike, so it depends on
 * nothing that only some members know. Errors: NO_MEMORY. */
pccl_status pccl__pieces_cut(struct pccl_operation *operation, uint32_t segment_bytes, bool crowded);

struct pccl__piece pccl__piece_of(const struct pccl_operation *operation, uint32_t chunk, uint32_t segment);
/* How many of the data of a chunk move. */
uint32_t pccl__pieces_of(const struct pccl_operation *operation, uint32_t chunk);
/* Where it lies; only of one that is there. NULL: in several tensors. */
const uint8_t *pccl__piece_input(const struct pccl_operation *operation, struct pccl__piece piece);
uint8_t *pccl__piece_result(const struct pccl_operation *operation, struct pccl__piece piece);
/* A walk along what of it lies together in both: input and result of a stretch are NULL where it has none. */
bool pccl__piece_next(const struct pccl_operation *operation, struct pccl__piece piece, struct pccl__stretch *stretch);

/* Memory that operation->lengths needs; 0 where no lengths go first. */
size_t pccl__lengths_bytes(const struct pccl_operation *operation);
/* Writes down those of our own parts, before anything is sent. */
void pccl__lengths_begin(struct pccl_operation *operation);
uint8_t *pccl__length_at(const struct pccl_operation *operation, uint32_t chunk);
uint64_t pccl__length_of(const struct pccl_operation *operation, uint32_t chunk);
/* What has come for a chunk that is for us: is it as long as our place for it? True of what only passes. */
bool pccl__length_fits(const struct pccl_operation *operation, uint32_t chunk);
/* All that pass us have come: cuts the data. */
void pccl__lengths_end(struct pccl_operation *operation);

#endif
