/* SPDX-License-Identifier: MIT
 *
 * kernel_body.h - all kernels of one CPU level: here reduce, divide and scale. Included once by each level's file,
 * which is compiled for that level: the loops are written so that the compiler turns them into that level's vector
 * instructions.
 *
 * Only float16 has instructions that compilers do not find by themselves. A level that wants them defines, before
 * including this:
 *   F16_LANES                      how many float16 are converted at once
 *   f16_vector                     as many floats; + * / work on it element by element
 *   f16_vector_load(from)          F16_LANES float16 become floats
 *   f16_vector_store(to, vector)   the inverse; rounded as f16_store does, F16_NAN for every NaN
 */
#include "kernel/element.h"
#include "kernel/fp_env.h"
#include "kernel/levels.h"

/* target may be left or right, element for element: no iteration depends on another one. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* Elements at any address. */
#define ANYWHERE(BITS, SIGNED, UNSIGNED)                                                                               \
    typedef uint##BITS##_t UNSIGNED __attribute__((aligned(1), may_alias));                                            \
    typedef int##BITS##_t SIGNED __attribute__((aligned(1), may_alias));
ANYWHERE(8, any_i8, any_u8)
ANYWHERE(16, any_i16, any_u16)
ANYWHERE(32, any_i32, any_u32)
ANYWHERE(64, any_i64, any_u64)

/* NAME: target[i] = result, an expression of a = left[i] and b = right[i]. */
#define REDUCE(NAME, TYPE, result)                                                                                     \
    static void NAME(void *target, const void *left, const void *right, size_t count) {                                \
        TYPE *t = target;                                                                                              \
        const TYPE *l = left, *r = right;                                                                              \
        uint64_t modes = fp_env_enter();                                                                               \
        INDEPENDENT                                                                                                    \
        for (size_t i = 0; i < count; i++) {                                                                           \
            TYPE a = l[i], b = r[i];                                                                                   \
            t[i] = (result);                                                                                           \
        }                                                                                                              \
        fp_env_leave(modes);                                                                                           \
    }

/* NAME: target[i] = result, an expression of a = target[i] and d, the divisor as a DIVISOR. */
#define DIVIDE(NAME, TYPE, DIVISOR, result)                                                                            \
    static void NAME(void *target, uint32_t divisor, size_t count) {                                                   \
        TYPE *t = target;                                                                                              \
        uint64_t modes = fp_env_enter();                                                                               \
        DIVISOR d = (DIVISOR)divisor;                                                                                  \
        INDEPENDENT                                                                                                    \
        for (size_t i = 0; i < count; i++) {                                                                           \
            TYPE a = t[i];                                                                                             \
            t[i] = (result);                                                                                           \
        }                                                                                                              \
        fp_env_leave(modes);                                                                                           \
    }

/* NAME: target[i] = result, an expression of a = source[i] and f, the factor as a FACTOR: read from memory, so that it
 * is rounded between enter and leave. */
#define SCALE(NAME, TYPE, FACTOR, result)                                                                              \
    static void NAME(void *target, const void *source, double factor, size_t count) {                                  \
        TYPE *t = target;                                                                                              \
        const TYPE *s = source;                                                                                        \
        volatile double exact = factor;                                                                                \
        uint64_t modes = fp_env_enter();                                                                               \
        FACTOR f = (FACTOR)exact;                                                                                      \
        INDEPENDENT                                                                                                    \
        for (size_t i = 0; i < count; i++) {                                                                           \
            TYPE a = s[i];                                                                                             \
            t[i] = (result);                                                                                           \
        }                                                                                                              \
        fp_env_leave(modes);                                                                                           \
    }

