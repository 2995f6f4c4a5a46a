/* SPDX-License-Identifier: MIT */
#include "engine/pool.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "base/check.h"

enum { SMALLEST_LOG2 = 8, LINE = 64, HUGE_PAGE = 2 << 20 };

static unsigned class_of(size_t bytes) {
    unsigned log2 = log2_ceil(bytes);
    return log2 < SMALLEST_LOG2 ? 0 : log2 - SMALLEST_LOG2;
}

static size_t class_bytes(unsigned class) { return (size_t)1 << (class + SMALLEST_LOG2); }

/* What is as large as a huge page asks for them: a pass through it in pages of 4 KiB spends half of its time on finding
 * them, in a virtual machine more. */
static void *block_new(size_t bytes) {
    void *block = NULL;
    if (posix_memalign(&block, bytes < HUGE_PAGE ? LINE : HUGE_PAGE, bytes)) return NULL;
#ifdef MADV_HUGEPAGE
    if (bytes >= HUGE_PAGE) (void)madvise(block, bytes, MADV_HUGEPAGE); /* only a wish */
#endif
    return block;
}

static void push(void **list, void *block) {
    *(void **)block = *list;
    *list = block;
}

static void *pop(void **list) {
    void *block = *list;
    if (block) *list = *(void **)block;
    return block;
}

static bool from_arena(const struct pccl__pool *pool, unsigned class) {
    return pool->sharing && class_bytes(class) >= PCCL__POOL_SHARED_LEAST;
}

static void *fresh_block(struct pccl__pool *pool, unsigned class) {
    void *block = NULL;
    if (from_arena(pool, class) && !(block = pop(&pool->drained[class])))
        block = pccl__arena_take(pool->arena, class_bytes(class));
    return block ? block : block_new(class_bytes(class));
}

static void give_back(struct pccl__pool *pool, void *block, unsigned class) {
    if (!pccl__pool_shares(pool, block)) {
        free(block);
        return;
    }
    pccl__arena_drain(pool->arena, block, class_bytes(class));
    push(&pool->drained[class], block);
}

void pccl__pool_init(struct pccl__pool *pool, struct pccl__arena *arena) {
    *pool = (struct pccl__pool){.arena = arena};
}

bool pccl__pool_shares(const struct pccl__pool *pool, const void *block) {
    return pccl__arena_holds(pool->arena, block);
}

/* Of idle blocks only those stay that would be taken from there anew. */
void pccl__pool_share(struct pccl__pool *pool, bool wanted) {
    bool sharing = wanted && pool->arena && pool->arena->at;
    if (sharing == pool->sharing) return;
    pool->sharing = sharing;
    for (unsigned class = 0; class < PCCL__POOL_CLASSES; class ++) {
        void *kept = NULL;
        for (void *block; (block = pop(&pool->idle[class]));) {
            if (pccl__pool_shares(pool, block) == from_arena(pool, class)) {
                push(&kept, block);
                continue;
            }
            pool->idle_bytes -= class_bytes(class);
            give_back(pool, block, class);
        }
        pool->idle[class] = kept;
    }
}

void pccl__pool_clear(struct pccl__pool *pool) {
    CHECK(pool->used_bytes == 0);
    for (unsigned class = 0; class < PCCL__POOL_CLASSES; class ++) {
        for (void *block; (block = pop(&pool->idle[class]));)
            if (!pccl__pool_shares(pool, block)) free(block);
    }
    pool->idle_bytes = 0;
}

void *pccl__pool_take(struct pccl__pool *pool, size_t bytes) {
    unsigned class = class_of(bytes);
    if (class >= PCCL__POOL_CLASSES) return NULL;
    void *block = pop(&pool->idle[class]);
    if (block)
        pool->idle_bytes -= class_bytes(class);
    else if (!(block = fresh_block(pool, class)))
        return NULL;
    pool->used_bytes += class_bytes(class);
    return block;
}

void pccl__pool_put(struct pccl__pool *pool, void *block, size_t bytes) {
    if (!block) return;
    unsigned class = class_of(bytes);
    pool->used_bytes -= class_bytes(class);
    bool fits = pccl__pool_shares(pool, block) == from_arena(pool, class);
    if (fits && pool->idle_bytes + class_bytes(class) <= PCCL__POOL_KEEP_BYTES) {
        push(&pool->idle[class], block);
        pool->idle_bytes += class_bytes(class);
    } else {
        give_back(pool, block, class);
    }
}

void pccl__pool_disown(struct pccl__pool *pool, size_t bytes) { pool->used_bytes -= class_bytes(class_of(bytes)); }
