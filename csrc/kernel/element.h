/* SPDX-License-Identifier: MIT
 *
 * element.h - one element of each dtype: floats from and to bits, the order of MIN and MAX. No branches, so that
 * loops over these functions vectorise.
 */
#ifndef PCCL_KERNEL_ELEMENT_H
#define PCCL_KERNEL_ELEMENT_H

#include <stdint.h>
#include <string.h>

enum { F16_NAN = 0x7e00, BF16_NAN = 0x7fc0, F32_NAN = 0x7fc00000 };
#define F64_NAN UINT64_C(0x7ff8000000000000)

static inline uint32_t f32_raw(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float f32_load(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline double f64_load(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The bits to store for a result: one NaN for all. The choice is made between integers because compilers regard
 * the payload of a floating-point NaN as theirs to choose. */
static inline uint32_t f32_store(float value) { return value != value ? (uint32_t)F32_NAN : f32_raw(value); }

static inline uint64_t f64_store(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return value != value ? F64_NAN : bits;
}

/* bfloat16 is the upper half of a float. */
static inline float bf16_load(uint16_t bits) { return f32_load((uint32_t)bits << 16); }

static inline uint16_t bf16_store(float value) {
    uint32_t bits = f32_raw(value);
    /* A carry out of the fraction goes into the exponent, and from the largest to infinity: as it should. */
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)(value != value ? (uint32_t)BF16_NAN : rounded);
}

/* float16 has 5 bits of exponent (bias 15) and 10 of fraction; float has 8 (bias 127) and 23. */
static inline float f16_load(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, magnitude = bits & 0x7fffu;
    uint32_t normal = (magnitude << 13) + ((127 - 15) << 23);
    uint32_t special = (magnitude << 13) | 0x7f800000; /* infinity, NaN */
    uint32_t subnormal = f32_raw((float)(int32_t)magnitude * 0x1p-24f); /* exact; also zero */
    return f32_load(sign | (magnitude < 0x0400 ? subnormal : magnitude < 0x7c00 ? normal : special));
}

static inline uint16_t f16_store(float value) {
    uint32_t sign = f32_raw(value) >> 16 & 0x8000, magnitude = f32_raw(value) & 0x7fffffff;
    uint32_t normal = (magnitude - ((127 - 15) << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    /* Below 2^-14 the FPU rounds for us: the last place of numbers in [0.5, 1) is 2^-24, float16's smallest. */
    uint32_t subnormal = f32_raw(f32_load(magnitude) + 0.5f) - f32_raw(0.5f);
    uint32_t finite = magnitude < (127 - 14) << 23 ? subnormal : normal;
    uint32_t rounded = sign | (magnitude < 0x477ff000 ? finite : 0x7c00); /* 65520 and more round to infinity */
    return (uint16_t)(value != value ? (uint32_t)F16_NAN : rounded);
}

/* MIN and MAX never leave the integers: without the sign, bits above those of infinity are a NaN; and bits are in the
 * order of their values, -0 below +0, once those with a sign are made to count backwards. */
#define FLOAT_ORDER(DTYPE, BITS, INFINITE, NOT_A_NUMBER)                                                          \
    static inline int##BITS##_t DTYPE##_order(uint##BITS##_t bits) {                                              \
        uint##BITS##_t sign = (uint##BITS##_t)((int##BITS##_t)bits >> (BITS - 1)); /* all ones or zero */         \
        return (int##BITS##_t)(bits ^ (uint##BITS##_t)(sign >> 1));                                               \
    }                                                                                                             \
    static inline int DTYPE##_is_nan(uint##BITS##_t bits) {                                                       \
        return (int##BITS##_t)(bits & INT##BITS##_MAX) > (int##BITS##_t)(INFINITE);                               \
    }                                                                                                             \
    static inline uint##BITS##_t DTYPE##_min(uint##BITS##_t a, uint##BITS##_t b) {                                \
        uint##BITS##_t less = DTYPE##_order(a) < DTYPE##_order(b) ? a : b;                                        \
        return DTYPE##_is_nan(a) | DTYPE##_is_nan(b) ? (uint##BITS##_t)(NOT_A_NUMBER) : less;                     \
    }                                                                                                             \
    static inline uint##BITS##_t DTYPE##_max(uint##BITS##_t a, uint##BITS##_t b) {                                \
        uint##BITS##_t more = DTYPE##_order(a) > DTYPE##_order(b) ? a : b;                                        \
        return DTYPE##_is_nan(a) | DTYPE##_is_nan(b) ? (uint##BITS##_t)(NOT_A_NUMBER) : more;                     \
    }
FLOAT_ORDER(f16, 16, 0x7c00, F16_NAN)
FLOAT_ORDER(bf16, 16, 0x7f80, BF16_NAN)
FLOAT_ORDER(f32, 32, 0x7f800000, F32_NAN)
FLOAT_ORDER(f64, 64, INT64_C(0x7ff0000000000000), F64_NAN)
#undef FLOAT_ORDER

#endif
