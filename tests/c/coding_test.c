/* SPDX-License-Identifier: MIT
 *
 * coding_test.c - quantized operations among a few cores: equal bits on all members by every algorithm, in every
 * format; as many bytes as the formula says; what encoding takes is told; what cannot be encoded ends it on all.
 */
#include "engine/coding.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/bits.h"
#include "base/prng.h"
#include "check.h"
#include "shared_cores.h"

enum { COUNT_MAX = 12000 };

static float input[CORES_MAX][CORES_MAX * COUNT_MAX], output[CORES_MAX][CORES_MAX * COUNT_MAX];
static float before[CORES_MAX][CORES_MAX * COUNT_MAX], errors[CORES_MAX][CORES_MAX * COUNT_MAX];

static const struct pccl__core_options options = {
    .min_world_size = 2, .operation_timeout_ms = 5000, .stall_ms = 100, .segment_bytes = 8192};

/* Between -1 and 1, and every hundredth a hundred times as large. */
static void fill(uint32_t size, uint64_t count, uint64_t seed) {
    uint64_t random = seed;
    for (uint32_t rank = 0; rank < size; rank++)
        for (uint64_t i = 0; i < count; i++)
            input[rank][i] = ((float)prng_below(&random, 1 << 24) / (1 << 23) - 1) * (i % 100 == 7 ? 100.0f : 1.0f);
    memcpy(before, input, sizeof before);
    memset(output, 0xff, sizeof output);
    memset(errors, 0xff, sizeof errors);
}

/* How long the input of a rank is where `count` is what the call says. */
static uint64_t input_of(pccl_collective collective, uint32_t size, uint64_t count) {
    return collective == PCCL_REDUCE_SCATTER || collective == PCCL_ALL_TO_ALL ? size * count : count;
}

static uint64_t output_of(pccl_collective collective, uint32_t size, uint64_t count) {
    return collective == PCCL_ALL_GATHER || collective == PCCL_ALL_TO_ALL ? size * count : count;
}

static void run(struct cores *c, pccl_call call, bool in_place, pccl_operation **op) {
    for (uint32_t rank = 0; rank < c->size; rank++) {
        call.input = input[rank];
        call.output = in_place ? input[rank] : output[rank];
        if (in_place && call.collective == PCCL_ALL_GATHER) call.input = input[rank] + rank * call.count;
        if (in_place && call.collective == PCCL_REDUCE_SCATTER) call.output = input[rank] + rank * call.count;
        if (call.errors) call.errors = errors[rank];
        op[rank] = cores_start(c, rank, call);
    }
    cores_run(c, 3000000);
    for (uint32_t rank = 0; rank < c->size; rank++) {
        EXPECT(op[rank]->ended, "rank %u", rank);
        if (op[rank]->status == PCCL_OK && in_place)
            memcpy(output[rank], op[rank]->call.output,
                   output_of(call.collective, c->size, call.count) * sizeof(float));
    }
}

static void end(struct cores *c, pccl_operation **op, pccl_status status) {
    for (uint32_t rank = 0; rank < c->size; rank++) {
        EXPECT(op[rank]->status == status, "rank %u: %s", rank, op[rank]->text);
        pccl__core_handle_free(op[rank]);
    }
}

/* ---------------------------------------------------------------- equal bits */

static double exact(pccl_collective collective, uint32_t size, uint32_t rank, uint64_t count, uint64_t i) {
    double sum = 0;
    switch (collective) {
    case PCCL_ALL_GATHER:
        return before[i / count][i % count];
    case PCCL_ALL_TO_ALL:
        return before[i / count][rank * count + i % count];
    case PCCL_BROADCAST:
        return before[0][i];
    default:
        if (collective == PCCL_REDUCE_SCATTER) i += rank * count;
        for (uint32_t from = 0; from < size; from++) sum += before[from][i];
        return sum;
    }
}

/* Half a step of a format, where a block holds a hundred, each time that something is encoded. */
static double allowed(pccl_collective collective, uint32_t size, pccl_format format) {
    static const double half[PCCL_FORMAT_COUNT] = {
        [PCCL_TO_BFLOAT16] = 0x1p-8,     [PCCL_TO_FLOAT16] = 0x1p-11,         [PCCL_UINT8_MIN_MAX] = 1.0 / 255,
        [PCCL_INT8_MIN_MAX] = 1.0 / 255, [PCCL_UINT8_ZERO_POINT] = 2.0 / 255, [PCCL_INT8_ZERO_POINT] = 2.0 / 255,
        [PCCL_INT8_BLOCK] = 0.5 / 127,   [PCCL_INT4_BLOCK] = 0.5 / 7,         [PCCL_INT2_BLOCK] = 0.5,
        [PCCL_E4M3_BLOCK] = 0x1p-4,      [PCCL_E5M2_BLOCK] = 0x1p-3};
    bool sums = pccl__reduces(collective);
    return 1.01 * half[format] * 100 * (sums ? 2.0 * size * size : 1);
}

