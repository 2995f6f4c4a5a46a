/* SPDX-License-Identifier: MIT
 *
 * fp_env.h - the floating-point modes that kernels compute in: round to nearest even, subnormals kept, no traps.
 *
 * A caller's thread may be in any mode (torch.set_flush_denormal, a library built with -ffast-math, fesetround), and
 * peers of one run need not agree on it. <fenv.h> does not know flush-to-zero, hence the registers themselves.
 * The compiler barriers keep the arithmetic between enter and leave: it hangs on loads and stores of memory.
 */
#ifndef PCCL_KERNEL_FP_ENV_H
#define PCCL_KERNEL_FP_ENV_H

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>

enum { FP_ENV_DEFAULT = 0x1f80, FP_ENV_STICKY = 0x3f }; /* MXCSR: all exceptions masked; the flags they leave */
static inline uint64_t fp_env_read(void) { return _mm_getcsr(); }
static inline void fp_env_write(uint64_t modes) { _mm_setcsr((unsigned)modes); }

#elif defined(__aarch64__)

enum { FP_ENV_DEFAULT = 0, FP_ENV_STICKY = 0 }; /* FPCR; its flags live in FPSR */
static inline uint64_t fp_env_read(void) {
    uint64_t modes;
    __asm__ volatile("mrs %0, fpcr" : "=r"(modes));
    return modes;
}
static inline void fp_env_write(uint64_t modes) { __asm__ volatile("msr fpcr, %0" : : "r"(modes)); }

#else

enum { FP_ENV_DEFAULT = 0, FP_ENV_STICKY = 0 };
static inline uint64_t fp_env_read(void) { return FP_ENV_DEFAULT; }
static inline void fp_env_write(uint64_t modes) { (void)modes; }

#endif

/* Returns what fp_env_leave needs. Writing the register costs more than a small reduce, so only when it differs. */
static inline uint64_t fp_env_enter(void) {
    uint64_t modes = fp_env_read();
    if (__builtin_expect((modes & ~(uint64_t)FP_ENV_STICKY) != FP_ENV_DEFAULT, 0)) fp_env_write(FP_ENV_DEFAULT);
    __asm__ volatile("" : : : "memory");
    return modes;
}

static inline void fp_env_leave(uint64_t modes) {
    __asm__ volatile("" : : : "memory");
    if (__builtin_expect((modes & ~(uint64_t)FP_ENV_STICKY) != FP_ENV_DEFAULT, 0)) fp_env_write(modes);
}

#endif
