/* SPDX-License-Identifier: MIT
 *
 * indices_test.c - sorted indices come back from their encoded form, within the room that was told, and nothing that is
 * not sorted indices goes in or comes out.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/prng.h"
#include "check.h"
#include "pccl_sparse.h"

enum { MOST = 3000, GUARD = 64 };

static const uint64_t counts[] = {0, 1, 2, 17, 127, 128, 129, 255, 256, 257, 1000, MOST};
static uint64_t given[MOST], got[MOST + GUARD];

/* Exactly as much memory as is needed: sanitizers see what goes beyond. */
static uint64_t encoded(uint64_t count, uint64_t length, uint8_t **wire) {
    uint64_t room = pccl_indices_bytes(count, length), bytes = 0;
    *wire = malloc(room + 1);
    (*wire)[room] = 0xa5;
    pccl_error error;
    pccl_status status = pccl_indices_encode(given, count, length, *wire, &bytes, &error);
    EXPECT(status == PCCL_OK, "%s", status ? error.message : "");
    EXPECT(bytes <= room && (*wire)[room] == 0xa5, "%" PRIu64 " bytes in room for %" PRIu64, bytes, room);
    return bytes;
}

static uint64_t there_and_back(uint64_t count, uint64_t length) {
    uint8_t *wire;
    uint64_t bytes = encoded(count, length, &wire);
    uint8_t *exact = malloc(bytes + 1);
    memcpy(exact, wire, bytes);
    memset(got, 0xa5, sizeof got);
    EXPECT(pccl_indices_decode(exact, bytes, length, got, count, NULL) == PCCL_OK, "%" PRIu64, count);
    EXPECT(memcmp(given, got, count * sizeof *got) == 0, "%" PRIu64 " below %" PRIu64, count, length);
    for (int i = 0; i < GUARD; i++) EXPECT(got[count + (uint64_t)i] == UINT64_C(0xa5a5a5a5a5a5a5a5), "%d", i);
    free(exact);
    free(wire);
    return bytes;
}

/* Gaps below 2^bits, of very different sizes if `wild`. Returns a length that they fit in. */
static uint64_t draw(uint64_t count, unsigned bits, bool wild, uint64_t *random) {
    uint64_t next = 0;
    for (uint64_t i = 0; i < count; i++) {
        unsigned here = wild && bits > 0 ? prng_below(random, bits + 1) : bits;
        next += here ? prng_next(random) >> (64 - here) : 0;
        given[i] = next++;
    }
    return next;
}

static void test_any_gaps(void) {
    uint64_t random = 7;
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        for (unsigned bits = 0; bits <= 44; bits++) {
            for (int wild = 0; wild < 2; wild++) {
                uint64_t length = draw(counts[c], bits, wild, &random);
                there_and_back(counts[c], length);
                there_and_back(counts[c], length + prng_below(&random, 1000));
            }
        }
    }
}

static void test_the_largest(void) {
    uint64_t last = PCCL_INDICES_LENGTH_MAX - 1;
    given[0] = last;
    there_and_back(1, PCCL_INDICES_LENGTH_MAX);
    given[0] = 0, given[1] = last;
    there_and_back(2, PCCL_INDICES_LENGTH_MAX);
    for (uint64_t i = 0; i < 300; i++) given[i] = i < 150 ? i : last - 299 + i;
    there_and_back(300, PCCL_INDICES_LENGTH_MAX);
    for (uint64_t i = 0; i < 128; i++) given[i] = i * (PCCL_INDICES_LENGTH_MAX / 128);
    there_and_back(128, PCCL_INDICES_LENGTH_MAX);
}

/* What the head of indices.c says, with what few blocks cost more. */
static void test_size(void) {
    static const double densities[] = {0.001, 0.01, 0.1, 0.5}, bits[] = {11.7, 8.3, 4.95, 2.2};
    uint64_t random = 3;
    for (int d = 0; d < 4; d++) {
        uint64_t next = 0;
        for (uint64_t i = 0; i < MOST; i++) {
            double uniform = ((double)(prng_next(&random) >> 11) + 1) * 0x1p-53;
            next += (uint64_t)floor(log(uniform) / log1p(-densities[d]));
            given[i] = next++;
        }
        double each = 8.0 * (double)there_and_back(MOST, next) / MOST;
        EXPECT(each < bits[d], "%g bits at density %g", each, densities[d]);
    }
    draw(MOST, 0, false, &random);
    EXPECT(there_and_back(MOST, MOST) <= MOST / 8 + 2 * (MOST / 128 + 1), "a bitmap, and what blocks cost");
}

static void expect_refused(uint64_t count, uint64_t length, const char *text) {
    uint8_t wire[4096];
    uint64_t bytes = 77;
    pccl_error error;
    EXPECT(pccl_indices_encode(given, count, length, wire, &bytes, &error) == PCCL_INVALID, "%s", text);
    EXPECT(strstr(error.message, text) && bytes == 77, "%s", error.message);
}

static void test_refused(void) {
    uint64_t random = 5, length = draw(300, 3, false, &random);
    expect_refused(300, length - 1, "is beyond the length");
    given[200] = given[199];
    expect_refused(300, length, "at place 200 is not above the one before");
    given[200] = given[199] - 1;
    expect_refused(300, length, "at place 200 is not above the one before");
    expect_refused(1, PCCL_INDICES_LENGTH_MAX + 1, "more than 2^56");
    EXPECT(pccl_indices_decode("", 0, PCCL_INDICES_LENGTH_MAX + 1, got, 0, NULL) == PCCL_INVALID, "length");
}

/* Every shorter or longer one, and one in which a bit fell over, is refused, or is other sorted indices. */
static void test_damaged(void) {
    uint64_t random = 9;
    for (int trial = 0; trial < 300; trial++) {
        uint64_t count = 1 + prng_below(&random, 400),
                 length = draw(count, prng_below(&random, 20), trial & 1, &random);
        uint8_t *wire;
        uint64_t bytes = encoded(count, length, &wire), cut = prng_below(&random, (uint32_t)bytes);
        uint8_t *shorter = malloc(cut + 1);
        memcpy(shorter, wire, cut);
        EXPECT(pccl_indices_decode(shorter, cut, length, got, count, NULL) == PCCL_PROTOCOL, "cut at %" PRIu64, cut);
        free(shorter);
        uint8_t *longer = calloc(1, bytes + 1);
        memcpy(longer, wire, bytes);
        EXPECT(pccl_indices_decode(longer, bytes + 1, length, got, count, NULL) == PCCL_PROTOCOL, "a byte more");
        free(longer);
        wire[prng_below(&random, (uint32_t)bytes)] ^= (uint8_t)(1u << prng_below(&random, 8));
        if (pccl_indices_decode(wire, bytes, length, got, count, NULL) == PCCL_OK) {
            for (uint64_t i = 0; i < count; i++)
                EXPECT(got[i] < length && (i == 0 || got[i] > got[i - 1]), "place %" PRIu64, i);
        }
        free(wire);
    }
}

int main(void) {
    test_any_gaps();
    test_the_largest();
    test_size();
    test_refused();
    test_damaged();
    FINISH();
}
