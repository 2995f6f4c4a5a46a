/* SPDX-License-Identifier: MIT
 *
 * tensors_test.c - many tensors as one vector: each element of it is in exactly one stretch of exactly one piece, for
 * all small lengths; the bits of the results are those of one all_reduce over a copy of the vector, by every algorithm;
 * and what cannot be is refused, with the number of the tensor. (That aborts bring inputs back is tried by death_test,
 * core_test and exec_test.)
 */
#include "engine/tensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "check.h"
#include "engine/cuts.h"
#include "engine/piece.h"
#include "plan/plan.h"
#include "shared_cores.h"

/* ---------------------------------------------------------------- stretches, cuts and pieces */

enum { FEW = 4, LENGTHS = 4, ELEMENT = 4, PLACES = FEW * LENGTHS, CHUNKS = 4 };

struct few {
    struct pccl__tensors *tensors;
    int32_t input[PLACES], output[PLACES]; /* tensor i begins at i * LENGTHS */
    uint32_t total;
};

/* Of lengths 0 to LENGTHS - 1: the digits of `number`. */
static void make(struct few *few, uint32_t number) {
    pccl_tensor list[FEW];
    few->total = 0;
    for (uint32_t i = 0; i < FEW; i++, number /= LENGTHS) {
        list[i] = (pccl_tensor){few->input + i * LENGTHS, few->output + i * LENGTHS, number % LENGTHS};
        few->total += number % LENGTHS;
    }
    pccl_call call = {.dtype = PCCL_INT32, .tensors = list, .tensors_count = FEW};
    EXPECT(pccl__tensors_check(&call, NULL) == PCCL_OK && pccl__tensors_total(&call) == few->total);
    EXPECT(pccl__tensors_new(&call, &few->tensors, NULL) == PCCL_OK && !few->tensors->in_place);
}

/* From `at` on: it lies in the tensor that it says, and what follows is the next one. */
static void expect_stretch(const struct few *few, const struct pccl__stretch *it, uint64_t begin, uint64_t at) {
    uint64_t skipped = at - few->tensors->begins[it->tensor];
    EXPECT(at >= few->tensors->begins[it->tensor] && at + it->elements <= few->tensors->begins[it->tensor + 1]);
    EXPECT(it->offset == (at - begin) * ELEMENT && it->elements > 0);
    EXPECT(it->input == (const uint8_t *)(few->input + it->tensor * LENGTHS + skipped));
    EXPECT(it->result == (const uint8_t *)(few->output + it->tensor * LENGTHS + skipped));
}

static void test_walks(const struct few *few) {
    for (uint64_t begin = 0; begin <= few->total; begin++)
        for (uint64_t end = begin; end <= few->total; end++) {
            uint64_t at = begin;
            for (struct pccl__stretch it = {0}; pccl__tensors_next(few->tensors, begin, end, &it); at += it.elements)
                expect_stretch(few, &it, begin, at);
            EXPECT(at == end, "from %d to %d of %d: ends at %d", (int)begin, (int)end, (int)few->total, (int)at);
        }
}

/* Elements from `at` to the end of the tensor that holds it, or of its chunk. */
static uint64_t left_of(const struct few *few, uint64_t at, uint64_t end) {
    struct pccl__stretch it = {0};
    return pccl__tensors_next(few->tensors, at, end, &it) ? it.elements : 0;
}

/* A piece ends with its chunk; where it is full; where a long run ends; or where one begins. */
static void expect_cut(const struct few *few, uint64_t begin, uint64_t at, uint64_t end, uint64_t segment) {
    uint64_t run = left_of(few, begin, end);
    EXPECT(at > begin && at <= end && at - begin <= segment);
    if (run >= segment) {
        EXPECT(at == begin + segment, "a long run is whole");
        return;
    }
    for (uint64_t next = begin + run; next < at; next += left_of(few, next, end))
        EXPECT(left_of(few, next, end) < segment, "a long one shares a piece");
    EXPECT(at == end || at - begin == segment || left_of(few, at, end) >= segment, "it could be longer");
}