static void expect_results(struct cores *c, pccl_call call, const char *what) {
    uint64_t length = output_of(call.collective, c->size, call.count);
    bool equal =
        call.collective == PCCL_ALL_REDUCE || call.collective == PCCL_ALL_GATHER || call.collective == PCCL_BROADCAST;
    double most = allowed(call.collective, c->size, call.quantization.format) * (1 + call.quantization.stochastic);
    for (uint32_t rank = 0; rank < c->size; rank++) {
        if (call.collective == PCCL_REDUCE && rank > 0) continue;
        EXPECT(!equal || memcmp(output[rank], output[0], length * sizeof(float)) == 0,
               "%s among %u: ranks 0 and %u differ", what, c->size, rank);
        for (uint64_t i = 0; i < length; i++) {
            double should = exact(call.collective, c->size, rank, call.count, i);
            EXPECT(fabs(output[rank][i] - should) <= most, "%s among %u: rank %u, element %d is %g, not %g", what,
                   c->size, rank, (int)i, (double)output[rank][i], should);
        }
    }
}

/* What a member has sent less than it had; nothing where it has sent nothing. */
static void expect_own_errors(struct cores *c, pccl_call call, const char *what) {
    for (uint32_t rank = 0; rank < c->size; rank++)
        for (uint64_t i = 0; i < call.count; i++) {
            bool gathers = call.collective == PCCL_ALL_GATHER, sends = gathers || rank == 0;
            float should = sends ? before[rank][i] - output[rank][gathers ? rank * call.count + i : i] : 0;
            EXPECT(errors[rank][i] == should, "%s among %u: rank %u lost %g at %d, not %g", what, c->size, rank,
                   (double)errors[rank][i], (int)i, (double)should);
        }
}

/* All that encoding took, over all ranks, is what the sum lacks. */
static void expect_errors(struct cores *c, pccl_call call, const char *what) {
    if (!call.errors || call.collective == PCCL_ALL_TO_ALL) return;
    if (!pccl__reduces(call.collective)) {
        expect_own_errors(c, call, what);
        return;
    }
    uint64_t length = input_of(call.collective, c->size, call.count);
    for (uint64_t i = 0; i < length; i++) {
        uint32_t owner = call.collective == PCCL_REDUCE_SCATTER ? (uint32_t)(i / call.count) : 0;
        uint64_t at = call.collective == PCCL_REDUCE_SCATTER ? i % call.count : i;
        double sum = 0, taken = 0;
        for (uint32_t rank = 0; rank < c->size; rank++) sum += before[rank][i], taken += errors[rank][i];
        double lacks = sum - output[owner][at] * (call.op == PCCL_AVG ? c->size : 1.0);
        EXPECT(fabs(lacks - taken) <= 1e-3, "%s among %u: element %d lacks %g, %g were taken", what, c->size, (int)i,
               lacks, taken);
    }
}

static void expect_bytes(struct cores *c, pccl_call call, pccl_operation **op, const char *what) {
    if (call.algorithm != PCCL_RING && call.algorithm != PCCL_DIRECT) return;
    if (call.collective != PCCL_ALL_REDUCE || call.count < 4096) return;
    double all = (double)pccl_quantized_bytes(&call.quantization, call.count), sent = 0;
    for (uint32_t rank = 0; rank < c->size; rank++) sent += (double)op[rank]->info.tx_bytes;
    double due = 2.0 * (c->size - 1) * all;
    EXPECT(fabs(sent / due - 1) < 0.02, "%s among %u: %g bytes, not %g", what, c->size, sent, due);
}

static void try(struct cores *c, pccl_call call, bool in_place) {
    char what[200];
    snprintf(what, sizeof what, "%s by %s, %s%s, %d values%s", pccl_collective_name(call.collective),
             pccl_algorithm_name(call.algorithm), pccl_format_name(call.quantization.format),
             in_place ? ", in place" : "", (int)call.count, call.errors ? ", with errors" : "");
    fill(c->size, c->size * (call.count + 1), call.count + c->size);
    if (in_place && call.collective == PCCL_ALL_GATHER)
        for (uint32_t rank = 0; rank < c->size; rank++)
            memcpy(input[rank] + rank * call.count, before[rank], call.count * sizeof(float));
    pccl_operation *op[CORES_MAX];
    run(c, call, in_place, op);
    if (op[0]->status == PCCL_OK) {
        expect_results(c, call, what);
        expect_errors(c, call, what);
        expect_bytes(c, call, op, what);
    }
    end(c, op, PCCL_OK);
}

