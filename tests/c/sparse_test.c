/* SPDX-License-Identifier: MIT
 *
 * sparse_test.c - sums of sparse vectors are those of dense ones, in the same order, bit by bit.
 */
#include <fenv.h>
#include <stdbool.h>
#include <string.h>

#include "base/bits.h"
#include "base/prng.h"
#include "check.h"
#include "kernel/element.h"
#include "pccl_sparse.h"
#include "shared_memory.h"

enum { VECTORS = 5, ENTRIES = 2000, LENGTH = 60000 };

static uint64_t indices[VECTORS][ENTRIES], sums[VECTORS * ENTRIES];
static uint8_t values[VECTORS][ENTRIES * 8 + 1], sum_values[VECTORS * ENTRIES * 8];
static pccl_sparse vectors[VECTORS];

/* Vectors of `most` entries at most, now and then none, whose values are any bits. */
static void draw(uint32_t most, uint32_t bytes, uint64_t *random) {
    for (int v = 0; v < VECTORS; v++) {
        uint64_t count = prng_below(random, 4) ? prng_below(random, most) : 0, next = prng_below(random, 7);
        for (uint64_t i = 0; i < count; i++) {
            indices[v][i] = next;
            next += 1 + prng_below(random, 2 * (LENGTH - ENTRIES) / ENTRIES);
        }
        uint8_t *at = values[v] + prng_below(random, 2); /* at odd addresses, too */
        for (uint64_t i = 0; i < count * bytes; i++) at[i] = (uint8_t)prng_next(random);
        vectors[v] = (pccl_sparse){indices[v], at, count};
    }
}

static float as_float(pccl_dtype dtype, const uint8_t *from) {
    uint32_t bits = 0;
    memcpy(&bits, from, pccl_dtype_bytes(dtype));
    return dtype == PCCL_FLOAT32   ? f32_load(bits)
           : dtype == PCCL_FLOAT16 ? f16_load((uint16_t)bits)
                                   : f32_load(bits << 16);
}

static uint64_t of_float(pccl_dtype dtype, float value) {
    if (dtype == PCCL_FLOAT32) return f32_store(value);
    return dtype == PCCL_FLOAT16 ? f16_store(value) : bf16_round(value) >> 16;
}

static bool is_float32_like(pccl_dtype dtype) {
    return dtype == PCCL_FLOAT32 || dtype == PCCL_FLOAT16 || dtype == PCCL_BFLOAT16;
}

/* The sum of what the vectors have at `index`, which none of them has passed yet; they go on from there. */
static uint64_t expected(pccl_dtype dtype, uint64_t index, uint64_t *cursors) {
    size_t bytes = pccl_dtype_bytes(dtype);
    bool any = false;
    float f32 = 0;
    double f64 = 0;
    uint64_t whole = 0;
    for (int v = 0; v < VECTORS; v++) {
        if (cursors[v] == vectors[v].count || indices[v][cursors[v]] != index) continue;
        const uint8_t *from = (const uint8_t *)vectors[v].values + cursors[v]++ * bytes;
        uint64_t raw = 0;
        memcpy(&raw, from, bytes);
        if (dtype == PCCL_FLOAT64)
            f64 = any ? f64 + f64_load(raw) : f64_load(raw);
        else if (is_float32_like(dtype))
            f32 = any ? f32 + as_float(dtype, from) : as_float(dtype, from);
        else
            whole += raw;
        any = true;
    }
    return dtype == PCCL_FLOAT64 ? f64_store(f64) : is_float32_like(dtype) ? of_float(dtype, f32) : whole;
}

static void check(pccl_dtype dtype, uint64_t count) {
    size_t bytes = pccl_dtype_bytes(dtype);
    uint64_t cursors[VECTORS] = {0}, entry = 0;
    while (true) {
        uint64_t index = UINT64_MAX, got = 0;
        for (int v = 0; v < VECTORS; v++)
            if (cursors[v] < vectors[v].count) index = min_u64(index, indices[v][cursors[v]]);
        if (index == UINT64_MAX) break;
        uint64_t bits = expected(dtype, index, cursors);
        memcpy(&got, sum_values + entry * bytes, bytes);
        EXPECT(entry < count && sums[entry] == index, "entry %" PRIu64 " is not %" PRIu64, entry, index);
        EXPECT(memcmp(&got, &bits, bytes) == 0, "%s at %" PRIu64, pccl_dtype_name(dtype), index);
        entry++;
    }
    EXPECT(entry == count, "%" PRIu64 " entries, not %" PRIu64, count, entry);
}

