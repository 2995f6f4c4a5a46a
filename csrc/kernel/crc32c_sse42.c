/* SPDX-License-Identifier: MIT
 *
 * crc32c_sse42.c - CRC-32C with the instruction of x86 CPUs since SSE4.2; compiled with it switched on.
 */
#include "kernel/levels.h"

#if defined(__SSE4_2__) && defined(__x86_64__)
#include <nmmintrin.h>

#include "kernel/crc32c.h"

static inline uint32_t step_8(uint32_t crc, uint64_t word) { return (uint32_t)_mm_crc32_u64(crc, word); }

CRC32C_STREAMS(crc32c_sse42, step_8, _mm_crc32_u8)

bool pccl__fill_crc32c_sse42(struct pccl__kernels *kernels) {
    kernels->crc32c = crc32c_sse42;
    return true;
}
#else
bool pccl__fill_crc32c_sse42(struct pccl__kernels *kernels) {
    (void)kernels;
    return false;
}
#endif
