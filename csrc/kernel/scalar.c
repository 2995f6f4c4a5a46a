/* SPDX-License-Identifier: MIT
 *
 * scalar.c - the truth: plain C without anything of a certain CPU. What the results are is said in kernel.h.
 */
#include "kernel/kernel_body.h"

bool pccl__fill_scalar(struct pccl__kernels *kernels) {
    kernels_fill(kernels, "scalar");
    return true;
}