static bool has_form(pccl_collective collective) {
    return collective == PCCL_ALL_REDUCE || collective == PCCL_REDUCE || collective == PCCL_REDUCE_SCATTER ||
           collective == PCCL_ALL_GATHER || collective == PCCL_ALL_TO_ALL || collective == PCCL_BROADCAST;
}

/* Every format by every algorithm among `size`, with lengths that are odd, less than a block, and several segments. */
static void try_all(uint32_t size, const struct pccl__planner *planner) {
    static const uint64_t counts[] = {1, 17, 1000, 4099};
    static const uint64_t host_ids[CORES_MAX] = {1, 1, 2, 2, 2, 3, 3, 3};
    struct cores c = {.host_ids = planner->inside ? host_ids : NULL};
    cores_make_among(&c, size, &options, size, (struct pccl__sim_faults){.delay_us_max = 20, .reorder_percent = 20});
    for (uint32_t format = PCCL_TO_BFLOAT16; format < PCCL_FORMAT_COUNT; format++)
        for (uint32_t i = 0; i < 4; i++) {
            bool sums = pccl__reduces(planner->collective), odd = (format + i) % 2;
            pccl_call call = {
                .collective = planner->collective,
                .algorithm = planner->algorithm,
                .dtype = PCCL_FLOAT32,
                .count = counts[i],
                .quantization = {.format = (pccl_format)format, .block = format <= PCCL_TO_FLOAT16 ? 0 : 256},
                .errors = !sums || planner->traits & PCCL__ONE_EACH ? errors[0] : NULL};
            if (i == 3) call.quantization.stochastic = 1, call.quantization.seed = format;
            if (call.quantization.stochastic) call.errors = NULL;
            try(&c, call, odd && planner->collective != PCCL_REDUCE);
        }
    cores_free(&c);
}

static void test_all_forms(void) {
    const struct pccl__planner *planner;
    for (uint32_t size = 2; size <= CORES_MAX; size++)
        for (size_t i = 0; (planner = pccl__planner_at(i)); i++)
            if (has_form(planner->collective) && planner->links != PCCL_SHAPE_TREE) try_all(size, planner);
}

/* The choice: two encodings whatever the size, where any two may talk. */
static void test_choice(void) {
    struct cores c;
    cores_make(&c, 4, &options);
    pccl_call call = {.collective = PCCL_ALL_REDUCE,
                      .dtype = PCCL_FLOAT32,
                      .op = PCCL_AVG,
                      .count = COUNT_MAX,
                      .quantization = {.format = PCCL_INT8_BLOCK},
                      .errors = errors[0]};
    pccl_operation *op[CORES_MAX];
    fill(4, COUNT_MAX, 1);
    run(&c, call, false, op);
    EXPECT(op[0]->info.algorithm == PCCL_DIRECT, "%s", pccl_algorithm_name(op[0]->info.algorithm));
    expect_errors(&c, call, "the average");
    end(&c, op, PCCL_OK);
    cores_free(&c);
}

/* ---------------------------------------------------------------- what cannot be encoded */

static void expect_unfit(struct cores *c, pccl_operation **op, const char *part, const char *other) {
    for (uint32_t rank = 0; rank < c->size; rank++) {
        EXPECT(op[rank]->status == PCCL_QUANTIZATION, "rank %u: %s", rank, op[rank]->text);
        EXPECT(strstr(op[rank]->text, part) && strstr(op[rank]->text, other), "rank %u: %s", rank, op[rank]->text);
        const float *own = op[rank]->call.input;
        uint64_t length = input_of(op[rank]->call.collective, c->size, op[rank]->call.count);
        if (op[rank]->call.collective == PCCL_BROADCAST && rank > 0) continue;
        EXPECT(memcmp(own, before[rank] + (own - input[rank]), length * sizeof(float)) == 0, "rank %u lost its input",
               rank);
    }
    end(c, op, PCCL_QUANTIZATION);
}

static void expect_good(struct cores *c, pccl_call call) {
    fill(c->size, c->size * call.count, 3);
    pccl_operation *op[CORES_MAX];
    run(c, call, false, op);
    end(c, op, PCCL_OK);
}

