/* SPDX-License-Identifier: MIT
 *
 * stream.c - a copy past the caches: for memory that nobody reads soon. An ordinary copy of the same size would first
 * read the target's lines and push out what the next step needs.
 */
#include <string.h>

#include "kernel/kernel.h"

#ifdef __SSE2__
#include <emmintrin.h>

enum { LINE = 64 };

void pccl__copy_stream(void *target, const void *source, size_t bytes) {
    uint8_t *to = target;
    const uint8_t *from = source;
    size_t head = (LINE - (uintptr_t)to % LINE) % LINE;
    if (head > bytes) head = bytes;
    memcpy(to, from, head);
    to += head, from += head, bytes -= head;
    for (; bytes >= LINE; to += LINE, from += LINE, bytes -= LINE) {
        for (int i = 0; i < LINE; i += 16)
            _mm_stream_si128((__m128i *)(to + i), _mm_loadu_si128((const __m128i *)(from + i)));
    }
    _mm_sfence();
    memcpy(to, from, bytes);
}
#else
void pccl__copy_stream(void *target, const void *source, size_t bytes) { memcpy(target, source, bytes); }
#endif
