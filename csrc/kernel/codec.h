/* SPDX-License-Identifier: MIT
 *
 * codec.h - quantized payloads: what a run of floats is on the wire, and one function that decodes, adds, divides,
 * encodes and decodes again, block by block, so that values pass through the cache once.
 *
 * Must not know: peers, plans, sockets. The wire form and every result are the same bytes at every level of CPU; the
 * formats, their errors and why they are as they are: docs/quantization.md.
 */
#ifndef PCCL_KERNEL_CODEC_H
#define PCCL_KERNEL_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pccl.h"

/* A pccl_quantization that was checked. */
struct pccl__codec {
    pccl_format format;
    uint32_t block; /* never 0 */
    bool stochastic, propagate, rotate;
    uint64_t seed;
};
struct pccl__codec pccl__codec_of(const pccl_quantization *quantization);

/* How a format stands on the wire: the parameters of all blocks, then all codes; a block may be short at the end. */
struct pccl__format {
    const char *name;
    uint8_t bits;            /* of a code; they divide 8 or are a multiple of it */
    uint8_t parameter_bytes; /* of a block; 0: a cast */
};
const struct pccl__format *pccl__format_of(pccl_format format); /* not of PCCL_EXACT */

/* Of the wire form of a run of values. Blocks count from its start. */
size_t pccl__codec_bytes(const struct pccl__codec *codec, size_t elements);

/* Runs that are cut at multiples of this are coded alike however they are cut. */
uint32_t pccl__codec_unit(const struct pccl__codec *codec);

/* One of the pointers, or none: then there is nothing. */
struct pccl__coded {
    const uint8_t *wire;
    const void *values;
    pccl_dtype dtype; /* of values: float16, bfloat16, float32 or float64 */
};

/* result = (left op right) / divisor, in floats: float64 is rounded to float32 first, where it may become infinite. */
struct pccl__fold {
    const struct pccl__codec *codec;
    uint64_t stream; /* value i is rounded at random with number stream + i of the seed: a run that was cut at c goes
                        on with stream + c */
    size_t elements;
    struct pccl__coded left, right; /* right may be nothing */
    pccl_reduce_op op;              /* SUM, AVG and PREMUL_SUM (all: sum), MIN, MAX (as kernel.h has them) */
    float divisor;                  /* 0: the result is not divided */
    uint8_t *wire;                  /* out, may be NULL: the result, encoded */
    void *values;                   /* out, may be NULL: what `wire` says; without `wire` the result as it is */
    pccl_dtype dtype;               /* of `values`, as above */
    float *errors;                  /* in and out, may be NULL, only with `wire`: each grows by result - what `wire`
                                       says, times the divisor, where both are finite */
};

/* Any alignment, no allocation. An output may equal an input of its kind (values over values of the same dtype), no
 * other overlap. Without codec.propagate, returns the index of the first result that cannot be encoded (not finite, or
 * in a cast too large for its target), also of two operands that no `wire` is asked for. Outputs are then undefined,
 * but at that index as they were. Else SIZE_MAX. */
typedef size_t pccl__fold_fn(const struct pccl__fold *fold);

#endif
