/* SPDX-License-Identifier: MIT
 *
 * shm_ring_test.c - bytes come out as they went in, whatever the pieces and wherever the ring wraps; two threads that
 * sleep and wake each other by the flags never both sleep; a side that publishes nonsense is found out, and nobody
 * touches a byte outside the ring for it.
 */
#include "channel/shm_ring.h"

#include <pthread.h>
#include <semaphore.h>
#include <string.h>

#include "base/bits.h"
#include "base/prng.h"
#include "check.h"

enum { CAPACITY = SHM_RING_LEAST, GUARD_BYTES = 64, GUARD = 0xA5, PIECE_MOST = 3 * CAPACITY };

struct world {
    struct shm_ring_shared shared;
    uint8_t memory[GUARD_BYTES + CAPACITY + GUARD_BYTES];
    struct shm_ring writer, reader;
};

static void make(struct world *w) {
    memset(w, 0, sizeof *w);
    memset(w->memory, GUARD, sizeof w->memory);
    pccl__shm_ring_init(&w->writer, &w->shared, w->memory + GUARD_BYTES, CAPACITY);
    pccl__shm_ring_init(&w->reader, &w->shared, w->memory + GUARD_BYTES, CAPACITY);
}

static void expect_guards(const struct world *w) {
    for (int i = 0; i < GUARD_BYTES; i++)
        EXPECT(w->memory[i] == GUARD && w->memory[GUARD_BYTES + CAPACITY + i] == GUARD);
}

static uint8_t byte_at(uint64_t position) { return (uint8_t)(position * 131 + (position >> 9)); }

/* Up to three parts, some of them empty. */
static int cut(struct iovec parts[3], uint8_t *memory, uint64_t *random) {
    int count = 1 + (int)prng_below(random, 3);
    for (int i = 0; i < count; i++) {
        uint32_t bytes = prng_below(random, prng_below(random, 2) ? 40 : PIECE_MOST / 3);
        parts[i] = (struct iovec){memory, bytes};
        memory += bytes;
    }
    return count;
}

static size_t total_of(const struct iovec *parts, int count) {
    size_t total = 0;
    for (int i = 0; i < count; i++) total += parts[i].iov_len;
    return total;
}

static void test_stream(uint64_t seed) {
    static struct world w;
    static uint8_t memory[PIECE_MOST];
    make(&w);
    uint64_t written = 0, read = 0;
    for (int round = 0; round < 2000; round++) {
        struct iovec parts[3];
        int count = cut(parts, memory, &seed);
        size_t wanted = total_of(parts, count);
        if (prng_below(&seed, 2)) {
            for (size_t i = 0; i < wanted; i++) memory[i] = byte_at(written + i);
            uint64_t room = CAPACITY - (written - read);
            EXPECT(pccl__shm_ring_room(&w.writer) == (int64_t)room);
            EXPECT(pccl__shm_ring_write(&w.writer, parts, count) == (int64_t)min_u64(wanted, room));
            written += min_u64(wanted, room);
        } else {
            uint64_t filled = written - read, got = min_u64(wanted, filled);
            EXPECT(pccl__shm_ring_filled(&w.reader) == (int64_t)filled);
            EXPECT(pccl__shm_ring_read(&w.reader, parts, count) == (int64_t)got);
            for (size_t i = 0; i < got; i++) EXPECT(memory[i] == byte_at(read + i));
            read += got;
        }
    }
    EXPECT(read > 10 * CAPACITY, "it has to wrap");
    expect_guards(&w);
}

/* ---------------------------------------------------------------- two threads */

enum { STREAM_BYTES = 4 * 1024 * 1024 };

struct party {
    struct world *world;
    sem_t bells[2]; /* [0] wakes the writer */
    uint64_t seed;
};

static void wait_for(sem_t *bell) {
    while (sem_wait(bell) != 0) continue;
}