/* 0u: in C, 16-bit operands would become signed ints, whose product may overflow. */
#define INTEGERS(BITS)                                                                                                 \
    REDUCE(sum_u##BITS, any_u##BITS, (any_u##BITS)(0u + a + b))                                                        \
    REDUCE(prod_u##BITS, any_u##BITS, (any_u##BITS)((0u + a) * b))                                                     \
    REDUCE(min_i##BITS, any_i##BITS, a < b ? a : b)                                                                    \
    REDUCE(max_i##BITS, any_i##BITS, a > b ? a : b)                                                                    \
    REDUCE(min_u##BITS, any_u##BITS, a < b ? a : b)                                                                    \
    REDUCE(max_u##BITS, any_u##BITS, a > b ? a : b)                                                                    \
    REDUCE(band_u##BITS, any_u##BITS, a &b)                                                                            \
    REDUCE(bor_u##BITS, any_u##BITS, a | b)                                                                            \
    REDUCE(bxor_u##BITS, any_u##BITS, a ^ b)
INTEGERS(8)
INTEGERS(16)
INTEGERS(32)
INTEGERS(64)

REDUCE(and_bool, any_u8, (a != 0) & (b != 0))
REDUCE(or_bool, any_u8, (a | b) != 0)
REDUCE(xor_bool, any_u8, (a != 0) ^ (b != 0))

/* CPUs have vector division for floats only. It is exact here: a quotient just below an integer n differs from it by at
 * least n / 2^16 (2^32) of its value, and a float (double) resolves 2^-24 (2^-53). A divisor that a float cannot hold
 * exactly exceeds every 16-bit integer by so much that the quotient is 0 either way. */
DIVIDE(divide_i8, any_i8, float, (int8_t)(int32_t)((float)a / d))
DIVIDE(divide_u8, any_u8, float, (uint8_t)(int32_t)((float)a / d))
DIVIDE(divide_i16, any_i16, float, (int16_t)(int32_t)((float)a / d))
DIVIDE(divide_u16, any_u16, float, (uint16_t)(int32_t)((float)a / d))
DIVIDE(divide_i32, any_i32, double, (int32_t)((double)a / d))
DIVIDE(divide_u32, any_u32, double, (uint32_t)((double)a / d))
DIVIDE(divide_i64, any_i64, int64_t, a / d)
DIVIDE(divide_u64, any_u64, uint64_t, a / d)

/* Floats are loaded and stored as bits, see element.h. */
#define FLOAT_ORDERS(DTYPE, TYPE)                                                                                      \
    REDUCE(min_##DTYPE, TYPE, DTYPE##_min(a, b))                                                                       \
    REDUCE(max_##DTYPE, TYPE, DTYPE##_max(a, b))
FLOAT_ORDERS(f16, any_u16)
FLOAT_ORDERS(bf16, any_u16)
FLOAT_ORDERS(f32, any_u32)
FLOAT_ORDERS(f64, any_u64)

#define FLOATS(DTYPE, TYPE, COMPUTE)                                                                                   \
    REDUCE(sum_##DTYPE, TYPE, DTYPE##_store(DTYPE##_load(a) + DTYPE##_load(b)))                                        \
    REDUCE(prod_##DTYPE, TYPE, DTYPE##_store(DTYPE##_load(a) * DTYPE##_load(b)))                                       \
    DIVIDE(divide_##DTYPE, TYPE, COMPUTE, DTYPE##_store(DTYPE##_load(a) / d))                                          \
    SCALE(scale_##DTYPE, TYPE, COMPUTE, DTYPE##_store(DTYPE##_load(a) * f))
FLOATS(f32, any_u32, float)
FLOATS(f64, any_u64, double)

/* But for PROD a complex number is as good as two floats. There, ac - bd is written as a sum: with AVX-512, GCC 12
 * makes a fused instruction of vectors that subtract and add in turns, whatever -ffp-contract says. */
#define COMPLEX(DTYPE, FLOAT, TYPE, SIGN)                                                                              \
    static void sum_##DTYPE(void *target, const void *left, const void *right, size_t count) {                         \
        sum_##FLOAT(target, left, right, 2 * count);                                                                   \
    }                                                                                                                  \
    static void divide_##DTYPE(void *target, uint32_t divisor, size_t count) {                                         \
        divide_##FLOAT(target, divisor, 2 * count);                                                                    \
    }                                                                                                                  \
    static void scale_##DTYPE(void *target, const void *source, double factor, size_t count) {                         \
        scale_##FLOAT(target, source, factor, 2 * count);                                                              \
    }                                                                                                                  \
    static void prod_##DTYPE(void *target, const void *left, const void *right, size_t count) {                        \
        struct {                                                                                                       \
            TYPE real, imaginary;                                                                                      \
        } *t = target;                                                                                                 \
        const __typeof__(*t) *l = left, *r = right;                                                                    \
        uint64_t modes = fp_env_enter();                                                                               \
        INDEPENDENT                                                                                                    \
        for (size_t i = 0; i < count; i++) {                                                                           \
            __typeof__(FLOAT##_load(0)) a = FLOAT##_load(l[i].real), b = FLOAT##_load(l[i].imaginary);                 \
            __typeof__(a) c = FLOAT##_load(r[i].real), d = FLOAT##_load(r[i].imaginary);                               \
            __typeof__(a) minus_d = FLOAT##_load(r[i].imaginary ^ (SIGN));                                             \
            t[i].real = FLOAT##_store(a * c + b * minus_d);                                                            \
            t[i].imaginary = FLOAT##_store(a * d + b * c);                                                             \
        }                                                                                                              \
        fp_env_leave(modes);                                                                                           \
    }
COMPLEX(c64, f32, any_u32, UINT32_C(1) << 31)
COMPLEX(c128, f64, any_u64, UINT64_C(1) << 63)

/* bfloat16 goes in pairs: both halves of 32 bits become floats in place, without the moves between vectors that
 * widening needs. A last one is the low half of a pair of its own. */
#define BF16_REDUCE(NAME, OP)                                                                                          \
    REDUCE(NAME##_pairs, any_u32, bf16_store_pair(bf16_low(a) OP bf16_low(b), bf16_high(a) OP bf16_high(b)))           \
    static void NAME(void *target, const void *left, const void *right, size_t count) {                                \
        NAME##_pairs(target, left, right, count / 2);                                                                  \
        if (count % 2) {                                                                                               \
            any_u16 *t = (any_u16 *)target + count - 1;                                                                \
            uint32_t a = ((const any_u16 *)left)[count - 1], b = ((const any_u16 *)right)[count - 1];                  \
            NAME##_pairs(&a, &a, &b, 1);                                                                               \
            *t = (uint16_t)a;                                                                                          \
        }                                                                                                              \
    }
BF16_REDUCE(sum_bf16, +)
BF16_REDUCE(prod_bf16, *)

DIVIDE(divide_bf16_pairs, any_u32, float, bf16_store_pair(bf16_low(a) / d, bf16_high(a) / d))
static void divide_bf16(void *target, uint32_t divisor, size_t count) {
    divide_bf16_pairs(target, divisor, count / 2);
    if (count % 2) {
        any_u16 *t = (any_u16 *)target + count - 1;
        uint32_t a = *t;
        divide_bf16_pairs(&a, divisor, 1);
        *t = (uint16_t)a;
    }
}

SCALE(scale_bf16_pairs, any_u32, float, bf16_store_pair(bf16_low(a) * f, bf16_high(a) * f))
static void scale_bf16(void *target, const void *source, double factor, size_t count) {
    scale_bf16_pairs(target, source, factor, count / 2);
    if (count % 2) {
        uint32_t a = ((const any_u16 *)source)[count - 1];
        scale_bf16_pairs(&a, &a, factor, 1);
        ((any_u16 *)target)[count - 1] = (uint16_t)a;
    }
}

#ifndef F16_LANES
FLOATS(f16, any_u16, float)
#else
/* As REDUCE, DIVIDE and SCALE: whole vectors, then the rest one by one. */
#define F16_REDUCE(NAME, OP)                                                                                           \
    static void NAME(void *target, const void *left, const void *right, size_t count) {                                \
        any_u16 *t = target;                                                                                           \
        const any_u16 *l = left, *r = right;                                                                           \
        size_t i = 0;                                                                                                  \
        uint64_t modes = fp_env_enter();                                                                               \
        for (; count - i >= F16_LANES; i += F16_LANES)                                                                 \
            f16_vector_store(t + i, f16_vector_load(l + i) OP f16_vector_load(r + i));                                 \
        for (; i < count; i++) t[i] = f16_store(f16_load(l[i]) OP f16_load(r[i]));                                     \
        fp_env_leave(modes);                                                                                           \
    }
F16_REDUCE(sum_f16, +)
F16_REDUCE(prod_f16, *)

static void divide_f16(void *target, uint32_t divisor, size_t count) {
    any_u16 *t = target;
    size_t i = 0;
    uint64_t modes = fp_env_enter();
    float d = (float)divisor;
    for (; count - i >= F16_LANES; i += F16_LANES) f16_vector_store(t + i, f16_vector_load(t + i) / d);
    for (; i < count; i++) t[i] = f16_store(f16_load(t[i]) / d);
    fp_env_leave(modes);
}

static void scale_f16(void *target, const void *source, double factor, size_t count) {
    any_u16 *t = target;
    const any_u16 *s = source;
    size_t i = 0;
    volatile double exact = factor;
    uint64_t modes = fp_env_enter();
    float f = (float)exact;
    for (; count - i >= F16_LANES; i += F16_LANES) f16_vector_store(t + i, f16_vector_load(s + i) * f);
    for (; i < count; i++) t[i] = f16_store(f16_load(s[i]) * f);
    fp_env_leave(modes);
}
#endif

/* Quantized payloads. */
#include "kernel/codec_body.h"
#include "kernel/rotate_body.h"
#include "kernel/fold_body.h"

static void kernels_fill(struct pccl__kernels *kernels, const char *level) {
    kernels->level = level;
    kernels->fold = fold_blocks;
#define FILL_SUMS(DTYPE, NAME)                                                                                         \
    kernels->reduce[PCCL_SUM][DTYPE] = kernels->reduce[PCCL_AVG][DTYPE] = sum_##NAME;                                  \
    kernels->reduce[PCCL_PROD][DTYPE] = prod_##NAME;
#define FILL_ORDER(DTYPE, NAME)                                                                                        \
    kernels->reduce[PCCL_MIN][DTYPE] = min_##NAME;                                                                     \
    kernels->reduce[PCCL_MAX][DTYPE] = max_##NAME;
#define FILL_SCALES(DTYPE, NAME)                                                                                       \
    kernels->divide[DTYPE] = divide_##NAME;                                                                            \
    kernels->scale[DTYPE] = scale_##NAME;                                                                              \
    kernels->reduce[PCCL_PREMUL_SUM][DTYPE] = sum_##NAME;
/* What wraps around, and bits, are the same for signed and unsigned. */
#define FILL_INTEGER(DTYPE, UNSIGNED, ORDERED)                                                                         \
    FILL_SUMS(DTYPE, UNSIGNED)                                                                                         \
    FILL_ORDER(DTYPE, ORDERED)                                                                                         \
    kernels->divide[DTYPE] = divide_##ORDERED;                                                                         \
    kernels->reduce[PCCL_BAND][DTYPE] = band_##UNSIGNED;                                                               \
    kernels->reduce[PCCL_BOR][DTYPE] = bor_##UNSIGNED;                                                                 \
    kernels->reduce[PCCL_BXOR][DTYPE] = bxor_##UNSIGNED;
#define FILL_FLOAT(DTYPE, NAME)   FILL_SUMS(DTYPE, NAME) FILL_ORDER(DTYPE, NAME) FILL_SCALES(DTYPE, NAME)
#define FILL_COMPLEX(DTYPE, NAME) FILL_SUMS(DTYPE, NAME) FILL_SCALES(DTYPE, NAME)
    FILL_INTEGER(PCCL_INT8, u8, i8)
    FILL_INTEGER(PCCL_UINT8, u8, u8)
    FILL_INTEGER(PCCL_INT16, u16, i16)
    FILL_INTEGER(PCCL_UINT16, u16, u16)
    FILL_INTEGER(PCCL_INT32, u32, i32)
    FILL_INTEGER(PCCL_UINT32, u32, u32)
    FILL_INTEGER(PCCL_INT64, u64, i64)
    FILL_INTEGER(PCCL_UINT64, u64, u64)
    FILL_FLOAT(PCCL_FLOAT16, f16)
    FILL_FLOAT(PCCL_BFLOAT16, bf16)
    FILL_FLOAT(PCCL_FLOAT32, f32)
    FILL_FLOAT(PCCL_FLOAT64, f64)
    FILL_COMPLEX(PCCL_COMPLEX64, c64)
    FILL_COMPLEX(PCCL_COMPLEX128, c128)
#undef FILL_SUMS
#undef FILL_ORDER
#undef FILL_SCALES
#undef FILL_INTEGER
#undef FILL_FLOAT
#undef FILL_COMPLEX
    kernels->reduce[PCCL_SUM][PCCL_BOOL] = kernels->reduce[PCCL_MAX][PCCL_BOOL] = or_bool;
    kernels->reduce[PCCL_PROD][PCCL_BOOL] = kernels->reduce[PCCL_MIN][PCCL_BOOL] = and_bool;
    kernels->reduce[PCCL_BAND][PCCL_BOOL] = and_bool;
    kernels->reduce[PCCL_BOR][PCCL_BOOL] = or_bool;
    kernels->reduce[PCCL_BXOR][PCCL_BOOL] = xor_bool;
}
