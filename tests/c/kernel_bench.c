/* SPDX-License-Identifier: MIT
 *
 * kernel_bench.c - how fast kernels are beside what memory allows: GB/s, bytes read and written, for arrays in the
 * caches and far beyond them, of every level that the CPU has; and that in percent of a copy of as many bytes.
 * `kernel_bench [LEVEL [DTYPE | FORMAT]]` measures only that. Of quantized payloads (codec.h) it is GB/s of float32,
 * whatever they become, in percent of the float32 that a copy moves.
 *
 * A copy reads each byte of its source and writes one. The limit is the better of memcpy and a loop as in STREAM
 * (McCalpin): large copies of memcpy do not read what they overwrite, small ones have better instructions. Kernels
 * that work in place, as the executor's do, need not read it either: they may even beat the copy. Copies and kernel
 * take turns, as other programs take memory's time too.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernel/kernel.h"

enum { BATCHES = 5, CALLS_SMALL = 64, WIDTH = 13 };
static const size_t sizes[] = {256 << 10, 128 << 20};

static uint8_t *memory, *other, *wire; /* each of the largest size */
static size_t bytes;
static const struct pccl__kernels *kernels;
static pccl_dtype dtype;
static pccl_reduce_op op;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What is measured; `passes` bytes are read or written for each byte of an array. */
static size_t count(void) { return bytes / pccl_dtype_bytes(dtype); }
static void copy_library(void) { memcpy(memory, other, bytes); }
static void copy_loop(void) {
    uint64_t *restrict to = (uint64_t *)memory;
    const uint64_t *restrict from = (const uint64_t *)other;
    for (size_t i = 0; i < bytes / sizeof *to; i++) {
        to[i] = from[i];
        __asm__ volatile(""); /* else it becomes a call of memcpy */
    }
}
static void reduce(void) { kernels->reduce[op][dtype](memory, memory, other, count()); }
static void divide(void) { kernels->divide[dtype](memory, 3, count()); }
static void scale(void) { kernels->scale[dtype](memory, other, 1.0 / 3, count()); }
static void checksum(void) { memory[0] = (uint8_t)kernels->crc32c(0, memory, bytes); }
static void hash(void) { pccl_hash128(memory, bytes, memory); }

/* Quantized payloads: `memory` and `other` are float32, `wire` is what became of `other`. */
static struct pccl__codec codec;
static void encode(void) {
    const struct pccl__coded values = {.values = other, .dtype = PCCL_FLOAT32};
    kernels->fold(&(struct pccl__fold){.codec = &codec, .elements = bytes / 4, .left = values, .wire = wire});
}
static void fold_into(uint8_t *coded, void *values, bool add) {
    struct pccl__fold fold = {.codec = &codec, .elements = bytes / 4, .left.wire = wire, .wire = coded};
    if (add) fold.right = (struct pccl__coded){.values = memory, .dtype = PCCL_FLOAT32};
    fold.values = values;
    fold.dtype = PCCL_FLOAT32;
    if (coded) fold.divisor = 2; /* else what is coded again and again would grow */
    kernels->fold(&fold);
}
static void decode(void) { fold_into(NULL, memory, false); }
static void decode_add(void) { fold_into(NULL, memory, true); }
static void add_encode(void) { fold_into(wire, NULL, true); }
static void add_encode_say(void) { fold_into(wire, memory, true); }

static double rate_of(void (*call)(void), int passes) {
    size_t calls = bytes > 1 << 20 ? 1 : CALLS_SMALL;
    double start = now_s();
    for (size_t i = 0; i < calls; i++) call();
    return 1e-9 * (double)bytes * passes * (double)calls / (now_s() - start);
}

static double better(double a, double b) { return a > b ? a : b; }

/* The best of some batches. */
static void measure(void (*call)(void), int passes, int copy_passes) {
    double best = 0, limit = 0;
    for (int batch = 0; batch < BATCHES; batch++) {
        limit = better(limit, better(rate_of(copy_library, copy_passes), rate_of(copy_loop, copy_passes)));
        best = better(best, rate_of(call, passes));
    }
    printf("%*.1f %3.0f%%", WIDTH - 5, best, 100 * best / limit);
    fflush(stdout);
}

/* Zeros meet no slow subnormals, whatever the type. */
static void show(void (*call)(void), int passes) {
    memset(memory, 0, bytes);
    memset(other, 0, bytes);
    measure(call, passes, 2);
}

