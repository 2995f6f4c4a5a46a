/* SPDX-License-Identifier: MIT
 *
 * avx512.c - kernels for x86 CPUs with AVX-512 F, BW, VL and DQ; compiled with these switched on.
 */
#include "kernel/levels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#include <immintrin.h>

#include "kernel/element.h"

#define F16_LANES 16
typedef __m512 f16_vector;
static inline f16_vector f16_vector_load(const void *from) { return _mm512_cvtph_ps(_mm256_loadu_si256(from)); }
static inline void f16_vector_store(void *to, f16_vector value) {
    __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(F32_NAN)); /* converts to F16_NAN */
    __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    _mm256_storeu_si256(to, _mm512_cvtps_ph(_mm512_mask_mov_ps(value, is_nan, nan), _MM_FROUND_TO_NEAREST_INT));
}

#include "kernel/kernel_body.h"

bool pccl__fill_avx512(struct pccl__kernels *kernels) {
    kernels_fill(kernels, "avx512");
    return true;
}
#else
bool pccl__fill_avx512(struct pccl__kernels *kernels) {
    (void)kernels;
    return false;
}
#endif
