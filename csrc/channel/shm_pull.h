/* SPDX-License-Identifier: MIT
 *
 * shm_pull.h - reading another process' memory where it lies, so that bytes are copied once.
 *
 * Must not know: who talks to whom, what the bytes are. One side *shows* a piece of its memory under a number, the
 * other pulls it: by a copy, where the piece lies in an arena (arena.h) that it has mapped, else with process_vm_readv.
 * Whether it may is found out once, by trying; the system may forbid it.
 *
 * The idea: bytes are believed only if it is certain, after they were read, that they were the right ones.
 *   - The right process: each side keeps a proof (random bytes) in its own memory, and the same system call that reads
 * a piece reads the proof behind it. Another process with that number, or another program in it, does not have it. An
 * arena is proved when it is mapped: its memory is that of its owner for good, also when that has ended.
 *   - The right bytes: an owner who wants his memory back before the reader has said that it is done takes the piece
 *     back. That never waits: it is a mark in shared memory, and the reader looks for it when it has read. So the
 * reader may have read anything into *its* memory by then, but knows that it is nothing. An owner that dies takes
 * nothing back; then reading fails, or what was read is right.
 */
#ifndef PCCL_CHANNEL_SHM_PULL_H
#define PCCL_CHANNEL_SHM_PULL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

enum { SHM_PULL_LINE = 64, SHM_PROOF_BYTES = 16, SHM_PULL_SHOWN_MOST = 128 };

/* What a process shows for a proof; it has to stay where it is as long as anything can be pulled. */
struct shm_proof {
    uint8_t bytes[SHM_PROOF_BYTES];
};

/* One side's shared part: written by that side, read by the other. */
struct shm_pull_shared {
    _Alignas(SHM_PULL_LINE) uint32_t process; /* before the other side attaches or is told; 0: it shows nothing */
    struct shm_proof proof;
    uint64_t proof_at;
    uint32_t arena_fd;                                /* where others find this side's arena, ... */
    uint64_t arena_at;                                /* ... and it itself; 0: there is none */
    _Atomic uint32_t able;                            /* this side can read the other's memory */
    _Atomic uint32_t maps;                            /* ... and has mapped its arena */
    _Atomic uint32_t closed;                          /* nothing that this side has shown may be believed any more */
    _Atomic uint64_t taken_back[SHM_PULL_SHOWN_MOST]; /* by number modulo that; 0: never */
};

/* One side's view. Owner thread only. Not open (all zero): nothing can be pulled either way. */
struct shm_pull {
    struct shm_pull_shared *mine, *theirs;
    /* Of the other side, as it was when it was proved; process 0: it cannot be read. */
    uint32_t process;
    struct shm_proof proof;
    uint64_t proof_at;
    const struct pccl__arena *arena; /* ours, that the other side may read; NULL: none */
    struct pccl__arena_view *view;   /* of the other side's; NULL: none */
};

/* Says where others find this side's memory. `proof` is borrowed until the process ends or closes. */
void pccl__shm_pull_show(struct shm_pull_shared *mine, const struct shm_proof *proof, const struct pccl__arena *arena);
/* The other side has shown: tries whether its memory can be read, and tells it. `arena` and `view`: both or neither;
 * borrowed. The view is opened unless it is open, and its owner closes it, after all that pull through it. */
void pccl__shm_pull_open(struct shm_pull *pull, struct shm_pull_shared *mine, struct shm_pull_shared *theirs,
                         const struct pccl__arena *arena, struct pccl__arena_view *view);
/* Nothing that was shown may be believed any more. Before the memory that both share is unmapped; harmless when not
 * open. */
void pccl__shm_pull_close(struct shm_pull *pull);
/* May pieces be shown? Those not pulled yet must have numbers within SHM_PULL_SHOWN_MOST of each other; a number is
 * used once, and never 0. */
bool pccl__shm_pull_possible(const struct shm_pull *pull);
/* Has the other side mapped this side's arena, so that it need not ask the system for what lies there? And: does
 * `memory` lie there? */
bool pccl__shm_pull_maps(const struct shm_pull *pull);
bool pccl__shm_pull_mapped(const struct shm_pull *pull, const void *memory);
/* The memory of piece `number` is about to change. */
void pccl__shm_pull_take_back(struct shm_pull *pull, uint64_t number);
/* Copies a piece of the other side. 0: the bytes are there and right. ECANCELED: it was taken back, for good. Else an
 * errno: the other side has closed (ECONNRESET), its memory or process is gone, or reading is forbidden. `to` holds
 * anything unless 0. */
int pccl__shm_pull_read(const struct shm_pull *pull, uint64_t number, void *to, uint64_t from, size_t bytes);
/* Has the other side's process ended? True only if that is certain, and then before its sockets say so: the kernel
 * gives a process' memory back first, which takes long where there is much. One system call while it lives. */
bool pccl__shm_pull_ended(const struct shm_pull *pull);

#endif