static void test_cuts(const struct few *few, uint32_t chunks, uint64_t segment) {
    struct pccl__layout layout = {.collective = PCCL_ALL_REDUCE, .chunks = chunks, .count = few->total};
    struct pccl__cuts *cuts;
    EXPECT(pccl__cuts_new(few->tensors, &layout, segment, &cuts) == PCCL_OK);
    uint32_t most = 0;
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        struct pccl__place place = pccl__layout_place(&layout, chunk);
        uint64_t at = place.input, end = place.input + place.elements;
        EXPECT((cuts->first[chunk] == cuts->first[chunk + 1]) == (place.elements == 0));
        for (uint32_t i = cuts->first[chunk]; i < cuts->first[chunk + 1]; at = cuts->at[++i]) {
            EXPECT(cuts->at[i] == at, "no gap");
            expect_cut(few, at, cuts->at[i + 1], end, segment);
        }
        EXPECT(at == end, "chunk %d ends at %d, not at %d", (int)chunk, (int)end, (int)at);
        if (cuts->first[chunk + 1] - cuts->first[chunk] > most) most = cuts->first[chunk + 1] - cuts->first[chunk];
    }
    EXPECT(cuts->most == most && cuts->at[cuts->first[chunks]] == few->total);
    pccl__cuts_free(cuts);
}

static void test_pieces(const struct few *few, uint32_t chunks, uint32_t segment_elements) {
    struct pccl__schedule schedule = {.plan = {.chunks = chunks, .steps_count = 1}};
    struct pccl_operation op = {.call = {.collective = PCCL_ALL_REDUCE, .dtype = PCCL_INT32},
                                .element_bytes = ELEMENT,
                                .schedule = &schedule,
                                .tensors = few->tensors,
                                .layout = {.collective = PCCL_ALL_REDUCE, .chunks = chunks, .count = few->total}};
    EXPECT(pccl__pieces_cut(&op, segment_elements * ELEMENT, false) == PCCL_OK);
    uint64_t at = 0;
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        uint32_t moving = 0;
        for (uint32_t segment = 0; segment < op.segments; segment++) {
            struct pccl__piece piece = pccl__piece_of(&op, chunk, segment);
            uint64_t begin = at;
            uint32_t stretches = 0;
            for (struct pccl__stretch it = {0}; pccl__piece_next(&op, piece, &it); at += it.elements, stretches++)
                expect_stretch(few, &it, begin, at);
            EXPECT(at - begin == piece.place.elements && piece.place.elements <= segment_elements);
            EXPECT(piece.bytes == piece.place.elements * ELEMENT && piece.moves == (piece.bytes > 0));
            moving += piece.moves;
            EXPECT(!pccl__piece_input(&op, piece) == (stretches != 1));
            EXPECT(!pccl__piece_result(&op, piece) == (stretches != 1));
        }
        EXPECT(moving == pccl__pieces_of(&op, chunk));
    }
    EXPECT(at == few->total, "%d chunks of %d: %d covered", (int)chunks, (int)few->total, (int)at);
    pccl__cuts_free(op.cuts);
}

static void test_all_small_lengths(void) {
    for (uint32_t number = 0; number < LENGTHS * LENGTHS * LENGTHS * LENGTHS; number++) {
        struct few few;
        make(&few, number);
        test_walks(&few);
        for (uint32_t chunks = 1; chunks <= CHUNKS; chunks++)
            for (uint32_t segment = 1; segment <= LENGTHS + 1; segment++) {
                test_pieces(&few, chunks, segment);
                test_cuts(&few, chunks, segment);
            }
        pccl__tensors_free(few.tensors);
    }
}

/* ---------------------------------------------------------------- what cannot be */

static void expect_refused(pccl_call call, const char *text) {
    pccl_error error = {0};
    struct pccl__tensors *tensors = NULL;
    call.dtype = PCCL_INT32;
    pccl_status status = pccl__tensors_check(&call, &error);
    if (status == PCCL_OK) status = pccl__tensors_new(&call, &tensors, &error);
    EXPECT(status == PCCL_INVALID && !tensors, "%s is not refused", text);
    EXPECT(strcmp(error.message, text) == 0, "%s", error.message);
}

