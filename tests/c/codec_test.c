/* SPDX-License-Identifier: MIT
 *
 * codec_test.c - what the formats promise (docs/quantization.md), of scalar kernels; that other levels give the same
 * bytes is fold_test.c's: bounds on each value's error, what is exact, what coding twice does, what is not finite, and
 * that rounding at random is right on average.
 */
#include "kernel/codec.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/prng.h"
#include "check.h"
#include "shared_codec.h"

enum { COUNT = 4099 };
static uint8_t wire_memory[2 * COUNT + 1024];
static const pccl_dtype dtypes[] = {PCCL_FLOAT32, PCCL_FLOAT64, PCCL_FLOAT16, PCCL_BFLOAT16};
enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

static bool is_cast(pccl_format format) { return pccl__format_of(format)->parameter_bytes == 0; }
static bool is_min_max(pccl_format f) { return f == PCCL_UINT8_MIN_MAX || f == PCCL_INT8_MIN_MAX; }
static bool is_zero_point(pccl_format f) { return f == PCCL_UINT8_ZERO_POINT || f == PCCL_INT8_ZERO_POINT; }

static struct pccl__codec codec_of(pccl_format format, uint32_t block) {
    return (struct pccl__codec){.format = format, .block = block, .seed = 11};
}

static size_t round_trip_of(const struct pccl__codec *codec, uint64_t stream, pccl_dtype dtype, void *said,
                            const void *values, size_t count) {
    struct pccl__fold fold = {.codec = codec, .stream = stream, .elements = count, .wire = wire_memory};
    fold.left = (struct pccl__coded){.values = values, .dtype = dtype};
    fold.values = said;
    fold.dtype = dtype;
    return codec_levels[0].fold(&fold);
}

static void round_trip(const struct pccl__codec *codec, float *said, const float *values, size_t count) {
    size_t bad = round_trip_of(codec, 0, PCCL_FLOAT32, said, values, count);
    EXPECT(bad == SIZE_MAX, "%s: value %zu is %g", pccl_format_name(codec->format), bad, (double)values[bad]);
}

/* ---------------------------------------------------------------- bounds */

/* Half the distance of two neighbours in a format of so many bits, relative and for the smallest. */
static double half_place(pccl_dtype dtype, double value) {
    switch (dtype) {
    case PCCL_FLOAT16:
        return fmax(fabs(value) * 0x1p-11, 0x1p-25);
    case PCCL_BFLOAT16:
        return fmax(fabs(value) * 0x1p-8, 0x1p-134);
    default: /* float64 comes through float32, too */
        return fmax(fabs(value) * 0x1p-24, 0x1p-150);
    }
}

struct summary {
    double low, high, largest;
};

static struct summary summary_of(const void *values, pccl_dtype dtype, size_t start, size_t end) {
    struct summary s = {HUGE_VAL, -HUGE_VAL, 0};
    for (size_t i = start; i < end; i++) {
        double x = (float)codec_value(values, dtype, i);
        s.low = fmin(s.low, x);
        s.high = fmax(s.high, x);
        s.largest = fmax(s.largest, fabs(x));
    }
    return s;
}