static void show_codec(const char *how) {
    float *values = (float *)other;
    for (size_t i = 0; i < bytes / sizeof *values; i++) values[i] = (float)(i * 2654435761u % 65536) - 32768;
    printf("%-14.9s%-4s", pccl_format_name(codec.format), how);
    measure(encode, 1, 1);
    encode();
    measure(decode, 1, 1);
    measure(decode_add, 1, 1);
    measure(add_encode, 1, 1);
    encode();
    measure(add_encode_say, 1, 1);
    printf("\n");
}

static void show_codecs(const char *only) {
    printf("%-18s%*s%*s%*s%*s%*s\n", "quantized", WIDTH, "encode", WIDTH, "decode", WIDTH, "+ add", WIDTH,
           "add, encode", WIDTH, "+ decode");
    for (int f = 1; f < PCCL_FORMAT_COUNT; f++) {
        bool blocks = pccl__format_of(f)->parameter_bytes != 0;
        if (only && strcmp(only, pccl_format_name(f)) != 0) continue;
        codec = (struct pccl__codec){.format = (pccl_format)f, .block = 1024};
        show_codec("");
        if (f != PCCL_INT8_BLOCK && !only) continue;
        codec.stochastic = true;
        show_codec("rnd");
        codec.stochastic = false;
        codec.rotate = blocks;
        if (blocks) show_codec("rot");
    }
    printf("\n");
}

static void show_dtype(void) {
    printf("%-14s", pccl_dtype_name(dtype));
    for (op = 0; op < PCCL_REDUCE_OP_COUNT; op++) {
        if (op == PCCL_AVG || op == PCCL_PREMUL_SUM) continue; /* SUM */
        if (kernels->reduce[op][dtype])
            show(reduce, 3);
        else
            printf("%*s", WIDTH, "");
    }
    if (kernels->divide[dtype]) show(divide, 2);
    if (kernels->scale[dtype]) show(scale, 2);
    printf("\n");
}

static void show_level(const char *only) {
    printf("%s, %zu KiB: GB/s, %% of a copy\n%-14s", kernels->level, bytes >> 10, "");
    for (int o = 0; o < PCCL_REDUCE_OP_COUNT; o++)
        if (o != PCCL_AVG && o != PCCL_PREMUL_SUM) printf("%*s", WIDTH, pccl_reduce_op_name(o));
    printf("%*s%*s\n", WIDTH, "divide", WIDTH, "scale");
    for (int d = 0; d < PCCL_DTYPE_COUNT; d++) {
        dtype = (pccl_dtype)d;
        if (!kernels->reduce[PCCL_SUM][d] || (only && strcmp(only, pccl_dtype_name(dtype)) != 0)) continue;
        show_dtype();
    }
    printf("%-14s", "memcpy");
    show(copy_library, 2);
    printf("\n%-14s", "crc32c");
    show(checksum, 1);
    printf("\n%-14s", "hash128");
    show(hash, 1);
    printf("\n\n");
    show_codecs(only);
}

int main(int count_arguments, char **arguments) {
    static const unsigned masks[] = {0, PCCL__CPU_SSE42 | PCCL__CPU_AVX2,
                                     PCCL__CPU_SSE42 | PCCL__CPU_AVX2 | PCCL__CPU_AVX512, PCCL__CPU_NEON};
    const char *known = "";
    memory = aligned_alloc(64, sizes[1]);
    other = aligned_alloc(64, sizes[1]);
    wire = aligned_alloc(64, sizes[1]);
    if (!memory || !other || !wire) return 1;
    for (size_t m = 0; m < sizeof masks / sizeof masks[0]; m++) {
        struct pccl__kernels filled = {0};
        pccl__kernels_fill(&filled, masks[m]);
        if (strcmp(filled.level, known) == 0 || (m > 0 && strcmp(filled.level, "scalar") == 0)) continue;
        known = filled.level;
        if (count_arguments > 1 && strcmp(arguments[1], known) != 0) continue;
        kernels = &filled;
        for (int s = 0; s < 2; s++) {
            bytes = sizes[s];
            show_level(count_arguments > 2 ? arguments[2] : NULL);
        }
    }
    free(memory);
    free(other);
    free(wire);
    return 0;
}
