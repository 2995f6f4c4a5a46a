/* SPDX-License-Identifier: MIT
 *
 * poll_test.c - readiness, levels, removed sources, wake-ups, two sleepers. poll_posix_test.c runs the same over
 * poll(2).
 */
#include "channel/poll.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "check.h"

struct source {
    int fds[2];
    int handle;
    unsigned seen;
    int calls;
};

static void note(void *owner, int fd, unsigned events) {
    struct source *source = owner;
    EXPECT(fd == source->fds[0]);
    source->seen = events;
    source->calls++;
}

static void source_new(struct source *source, struct pccl__poll *poll, unsigned events) {
    *source = (struct source){0};
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, source->fds) == 0);
    source->handle = pccl__poll_add(poll, source->fds[0], events, note, source);
    EXPECT(source->handle >= 0);
}

static void source_free(struct source *source, struct pccl__poll *poll) {
    if (source->handle >= 0) pccl__poll_remove(poll, source->handle);
    close(source->fds[0]);
    close(source->fds[1]);
}

static int turn(struct pccl__poll *poll, uint64_t timeout_ns) {
    struct pccl__ready ready[PCCL__POLL_BATCH];
    int count = pccl__poll_wait(poll, timeout_ns, ready);
    pccl__poll_dispatch(poll, ready, count);
    return count;
}

static void test_levels_and_changes(struct pccl__poll *poll) {
    struct source source;
    source_new(&source, poll, PCCL__POLL_IN);
    EXPECT(turn(poll, 0) == 0 && source.calls == 0);
    EXPECT(write(source.fds[1], "x", 1) == 1);
    EXPECT(turn(poll, NEVER_NS) == 1 && source.seen == PCCL__POLL_IN);
    EXPECT(turn(poll, 0) == 1, "level-triggered: still there");
    pccl__poll_change(poll, source.handle, PCCL__POLL_IN | PCCL__POLL_OUT);
    EXPECT(turn(poll, 0) == 1 && source.seen == (PCCL__POLL_IN | PCCL__POLL_OUT));
    pccl__poll_change(poll, source.handle, 0);
    EXPECT(turn(poll, 0) == 0);
    pccl__poll_change(poll, source.handle, PCCL__POLL_IN);
    char byte;
    EXPECT(read(source.fds[0], &byte, 1) == 1 && turn(poll, 0) == 0);
    close(source.fds[1]);
    EXPECT(turn(poll, NEVER_NS) == 1 && (source.seen & PCCL__POLL_IN), "an end of stream is readable");
    source.fds[1] = dup(source.fds[0]);
    source_free(&source, poll);
}

/* An event that was fetched before its source was removed, also when the slot is in use again. */
static void test_stale_events(struct pccl__poll *poll) {
    struct source gone, next;
    source_new(&gone, poll, PCCL__POLL_OUT);
    struct pccl__ready ready[PCCL__POLL_BATCH];
    EXPECT(pccl__poll_wait(poll, NEVER_NS, ready) == 1);
    pccl__poll_remove(poll, gone.handle);
    pccl__poll_dispatch(poll, ready, 1);
    EXPECT(gone.calls == 0);
    source_new(&next, poll, PCCL__POLL_IN);
    EXPECT(next.handle == gone.handle, "slots are used again");
    pccl__poll_dispatch(poll, ready, 1);
    EXPECT(next.calls == 0 && gone.calls == 0);
    gone.handle = -1;
    source_free(&gone, poll);
    source_free(&next, poll);
}

static void test_many(struct pccl__poll *poll) {
    enum { MANY = 100 };
    static struct source sources[MANY];
    for (int i = 0; i < MANY; i++) source_new(&sources[i], poll, PCCL__POLL_IN);
    for (int i = 0; i < MANY; i += 2) EXPECT(write(sources[i].fds[1], "x", 1) == 1);
    for (int rounds = 0, left = 1; left; rounds++) {
        EXPECT(turn(poll, NEVER_NS) > 0 && rounds < MANY, "some are never reported");
        left = 0;
        for (int i = 0; i < MANY; i++) {
            char byte;
            if (sources[i].calls && read(sources[i].fds[0], &byte, 1) < 0) EXPECT(errno == EAGAIN);
            if (i % 2 == 0 && !sources[i].calls) left++;
            EXPECT(i % 2 == 0 || sources[i].calls == 0);
        }
    }
    for (int i = 0; i < MANY; i++) source_free(&sources[i], poll);
}