/* The bounds of docs/quantization.md; `part` of a step is 1/2 to the nearest, 1 at random. */
static double bound_of(const struct pccl__codec *codec, struct summary s, double x) {
    double part = codec->stochastic ? 1 : 0.5;
    switch (codec->format) {
    case PCCL_TO_BFLOAT16:
        return part * 2 * half_place(PCCL_BFLOAT16, x);
    case PCCL_TO_FLOAT16:
        return part * 2 * half_place(PCCL_FLOAT16, x);
    case PCCL_UINT8_MIN_MAX:
    case PCCL_INT8_MIN_MAX:
        return (part + 0x1p-13) * (s.high - s.low) / 255 + half_place(PCCL_FLOAT32, s.largest);
    case PCCL_UINT8_ZERO_POINT:
    case PCCL_INT8_ZERO_POINT:
        return (part + 0x1p-12) * (fmax(s.high, 0) - fmin(s.low, 0)) / 253 + 0x1p-149;
    case PCCL_INT8_BLOCK:
        return (part + 0x1p-14) * s.largest / 127 + 0x1p-149;
    case PCCL_INT4_BLOCK:
        return (part + 0x1p-14) * s.largest / 7 + 0x1p-149;
    case PCCL_INT2_BLOCK:
        return (part + 0x1p-14) * s.largest + 0x1p-149;
    case PCCL_E4M3_BLOCK:
        return part * fmax(fabs(x) * 0x1p-3, s.largest / 448 * 0x1p-9) + fabs(x) * 0x1p-20 + 0x1p-149;
    default:
        return part * fmax(fabs(x) * 0x1p-2, s.largest / 57344 * 0x1p-16) + fabs(x) * 0x1p-20 + 0x1p-149;
    }
}

static void expect_bounds(const struct pccl__codec *codec, pccl_dtype dtype, enum codec_kind kind, uint64_t *seed) {
    static float values[COUNT];
    static double memory[2][COUNT];
    uint8_t *in = (uint8_t *)memory[0], *out = (uint8_t *)memory[1];
    codec_fill(values, COUNT, kind, seed);
    codec_convert(in, dtype, values, COUNT);
    struct summary all = summary_of(in, dtype, 0, COUNT);
    double largest = codec->format == PCCL_TO_FLOAT16 ? 65504 : FLT_MAX * (1 - 0x1p-8);
    if ((is_cast(codec->format) && all.largest > largest) || all.largest > FLT_MAX) return; /* cannot be encoded */
    EXPECT(round_trip_of(codec, prng_next(seed), dtype, out, in, COUNT) == SIZE_MAX, "kind %d", kind);
    size_t block = is_cast(codec->format) ? COUNT : codec->block;
    for (size_t start = 0; start < COUNT; start += block) {
        size_t end = start + block < COUNT ? start + block : COUNT;
        struct summary s = summary_of(in, dtype, start, end);
        for (size_t i = start; i < end; i++) {
            double x = codec_value(in, dtype, i), y = codec_value(out, dtype, i);
            double bound = bound_of(codec, s, x);
            bound += half_place(dtype, fabs(x) + bound) + (dtype == PCCL_FLOAT64 ? half_place(PCCL_FLOAT32, x) : 0);
            EXPECT(fabs(x - y) <= bound || (dtype == PCCL_FLOAT16 && isinf(y) && fabs(x) + bound > 65504),
                   "%s block %" PRIu32 "%s, %s of kind %d: value %zu of block %g to %g is %g, said %g, bound %g",
                   pccl_format_name(codec->format), codec->block, codec->stochastic ? " at random" : "",
                   pccl_dtype_name(dtype), kind, i, s.low, s.high, x, y, bound);
        }
    }
}

static void test_bounds(void) {
    static const uint32_t blocks[] = {32, 1024, 1056, 65536};
    uint64_t seed = 1;
    for (int f = 1; f < PCCL_FORMAT_COUNT; f++)
        for (int d = 0; d < DTYPES; d++)
            for (int kind = 0; kind < KIND_FINITE; kind++)
                for (int b = 0; b < 8; b++) {
                    struct pccl__codec codec = codec_of((pccl_format)f, blocks[b / 2]);
                    codec.stochastic = b % 2;
                    expect_bounds(&codec, dtypes[d], (enum codec_kind)kind, &seed);
                }
}

/* ---------------------------------------------------------------- exact, again */

