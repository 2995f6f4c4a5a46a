/* SPDX-License-Identifier: MIT
 *
 * kernel.h - arithmetic on arrays: reduce, divide and scale, in tables that CPU flags fill. What is quantized is in
 * codec.h.
 *
 * Must not know: peers, plans, sockets. Scalar C (scalar.c) is the truth; every other level gives the same
 * bytes for every input. No kernel allocates, fails or asks for alignment.
 *
 * What the bytes are (the same on every CPU, whatever rounding or flush-to-zero mode the calling thread is in):
 *   integers    wrap around in SUM and PROD.
 *   fp32, fp64  IEEE 754, round to nearest even, subnormals kept, no fused operations.
 *   fp16, bf16  each hop computes in fp32 and rounds to nearest even once; overflow gives infinity.
 *   NaN         every NaN result is the one positive quiet NaN without payload (7e00, 7fc0, 7fc00000, 7ff8...):
 *               CPUs disagree on which operand's payload survives and on the sign of a NaN they make themselves.
 *   MIN, MAX    a NaN operand gives NaN; -0 is less than +0 (IEEE 754-2019 minimum, maximum).
 *   complex     two floats, each with rounding and NaN of its own: a NaN in one part leaves the other alone. PROD is
 *               (ac - bd) + (ad + bc)i with every product and sum rounded; infinities are not recovered (C, annex G).
 *   bool        every byte but 0 is true; results are 0 or 1.
 * So every operation commutes bit for bit.
 */
#ifndef PCCL_KERNEL_KERNEL_H
#define PCCL_KERNEL_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel/codec.h"
#include "pccl.h"

/* target[i] = left[i] op right[i]. `target` may equal `left` or `right`, no other overlap. */
typedef void pccl__reduce_fn(void *target, const void *left, const void *right, size_t count);

/* target[i] = target[i] / divisor (AVG); divisor > 0. Integers truncate towards zero, also where the divisor is beyond
 * their range; fp16 and bf16 divide in fp32; floats divide by the divisor rounded to their (computing) type. */
typedef void pccl__divide_fn(void *target, uint32_t divisor, size_t count);

/* target[i] = source[i] * factor (PREMUL_SUM), the factor rounded to the type that is computed in; of a complex number
 * both parts. `target` may equal `source`, no other overlap. */
typedef void pccl__scale_fn(void *target, const void *source, double factor, size_t count);

/* NULL in `reduce`: there is no such operation (pccl.h says which there are). The entries of AVG and PREMUL_SUM are
 * that of SUM; a dtype that has one of these is in `divide` or `scale`. */
struct pccl__kernels {
    const char *level; /* "scalar", "avx2", "avx512", "neon" */
    pccl__reduce_fn *reduce[PCCL_REDUCE_OP_COUNT][PCCL_DTYPE_COUNT];
    pccl__divide_fn *divide[PCCL_DTYPE_COUNT];
    pccl__scale_fn *scale[PCCL_DTYPE_COUNT];
    pccl__fold_fn *fold;
    uint32_t (*crc32c)(uint32_t crc, const void *data, size_t bytes); /* Castagnoli, RFC 3720; start with 0 */
};

/* The best table for this CPU, built once; PCCL__CPU_* bits missing in `mask` are not used. Thread-safe. */
enum { PCCL__CPU_SSE42 = 1, PCCL__CPU_AVX2 = 2, PCCL__CPU_AVX512 = 4, PCCL__CPU_NEON = 8, PCCL__CPU_ALL = 15 };
const struct pccl__kernels *pccl__kernels(void);
/* Fills `kernels` for the CPU's flags and `mask`; for tests and benchmarks. */
void pccl__kernels_fill(struct pccl__kernels *kernels, unsigned mask);

/* Is there such an operation? Both within their lists. */
bool pccl__reduces_dtype(pccl_reduce_op op, pccl_dtype dtype);

/* memcpy for a target that nobody reads soon; no overlap. stream.c. */
void pccl__copy_stream(void *target, const void *source, size_t bytes);

#endif
