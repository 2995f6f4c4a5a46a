/* SPDX-License-Identifier: MIT
 *
 * prng.h - splitmix64 (Steele, Lea, Flood 2014): seeded, reproducible, not for secrets.
 */
#ifndef PCCL_BASE_PRNG_H
#define PCCL_BASE_PRNG_H

#include <stdint.h>

static inline uint64_t prng_next(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in 0..bound-1 (bias below 2^-32 for the small bounds used here); 0 for bound 0. */
static inline uint32_t prng_below(uint64_t *state, uint32_t bound) {
    return (uint32_t)(((prng_next(state) >> 32) * bound) >> 32);
}

#endif
