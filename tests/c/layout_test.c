/* SPDX-License-Identifier: MIT
 *
 * layout_test.c - where chunks lie: for every collective, size, rank and kind of parts the places of all chunks fill
 * each buffer exactly once, both ends of a part agree on its length, and wrong calls are refused by name.
 */
#include "engine/layout.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "engine/call.h"

enum { SIZES = 6, COUNT = 5 };

static uint64_t part(uint32_t from, uint32_t to, bool uneven) { return uneven ? (from + 2 * to) % 4 : COUNT; }

struct member {
    struct pccl__layout layout;
    uint64_t *begins;
    uint64_t inputs[SIZES], outputs[SIZES];
};

static bool passes_between_two(pccl_collective collective) { return collective == PCCL_ALL_TO_ALL; }

static pccl_call call_for(struct member *member, pccl_collective collective, uint32_t size, uint32_t rank,
                          bool uneven) {
    for (uint32_t r = 0; r < size; r++) {
        member->inputs[r] = passes_between_two(collective) ? part(rank, r, uneven) : part(0, r, uneven);
        member->outputs[r] = passes_between_two(collective) ? part(r, rank, uneven) : part(0, r, uneven);
    }
    return (pccl_call){.collective = collective,
                       .dtype = PCCL_INT32,
                       .flags = uneven ? PCCL_UNEVEN : 0,
                       .root = size - 1,
                       .count = part(0, rank, uneven),
                       .input_counts = member->inputs,
                       .output_counts = member->outputs};
}

/* How often is each element of a buffer covered? All of it exactly once, by chunks that the buffer holds. */
static void expect_covered(const struct pccl__layout *layout, bool input, uint32_t chunks) {
    uint64_t length = input ? pccl__layout_input(layout) : pccl__layout_output(layout);
    uint8_t *covered = calloc(length + 1, 1);
    for (uint32_t c = 0; c < chunks; c++) {
        struct pccl__place place = pccl__layout_place(layout, c);
        uint64_t at = input ? place.input : place.result;
        if (at == PCCL__NOWHERE) continue;
        EXPECT(at + place.elements <= length, "%s: chunk %u", pccl_collective_name(layout->collective), c);
        for (uint64_t i = 0; i < place.elements; i++) covered[at + i]++;
        EXPECT(place.elements <= pccl__layout_longest(layout));
    }
    for (uint64_t i = 0; i < length; i++)
        EXPECT(covered[i] == 1, "%s of %u, rank %u: element %d of the %s is in %u chunks",
               pccl_collective_name(layout->collective), layout->size, layout->rank, (int)i, input ? "input" : "output",
               covered[i]);
    free(covered);
}

static uint32_t chunks_of(pccl_collective collective, uint32_t size) {
    if (collective == PCCL_ALL_TO_ALL) return size * size;
    return pccl__in_parts(collective) ? size : 3;
}

/* Those to whom a chunk matters know the same length of it. */
static void expect_agreement(struct member *members, uint32_t size, uint32_t chunks) {
    for (uint32_t c = 0; c < chunks; c++) {
        uint64_t elements = UINT64_MAX;
        for (uint32_t rank = 0; rank < size; rank++) {
            struct pccl__place place = pccl__layout_place(&members[rank].layout, c);
            if (place.input == PCCL__NOWHERE && place.result == PCCL__NOWHERE) continue;
            EXPECT(elements == UINT64_MAX || elements == place.elements, "chunk %u", c);
            elements = place.elements;
        }
        EXPECT(elements != UINT64_MAX, "chunk %u is nobody's", c);
    }
}

static void test_places(pccl_collective collective, uint32_t size, bool uneven) {
    static const uint32_t rings[SIZES + 1][SIZES] = {{0}, {0}, {1, 0}, {2, 0, 1}, {3, 1, 0, 2}, {0, 4, 1, 3, 2}};
    struct member members[SIZES];
    uint32_t chunks = chunks_of(collective, size);
    for (uint32_t rank = 0; rank < size; rank++) {
        struct member *member = &members[rank];
        pccl_call call = call_for(member, collective, size, rank, uneven);
        pccl_error error;
        EXPECT(pccl__call_check(&call, &error) == PCCL_OK, "%s", error.message);
        EXPECT(pccl__call_layout(&call, size, rank, &member->layout, &member->begins, &error) == PCCL_OK, "%s",
               error.message);
        member->layout.ring = rings[size];
        for (uint32_t p = 0; p < size; p++)
            if (rings[size][p] == rank) member->layout.position = p;
        member->layout.chunks = chunks;
        expect_covered(&member->layout, true, chunks);
        expect_covered(&member->layout, false, chunks);
        EXPECT(pccl__layout_total(&member->layout) == pccl__layout_total(&members[0].layout), "all know it alike");
    }
    expect_agreement(members, size, chunks);
    for (uint32_t rank = 0; rank < size; rank++) free(members[rank].begins);
}

