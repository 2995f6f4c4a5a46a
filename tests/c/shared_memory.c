/* SPDX-License-Identifier: MIT */
#include "shared_memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/prng.h"

/* Engines have threads of their own. */
static _Atomic int64_t until_first, until_last, blocks;
static _Atomic uint64_t refused, random_state;
static _Atomic uint32_t chance_ppm;

void memory_refuse(uint64_t nth, uint64_t count) {
    until_first = nth ? (int64_t)nth : INT64_MAX;
    until_last = nth ? (int64_t)(nth + count) : INT64_MAX;
    chance_ppm = 0;
}

void memory_refuse_some(uint64_t seed, uint32_t ppm) {
    memory_refuse(0, 0);
    random_state = seed;
    chance_ppm = ppm;
}

uint64_t memory_refused(void) { return refused; }
int64_t memory_blocks(void) { return blocks; }

#ifdef PCCL_TEST_WRAP

bool memory_supported(void) { return true; }

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *block, size_t bytes);
int __real_posix_memalign(void **block, size_t alignment, size_t bytes);
void __real_free(void *block);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes);
int __wrap_posix_memalign(void **block, size_t alignment, size_t bytes);
void __wrap_free(void *block);

static bool refuse(void) {
    int64_t first = atomic_fetch_sub(&until_first, 1), last = atomic_fetch_sub(&until_last, 1);
    bool no = first <= 1 && last > 1;
    if (chance_ppm) {
        uint64_t state = atomic_fetch_add(&random_state, 1); /* splitmix64's output for consecutive states is random */
        no = prng_below(&state, 1000000) < chance_ppm;
    }
    if (!no) return false;
    refused++;
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t bytes) {
    void *block = refuse() ? NULL : __real_malloc(bytes);
    blocks += block != NULL;
    return block;
}

void *__wrap_calloc(size_t count, size_t bytes) {
    void *block = refuse() ? NULL : __real_calloc(count, bytes);
    blocks += block != NULL;
    return block;
}

void *__wrap_realloc(void *old, size_t bytes) {
    void *block = refuse() ? NULL : __real_realloc(old, bytes);
    blocks += block && !old;
    return block;
}

int __wrap_posix_memalign(void **block, size_t alignment, size_t bytes) {
    int failure = refuse() ? ENOMEM : __real_posix_memalign(block, alignment, bytes);
    blocks += !failure;
    return failure;
}

void __wrap_free(void *block) {
    blocks -= block != NULL;
    __real_free(block);
}

#else

bool memory_supported(void) { return false; }

#endif