/* A lost wake-up would leave both asleep, and the program would not end. */
static void *write_all(void *argument) {
    struct party *party = argument;
    struct shm_ring *ring = &party->world->writer;
    static uint8_t memory[PIECE_MOST];
    uint64_t random = party->seed;
    for (uint64_t at = 0; at < STREAM_BYTES;) {
        size_t bytes = min_u64(1 + prng_below(&random, PIECE_MOST), STREAM_BYTES - at);
        for (size_t i = 0; i < bytes; i++) memory[i] = byte_at(at + i);
        struct iovec part = {memory, bytes};
        int64_t wrote = pccl__shm_ring_write(ring, &part, 1);
        EXPECT(wrote >= 0);
        at += (uint64_t)wrote;
        if (wrote > 0 && pccl__shm_ring_must_wake(&ring->shared->reader_sleeps)) sem_post(&party->bells[1]);
        if (wrote > 0) continue;
        pccl__shm_ring_sleep(&ring->shared->writer_sleeps);
        if (pccl__shm_ring_room(ring) == 0) wait_for(&party->bells[0]);
    }
    return NULL;
}

static void *read_all(void *argument) {
    struct party *party = argument;
    struct shm_ring *ring = &party->world->reader;
    static uint8_t memory[PIECE_MOST];
    uint64_t random = ~party->seed;
    for (uint64_t at = 0; at < STREAM_BYTES;) {
        struct iovec part = {memory, 1 + prng_below(&random, PIECE_MOST)};
        int64_t got = pccl__shm_ring_read(ring, &part, 1);
        EXPECT(got >= 0);
        for (int64_t i = 0; i < got; i++) EXPECT(memory[i] == byte_at(at + (uint64_t)i));
        at += (uint64_t)got;
        if (got > 0 && pccl__shm_ring_must_wake(&ring->shared->writer_sleeps)) sem_post(&party->bells[0]);
        if (got > 0) continue;
        pccl__shm_ring_sleep(&ring->shared->reader_sleeps);
        if (pccl__shm_ring_filled(ring) == 0) wait_for(&party->bells[1]);
    }
    return NULL;
}