static void test_refusals(void) {
    struct pccl__layout layout;
    uint64_t *begins, counts[] = {1, UINT64_MAX};
    pccl_error error;
    pccl_call call = {.collective = PCCL_ALL_GATHER, .dtype = PCCL_INT32, .flags = PCCL_UNEVEN};
    EXPECT(pccl__call_layout(&call, 2, 0, &layout, &begins, &error) == PCCL_INVALID && !begins);
    EXPECT(strstr(error.message, "uneven all_gather needs the counts of all 2 ranks for its output"), "%s",
           error.message);
    call.output_counts = counts;
    EXPECT(pccl__call_layout(&call, 2, 0, &layout, &begins, &error) == PCCL_INVALID && !begins);
    EXPECT(strstr(error.message, "too many elements"), "%s", error.message);
    uint64_t sent[] = {3, 4}, expected[] = {2, 4};
    call = (pccl_call){.collective = PCCL_ALL_TO_ALL, .flags = PCCL_UNEVEN, .input_counts = sent};
    call.output_counts = expected;
    EXPECT(pccl__call_layout(&call, 2, 0, &layout, &begins, &error) == PCCL_INVALID && !begins);
    EXPECT(strstr(error.message, "sends 3 elements to its own rank, which expects 2"), "%s", error.message);
    EXPECT(pccl__call_layout(&call, 2, 1, &layout, &begins, &error) == PCCL_OK, "%s", error.message);
    free(begins);
    call.collective = PCCL_ALL_REDUCE;
    EXPECT(pccl__call_check(&call, &error) == PCCL_INVALID && strstr(error.message, "no parts"), "%s", error.message);
    call = (pccl_call){.collective = PCCL_SCAN, .op = PCCL_AVG};
    EXPECT(pccl__call_check(&call, &error) == PCCL_INVALID && strstr(error.message, "average"), "%s", error.message);
    call = (pccl_call){.collective = PCCL_ALL_TO_ALL, .count = UINT64_MAX / 2};
    EXPECT(pccl__call_layout(&call, 4, 0, &layout, &begins, &error) == PCCL_OK);
    EXPECT(pccl__call_check_buffers(&call, &layout, &error) == PCCL_INVALID);
    EXPECT(strstr(error.message, "too many bytes"), "%s", error.message);
}

static void test_overlap(void) {
    int32_t memory[32];
    struct pccl__layout layout;
    uint64_t *begins;
    pccl_error error;
    pccl_call call = {.collective = PCCL_GATHER, .dtype = PCCL_INT32, .count = 4, .root = 1, .output = memory};
    EXPECT(pccl__call_layout(&call, 3, 1, &layout, &begins, NULL) == PCCL_OK);
    call.input = memory + 4;
    EXPECT(pccl__call_check_buffers(&call, &layout, &error) == PCCL_OK, "our own part");
    call.input = memory;
    EXPECT(pccl__call_check_buffers(&call, &layout, &error) == PCCL_INVALID && strstr(error.message, "overlap"));
    call.input = NULL;
    EXPECT(pccl__call_check_buffers(&call, &layout, &error) == PCCL_INVALID && strstr(error.message, "NULL"));
    layout.rank = 2;
    call.input = memory;
    EXPECT(pccl__call_check_buffers(&call, &layout, &error) == PCCL_OK, "only the root has an output");
}

static pccl_status judge_errors(pccl_call call, uint32_t rank, float *errors, pccl_error *error) {
    struct pccl__layout layout;
    uint64_t *begins;
    call.errors = errors;
    EXPECT(pccl__call_layout(&call, 3, rank, &layout, &begins, NULL) == PCCL_OK);
    return pccl__call_check_buffers(&call, &layout, error);
}

/* They are cleared before anything is read. */
static void test_errors_overlap(void) {
    static float memory[64];
    pccl_error error;
    pccl_call call = {.collective = PCCL_REDUCE_SCATTER, .dtype = PCCL_FLOAT32, .count = 4};
    call.input = memory + 12;
    call.output = memory + 40;
    EXPECT(judge_errors(call, 1, memory, &error) == PCCL_OK, "right before the input");
    EXPECT(judge_errors(call, 1, memory + 1, &error) == PCCL_INVALID &&
           strstr(error.message, "errors of reduce_scatter"));
    EXPECT(judge_errors(call, 1, memory + 23, &error) == PCCL_INVALID, "the input's last");
    EXPECT(judge_errors(call, 1, memory + 24, &error) == PCCL_OK, "between both");
    EXPECT(judge_errors(call, 1, memory + 29, &error) == PCCL_INVALID, "the output's first");
    call = (pccl_call){.collective = PCCL_BROADCAST, .dtype = PCCL_FLOAT32, .count = 8, .output = memory + 8};
    EXPECT(judge_errors(call, 1, memory, &error) == PCCL_OK);
    EXPECT(judge_errors(call, 1, memory + 1, &error) == PCCL_INVALID, "cleared on all members");
    pccl_tensor tensors[] = {{memory, memory, 4}, {NULL, NULL, 0}, {memory + 16, memory + 24, 4}};
    call = (pccl_call){.collective = PCCL_ALL_REDUCE, .dtype = PCCL_FLOAT32, .tensors = tensors, .tensors_count = 3};
    EXPECT(judge_errors(call, 1, memory + 4, &error) == PCCL_OK, "as long as all together");
    EXPECT(judge_errors(call, 1, memory + 9, &error) == PCCL_INVALID, "the input of the last");
    EXPECT(judge_errors(call, 1, memory + 20, &error) == PCCL_INVALID, "the output of the last");
    EXPECT(judge_errors(call, 1, NULL, &error) == PCCL_OK);
}

int main(void) {
    for (int collective = 0; collective < PCCL_COLLECTIVE_COUNT; collective++) {
        for (uint32_t size = 1; size < SIZES && pccl__has_data((pccl_collective)collective); size++) {
            test_places((pccl_collective)collective, size, false);
            if (pccl__in_parts((pccl_collective)collective)) test_places((pccl_collective)collective, size, true);
        }
    }
    test_refusals();
    test_overlap();
    test_errors_overlap();
    FINISH();
}