/* Ends of a block, zeros and constants. */
static void test_exact(void) {
    static float values[COUNT], said[COUNT];
    uint64_t seed = 2;
    for (int f = 1; f < PCCL_FORMAT_COUNT; f++)
        for (int kind = 0; kind < KIND_FINITE && !is_cast((pccl_format)f); kind++)
            for (int stochastic = 0; stochastic < 2; stochastic++) {
                struct pccl__codec codec = codec_of((pccl_format)f, 1024);
                codec.stochastic = stochastic;
                codec_fill(values, 1024, (enum codec_kind)kind, &seed);
                for (int i = 0; i < 1024; i += 100) values[i] = kind < KIND_OFFSET ? 0 : values[i];
                round_trip(&codec, said, values, 1024);
                struct summary s = summary_of(values, PCCL_FLOAT32, 0, 1024);
                for (int i = 0; i < 1024; i++) {
                    double x = values[i];
                    bool end = is_min_max(codec.format) ? x == s.low || x == s.high
                                                        : !is_zero_point(codec.format) && fabs(x) == s.largest;
                    bool zero = x == 0 && !is_min_max(codec.format);
                    if (end || zero || kind == KIND_CONSTANT || kind == KIND_ZERO)
                        EXPECT(said[i] == values[i], "%s of kind %d: %g is %g", pccl_format_name(codec.format), kind, x,
                               (double)said[i]);
                }
            }
}

/* What was decoded is on the grid of its block: coding it again, to the nearest or at random, changes nothing. A zero
 * point may move twice, while the lesser end, which has no code of its own, is moved to one. */
static void test_again(void) {
    static float values[COUNT], said[4][COUNT];
    uint64_t seed = 3;
    for (int round = 0; round < 50; round++)
        for (int f = 1; f < PCCL_FORMAT_COUNT; f++)
            for (int kind = 0; kind < KIND_FINITE; kind++)
                for (int stochastic = 0; stochastic < 2; stochastic++) {
                    struct pccl__codec codec = codec_of((pccl_format)f, round % 2 ? 1024 : 32);
                    codec.stochastic = stochastic;
                    codec_fill(values, COUNT, (enum codec_kind)kind, &seed);
                    if (f == PCCL_TO_FLOAT16 && summary_of(values, PCCL_FLOAT32, 0, COUNT).largest > 65504) continue;
                    if (is_cast((pccl_format)f) && kind == KIND_HUGE) continue;
                    round_trip(&codec, said[0], values, COUNT);
                    for (int i = 1; i < 4; i++) round_trip(&codec, said[i], said[i - 1], COUNT);
                    int settled = is_zero_point(codec.format) ? 2 : 0;
                    const float *before = said[settled], *now = said[settled + 1];
                    for (int i = 0; i < COUNT; i++)
                        EXPECT(now[i] == before[i], "%s of kind %d%s: value %d is %.9g, was %.9g, first %.9g",
                               pccl_format_name(codec.format), kind, stochastic ? " at random" : "", i, (double)now[i],
                               (double)before[i], (double)values[i]);
                }
}

/* Numbers very near 0 and 1 come seldom: many seeds. */
static void test_settled_at_random(void) {
    enum { SEEDS = 10000, ONE_BLOCK = 1024 };
    static float values[ONE_BLOCK], said[ONE_BLOCK];
    uint64_t seed = 9;
    for (int f = 1; f < PCCL_FORMAT_COUNT; f++) {
        struct pccl__codec codec = codec_of((pccl_format)f, ONE_BLOCK);
        codec_fill(values, ONE_BLOCK, KIND_UNIFORM, &seed);
        for (int i = 0; i < 3; i++) round_trip(&codec, values, values, ONE_BLOCK);
        codec.stochastic = true;
        for (int s = 0; s < SEEDS; s++) {
            codec.seed = prng_next(&seed);
            struct pccl__fold fold = {.codec = &codec, .elements = ONE_BLOCK, .wire = wire_memory};
            fold.left = (struct pccl__coded){.values = values, .dtype = PCCL_FLOAT32};
            fold.values = said;
            fold.dtype = PCCL_FLOAT32;
            codec_levels[codec_levels_count - 1].fold(&fold);
            EXPECT(memcmp(values, said, sizeof said) == 0, "%s, seed %" PRIu64, pccl_format_name(codec.format),
                   codec.seed);
        }
    }
}

