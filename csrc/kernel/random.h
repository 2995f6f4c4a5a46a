/* SPDX-License-Identifier: MIT
 *
 * random.h - numbers for stochastic rounding and random signs: each a hash of (seed, counter), so that nothing has a
 * state and any of them can be had by itself, in vectors.
 */
#ifndef PCCL_KERNEL_RANDOM_H
#define PCCL_KERNEL_RANDOM_H

#include <stdint.h>

/* The finalizer of splitmix64. */
static inline uint64_t random_mix(uint64_t x) {
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Of 2^32 counters, those with the same upper half. */
static inline uint64_t random_key(uint64_t seed, uint64_t counter) {
    return random_mix(random_mix(seed + UINT64_C(0x9e3779b97f4a7c15)) + (counter >> 32));
}

/* Two rounds of multiply and shift. Half of the key goes in between: added in front alone, keys would only shift one
 * and the same sequence. */
static inline uint32_t random_bits(uint64_t key, uint32_t counter) {
    uint32_t x = counter + (uint32_t)key;
    x = (x ^ x >> 16) * UINT32_C(0x7feb352d);
    x ^= (uint32_t)(key >> 32);
    x = (x ^ x >> 15) * UINT32_C(0x846ca68b);
    return x ^ x >> 16;
}

#endif
