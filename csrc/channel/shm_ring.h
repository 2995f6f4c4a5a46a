/* SPDX-License-Identifier: MIT
 *
 * shm_ring.h - a stream of bytes from one process to another through memory that both have mapped.
 *
 * Must not know: where the memory comes from, what the bytes mean, how a sleeping side is woken. One side writes, the
 * other reads; neither waits for the other. The idea: each side keeps its own position in its own memory and only
 * *publishes* it; the other side's position is loaded once per call and believed only as far as it makes sense. So a
 * process that scribbles over the shared part can spoil what it sends, but makes nobody read or write outside the ring.
 *
 * Sleeping. A side that is about to sleep sets its flag and then looks once more; a side that has moved its position
 * looks at the other's flag afterwards. All four accesses are sequentially consistent, so at least one of the two sees
 * the other's: either the sleeper stays awake or it is woken. Whoever finds the flag set clears it, so there is one
 * wake-up per sleep.
 */
#ifndef PCCL_CHANNEL_SHM_RING_H
#define PCCL_CHANNEL_SHM_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

enum { SHM_RING_LINE = 64, SHM_RING_LEAST = 4096 };

/* The shared part besides the bytes. What one side writes and the other reads stands on a cache line of its own. */
struct shm_ring_shared {
    _Alignas(SHM_RING_LINE) _Atomic uint64_t written; /* bytes since the start: the writer's position */
    _Alignas(SHM_RING_LINE) _Atomic uint64_t read;    /* the reader's */
    _Alignas(SHM_RING_LINE) _Atomic uint32_t reader_sleeps;
    _Alignas(SHM_RING_LINE) _Atomic uint32_t writer_sleeps;
};

/* One side's view. Owner thread only. */
struct shm_ring {
    struct shm_ring_shared *shared;
    uint8_t *bytes;
    uint64_t capacity; /* a power of two, at least SHM_RING_LEAST */
    uint64_t limit;    /* the writer's own: how much may be in the ring; at most the capacity */
    uint64_t mine;     /* own position */
    uint64_t theirs;   /* the other side's, as last seen */
};

/* A fresh ring over zeroed shared memory. Nobody counts as asleep. */
void pccl__shm_ring_init(struct shm_ring *ring, struct shm_ring_shared *shared, uint8_t *bytes, uint64_t capacity);

/* Copies as much as there is room for, or is there. Returns the number of bytes, or -1: the other side's position is
 * impossible. */
int64_t pccl__shm_ring_write(struct shm_ring *ring, const struct iovec *parts, int count);
int64_t pccl__shm_ring_read(struct shm_ring *ring, const struct iovec *parts, int count);

/* The writer's: bytes that a write would take; 0 also where the limit was lowered below what is in it. The reader's:
 * bytes that a read would give. -1 as above. */
int64_t pccl__shm_ring_room(struct shm_ring *ring);
int64_t pccl__shm_ring_filled(struct shm_ring *ring);

/* About to sleep: must look at room or filled once more afterwards. And: awake again after all. */
static inline void pccl__shm_ring_sleep(_Atomic uint32_t *flag) { atomic_store(flag, 1); }
static inline void pccl__shm_ring_stay(_Atomic uint32_t *flag) { atomic_store_explicit(flag, 0, memory_order_relaxed); }
/* After a write or read: does the other side sleep? If so it must be woken now. */
static inline bool pccl__shm_ring_must_wake(_Atomic uint32_t *flag) {
    return atomic_load(flag) != 0 && atomic_exchange(flag, 0) != 0;
}

#endif
