/* SPDX-License-Identifier: MIT
 *
 * levels.h - what the files of one CPU level and kernel.c share.
 */
#ifndef PCCL_KERNEL_LEVELS_H
#define PCCL_KERNEL_LEVELS_H

#include <stdbool.h>

#include "kernel/kernel.h"

/* Each replaces the entries it has something better for. false: not compiled for this architecture, nothing done. The
 * caller has made sure that the CPU can run them; pccl__fill_scalar and pccl__fill_crc32c_scalar fill everything. */
bool pccl__fill_scalar(struct pccl__kernels *kernels);
bool pccl__fill_avx2(struct pccl__kernels *kernels);
bool pccl__fill_avx512(struct pccl__kernels *kernels);
bool pccl__fill_neon(struct pccl__kernels *kernels);
bool pccl__fill_crc32c_scalar(struct pccl__kernels *kernels);
bool pccl__fill_crc32c_sse42(struct pccl__kernels *kernels);
bool pccl__fill_crc32c_arm(struct pccl__kernels *kernels);

#endif