static void test_refused(void) {
    int32_t a[8] = {0}, b[8] = {0};
    pccl_tensor list[] = {{a, a, 4}, {b, b, 4}, {b + 4, b + 4, 0}};
    pccl_call call = {.collective = PCCL_ALL_REDUCE, .tensors = list, .tensors_count = 3};
    call.tensors_count = 0;
    expect_refused(call, "all_reduce takes 1 to 65536 tensors together, got 0");
    call.tensors_count = PCCL_TENSORS_MAX + 1;
    expect_refused(call, "all_reduce takes 1 to 65536 tensors together, got 65537");
    call.tensors_count = 3;
    expect_refused((pccl_call){.tensors_count = 3},
                   "all_reduce takes 1 to 65536 tensors together, got 3 and a NULL pointer");
    call.collective = PCCL_REDUCE;
    expect_refused(call, "reduce takes no list of tensors");
    call.collective = PCCL_BARRIER;
    expect_refused(call, "barrier takes no list of tensors");
    call.collective = PCCL_ALL_REDUCE;
    list[1].input = NULL;
    expect_refused(call, "tensor 1 of 4 elements needs buffers, got a NULL pointer");
    list[1] = (pccl_tensor){b, b, UINT64_MAX - 1};
    expect_refused(call, "tensors 0 to 1 of int32 are too many bytes");
    list[1].count = INT64_MAX / 4;
    expect_refused(call, "tensors 0 to 1 of int32 are too many bytes");
    list[1] = (pccl_tensor){b, b + 1, 4};
    expect_refused(call, "input and output of tensor 1 overlap without being in place");
    list[1] = (pccl_tensor){b, a + 3, 4};
    expect_refused(call, "tensors 0 and 1 overlap, and one of them is written to");
    list[1] = (pccl_tensor){a + 2, b, 4};
    expect_refused(call, "tensors 0 and 1 overlap, and one of them is written to");
}

/* The rule said at length: two ranges that share an element, of which one is written to, unless they are the input and
 * the output of one tensor in place. */
static bool may_be(const pccl_tensor *list, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < count; j++) {
            const uint8_t *out = list[i].output, *in = list[j].input, *other = list[j].output;
            uint64_t a = list[i].count, b = list[j].count;
            bool reads = out < in + b && in < out + a && a && b && !(i == j && out == in);
            bool writes = out < other + b && other < out + a && a && b && i != j;
            if (reads || writes) return false;
        }
    return true;
}

static void test_overlaps(void) {
    enum { DRAWS = 200000, SPACE = 16 };
    static uint8_t memory[SPACE + LENGTHS];
    uint64_t random = 1;
    uint32_t refused = 0;
    for (uint32_t draw = 0; draw < DRAWS; draw++) {
        pccl_tensor list[3];
        uint32_t count = 1 + prng_below(&random, 3);
        for (uint32_t i = 0; i < count; i++) {
            list[i] = (pccl_tensor){memory + prng_below(&random, SPACE), memory + prng_below(&random, SPACE),
                                    prng_below(&random, LENGTHS)};
            if (prng_below(&random, 2)) list[i].output = (void *)(uintptr_t)list[i].input;
        }
        pccl_call call = {.dtype = PCCL_INT8, .tensors = list, .tensors_count = count};
        struct pccl__tensors *tensors = NULL;
        bool fine = pccl__tensors_new(&call, &tensors, NULL) == PCCL_OK;
        EXPECT(fine == may_be(list, count), "draw %u", draw);
        refused += !fine;
        pccl__tensors_free(tensors);
    }
    EXPECT(refused > DRAWS / 8 && refused < DRAWS - DRAWS / 8, "%u", refused);
}

/* ---------------------------------------------------------------- results */

enum { MANY = 40, COUNT = 3000, SEGMENT_BYTES = 1000 };

static const uint64_t host_ids[CORES_MAX] = {7, 7, 9, 9, 9};

struct reduced {
    float vector[COUNT], input[COUNT], output[COUNT];
    pccl_tensor tensors[MANY];
    pccl_operation *one, *many;
};
static struct reduced members[CORES_MAX];

