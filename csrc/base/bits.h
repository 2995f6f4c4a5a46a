/* SPDX-License-Identifier: MIT
 *
 * bits.h - small integer helpers; little-endian stores and loads for wire formats.
 */
#ifndef PCCL_BASE_BITS_H
#define PCCL_BASE_BITS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t div_ceil(uint64_t value, uint64_t by) { return value / by + (value % by != 0); }
static inline uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }
/* true when a * b does not fit. */
static inline bool mul_overflows(uint64_t a, uint64_t b, uint64_t *product) {
    return __builtin_mul_overflow(a, b, product);
}
/* The smallest k with 2^k >= value; 0 for 0 and 1. */
static inline uint32_t log2_ceil(uint64_t value) { return value <= 1 ? 0 : 64u - (uint32_t)__builtin_clzll(value - 1); }

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "big-endian machines need byte swaps here"
#endif
static inline void put_u16(uint8_t *to, uint16_t v) { memcpy(to, &v, sizeof v); }
static inline void put_u32(uint8_t *to, uint32_t v) { memcpy(to, &v, sizeof v); }
static inline void put_u64(uint8_t *to, uint64_t v) { memcpy(to, &v, sizeof v); }
static inline uint16_t get_u16(const uint8_t *from) {
    uint16_t v;
    memcpy(&v, from, sizeof v);
    return v;
}
static inline uint32_t get_u32(const uint8_t *from) {
    uint32_t v;
    memcpy(&v, from, sizeof v);
    return v;
}
static inline uint64_t get_u64(const uint8_t *from) {
    uint64_t v;
    memcpy(&v, from, sizeof v);
    return v;
}

#endif
