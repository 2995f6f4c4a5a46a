/* SPDX-License-Identifier: MIT
 *
 * indices_bench.c - what indices take when they are encoded, beside what they hold and what blocks of one plain width
 * would take; and how long it takes to encode and decode them, and to add up two sparse vectors of floats, each with
 * such indices: nanoseconds for each of them, best of some batches.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/bits.h"
#include "base/prng.h"
#include "pccl_sparse.h"

enum { COUNT = 1 << 20, BATCHES = 7, BLOCK = 128 };

static uint64_t indices[2][COUNT], sums[2 * COUNT];
static float values[COUNT], sum_values[2 * COUNT];
static uint8_t wire[16 * COUNT];
static uint64_t bytes, length;

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

/* Each element is given with the probability `density`. */
static void draw(uint64_t *to, double density, uint64_t *random) {
    uint64_t next = 0;
    for (int i = 0; i < COUNT; i++) {
        double uniform = ((double)(prng_next(random) >> 11) + 1) * 0x1p-53;
        next += density == 1 ? 0 : (uint64_t)floor(log(uniform) / log1p(-density));
        to[i] = next++;
    }
    if (next > length) length = next;
}

/* The fewest bits for each gap with which a block of plain width can hold all of its own. */
static double plain_bits(const uint64_t *from) {
    uint64_t bits = 0, next = 0;
    for (int start = 0; start < COUNT; start += BLOCK) {
        uint64_t most = 0;
        for (int i = start; i < start + BLOCK; i++) {
            most = max_u64(most, from[i] - next);
            next = from[i] + 1;
        }
        bits += 8 + BLOCK * log2_ceil(most + 1);
    }
    return (double)bits / COUNT;
}

static void encode(void) { (void)pccl_indices_encode(indices[0], COUNT, length, wire, &bytes, NULL); }
static void decode(void) { (void)pccl_indices_decode(wire, bytes, length, indices[0], COUNT, NULL); }
static void add(void) {
    pccl_sparse vectors[2] = {{indices[0], values, COUNT}, {indices[1], values, COUNT}};
    uint64_t count;
    (void)pccl_sparse_sum(PCCL_FLOAT32, vectors, 2, sums, sum_values, 2 * COUNT, &count, NULL);
}

static double best_ns(void (*call)(void), double each) {
    double best = INFINITY;
    for (int batch = 0; batch < BATCHES; batch++) {
        double start = now_ns();
        call();
        best = fmin(best, now_ns() - start);
    }
    return best / each;
}

int main(void) {
    static const double densities[] = {1e-6, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 0.9, 1};
    uint64_t random = 1;
    printf("%10s%12s%12s%12s%12s%12s%12s\n", "density", "bits", "holds", "plain", "encode ns", "decode ns", "sum ns");
    for (size_t d = 0; d < sizeof densities / sizeof densities[0]; d++) {
        double p = densities[d], holds = p == 1 ? 0 : -(p * log2(p) + (1 - p) * log2(1 - p)) / p;
        length = 0;
        draw(indices[0], p, &random);
        draw(indices[1], p, &random);
        double encode_ns = best_ns(encode, COUNT), decode_ns = best_ns(decode, COUNT);
        printf("%9.4g%%%12.2f%12.2f%12.2f%12.2f%12.2f%12.2f\n", 100 * p, 8.0 * (double)bytes / COUNT, holds,
               plain_bits(indices[0]), encode_ns, decode_ns, best_ns(add, 2 * COUNT));
    }
    return 0;
}
