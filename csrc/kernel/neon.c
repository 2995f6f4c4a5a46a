/* SPDX-License-Identifier: MIT
 *
 * neon.c - kernels for 64-bit ARM CPUs, all of which have NEON.
 */
#include "kernel/levels.h"

#if defined(__aarch64__) && defined(__ARM_NEON)
#include <arm_neon.h>

#include "kernel/element.h"

#define F16_LANES 4
typedef float32x4_t f16_vector;
static inline f16_vector f16_vector_load(const void *from) {
    uint16x4_t bits = vreinterpret_u16_u8(vld1_u8(from));
    return vcvt_f32_f16(vreinterpret_f16_u16(bits));
}
static inline void f16_vector_store(void *to, f16_vector value) {
    float32x4_t nan = vreinterpretq_f32_u32(vdupq_n_u32(F32_NAN)); /* converts to F16_NAN */
    float32x4_t result = vbslq_f32(vceqq_f32(value, value), value, nan);
    vst1_u8(to, vreinterpret_u8_f16(vcvt_f16_f32(result)));
}

#include "kernel/kernel_body.h"

bool pccl__fill_neon(struct pccl__kernels *kernels) {
    kernels_fill(kernels, "neon");
    return true;
}
#else
bool pccl__fill_neon(struct pccl__kernels *kernels) {
    (void)kernels;
    return false;
}
#endif