static void test_every_dtype(void) {
    uint64_t random = 11;
    for (int d = PCCL_INT8; d <= PCCL_FLOAT64; d++) {
        for (int trial = 0; trial < 3; trial++) {
            pccl_dtype dtype = (pccl_dtype)d;
            uint64_t count = 0;
            draw(trial ? ENTRIES : 3, (uint32_t)pccl_dtype_bytes(dtype), &random);
            fesetround(trial == 2 ? FE_UPWARD : FE_TONEAREST);
            EXPECT(pccl_sparse_sum(dtype, vectors, VECTORS, sums, sum_values, VECTORS * ENTRIES, &count, NULL) ==
                       PCCL_OK,
                   "%s", pccl_dtype_name(dtype));
            EXPECT(fegetround() == (trial == 2 ? FE_UPWARD : FE_TONEAREST), "the caller's rounding");
            fesetround(FE_TONEAREST);
            check(dtype, count);
        }
    }
}

/* Beyond one window, near and far. */
static void test_many_windows(void) {
    uint64_t random = 12, count;
    draw(ENTRIES, 4, &random);
    EXPECT(pccl_sparse_sum(PCCL_FLOAT32, vectors, VECTORS, sums, sum_values, VECTORS * ENTRIES, &count, NULL) ==
               PCCL_OK,
           "floats");
    check(PCCL_FLOAT32, count);
    static const uint64_t far[] = {0, 1, UINT64_C(1) << 40, UINT64_MAX - 1, UINT64_MAX};
    static const float one[] = {1, -0.0f, 3, 4, -0.0f};
    pccl_sparse same[2] = {{far, one, 5}, {far, one, 5}};
    EXPECT(pccl_sparse_sum(PCCL_FLOAT32, same, 2, sums, sum_values, 5, &count, NULL) == PCCL_OK && count == 5, "far");
    EXPECT(memcmp(sums, far, sizeof far) == 0, "the same indices");
    static const float two[] = {2, -0.0f, 6, 8, -0.0f};
    EXPECT(memcmp(sum_values, two, sizeof two) == 0, "and twice the values, -0 among them");
}

static void test_nothing(void) {
    uint64_t count = 9;
    pccl_sparse none = {NULL, NULL, 0};
    EXPECT(pccl_sparse_sum(PCCL_FLOAT32, NULL, 0, sums, sum_values, 0, &count, NULL) == PCCL_OK && count == 0, "0");
    count = 9;
    EXPECT(pccl_sparse_sum(PCCL_FLOAT32, &none, 1, sums, sum_values, 0, &count, NULL) == PCCL_OK && count == 0, "1");
}

static void expect_refused(pccl_dtype dtype, const uint64_t *given, uint64_t count, uint64_t room, const char *text) {
    static const double some[8] = {0};
    pccl_sparse vector = {given, some, count};
    pccl_error error;
    uint64_t entries = 77;
    pccl_status status = pccl_sparse_sum(dtype, &vector, 1, sums, sum_values, room, &entries, &error);
    EXPECT(status == PCCL_INVALID && entries == 77, "%s", text);
    EXPECT(strstr(error.message, text), "%s", error.message);
}

static void test_refused(void) {
    static const uint64_t good[] = {1, 5, 9}, twice[] = {1, 5, 5, 9}, falling[] = {100000, 5, 9};
    expect_refused(PCCL_BOOL, good, 3, 3, "sparse bool cannot be added up");
    expect_refused((pccl_dtype)99, good, 3, 3, "sparse ? cannot be added up");
    expect_refused(PCCL_FLOAT64, good, 3, 2, "room for 2 entries is too little");
    expect_refused(PCCL_FLOAT64, twice, 4, 4, "index 5 of a sparse vector comes too late");
    expect_refused(PCCL_FLOAT64, falling, 3, 3, "index 5 of a sparse vector comes too late");
}

/* Whichever allocation finds no memory: nothing is left over, and the next call is as good as any. */
static void test_no_memory(void) {
    static const uint64_t some[] = {1, 5};
    static const float ones[] = {1, 1};
    pccl_sparse vector = {some, ones, 2};
    uint64_t count;
    int64_t blocks = memory_blocks();
    if (!memory_supported()) return;
    for (uint64_t nth = 1; nth <= 2; nth++) {
        memory_refuse(nth, 1);
        pccl_error error;
        pccl_status status = pccl_sparse_sum(PCCL_FLOAT32, &vector, 1, sums, sum_values, 2, &count, &error);
        memory_refuse(0, 0);
        EXPECT(status == PCCL_NO_MEMORY && strstr(error.message, "sparse sum"), "allocation %" PRIu64, nth);
        EXPECT(memory_blocks() == blocks, "allocation %" PRIu64, nth);
        status = pccl_sparse_sum(PCCL_FLOAT32, &vector, 1, sums, sum_values, 2, &count, NULL);
        EXPECT(status == PCCL_OK && count == 2, "%s", pccl_status_string(status));
    }
}

int main(void) {
    test_every_dtype();
    test_many_windows();
    test_nothing();
    test_refused();
    test_no_memory();
    FINISH();
}