static void test_unfit(pccl_collective collective, pccl_algorithm algorithm, bool in_place, bool one_owner) {
    struct cores c;
    cores_make(&c, 4, &options);
    pccl_call call = {.collective = collective,
                      .algorithm = algorithm,
                      .dtype = PCCL_FLOAT32,
                      .count = 5000,
                      .quantization = {.format = PCCL_UINT8_MIN_MAX}};
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t who = collective == PCCL_BROADCAST ? 0 : 2;
        uint64_t where = one_owner ? who * call.count + 4321 : 4321;
        fill(4, 4 * call.count, i);
        if (in_place && collective == PCCL_ALL_GATHER) where += who * call.count;
        input[who][where] = bad[i];
        memcpy(before, input, sizeof before);
        pccl_operation *op[CORES_MAX];
        run(&c, call, in_place, op);
        bool sums = strstr(op[0]->text, "the sum at");
        expect_unfit(&c, op, sums ? "element" : "rank 2 cannot quantize" + (who ? 0 : 7), "element");
        expect_good(&c, call);
    }
    cores_free(&c);
}

/* Two finite numbers whose sum is none; one that is beyond float16. */
static void test_too_large(void) {
    struct cores c;
    cores_make(&c, 3, &options);
    pccl_call call = {.collective = PCCL_ALL_REDUCE, .dtype = PCCL_FLOAT32, .count = 3000};
    pccl_operation *op[CORES_MAX];
    call.quantization.format = PCCL_INT8_BLOCK;
    fill(3, call.count, 5);
    input[0][2222] = input[1][2222] = FLT_MAX;
    memcpy(before, input, sizeof before);
    run(&c, call, true, op);
    expect_unfit(&c, op, "the sum at element 2222, which is inf", "int8_block");
    call.quantization.format = PCCL_TO_FLOAT16;
    fill(3, call.count, 6);
    input[1][1111] = 70000;
    memcpy(before, input, sizeof before);
    run(&c, call, true, op);
    expect_unfit(&c, op, "element 1111, which is 70000", "float16");
    expect_good(&c, call);
    cores_free(&c);
}

/* Who wants to gets a NaN instead, on all members the same. */
static void test_propagates(void) {
    struct cores c;
    cores_make(&c, 3, &options);
    pccl_call call = {.collective = PCCL_ALL_REDUCE,
                      .dtype = PCCL_FLOAT32,
                      .count = 3000,
                      .quantization = {.format = PCCL_INT4_BLOCK, .block = 64, .propagate = 1}};
    pccl_operation *op[CORES_MAX];
    fill(3, call.count, 7);
    input[1][640] = INFINITY;
    run(&c, call, false, op);
    for (uint64_t i = 0; i < call.count; i++)
        EXPECT(isnan(output[0][i]) == (i / 64 == 10), "element %d is %g", (int)i, (double)output[0][i]);
    EXPECT(memcmp(output[0], output[2], call.count * sizeof(float)) == 0);
    end(&c, op, PCCL_OK);
    cores_free(&c);
}

/* However often it happens it costs no epoch, and nobody loses count: also not who is far behind, or has bytes on their
 * way for what has failed long ago. */
static void test_many(void) {
    enum { FAILURES = 3 * PCCL__DISCARD_MAX };
    struct cores c = {0};
    cores_make_among(&c, 3, &options, 1, (struct pccl__sim_faults){.delay_us_max = 40, .reorder_percent = 30});
    pccl_call call = {.collective = PCCL_ALL_REDUCE,
                      .dtype = PCCL_FLOAT32,
                      .count = 3000,
                      .quantization = {.format = PCCL_INT8_BLOCK}};
    fill(3, call.count, 8);
    input[1][2000] = NAN;
    for (uint32_t k = 0; k < FAILURES; k++) {
        pccl_operation *op[2];
        for (uint32_t rank = 0; rank < 2; rank++) {
            call.input = call.output = input[rank];
            op[rank] = cores_start(&c, rank, call);
        }
        cores_run(&c, k % 7 ? 100 : 10000); /* some end while others begin */
        while (!op[0]->ended || !op[1]->ended) cores_run(&c, 100);
        for (uint32_t rank = 0; rank < 2; rank++) {
            EXPECT(op[rank]->status == PCCL_QUANTIZATION, "%s", op[rank]->text);
            pccl__core_handle_free(op[rank]);
        }
    }
    call.input = call.output = input[2];
    for (uint32_t k = 0; k < FAILURES; k++) { /* one after the other, all of them */
        pccl_operation *late = cores_start(&c, 2, call);
        EXPECT(late->ended && late->status == PCCL_QUANTIZATION, "%u: %s", k, late->text);
        pccl__core_handle_free(late);
    }
    for (uint32_t rank = 0; rank < 3; rank++) EXPECT(!c.core[rank]->frozen, "an epoch for that");
    expect_good(&c, call);
    cores_free(&c);
}

