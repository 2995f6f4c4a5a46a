/* SPDX-License-Identifier: MIT
 *
 * pool.h - reusable memory by size class (powers of two from 256 bytes), so that an operation in the steady state asks
 * the allocator for nothing and touches warm pages. Not thread-safe: the core's lock guards it. Blocks of 16 KiB and
 * more come from an arena while there are others on the host who could read them; a forked child does not have those.
 *
 * What is idle beyond PCCL__POOL_KEEP_BYTES goes back to the system at once.
 */
#ifndef PCCL_ENGINE_POOL_H
#define PCCL_ENGINE_POOL_H

#include <stddef.h>

#include "base/arena.h"

enum { PCCL__POOL_CLASSES = 40, PCCL__POOL_SHARED_LEAST = 16 * 1024 };
#define PCCL__POOL_KEEP_BYTES ((size_t)256 << 20)

struct pccl__pool {
    void *idle[PCCL__POOL_CLASSES];    /* linked through their first word, as are the next */
    void *drained[PCCL__POOL_CLASSES]; /* blocks of the arena without memory */
    struct pccl__arena *arena;         /* or NULL */
    bool sharing;                      /* large blocks come from there */
    size_t idle_bytes;
    size_t used_bytes;
};

void pccl__pool_init(struct pccl__pool *pool, struct pccl__arena *arena);
void pccl__pool_clear(struct pccl__pool *pool); /* all blocks must have been put back */
/* 64-byte aligned, not cleared; NULL: no memory. `bytes` must be the same in take and put. */
void *pccl__pool_take(struct pccl__pool *pool, size_t bytes);
void pccl__pool_put(struct pccl__pool *pool, void *block, size_t bytes); /* NULL is allowed */
/* Are there others for whom blocks should come from the arena, from now on? */
void pccl__pool_share(struct pccl__pool *pool, bool wanted);
/* Can others map what lies there? */
bool pccl__pool_shares(const struct pccl__pool *pool, const void *block);
/* The block outlives the pool: its holder frees it with free(). */
void pccl__pool_disown(struct pccl__pool *pool, size_t bytes);

#endif
