/* SPDX-License-Identifier: MIT
 *
 * scalar.c - the truth: plain C without anything of a certain CPU. What the results are is said in kernel.h.
 */
#include "kernel/element.h"

typedef float f16_vector;
enum { F16_LANES = 1 };
static inline f16_vector f16_vector_load(const void *from) {
    uint16_t bits;
    memcpy(&bits, from, sizeof bits);
    return f16_load(bits);
}
static inline void f16_vector_store(void *to, f16_vector value) {
    uint16_t bits = f16_store(value);
    memcpy(to, &bits, sizeof bits);
}

#include "kernel/kernel_body.h"

bool pccl__fill_scalar(struct pccl__kernels *kernels) {
    kernels_fill(kernels, "scalar");
    return true;
}