/* ---------------------------------------------------------------- not finite */

static void test_not_finite(void) {
    static float values[COUNT], said[COUNT];
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    uint64_t seed = 4;
    for (int f = 1; f < PCCL_FORMAT_COUNT; f++)
        for (int b = 0; b < 3; b++)
            for (int options = 0; options < 4; options++) {
                struct pccl__codec codec = codec_of((pccl_format)f, is_cast((pccl_format)f) ? 1024 : 96);
                size_t place = prng_below(&seed, COUNT);
                codec.stochastic = options & 1;
                codec.rotate = (options & 2) && !is_cast(codec.format);
                codec_fill(values, COUNT, KIND_NORMAL, &seed);
                values[place] = bad[b];
                if (place + 5 < COUNT) values[place + 5] = NAN;
                EXPECT(round_trip_of(&codec, 0, PCCL_FLOAT32, said, values, COUNT) == place, "the first one");
                codec.propagate = true;
                EXPECT(round_trip_of(&codec, 0, PCCL_FLOAT32, said, values, COUNT) == SIZE_MAX, "propagated");
                for (size_t i = 0; i < COUNT; i++) {
                    size_t block = i / codec.block;
                    bool lost =
                        block == place / codec.block || (place + 5 < COUNT && block == (place + 5) / codec.block);
                    if (is_cast(codec.format))
                        EXPECT(isfinite(values[i]) ? isfinite(said[i]) : !(said[i] < values[i] || said[i] > values[i]),
                               "%g is %g", (double)values[i], (double)said[i]);
                    else
                        EXPECT(isnan(said[i]) == lost, "%s: %g is %g", pccl_format_name(codec.format),
                               (double)values[i], (double)said[i]);
                }
            }
}

/* Finite, but too large for a cast's target. */
static void test_too_large(void) {
    static const double largest[] = {3.39e38, 65504};
    for (int f = PCCL_TO_BFLOAT16; f <= PCCL_TO_FLOAT16; f++)
        for (int stochastic = 0; stochastic < 2; stochastic++) {
            struct pccl__codec codec = codec_of((pccl_format)f, 1024);
            float values[3] = {1, (float)-largest[f - 1], f == PCCL_TO_FLOAT16 ? 65536 : FLT_MAX}, said[3];
            codec.stochastic = stochastic;
            if (!stochastic || f == PCCL_TO_FLOAT16)
                EXPECT(round_trip_of(&codec, 0, PCCL_FLOAT32, said, values, 3) == 2, "format %d", f);
            codec.propagate = true;
            round_trip(&codec, said, values, 2);
            EXPECT(said[0] == 1 && fabs(said[1] + largest[f - 1]) <= largest[f - 1] * 0x1p-7, "%g", (double)said[1]);
        }
    double wide[2] = {1, 1e39};
    struct pccl__codec codec = codec_of(PCCL_INT8_BLOCK, 32);
    EXPECT(round_trip_of(&codec, 0, PCCL_FLOAT64, wide, wide, 2) == 1, "beyond float32");
}

/* ---------------------------------------------------------------- at random, rotated */