static void test_threads(uint64_t seed) {
    static struct world w;
    make(&w);
    struct party party = {.world = &w, .seed = seed};
    EXPECT(sem_init(&party.bells[0], 0, 0) == 0 && sem_init(&party.bells[1], 0, 0) == 0);
    pthread_t threads[2];
    EXPECT(pthread_create(&threads[0], NULL, write_all, &party) == 0);
    EXPECT(pthread_create(&threads[1], NULL, read_all, &party) == 0);
    for (int i = 0; i < 2; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
    EXPECT(pccl__shm_ring_filled(&w.reader) == 0);
    for (int i = 0; i < 2; i++) sem_destroy(&party.bells[i]);
    expect_guards(&w);
}

/* A writer may use less of the ring than there is, also while there is more in it. */
static void test_limit(void) {
    static struct world w;
    static uint8_t memory[CAPACITY], read[CAPACITY];
    make(&w);
    struct iovec part = {memory, CAPACITY / 2}, out = {read, CAPACITY / 4 + 10};
    EXPECT(pccl__shm_ring_write(&w.writer, &part, 1) == CAPACITY / 2);
    w.writer.limit = CAPACITY / 4;
    EXPECT(pccl__shm_ring_room(&w.writer) == 0 && pccl__shm_ring_write(&w.writer, &part, 1) == 0);
    EXPECT(pccl__shm_ring_read(&w.reader, &out, 1) == CAPACITY / 4 + 10);
    EXPECT(pccl__shm_ring_write(&w.writer, &part, 1) == 10);
    w.writer.limit = CAPACITY;
    EXPECT(pccl__shm_ring_write(&w.writer, &part, 1) == CAPACITY / 2);
    expect_guards(&w);
}

/* ---------------------------------------------------------------- a hostile other side */

static void test_nonsense_from_the_reader(uint64_t written, uint64_t read, uint64_t claimed) {
    static struct world w;
    static uint8_t memory[CAPACITY];
    make(&w);
    struct iovec part = {memory, written};
    EXPECT(pccl__shm_ring_write(&w.writer, &part, 1) == (int64_t)written);
    atomic_store(&w.shared.read, read);
    EXPECT(pccl__shm_ring_room(&w.writer) == (int64_t)(CAPACITY - written + read));
    atomic_store(&w.shared.read, claimed);
    part.iov_len = sizeof memory;
    EXPECT(pccl__shm_ring_write(&w.writer, &part, 1) == -1 && pccl__shm_ring_room(&w.writer) == -1);
    expect_guards(&w);
}

static void test_nonsense_from_the_writer(uint64_t seen, uint64_t claimed) {
    static struct world w;
    static uint8_t memory[2 * CAPACITY];
    make(&w);
    struct iovec part = {memory, sizeof memory};
    atomic_store(&w.shared.written, seen);
    EXPECT(pccl__shm_ring_filled(&w.reader) == (int64_t)seen);
    atomic_store(&w.shared.written, claimed);
    EXPECT(pccl__shm_ring_read(&w.reader, &part, 1) == -1 && pccl__shm_ring_filled(&w.reader) == -1);
}

/* The other side may write anything there at any time, also our own position, which we never read back. */
static void test_scribbling(uint64_t seed) {
    static struct world w;
    static uint8_t memory[PIECE_MOST];
    make(&w);
    uint32_t refused = 0;
    for (int round = 0; round < 20000; round++) {
        uint64_t near = prng_below(&seed, 2) ? w.writer.mine : w.reader.mine;
        atomic_store(&w.shared.read, prng_below(&seed, 8) ? near - prng_below(&seed, 99) : prng_next(&seed));
        atomic_store(&w.shared.written, prng_below(&seed, 8) ? near + prng_below(&seed, 99) : prng_next(&seed));
        struct iovec parts[3];
        int count = cut(parts, memory, &seed);
        int64_t wrote = pccl__shm_ring_write(&w.writer, parts, count);
        int64_t got = pccl__shm_ring_read(&w.reader, parts, count);
        EXPECT(wrote >= -1 && wrote <= CAPACITY && got >= -1 && got <= CAPACITY);
        refused += (wrote < 0) + (got < 0);
    }
    EXPECT(refused > 0);
    expect_guards(&w);
}

static void test_flags(void) {
    static struct world w;
    make(&w);
    _Atomic uint32_t *flag = &w.shared.reader_sleeps;
    EXPECT(!pccl__shm_ring_must_wake(flag), "nobody sleeps in a fresh ring");
    pccl__shm_ring_sleep(flag);
    pccl__shm_ring_sleep(flag);
    EXPECT(pccl__shm_ring_must_wake(flag) && !pccl__shm_ring_must_wake(flag), "one wake-up per sleep");
    pccl__shm_ring_sleep(flag);
    pccl__shm_ring_stay(flag);
    EXPECT(!pccl__shm_ring_must_wake(flag));
}

int main(void) {
    test_limit();
    for (uint64_t seed = 1; seed <= 20; seed++) test_stream(seed);
    for (uint64_t seed = 1; seed <= 5; seed++) test_threads(seed);
    test_nonsense_from_the_reader(100, 0, 101);          /* it read what was not written */
    test_nonsense_from_the_reader(100, 50, 49);          /* it unread something */
    test_nonsense_from_the_reader(100, 50, UINT64_MAX);  /* ... below zero */
    test_nonsense_from_the_writer(100, 99);              /* it unwrote something */
    test_nonsense_from_the_writer(100, CAPACITY + 1);    /* more than the ring holds */
    test_nonsense_from_the_writer(100, UINT64_MAX - 10); /* far more */
    test_scribbling(3);
    test_flags();
    FINISH();
}