/* From the last place to the first: what stands behind one another in the vector never does in memory. Every third one
 * is out of place where the others are in place. */
static void lay_out(struct reduced *it, uint32_t seed, bool in_place) {
    uint64_t random = seed, left = COUNT, lengths[] = {1, 0, 250, 3, 400};
    for (uint32_t i = 0; i < MANY; i++) {
        uint64_t length = i + 1 == MANY ? left : lengths[prng_below(&random, 5)];
        if (length > left) length = left;
        left -= length;
        float *to = in_place && i % 3 ? it->input : it->output;
        it->tensors[i] = (pccl_tensor){it->input + left, to + left, length};
        memcpy(it->input + left, it->vector + COUNT - left - length, length * sizeof(float));
    }
}

static void start_both(struct cores *c, uint32_t rank, pccl_call call, uint32_t seed, bool in_place) {
    struct reduced *it = &members[rank];
    uint64_t random = rank + 100;
    for (uint32_t i = 0; i < COUNT; i++) it->vector[i] = (float)prng_below(&random, 1 << 30) / 1000;
    lay_out(it, seed, in_place);
    call.dtype = PCCL_FLOAT32;
    call.factor = 0.1 * rank + 0.3;
    pccl_tensor list[MANY];
    memcpy(list, it->tensors, sizeof list);
    call.tensors = list;
    call.tensors_count = MANY;
    it->many = cores_start(c, rank, call);
    memset(list, 0, sizeof list); /* it was copied */
    call.tensors = NULL;
    call.tensors_count = 0;
    call.tag = 1;
    call.input = call.output = it->vector;
    call.count = COUNT;
    it->one = cores_start(c, rank, call);
}

static void expect_alike(struct reduced *it, pccl_algorithm algorithm, uint32_t rank) {
    EXPECT(it->one->ended && it->many->ended, "%s of %s", pccl_algorithm_name(algorithm), "one or many goes on");
    EXPECT(it->one->status == PCCL_OK && it->many->status == PCCL_OK, "%s", it->many->text);
    EXPECT(it->one->info.algorithm == it->many->info.algorithm);
    const float *expected = it->vector;
    for (uint32_t i = 0; i < MANY; i++) {
        EXPECT(memcmp(it->tensors[i].output, expected, it->tensors[i].count * sizeof(float)) == 0,
               "%s, rank %u: tensor %u", pccl_algorithm_name(algorithm), rank, i);
        expected += it->tensors[i].count;
    }
    EXPECT(expected == it->vector + COUNT);
    pccl__core_handle_free(it->one);
    pccl__core_handle_free(it->many);
}

static void test_results(uint32_t size, const struct pccl__planner *planner, pccl_call call) {
    static const struct pccl__core_options options = {
        .min_world_size = 1, .operation_timeout_ms = 5000, .stall_ms = 100, .segment_bytes = SEGMENT_BYTES};
    struct cores c = {.host_ids = host_ids};
    cores_make_among(&c, size, &options, 1, (struct pccl__sim_faults){0});
    call.collective = PCCL_ALL_REDUCE;
    call.algorithm = planner->algorithm;
    for (uint32_t seed = 0; seed < 4; seed++) {
        for (uint32_t rank = 0; rank < size; rank++) start_both(&c, rank, call, seed, seed & 1);
        cores_run(&c, 10000);
        for (uint32_t rank = 0; rank < size; rank++) expect_alike(&members[rank], planner->algorithm, rank);
    }
    cores_free(&c);
}

static void test_every_algorithm(void) {
    static const pccl_reduce_op ops[] = {PCCL_SUM, PCCL_AVG, PCCL_PREMUL_SUM, PCCL_MAX};
    const struct pccl__planner *planner;
    for (size_t i = 0; (planner = pccl__planner_at(i)); i++) {
        if (planner->collective != PCCL_ALL_REDUCE) continue;
        uint32_t last = planner->traits & PCCL__FIXED_ORDER ? PCCL_DETERMINISTIC : 0;
        const uint32_t flags[] = {0, PCCL_DISCARD_INPUT, PCCL_DEFERRED, last};
        for (uint32_t size = 1; size <= CORES_MAX; size++)
            for (uint32_t k = 0; k < 16; k++)
                test_results(size, planner, (pccl_call){.op = ops[k % 4], .flags = flags[k / 4]});
    }
}

