/* SPDX-License-Identifier: MIT
 *
 * indices.c - sorted, distinct indices in few bytes: for the positions of sparse values.
 *
 * The one idea: what stands in the stream is the gap before each index, of which `width` low bits are packed as they
 * are, and the rest is unary: as many zeros, and a one (Rice 1979). So a large gap makes no other one longer. Each
 * block of 128 has the width that is best for it; with width 0 it is a bitmap.
 *
 * A block: a byte with its width, the low bits of all gaps, the unary rests; both parts fill whole bytes, low bits
 * first. The last block is shorter. Nothing says how many there are: who decodes is told.
 *
 * Bits per index where each element is given at random (indices_bench), beside the information in it, and what the
 * least plain width takes that holds all gaps of a block. Decoding takes 1.7 ns for each:
 *     density   bits    holds   plain
 *     0.1 %     11.57   11.41   12.98
 *     1 %        8.20    8.08    9.60
 *     10 %       4.84    4.69    6.19
 *     50 %       2.09    2.00    3.46
 */
#include <inttypes.h>

#include "base/bits.h"
#include "base/status.h"
#include "pccl_sparse.h"

enum { BLOCK = 128, WIDTH_MAX = PCCL_INDICES_LENGTH_BITS, LOW_BYTES = BLOCK * WIDTH_MAX / 8 };

static uint64_t bytes_of(uint64_t bits) { return div_ceil(bits, 8); }

/* A block whose gaps have mean m takes at most log2(m) + 3 bits for each, as `choose_width` begins at log2(m). Over all
 * blocks that is most where all have the same mean (log2(1 + m) is concave). */
uint64_t pccl_indices_bytes(uint64_t count, uint64_t length) {
    if (count == 0) return 0;
    uint64_t bits = count * (log2_ceil(div_ceil(length, count)) + 3);
    return bytes_of(bits) + 3 * div_ceil(count, BLOCK);
}

/* ---------------------------------------------------------------- encode */

static uint64_t unary_bits(const uint64_t *gaps, uint32_t count, unsigned width) {
    uint64_t sum = count;
    for (uint32_t i = 0; i < count; i++) sum += gaps[i] >> width;
    return sum;
}

/* The bits that a block takes fall with the width and then rise: so the best is found by walking from near it. */
static unsigned choose_width(const uint64_t *gaps, uint32_t count) {
    uint64_t mean = (unary_bits(gaps, count, 0) - count) / count;
    unsigned width = mean > 1 ? 63 - (unsigned)__builtin_clzll(mean) : 0;
    uint64_t best = unary_bits(gaps, count, width);
    for (unsigned next = width + 1; next <= WIDTH_MAX; next++) {
        uint64_t bits = unary_bits(gaps, count, next);
        if (bits + count >= best) break;
        best = bits, width = next;
    }
    while (width > 0) {
        uint64_t bits = unary_bits(gaps, count, width - 1);
        if (bits >= best + count) break;
        best = bits, width--;
    }
    return width;
}

/* Returns the end; writes up to 7 bytes behind it. */
static uint8_t *put_low(uint8_t *to, const uint64_t *gaps, uint32_t count, unsigned width) {
    uint64_t mask = (UINT64_C(1) << width) - 1, word = 0;
    unsigned filled = 0;
    for (uint32_t i = 0; i < count; i++) {
        word |= (gaps[i] & mask) << filled; /* at most 7 bits were left over, so 63 now */
        filled += width;
        put_u64(to, word);
        to += filled / 8;
        word >>= filled & ~7u;
        filled %= 8;
    }
    return to + (filled > 0);
}

/* `to` holds zeros. Returns the end. */
static uint8_t *put_unary(uint8_t *to, const uint64_t *gaps, uint32_t count, unsigned width) {
    uint64_t bit = 0;
    for (uint32_t i = 0; i < count; i++) {
        bit += gaps[i] >> width;
        to[bit / 8] |= (uint8_t)(1u << bit % 8);
        bit++;
    }
    return to + bytes_of(bit);
}

