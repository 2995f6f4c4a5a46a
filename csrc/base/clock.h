/* SPDX-License-Identifier: MIT
 *
 * clock.h - monotonic nanoseconds. Only the engine's outermost loop and transports' sockets read it; the rest gets
 * `now_ns` as an argument.
 */
#ifndef PCCL_BASE_CLOCK_H
#define PCCL_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_MS UINT64_C(1000000)
#define NEVER_NS  UINT64_MAX

static inline uint64_t clock_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

#endif
