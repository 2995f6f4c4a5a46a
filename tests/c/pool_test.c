/* SPDX-License-Identifier: MIT
 *
 * pool_test.c - blocks are used again, and those that others should be able to map come from the arena exactly while
 * there are others; what is not kept costs no memory.
 */
#include "engine/pool.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "check.h"

enum { SMALL = 1000, LARGE = 100000, HUGE = 64 << 20, HELD = 5 };

static size_t memory_of(const struct pccl__arena *arena) {
    struct stat about;
    EXPECT(fstat(arena->fd, &about) == 0);
    return (size_t)about.st_blocks * 512;
}

static void test_blocks_are_used_again(bool sharing) {
    struct pccl__arena arena;
    struct pccl__pool pool;
    pccl__arena_open(&arena);
    pccl__pool_init(&pool, &arena);
    pccl__pool_share(&pool, sharing);
    void *small = pccl__pool_take(&pool, SMALL), *large = pccl__pool_take(&pool, LARGE);
    EXPECT(small && large && (uintptr_t)small % 64 == 0 && (uintptr_t)large % 64 == 0);
    EXPECT(!pccl__pool_shares(&pool, small) && pccl__pool_shares(&pool, large) == (sharing && arena.at));
    memset(large, 1, LARGE);
    pccl__pool_put(&pool, large, LARGE);
    pccl__pool_put(&pool, NULL, LARGE);
    void *held = pccl__pool_take(&pool, SMALL);
    EXPECT(pccl__pool_take(&pool, LARGE - 1) == large && held && held != small);
    EXPECT(pccl__pool_take(&pool, (size_t)1 << 62) == NULL);
    pccl__pool_put(&pool, large, LARGE);
    pccl__pool_put(&pool, small, SMALL);
    EXPECT(pool.used_bytes == 1024 && pool.idle_bytes == 1024 + (128 << 10), "one small one is out");
    pccl__pool_disown(&pool, SMALL);
    pccl__pool_clear(&pool);
    free(held); /* it outlives the pool */
    pccl__arena_close(&arena);
}

/* Idle blocks of the other kind go back at once, those in use when they are put. */
static void test_others_come_and_go(void) {
    struct pccl__arena arena;
    struct pccl__pool pool;
    pccl__arena_open(&arena);
    pccl__pool_init(&pool, &arena);
    void *alone[HELD], *among[HELD];
    for (int i = 0; i < HELD; i++) alone[i] = pccl__pool_take(&pool, LARGE);
    for (int i = 0; i < HELD - 1; i++) pccl__pool_put(&pool, alone[i], LARGE);
    pccl__pool_share(&pool, true);
    EXPECT(pool.idle_bytes == 0);
    for (int i = 0; i < HELD; i++) {
        among[i] = pccl__pool_take(&pool, LARGE);
        EXPECT(pccl__pool_shares(&pool, among[i]));
        memset(among[i], 1, LARGE);
    }
    pccl__pool_put(&pool, alone[HELD - 1], LARGE);
    EXPECT(pool.idle_bytes == 0, "it was of the other kind");
    size_t before = memory_of(&arena);
    pccl__pool_put(&pool, among[0], LARGE);
    EXPECT(pool.idle_bytes == 128 << 10 && memory_of(&arena) == before, "kept");
    pccl__pool_share(&pool, false);
    for (int i = 1; i < HELD; i++) pccl__pool_put(&pool, among[i], LARGE);
    EXPECT(pool.idle_bytes == 0 && memory_of(&arena) <= before - HELD * (size_t)(LARGE - 3 * 4096));
    void *later = pccl__pool_take(&pool, LARGE);
    EXPECT(!pccl__pool_shares(&pool, later));
    pccl__pool_put(&pool, later, LARGE);
    pccl__pool_share(&pool, true);
    later = pccl__pool_take(&pool, LARGE);
    EXPECT(later == among[HELD - 1], "its addresses are used again");
    pccl__pool_put(&pool, later, LARGE);
    pccl__pool_clear(&pool);
    pccl__arena_close(&arena);
}

/* What is idle beyond the limit has no memory. */
static void test_limit(void) {
    struct pccl__arena arena;
    struct pccl__pool pool;
    pccl__arena_open(&arena);
    pccl__pool_init(&pool, &arena);
    pccl__pool_share(&pool, true);
    void *block[HELD];
    for (int i = 0; i < HELD; i++) {
        block[i] = pccl__pool_take(&pool, HUGE);
        memset((uint8_t *)block[i] + HUGE / 2, 1, SMALL); /* more would take long */
    }
    size_t before = memory_of(&arena);
    for (int i = 0; i < HELD; i++) pccl__pool_put(&pool, block[i], HUGE);
    EXPECT(pool.idle_bytes == PCCL__POOL_KEEP_BYTES && pool.used_bytes == 0);
    EXPECT(memory_of(&arena) < before + 4096 * HELD, "of the last one, a page for its place in the list");
    EXPECT(((uint8_t *)block[HELD - 1])[HUGE / 2] == 0);
    pccl__pool_clear(&pool);
    pccl__arena_close(&arena);
}

/* Nothing changes where there is no arena. */
static void test_without(void) {
    struct pccl__arena closed = {.fd = -1}, *none[] = {NULL, &closed};
    for (int i = 0; i < 2; i++) {
        struct pccl__pool pool;
        pccl__pool_init(&pool, none[i]);
        pccl__pool_share(&pool, true);
        void *block = pccl__pool_take(&pool, LARGE);
        EXPECT(block && !pccl__pool_shares(&pool, block));
        pccl__pool_put(&pool, block, LARGE);
        EXPECT(pccl__pool_take(&pool, LARGE) == block);
        pccl__pool_put(&pool, block, LARGE);
        pccl__pool_clear(&pool);
    }
}

int main(void) {
    test_blocks_are_used_again(true);
    test_blocks_are_used_again(false);
    struct pccl__arena arena;
    pccl__arena_open(&arena);
    bool none = !arena.at; /* addresses or files are limited here */
    pccl__arena_close(&arena);
    if (!none) test_others_come_and_go();
    if (!none) test_limit();
    test_without();
    FINISH();
}
