/* SPDX-License-Identifier: MIT
 *
 * shm_ring.c - see shm_ring.h.
 */
#include "channel/shm_ring.h"

#include <string.h>

#include "base/bits.h"
#include "base/check.h"

void pccl__shm_ring_init(struct shm_ring *ring, struct shm_ring_shared *shared, uint8_t *bytes, uint64_t capacity) {
    CHECK(capacity >= SHM_RING_LEAST && (capacity & (capacity - 1)) == 0);
    *ring = (struct shm_ring){.shared = shared, .bytes = bytes, .capacity = capacity, .limit = capacity};
}

/* A position never falls, and the two are never further apart than the capacity. */
int64_t pccl__shm_ring_room(struct shm_ring *ring) {
    uint64_t read = atomic_load(&ring->shared->read);
    if (read < ring->theirs || read > ring->mine) return -1;
    ring->theirs = read;
    uint64_t filled = ring->mine - read;
    return filled < ring->limit ? (int64_t)(ring->limit - filled) : 0;
}

int64_t pccl__shm_ring_filled(struct shm_ring *ring) {
    uint64_t written = atomic_load(&ring->shared->written);
    if (written < ring->theirs || written - ring->mine > ring->capacity) return -1;
    ring->theirs = written;
    return (int64_t)(written - ring->mine);
}

static void copy_in(struct shm_ring *ring, const uint8_t *from, size_t bytes) {
    size_t at = ring->mine & (ring->capacity - 1), first = min_u64(bytes, ring->capacity - at);
    memcpy(ring->bytes + at, from, first);
    memcpy(ring->bytes, from + first, bytes - first);
    ring->mine += bytes;
}

static void copy_out(struct shm_ring *ring, uint8_t *to, size_t bytes) {
    size_t at = ring->mine & (ring->capacity - 1), first = min_u64(bytes, ring->capacity - at);
    memcpy(to, ring->bytes + at, first);
    memcpy(to + first, ring->bytes, bytes - first);
    ring->mine += bytes;
}

int64_t pccl__shm_ring_write(struct shm_ring *ring, const struct iovec *parts, int count) {
    int64_t room = pccl__shm_ring_room(ring), left = room;
    for (int i = 0; i < count && left > 0; i++) {
        size_t bytes = min_u64(parts[i].iov_len, (uint64_t)left);
        if (bytes) copy_in(ring, parts[i].iov_base, bytes);
        left -= (int64_t)bytes;
    }
    if (room <= 0 || left == room) return room < 0 ? -1 : 0;
    atomic_store(&ring->shared->written, ring->mine);
    return room - left;
}

int64_t pccl__shm_ring_read(struct shm_ring *ring, const struct iovec *parts, int count) {
    int64_t filled = pccl__shm_ring_filled(ring), left = filled;
    for (int i = 0; i < count && left > 0; i++) {
        size_t bytes = min_u64(parts[i].iov_len, (uint64_t)left);
        if (bytes) copy_out(ring, parts[i].iov_base, bytes);
        left -= (int64_t)bytes;
    }
    if (filled <= 0 || left == filled) return filled < 0 ? -1 : 0;
    atomic_store(&ring->shared->read, ring->mine);
    return filled - left;
}
