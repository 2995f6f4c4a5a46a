/* SPDX-License-Identifier: MIT
 *
 * kernel.c - finds out what the CPU (and the operating system, for wide registers) can do and fills the tables.
 */
#include <pthread.h>

#include "kernel/levels.h"

#if defined(__x86_64__)
#include <cpuid.h>

static unsigned cpu_flags(void) {
    unsigned eax, ebx, ecx = 0, edx, flags = 0;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2")) flags |= PCCL__CPU_SSE42;
    /* __builtin_cpu_supports asks XGETBV too; not every compiler lets it be asked for F16C. */
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) &&
        (ecx & bit_F16C))
        flags |= PCCL__CPU_AVX2;
    if ((flags & PCCL__CPU_AVX2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        flags |= PCCL__CPU_AVX512;
    return flags;
}

#elif defined(__aarch64__)
static unsigned cpu_flags(void) { return PCCL__CPU_NEON; }
#else
static unsigned cpu_flags(void) { return 0; }
#endif

/* From the plainest to the best: later ones win. */
static const struct {
    unsigned needs;
    bool (*fill)(struct pccl__kernels *);
} levels[] = {
    {0, pccl__fill_scalar},
    {PCCL__CPU_AVX2, pccl__fill_avx2},
    {PCCL__CPU_AVX512, pccl__fill_avx512},
    {PCCL__CPU_NEON, pccl__fill_neon},
    {0, pccl__fill_crc32c_scalar},
    {PCCL__CPU_SSE42, pccl__fill_crc32c_sse42},
    {PCCL__CPU_NEON, pccl__fill_crc32c_arm},
};

void pccl__kernels_fill(struct pccl__kernels *kernels, unsigned mask) {
    unsigned flags = cpu_flags() & mask;
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if ((levels[i].needs & flags) == levels[i].needs) levels[i].fill(kernels);
}

static struct pccl__kernels best;
static pthread_once_t best_once = PTHREAD_ONCE_INIT;
static void best_build(void) { pccl__kernels_fill(&best, PCCL__CPU_ALL); }

const struct pccl__kernels *pccl__kernels(void) {
    pthread_once(&best_once, best_build);
    return &best;
}

bool pccl__reduces_dtype(pccl_reduce_op op, pccl_dtype dtype) { return pccl__kernels()->reduce[op][dtype] != NULL; }
