/* SPDX-License-Identifier: MIT
 *
 * arena.h - memory of this process that others of its host may map, so that they read it where it lies.
 *
 * Must not know: what lies in it, who reads it. The idea: one anonymous file, larger than anybody will ever need and
 * empty, mapped once. A page costs memory from the moment that it is written, so the arena costs what is in use; and
 * who has mapped it once sees every block that is ever taken from it. Others map it read-only and find it as
 * shm_segment.h finds a segment; its size is sealed, so nobody can cut it off under them. Either side may touch only
 * what has been taken, or shown, so far: who locks all memory of a process does not get the rest of it.
 *
 * Blocks are never merged or moved. Not thread-safe. There is none elsewhere than on Linux, where addresses or the size
 * of files are limited (they would be used up, or the process killed), and where memory is promised before it is used
 * (vm.overcommit_memory is 2: want of it would be a signal). Then its owner takes ordinary memory instead.
 */
#ifndef PCCL_BASE_ARENA_H
#define PCCL_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PCCL__ARENA_PROOF_BYTES = 16 };

struct pccl__arena {
    uint8_t *at; /* NULL: not open */
    size_t bytes, open, taken;
    int fd;
};

/* Another process' arena, mapped here. */
struct pccl__arena_view {
    uint8_t *at; /* NULL: none */
    size_t bytes, open;
    uint64_t origin; /* its address in the other process */
};

/* Leaves it closed where it cannot be. */
void pccl__arena_open(struct pccl__arena *arena);
void pccl__arena_close(struct pccl__arena *arena);
/* In a forked child, which has no part in it: the memory must not outlive its owner there. */
void pccl__arena_forked(struct pccl__arena *arena);
/* Fresh addresses, aligned to a line; NULL: none are left, or it is not open. */
void *pccl__arena_take(struct pccl__arena *arena, size_t bytes);
/* The memory of a block goes back to the system, all but its first line; its addresses stay its own. */
void pccl__arena_drain(const struct pccl__arena *arena, void *block, size_t bytes);
bool pccl__arena_holds(const struct pccl__arena *arena, const void *block);
/* In whose first bytes a reader finds that it is the right arena. */
void pccl__arena_prove(struct pccl__arena *arena, const uint8_t proof[PCCL__ARENA_PROOF_BYTES]);

/* Maps the arena that the process `pid` has under its descriptor `fd` at `origin`. False: it cannot be, or is another.
 */
bool pccl__arena_view_open(struct pccl__arena_view *view, uint32_t pid, uint32_t fd, uint64_t origin,
                           const uint8_t proof[PCCL__ARENA_PROOF_BYTES]);
void pccl__arena_view_close(struct pccl__arena_view *view);
/* Where `bytes` at `address` of the other process lie here; NULL: not in its arena. */
const void *pccl__arena_view_of(struct pccl__arena_view *view, uint64_t address, size_t bytes);

#endif
