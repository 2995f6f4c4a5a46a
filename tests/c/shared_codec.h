/* SPDX-License-Identifier: MIT
 *
 * shared_codec.h - values of all kinds for the tests of quantized payloads, and the levels that this CPU has.
 */
#ifndef PCCL_TESTS_SHARED_CODEC_H
#define PCCL_TESTS_SHARED_CODEC_H

#include "kernel/codec.h"
#include "kernel/kernel.h"

enum { CODEC_LEVELS_MAX = 4 };
extern struct pccl__kernels codec_levels[CODEC_LEVELS_MAX]; /* [0] is scalar */
extern size_t codec_levels_count;
void codec_levels_find(void);

/* What values may look like. Those of the last kinds are not all finite. */
enum codec_kind {
    KIND_NORMAL,
    KIND_UNIFORM,
    KIND_NEGATIVE,
    KIND_OFFSET, /* a thousand times as far from zero as from each other */
    KIND_HEAVY_TAILED,
    KIND_OUTLIER, /* one of five hundred is thirty times as large */
    KIND_CONSTANT,
    KIND_ZERO, /* of both signs */
    KIND_SUBNORMAL,
    KIND_TINY,               /* about the smallest normal number */
    KIND_HUGE,               /* up to the largest of both signs */
    KIND_FINITE,             /* the kinds above */
    KIND_BITS = KIND_FINITE, /* any bits */
    KIND_NAN,                /* one that is not finite among normal ones */
    KINDS
};
void codec_fill(float *values, size_t count, enum codec_kind kind, uint64_t *seed);

/* The same in another dtype, rounded; large ones may become infinite. */
void codec_convert(void *values, pccl_dtype dtype, const float *from, size_t count);
double codec_value(const void *values, pccl_dtype dtype, size_t index);

#endif