/* More sources are ready than one wait can tell, and stay so: all have their turn. */
static void test_fair(struct pccl__poll *poll) {
    enum { MANY = 3 * PCCL__POLL_BATCH / 2 };
    static struct source sources[MANY];
    for (int i = 0; i < MANY; i++) source_new(&sources[i], poll, PCCL__POLL_OUT);
    for (int rounds = 0; rounds < 4; rounds++) EXPECT(turn(poll, NEVER_NS) == PCCL__POLL_BATCH);
    for (int i = 0; i < MANY; i++) EXPECT(sources[i].calls > 0, "source %d had no turn", i);
    for (int i = 0; i < MANY; i++) source_free(&sources[i], poll);
}

/* Out of descriptors a set still tells of those that it has. */
static void test_no_descriptors(void) {
    struct pccl__poll *poll;
    EXPECT(pccl__poll_new(&poll) == PCCL_OK);
    struct source source;
    source_new(&source, poll, PCCL__POLL_OUT);
    int lowest = dup(source.fds[0]);
    EXPECT(lowest >= 0 && close(lowest) == 0);
    struct rlimit old, none;
    EXPECT(getrlimit(RLIMIT_NOFILE, &old) == 0);
    none = old;
    none.rlim_cur = (rlim_t)lowest;
    EXPECT(setrlimit(RLIMIT_NOFILE, &none) == 0);
    EXPECT(turn(poll, NEVER_NS) == 1 && source.calls == 1);
    struct pccl__poll *other;
    EXPECT(pccl__poll_new(&other) == PCCL_SYSTEM && errno == EMFILE, "a set that could not wait is none");
    EXPECT(setrlimit(RLIMIT_NOFILE, &old) == 0);
    source_free(&source, poll);
    pccl__poll_free(poll);
}

static void test_timeout(struct pccl__poll *poll) {
    uint64_t start_ns = clock_now_ns();
    EXPECT(turn(poll, 3 * NS_PER_MS + 1) == 0);
    EXPECT(clock_now_ns() - start_ns > 3 * NS_PER_MS, "woke before the deadline");
}

struct sleeper {
    struct pccl__poll *poll;
    atomic_int returned;
};

static void *sleep_once(void *argument) {
    struct sleeper *sleeper = argument;
    struct pccl__ready ready[PCCL__POLL_BATCH];
    int count = pccl__poll_wait(sleeper->poll, NEVER_NS, ready);
    atomic_fetch_add(&sleeper->returned, 1);
    return (void *)(intptr_t)count;
}

static void test_wake(struct pccl__poll *poll) {
    struct sleeper sleeper = {.poll = poll};
    pccl__poll_wake(poll);
    EXPECT(turn(poll, NEVER_NS) == 0, "a wake-up before the wait counts for it");
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) EXPECT(pthread_create(&threads[i], NULL, sleep_once, &sleeper) == 0);
    while (atomic_load(&sleeper.returned) < 2) pccl__poll_wake(poll);
    for (int i = 0; i < 2; i++) {
        void *count;
        EXPECT(pthread_join(threads[i], &count) == 0 && count == NULL);
    }
    (void)turn(poll, 0); /* takes a wake-up that was one too many */
}

/* A source that comes while somebody sleeps is seen by the sleeper. */
static void test_add_while_asleep(struct pccl__poll *poll) {
    for (int round = 0; round < 50; round++) {
        struct sleeper sleeper = {.poll = poll};
        pthread_t thread;
        EXPECT(pthread_create(&thread, NULL, sleep_once, &sleeper) == 0);
        struct source source;
        source_new(&source, poll, PCCL__POLL_OUT);
        void *count;
        /* poll(2) may return for the changed set alone; then the event is there at the next call. */
        EXPECT(pthread_join(thread, &count) == 0);
        EXPECT(count || turn(poll, NEVER_NS) == 1);
        source_free(&source, poll);
        (void)turn(poll, 0);
    }
}

int main(void) {
    struct pccl__poll *poll;
    EXPECT(pccl__poll_new(&poll) == PCCL_OK);
    test_levels_and_changes(poll);
    test_stale_events(poll);
    test_many(poll);
    test_fair(poll);
    test_no_descriptors();
    test_timeout(poll);
    test_wake(poll);
    test_add_while_asleep(poll);
    pccl__poll_free(poll);
    FINISH();
}