/* The one that calls late hears of it, too. */
static void test_late(void) {
    struct cores c;
    cores_make(&c, 3, &options);
    pccl_call call = {
        .collective = PCCL_ALL_GATHER, .dtype = PCCL_FLOAT32, .count = 64, .quantization = {.format = PCCL_INT8_BLOCK}};
    fill(3, 64, 8);
    input[0][9] = NAN;
    pccl_operation *op[3];
    for (uint32_t rank = 0; rank < 3; rank++) {
        call.input = input[rank];
        call.output = output[rank];
        op[rank] = cores_start(&c, rank, call);
        cores_run(&c, 1000);
    }
    for (uint32_t rank = 0; rank < 3; rank++)
        EXPECT(strstr(op[rank]->text, "rank 0 cannot quantize its input's element 9"));
    end(&c, op, PCCL_QUANTIZATION);
    cores_free(&c);
}

/* ---------------------------------------------------------------- what is refused */

static void expect_refused(pccl_call call, const char *part) {
    pccl_error error = {.message = ""};
    EXPECT(pccl__coding_check(&call, pccl__planner_find(call.collective, call.algorithm), &error) == PCCL_INVALID);
    EXPECT(strstr(error.message, part), "%s", error.message);
}

static void test_refused(void) {
    const pccl_call good = {
        .collective = PCCL_ALL_REDUCE, .dtype = PCCL_FLOAT32, .quantization = {.format = PCCL_INT8_BLOCK}};
    EXPECT(pccl__coding_check(&good, NULL, NULL) == PCCL_OK);
    pccl_call call = good;
    call.quantization.format = PCCL_EXACT;
    call.errors = errors[0];
    expect_refused(call, "errors of what");
    call = good;
    call.collective = PCCL_SCAN;
    expect_refused(call, "scan cannot be quantized");
    call = good;
    call.op = PCCL_PROD;
    expect_refused(call, "prod of all_reduce");
    call = good;
    call.op = PCCL_MAX;
    EXPECT(pccl__coding_check(&call, NULL, NULL) == PCCL_OK);
    call.errors = errors[0];
    expect_refused(call, "max of all_reduce has no errors");
    call = good;
    call.flags = PCCL_DETERMINISTIC;
    expect_refused(call, "deterministic");
    call = good;
    call.dtype = PCCL_INT32;
    expect_refused(call, "int32");
    call = good;
    call.quantization.block = 33;
    expect_refused(call, "33");
    call = good;
    call.algorithm = PCCL_DOUBLING;
    call.errors = errors[0];
    expect_refused(call, "on several members");
}

/* Members that do not quantize alike hear of it. */
static void test_mismatch(void) {
    struct cores c;
    cores_make(&c, 3, &options);
    fill(3, 5000, 9);
    pccl_operation *op[3];
    for (uint32_t rank = 0; rank < 3; rank++) {
        pccl_call call = {.collective = PCCL_ALL_REDUCE,
                          .dtype = PCCL_FLOAT32,
                          .count = 5000,
                          .input = input[rank],
                          .output = input[rank],
                          .quantization = {.format = PCCL_INT8_BLOCK, .stochastic = 1, .seed = rank == 1}};
        op[rank] = cores_start(&c, rank, call);
    }
    cores_run(&c, 400000);
    for (uint32_t rank = 0; rank < 3; rank++)
        EXPECT(strstr(op[rank]->text, "quantization=int8_block, block=1024, stochastic, seed #"), "%s", op[rank]->text);
    end(&c, op, PCCL_MISMATCH);
    cores_free(&c);
}

int main(void) {
    test_all_forms();
    test_choice();
    test_unfit(PCCL_ALL_REDUCE, PCCL_AUTO, true, false);
    test_unfit(PCCL_ALL_REDUCE, PCCL_RING, true, false);
    test_unfit(PCCL_ALL_REDUCE, PCCL_STAR, false, false);
    test_unfit(PCCL_ALL_REDUCE, PCCL_DOUBLING, true, false);
    test_unfit(PCCL_REDUCE_SCATTER, PCCL_AUTO, false, true);
    test_unfit(PCCL_REDUCE_SCATTER, PCCL_RING, true, true);
    test_unfit(PCCL_ALL_GATHER, PCCL_AUTO, true, false);
    test_unfit(PCCL_BROADCAST, PCCL_AUTO, true, false);
    test_too_large();
    test_propagates();
    test_many();
    test_late();
    test_refused();
    test_mismatch();
    FINISH();
}
