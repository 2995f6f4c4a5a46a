/* SPDX-License-Identifier: MIT
 *
 * avx2.c - kernels for x86 CPUs with AVX2 and F16C; compiled with these switched on.
 */
#include "kernel/levels.h"

#if defined(__AVX2__) && defined(__F16C__)
#include <immintrin.h>

#include "kernel/element.h"

#define F16_LANES 8
typedef __m256 f16_vector;
static inline f16_vector f16_vector_load(const void *from) { return _mm256_cvtph_ps(_mm_loadu_si128(from)); }
static inline void f16_vector_store(void *to, f16_vector value) {
    __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(F32_NAN)); /* converts to F16_NAN */
    __m256 is_nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
    _mm_storeu_si128(to, _mm256_cvtps_ph(_mm256_blendv_ps(value, nan, is_nan), _MM_FROUND_TO_NEAREST_INT));
}

#include "kernel/kernel_body.h"

bool pccl__fill_avx2(struct pccl__kernels *kernels) {
    kernels_fill(kernels, "avx2");
    return true;
}
#else
bool pccl__fill_avx2(struct pccl__kernels *kernels) {
    (void)kernels;
    return false;
}
#endif
