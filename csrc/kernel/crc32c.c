/* SPDX-License-Identifier: MIT
 *
 * crc32c.c - CRC-32C in plain C, eight bytes a step (Kounavis and Berry, "A systematic approach to building high
 * performance software-based CRC generators", 2005), and the tables that the faster levels share.
 */
#include "kernel/crc32c.h"

#include <pthread.h>

#include "base/bits.h"
#include "kernel/levels.h"

static struct pccl__crc32c_tables tables;
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

/* Without the inversions at both ends. */
static uint32_t crc32c_update(uint32_t crc, const uint8_t *at, size_t bytes) {
    const uint32_t(*slice)[256] = tables.slice;
    for (; bytes >= 8; at += 8, bytes -= 8) {
        uint32_t low = get_u32(at) ^ crc, high = get_u32(at + 4);
        crc = slice[7][low & 0xff] ^ slice[6][low >> 8 & 0xff] ^ slice[5][low >> 16 & 0xff] ^ slice[4][low >> 24] ^
              slice[3][high & 0xff] ^ slice[2][high >> 8 & 0xff] ^ slice[1][high >> 16 & 0xff] ^ slice[0][high >> 24];
    }
    for (; bytes > 0; at++, bytes--) crc = crc >> 8 ^ slice[0][(crc ^ *at) & 0xff];
    return crc;
}

static void tables_build(void) {
    static const uint8_t zeros[CRC32C_STREAM_BYTES];
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0); /* the polynomial, lowest bit first */
        tables.slice[0][b] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t b = 0; b < 256; b++)
            tables.slice[k][b] = tables.slice[k - 1][b] >> 8 ^ tables.slice[0][tables.slice[k - 1][b] & 0xff];
    /* Linear: every entry is the sum of those for its single bits. */
    for (int k = 0; k < 4; k++)
        for (uint32_t b = 1; b < 256; b++) {
            uint32_t lowest = b & -b;
            tables.shift[k][b] = b == lowest ? crc32c_update(b << 8 * k, zeros, sizeof zeros)
                                             : tables.shift[k][lowest] ^ tables.shift[k][b ^ lowest];
        }
}

const struct pccl__crc32c_tables *pccl__crc32c_tables(void) {
    pthread_once(&tables_once, tables_build);
    return &tables;
}

static uint32_t crc32c_scalar(uint32_t crc, const void *data, size_t bytes) {
    pccl__crc32c_tables();
    return ~crc32c_update(~crc, data, bytes);
}

bool pccl__fill_crc32c_scalar(struct pccl__kernels *kernels) {
    kernels->crc32c = crc32c_scalar;
    return true;
}