pccl_status pccl_indices_encode(const uint64_t *indices, uint64_t count, uint64_t length, void *wire, uint64_t *bytes,
                                pccl_error *error) {
    uint64_t gaps[BLOCK], next = 0; /* the smallest index that may come */
    uint8_t *to = wire;
    if (length > PCCL_INDICES_LENGTH_MAX)
        return pccl__fail(error, PCCL_INVALID, "length %" PRIu64 " is more than 2^56", length);
    for (uint64_t done = 0; done < count;) {
        uint32_t here = (uint32_t)min_u64(count - done, BLOCK);
        for (uint32_t i = 0; i < here; i++) {
            uint64_t index = indices[done + i];
            if (index < next || index >= length)
                return pccl__fail(error, PCCL_INVALID, "index %" PRIu64 " at place %" PRIu64 " %s", index, done + i,
                                  index < next ? "is not above the one before" : "is beyond the length");
            gaps[i] = index - next;
            next = index + 1;
        }
        uint8_t block[1 + BLOCK * (WIDTH_MAX + 3) / 8 + 16] = {0}; /* see pccl_indices_bytes */
        unsigned width = choose_width(gaps, here);
        block[0] = (uint8_t)width;
        uint8_t *low_end = put_low(block + 1, gaps, here, width);
        memset(low_end, 0, 8);
        size_t used = (size_t)(put_unary(low_end, gaps, here, width) - block);
        memcpy(to, block, used);
        to += used, done += here;
    }
    *bytes = (uint64_t)(to - (uint8_t *)wire);
    return PCCL_OK;
}

/* ---------------------------------------------------------------- decode */

struct input {
    const uint8_t *at;
    uint64_t left;
};

/* Up to 8 bytes at `at`, zeros behind the end. */
static uint64_t load(const struct input *input, uint64_t at) {
    if (at + 8 <= input->left) return get_u64(input->at + at);
    uint8_t padded[8] = {0};
    if (at < input->left) memcpy(padded, input->at + at, input->left - at);
    return get_u64(padded);
}

static void skip(struct input *input, uint64_t bytes) { input->at += bytes, input->left -= bytes; }

/* `from` may be read 7 bytes behind the end. */
static void get_low(const uint8_t *from, uint64_t *low, uint32_t count, unsigned width) {
    uint64_t mask = (UINT64_C(1) << width) - 1;
    for (uint32_t i = 0, bit = 0; i < count; i++, bit += width) low[i] = get_u64(from + bit / 8) >> bit % 8 & mask;
}

/* Where the first `count` ones are, counted in bits; takes their bytes. False: there are not as many. */
static bool get_ones(struct input *input, uint64_t *places, uint32_t count) {
    uint64_t at = 0;
    uint32_t found = 0;
    for (; found < count && at < input->left; at += 8) {
        uint64_t word = load(input, at);
        uint32_t ones = (uint32_t)__builtin_popcountll(word);
        if (ones > count - found) ones = count - found;
        for (uint32_t end = found + ones; found < end; word &= word - 1)
            places[found++] = 8 * at + (uint64_t)__builtin_ctzll(word);
    }
    if (found < count) return false;
    skip(input, places[count - 1] / 8 + 1);
    return true;
}

/* Reads one block; false: there is none. `next` is the smallest index that may come, also afterwards. */
static bool get_block(struct input *input, uint64_t *indices, uint32_t count, uint64_t length, uint64_t *next) {
    uint64_t low[BLOCK], places[BLOCK];
    uint8_t padded[LOW_BYTES + 8];
    if (input->left == 0) return false;
    unsigned width = *input->at;
    skip(input, 1);
    uint64_t low_bytes = bytes_of((uint64_t)count * width);
    if (width > WIDTH_MAX || low_bytes > input->left) return false;
    const uint8_t *from = input->at;
    if (low_bytes + 8 > input->left) {
        memcpy(padded, from, low_bytes);
        memset(padded + low_bytes, 0, 8);
        from = padded;
    }
    get_low(from, low, count, width);
    skip(input, low_bytes);
    if (!get_ones(input, places, count)) return false;
    /* Of all gaps, what was unary; within these limits nothing below can pass 2^64. */
    if (places[count - 1] - (count - 1) > length >> width) return false;
    uint64_t base = *next;
    for (uint32_t i = 0; i < count; i++) {
        base += low[i];
        indices[i] = base + ((places[i] - i) << width) + i;
    }
    *next = indices[count - 1] + 1;
    return *next <= length;
}

pccl_status pccl_indices_decode(const void *wire, uint64_t bytes, uint64_t length, uint64_t *indices, uint64_t count,
                                pccl_error *error) {
    struct input input = {wire, bytes};
    uint64_t next = 0;
    if (length > PCCL_INDICES_LENGTH_MAX)
        return pccl__fail(error, PCCL_INVALID, "length %" PRIu64 " is more than 2^56", length);
    for (uint64_t done = 0; done < count;) {
        uint32_t here = (uint32_t)min_u64(count - done, BLOCK);
        if (!get_block(&input, indices + done, here, length, &next))
            return pccl__fail(error, PCCL_PROTOCOL, "%" PRIu64 " bytes are no %" PRIu64 " indices below %" PRIu64,
                              bytes, count, length);
        done += here;
    }
    if (input.left > 0)
        return pccl__fail(error, PCCL_PROTOCOL, "%" PRIu64 " bytes are %" PRIu64 " more than %" PRIu64 " indices take",
                          bytes, input.left, count);
    return PCCL_OK;
}