/* ---------------------------------------------------------------- members that disagree */

static void test_mismatch(void) {
    int32_t memory[2][6] = {{0}};
    static const uint64_t lengths[][3] = {{1, 2, 3}, {1, 2, 3}, {2, 1, 3}, {1, 2, 3}, {6, 0, 0}};
    static const uint32_t counts[] = {3, 3, 3, 2, 1};
    struct cores c;
    cores_make(&c, 2, NULL);
    for (uint32_t kind = 0; kind < 6; kind++) { /* the last: a plain one */
        pccl_operation *op[2];
        for (uint32_t rank = 0; rank < 2; rank++) {
            uint32_t k = rank ? kind : 0;
            pccl_tensor list[3];
            for (uint32_t i = 0, at = 0; k < 5 && i < 3; at += (uint32_t)lengths[k][i++])
                list[i] = (pccl_tensor){memory[rank] + at, memory[rank] + at, lengths[k][i]};
            pccl_call call = {.collective = PCCL_ALL_REDUCE, .dtype = PCCL_INT32, .tag = kind};
            if (k < 5)
                call.tensors = list, call.tensors_count = counts[k];
            else
                call.input = call.output = memory[rank], call.count = 6;
            op[rank] = cores_start(&c, rank, call);
        }
        cores_run(&c, 400000);
        for (uint32_t rank = 0; rank < 2; rank++) {
            const char *text = op[rank]->text;
            EXPECT(op[rank]->ended && op[rank]->status == (kind < 2 ? PCCL_OK : PCCL_MISMATCH), "%u: %s", kind, text);
            if (kind >= 2) {
                EXPECT(strstr(text, "rank 0 called all_reduce(int32[6] in 3 tensors #"), "%s", text);
                EXPECT(kind != 2 || strstr(text, "rank 1 called all_reduce(int32[6] in 3 tensors #"), "%s", text);
                EXPECT(kind != 3 || strstr(text, "rank 1 called all_reduce(int32[3] in 2 tensors #"), "%s", text);
                EXPECT(kind != 4 || strstr(text, "rank 1 called all_reduce(int32[6] in 1 tensor #"), "%s", text);
                EXPECT(kind != 5 || strstr(text, "rank 1 called all_reduce(int32[6], op=sum"), "%s", text);
            }
            pccl__core_handle_free(op[rank]);
        }
    }
    cores_free(&c);
}

/* Called in an epoch that is stopped, it runs in the next one, whose group is another. */
static void test_queued(void) {
    struct cores c;
    cores_make(&c, 3, NULL);
    cores_kill(&c, 0);
    int32_t memory[2][2] = {{1, 2}, {3, 4}};
    pccl_operation *op[2];
    for (uint32_t i = 0; i < 2; i++) {
        pccl__core_freeze(c.core[1 + i], PCCL_ABORTED, NULL, "a test");
        pccl_tensor list[] = {{&memory[i][1], &memory[i][1], 1}, {&memory[i][0], &memory[i][0], 1}};
        op[i] = cores_start(
            &c, 1 + i,
            (pccl_call){.collective = PCCL_ALL_REDUCE, .dtype = PCCL_INT32, .tensors = list, .tensors_count = 2});
        EXPECT(!op[i]->ended);
    }
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "a test");
    cores_run(&c, 1000);
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT(op[i]->ended && op[i]->status == PCCL_OK, "%s", op[i]->text);
        EXPECT(memory[i][0] == 4 && memory[i][1] == 6);
        pccl__core_handle_free(op[i]);
    }
    cores_free(&c);
}

int main(void) {
    test_all_small_lengths();
    test_refused();
    test_overlaps();
    test_every_algorithm();
    test_mismatch();
    test_queued();
    FINISH();
}
