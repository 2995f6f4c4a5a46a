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

/* bfloat16 is the upper half of a float; here two of them are in 32 bits. */
static inline float bf16_low(uint32_t pair) { return f32_load(pair << 16); }
static inline float bf16_high(uint32_t pair) { return f32_load(pair & 0xffff0000); }

/* Rounded, in the upper half; the lower one is left over. A carry out of the fraction goes into the exponent, and from
 * the largest value to infinity: as it should. */
static inline uint32_t bf16_round(float value) {
    uint32_t bits = f32_raw(value);
    return value != value ? (uint32_t)BF16_NAN << 16 : bits + 0x7fff + (bits >> 16 & 1);
}

static inline uint32_t bf16_store_pair(float low, float high) {
    return bf16_round(low) >> 16 | (bf16_round(high) & 0xffff0000);
}

/* float16 has 5 bits of exponent (bias 15) and 10 of fraction; float has 8 (bias 127) and 23. Moving the bits is right
 * but for the bias: an exact multiplication, also for subnormals. Infinity and NaN keep the largest exponent. */
static inline float f16_load(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, magnitude = bits & 0x7fffu;
    uint32_t largest = magnitude >= 0x7c00 ? 0x7f800000 : 0;
    return f32_load(sign | largest | f32_raw(f32_load(magnitude << 13) * 0x1p112f));
}

/* The FPU rounds for us: a number 2^13 times as large as the power of two below `value` (2^-14 for subnormals) has its
 * last place where float16 has it, so their sum ends with the fraction that float16 wants. A carry out of it goes into
 * the exponent, and from the largest value to infinity: as it should. */
static inline uint16_t f16_store(float value) {
    const int32_t smallest = (127 - 14) << 23, beyond = (127 + 16) << 23;
    int32_t magnitude = (int32_t)(f32_raw(value) & 0x7fffffff);
    int32_t bounded = magnitude < beyond ? magnitude : beyond; /* becomes infinity */
    int32_t power = bounded & 0x7f800000;
    int32_t exponent = power > smallest ? power : smallest;
    uint32_t large = (uint32_t)exponent + (13 << 23);
    uint32_t fraction = f32_raw(f32_load((uint32_t)bounded) + f32_load(large)) - large;
    uint32_t rounded = fraction + ((uint32_t)(exponent - smallest) >> 13);
    return (uint16_t)(rounded | (value != value ? (uint32_t)F16_NAN : f32_raw(value) >> 16 & 0x8000));
}

/* MIN and MAX never leave the integers: without the sign, bits above those of infinity are a NaN; and bits are in the
 * order of their values, -0 below +0, once those with a sign are made to count backwards. */
#define FLOAT_ORDER(DTYPE, BITS, INFINITE, NOT_A_NUMBER)                                                               \
    static inline int##BITS##_t DTYPE##_order(uint##BITS##_t bits) {                                                   \
        uint##BITS##_t sign = (uint##BITS##_t)((int##BITS##_t)bits >> (BITS - 1)); /* all ones or zero */              \
        return (int##BITS##_t)(bits ^ (uint##BITS##_t)(sign >> 1));                                                    \
    }                                                                                                                  \
    static inline int DTYPE##_is_nan(uint##BITS##_t bits) {                                                            \
        return (int##BITS##_t)(bits & INT##BITS##_MAX) > (int##BITS##_t)(INFINITE);                                    \
    }                                                                                                                  \
    static inline uint##BITS##_t DTYPE##_min(uint##BITS##_t a, uint##BITS##_t b) {                                     \
        uint##BITS##_t less = DTYPE##_order(a) < DTYPE##_order(b) ? a : b;                                             \
        return DTYPE##_is_nan(a) | DTYPE##_is_nan(b) ? (uint##BITS##_t)(NOT_A_NUMBER) : less;                          \
    }                                                                                                                  \
    static inline uint##BITS##_t DTYPE##_max(uint##BITS##_t a, uint##BITS##_t b) {                                     \
        uint##BITS##_t more = DTYPE##_order(a) > DTYPE##_order(b) ? a : b;                                             \
        return DTYPE##_is_nan(a) | DTYPE##_is_nan(b) ? (uint##BITS##_t)(NOT_A_NUMBER) : more;                          \
    }
FLOAT_ORDER(f16, 16, 0x7c00, F16_NAN)
FLOAT_ORDER(bf16, 16, 0x7f80, BF16_NAN)
FLOAT_ORDER(f32, 32, 0x7f800000, F32_NAN)
FLOAT_ORDER(f64, 64, INT64_C(0x7ff0000000000000), F64_NAN)
#undef FLOAT_ORDER

#endif
