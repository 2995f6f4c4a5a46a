/* SPDX-License-Identifier: MIT
 *
 * crc32c.h - CRC-32C (Castagnoli, RFC 3720): tables, and the loop around a CPU's crc32 instruction.
 *
 * That instruction takes 8 bytes per cycle but answers three cycles later, so a long run is cut into three streams of
 * CRC32C_STREAM_BYTES that advance together. A crc is linear: the first stream's crc is carried across the bytes of the
 * second as if these were zero ("shift"), then both are added. Shifting by a fixed length is four table look-ups.
 * (The idea: Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction", Intel, 2011.)
 */
#ifndef PCCL_KERNEL_CRC32C_H
#define PCCL_KERNEL_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { CRC32C_STREAM_BYTES = 1024 };

struct pccl__crc32c_tables {
    uint32_t slice[8][256]; /* slice[k][b]: byte b followed by k zero bytes */
    uint32_t shift[4][256]; /* shift[k][b]: byte k of a crc, b, followed by CRC32C_STREAM_BYTES zero bytes */
};

/* Built at the first call; thread-safe. */
const struct pccl__crc32c_tables *pccl__crc32c_tables(void);

static inline uint32_t crc32c_shift(const struct pccl__crc32c_tables *tables, uint32_t crc) {
    return tables->shift[0][crc & 0xff] ^ tables->shift[1][crc >> 8 & 0xff] ^ tables->shift[2][crc >> 16 & 0xff] ^
           tables->shift[3][crc >> 24];
}

/* NAME: pccl__kernels.crc32c with the instructions STEP_8(crc, uint64_t) and STEP_1(crc, uint8_t). The next block is
 * prefetched in rising order: no CPU recognises three streams within one page (4 against 24 GB/s from memory). */
#define CRC32C_STREAMS(NAME, STEP_8, STEP_1)                                                                           \
    static uint32_t NAME(uint32_t crc, const void *data, size_t bytes) {                                               \
        const struct pccl__crc32c_tables *tables = pccl__crc32c_tables();                                              \
        const uint8_t *at = data;                                                                                      \
        const size_t stream = CRC32C_STREAM_BYTES;                                                                     \
        uint64_t word[3];                                                                                              \
        crc = ~crc;                                                                                                    \
        for (; bytes >= 3 * stream; at += 3 * stream, bytes -= 3 * stream) {                                           \
            uint32_t second = 0, third = 0;                                                                            \
            for (size_t i = 0; i < stream; i += 8) {                                                                   \
                __builtin_prefetch(at + 3 * stream + 3 * i);                                                           \
                memcpy(&word[0], at + i, 8);                                                                           \
                memcpy(&word[1], at + stream + i, 8);                                                                  \
                memcpy(&word[2], at + 2 * stream + i, 8);                                                              \
                crc = STEP_8(crc, word[0]);                                                                            \
                second = STEP_8(second, word[1]);                                                                      \
                third = STEP_8(third, word[2]);                                                                        \
            }                                                                                                          \
            crc = crc32c_shift(tables, crc32c_shift(tables, crc) ^ second) ^ third;                                    \
        }                                                                                                              \
        for (; bytes >= 8; at += 8, bytes -= 8) {                                                                      \
            memcpy(&word[0], at, 8);                                                                                   \
            crc = STEP_8(crc, word[0]);                                                                                \
        }                                                                                                              \
        for (; bytes > 0; at++, bytes--) crc = STEP_1(crc, *at);                                                       \
        return ~crc;                                                                                                   \
    }

#endif
