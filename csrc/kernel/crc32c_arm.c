/* SPDX-License-Identifier: MIT
 *
 * crc32c_arm.c - CRC-32C with the instruction of 64-bit ARM CPUs, where they have it (optional before ARMv8.1).
 */
#include "kernel/levels.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
static bool cpu_has_crc32(void) { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#elif defined(__ARM_FEATURE_CRC32)
static bool cpu_has_crc32(void) { return true; }
#endif

#if defined(__aarch64__) && (defined(__linux__) || defined(__ARM_FEATURE_CRC32))
#include "kernel/crc32c.h"

/* Assembly, as <arm_acle.h> has these only for those who compile the whole file for such CPUs. */
static inline uint32_t step_8(uint32_t crc, uint64_t word) {
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    return crc;
}

static inline uint32_t step_1(uint32_t crc, uint8_t byte) {
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"(byte));
    return crc;
}

CRC32C_STREAMS(crc32c_arm, step_8, step_1)

bool pccl__fill_crc32c_arm(struct pccl__kernels *kernels) {
    if (!cpu_has_crc32()) return false;
    kernels->crc32c = crc32c_arm;
    return true;
}
#else
bool pccl__fill_crc32c_arm(struct pccl__kernels *kernels) {
    (void)kernels;
    return false;
}
#endif
