/* SPDX-License-Identifier: MIT
 *
 * around.h - positions by their distance from a root, around the ring.
 */
#ifndef PCCL_PLAN_AROUND_H
#define PCCL_PLAN_AROUND_H

#include <stdint.h>

static inline uint32_t distance(uint32_t position, uint32_t size, uint32_t root) {
    return (position + size - root) % size;
}

static inline uint32_t at_distance(uint32_t far, uint32_t size, uint32_t root) {
    return (uint32_t)(((uint64_t)root + far) % size);
}

#endif