/* The mean over many seeds is the value: its error has a standard deviation of at most half a step by their root. */
static void test_unbiased(void) {
    enum { SEEDS = 4000, FEW = 96 };
    static float values[FEW], said[FEW];
    static double sums[FEW];
    uint64_t seed = 5;
    for (int f = 1; f < PCCL_FORMAT_COUNT; f++) {
        struct pccl__codec codec = codec_of((pccl_format)f, is_cast((pccl_format)f) ? 1024 : 32);
        codec.stochastic = true;
        memset(sums, 0, sizeof sums);
        codec_fill(values, FEW, KIND_UNIFORM, &seed);
        double all = 0, deviation = 0;
        for (int s = 0; s < SEEDS; s++) {
            codec.seed = prng_next(&seed);
            round_trip(&codec, said, values, FEW);
            for (int i = 0; i < FEW; i++) sums[i] += (double)said[i] - values[i];
        }
        for (int i = 0; i < FEW; i++) {
            struct summary s = summary_of(values, PCCL_FLOAT32, (size_t)i / 32 * 32, (size_t)i / 32 * 32 + 32);
            double step = bound_of(&codec, s, values[i]), mean = sums[i] / SEEDS;
            EXPECT(fabs(mean) <= step * (5 * 0.5 / sqrt(SEEDS) + 0x1p-11), "%s: %g is off by %g of steps of %g",
                   pccl_format_name(codec.format), (double)values[i], mean, step);
            all += mean;
            deviation += step * step / 4 / SEEDS;
        }
        EXPECT(fabs(all) <= 5 * sqrt(deviation), "%s: all are off by %g", pccl_format_name(codec.format), all);
    }
}

static double error_of(const struct pccl__codec *codec, const float *values) {
    static float said[COUNT];
    double sum = 0;
    round_trip(codec, said, values, COUNT);
    for (int i = 0; i < COUNT; i++) sum += ((double)said[i] - values[i]) * ((double)said[i] - values[i]);
    return sqrt(sum);
}

/* The transform keeps lengths: errors of a block are together no longer than those of its transform, sqrt(count) times
 * part of a step; and no step is longer than the block. */
static void test_rotation(void) {
    static float values[COUNT], said[COUNT];
    uint64_t seed = 6;
    for (int kind = 0; kind < KIND_SUBNORMAL; kind++)
        for (uint32_t block = 32; block <= 2048; block *= 4) {
            struct pccl__codec codec = codec_of(PCCL_INT8_BLOCK, block);
            codec.rotate = true;
            codec_fill(values, COUNT, (enum codec_kind)kind, &seed);
            round_trip(&codec, said, values, COUNT);
            for (size_t start = 0; start < COUNT; start += block) {
                size_t end = start + block < COUNT ? start + block : COUNT;
                double error = 0, length = 0, longest = block < 1024 ? block : 1024;
                for (size_t i = start; i < end; i++) {
                    error += ((double)said[i] - values[i]) * ((double)said[i] - values[i]);
                    length += (double)values[i] * values[i];
                }
                EXPECT(sqrt(error) <= sqrt(length) * (sqrt((double)(end - start) * 1) / 254 + 1e-5 * sqrt(longest)),
                       "block %" PRIu32 " of kind %d: %g of %g", block, kind, sqrt(error), sqrt(length));
                if (length == 0) EXPECT(error == 0, "zeros");
            }
        }
    for (int f = PCCL_INT8_BLOCK; f <= PCCL_INT4_BLOCK; f++) { /* what it is for */
        struct pccl__codec codec = codec_of((pccl_format)f, 1024);
        codec_fill(values, COUNT, KIND_OUTLIER, &seed);
        double plain = error_of(&codec, values);
        codec.rotate = true;
        double rotated = error_of(&codec, values);
        EXPECT(rotated < plain * 0.75, "%s: error %g, rotated %g", pccl_format_name(codec.format), plain, rotated);
    }
    for (int i = 0; i < COUNT; i++) values[i] = i % 2 ? FLT_MAX : -FLT_MAX; /* nothing overflows on the way */
    struct pccl__codec codec = codec_of(PCCL_INT2_BLOCK, 2048);
    codec.rotate = true;
    round_trip(&codec, said, values, COUNT);
    for (int i = 0; i < COUNT; i++) EXPECT(isfinite(said[i]), "value %d", i);
}

int main(void) {
    codec_levels_find();
    test_bounds();
    test_exact();
    test_again();
    test_settled_at_random();
    test_not_finite();
    test_too_large();
    test_unbiased();
    test_rotation();
    FINISH();
}
