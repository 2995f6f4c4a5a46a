/* SPDX-License-Identifier: MIT
 *
 * shared_codec.c - see shared_codec.h.
 */
#include "shared_codec.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/prng.h"

struct pccl__kernels codec_levels[CODEC_LEVELS_MAX];
size_t codec_levels_count;

void codec_levels_find(void) {
    static const unsigned masks[] = {0, PCCL__CPU_AVX2, PCCL__CPU_AVX2 | PCCL__CPU_AVX512, PCCL__CPU_NEON};
    codec_levels_count = 0;
    for (size_t m = 0; m < sizeof masks / sizeof masks[0]; m++) {
        struct pccl__kernels filled = {0};
        pccl__kernels_fill(&filled, masks[m]);
        if (m > 0 && strcmp(filled.level, codec_levels[codec_levels_count - 1].level) == 0) continue;
        if (m > 0 && strcmp(filled.level, "scalar") == 0) continue;
        codec_levels[codec_levels_count++] = filled;
    }
}

/* -1 to 1. */
static double uniform(uint64_t *seed) { return (double)(int64_t)prng_next(seed) * 0x1p-63; }

static double normal(uint64_t *seed) {
    double sum = 0;
    for (int i = 0; i < 12; i++) sum += uniform(seed);
    return sum / 2;
}

static double value_of(enum codec_kind kind, uint64_t *seed) {
    double x = normal(seed);
    switch (kind) {
    case KIND_UNIFORM:
        return uniform(seed);
    case KIND_NEGATIVE:
        return -3 - fabs(x);
    case KIND_OFFSET:
        return 1000 + x;
    case KIND_HEAVY_TAILED:
        return x / fabs(uniform(seed) + 1e-6);
    case KIND_OUTLIER:
        return prng_below(seed, 500) ? x : 30 * x;
    case KIND_ZERO:
        return prng_below(seed, 2) ? 0.0 : -0.0;
    case KIND_SUBNORMAL:
        return x * 0x1p-140;
    case KIND_TINY:
        return x * 0x1p-126;
    case KIND_HUGE:
        return prng_below(seed, 4) ? uniform(seed) * FLT_MAX : (prng_below(seed, 2) ? 0.99 * FLT_MAX : -FLT_MAX);
    default:
        return x;
    }
}

void codec_fill(float *values, size_t count, enum codec_kind kind, uint64_t *seed) {
    static const float infinite[] = {NAN, -NAN, INFINITY, -INFINITY};
    float constant = (float)normal(seed);
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)prng_next(seed);
        values[i] = (float)value_of(kind, seed);
        if (kind == KIND_CONSTANT) values[i] = constant;
        if (kind == KIND_BITS) memcpy(&values[i], &bits, sizeof bits);
    }
    if (kind == KIND_NAN && count) values[prng_below(seed, (uint32_t)count)] = infinite[prng_below(seed, 4)];
}

void codec_convert(void *values, pccl_dtype dtype, const float *from, size_t count) {
    struct pccl__codec cast = {.format = PCCL_TO_BFLOAT16, .block = 1024};
    struct pccl__fold fold = {.codec = &cast,
                              .elements = count,
                              .left = {.values = from, .dtype = PCCL_FLOAT32},
                              .values = values,
                              .dtype = dtype};
    codec_levels[0].fold(&fold);
}

double codec_value(const void *values, pccl_dtype dtype, size_t index) {
    const uint8_t *bytes = (const uint8_t *)values + index * pccl_dtype_bytes(dtype);
    double wide = 0;
    float value = 0;
    uint16_t half;
    memcpy(&half, bytes, sizeof half);
    if (dtype == PCCL_FLOAT64) {
        memcpy(&wide, bytes, sizeof wide);
        return wide;
    }
    if (dtype == PCCL_FLOAT16) {
        double fraction = half & 0x3ff;
        int exponent = half >> 10 & 31;
        if (exponent == 31) return fraction != 0 ? NAN : half >> 15 ? -HUGE_VAL : HUGE_VAL;
        wide = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
        return half >> 15 ? -wide : wide;
    }
    if (dtype == PCCL_BFLOAT16)
        memcpy((uint8_t *)&value + 2, &half, sizeof half);
    else
        memcpy(&value, bytes, sizeof value);
    return value;
}
