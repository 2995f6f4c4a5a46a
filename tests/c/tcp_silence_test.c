/* SPDX-License-Identifier: MIT
 *
 * tcp_silence_test.c - connections that carry nothing, or little: which are given up, when, and what becomes of what
 * was sent on them.
 *
 * Between the two ends is a hose that lets through as many bytes as it is told to. The clock is the test's own.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "check.h"
#include "shared_tcp.h"

enum { LIMIT_MS = 6000, STRIPES = 3, PIPES = 64, PIPE_BYTES = 65536, AT_STRIPE = 72, KIND = PCCL__NOTICE_OWNER + 1 };
enum { BULK_BYTES = 300 * 1000 };
#define OPEN    INT64_MAX
#define STEP_NS (20 * NS_PER_MS)

/* One connection: [0] to the end that dialled, [1] to the other. */
struct pipe {
    int fds[2], dialler;
    uint32_t stripe;
    bool named;
    uint8_t bytes[2][PIPE_BYTES];
    size_t begin[2], end[2];
};

static struct hose {
    struct pair_driver tcp;
    uint64_t now_ns;
    int listeners[2];
    uint16_t ports[2];
    int64_t allowed[2][STRIPES]; /* bytes from an end that are still let through, per stripe */
    struct pipe pipes[PIPES];
    uint32_t pipes_count;
} hose;

/* ---------------------------------------------------------------- the hose */

static struct tcp_address loopback(uint16_t port) {
    struct tcp_address address;
    EXPECT(pccl__tcp_address_parse(&address, "127.0.0.1", port));
    return address;
}

static void allow(int from, uint32_t stripe, int64_t bytes) { hose.allowed[from][stripe] = bytes; }

static void allow_all(int64_t bytes) {
    for (uint32_t i = 0; i < 2 * STRIPES; i++) allow((int)(i % 2), i / 2, bytes);
}

static void hang_up(struct pipe *pipe) {
    for (int side = 0; side < 2; side++) {
        if (pipe->fds[side] >= 0) close(pipe->fds[side]);
        pipe->fds[side] = -1;
    }
}

static void accept_all(void) {
    for (int end = 0; end < 2; end++) {
        for (int fd; (fd = pccl__tcp_socket_accept(hose.listeners[end])) >= 0;) {
            EXPECT(hose.pipes_count < PIPES);
            struct pipe *pipe = &hose.pipes[hose.pipes_count++];
            struct tcp_address address = loopback(hose.ports[end]);
            *pipe = (struct pipe){.fds = {fd, pccl__tcp_socket_dial(&address)}, .dialler = !end};
            EXPECT(pipe->fds[1] >= 0);
        }
    }
}

/* What is in the way goes on, as far as it is allowed, then more is taken. True: something moved. */
static bool pump(struct pipe *pipe, int from) {
    if (pipe->fds[0] < 0) return false;
    uint8_t *bytes = pipe->bytes[from];
    size_t *begin = &pipe->begin[from], *end = &pipe->end[from];
    int64_t *allowed = &hose.allowed[from ? !pipe->dialler : pipe->dialler][pipe->stripe];
    if (*begin == *end && *allowed > 0) {
        ssize_t got = recv(pipe->fds[from], bytes, PIPE_BYTES, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == ENOTCONN)) return false;
        if (got <= 0) {
            hang_up(pipe);
            return true;
        }
        *begin = 0;
        *end = (size_t)got;
        if (!pipe->named && from == 0 && got > AT_STRIPE) pipe->stripe = bytes[AT_STRIPE] % STRIPES;
        pipe->named = true;
    }
    size_t count = min_u64(*end - *begin, (uint64_t)*allowed);
    ssize_t sent = count ? send(pipe->fds[!from], bytes + *begin, count, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
    if (sent <= 0) return false;
    *begin += (size_t)sent;
    if (*allowed != OPEN) *allowed -= sent;
    return true;
}

static bool pump_all(void) {
    bool moved = false;
    accept_all();
    for (uint32_t i = 0; i < 2 * hose.pipes_count; i++) moved |= pump(&hose.pipes[i / 2], (int)(i % 2));
    return moved;
}

/* ---------------------------------------------------------------- the driver */

static void make(struct pair *pair, uint64_t seed) {
    hose.tcp.make(pair, seed);
    struct tcp_world *world = pair->state;
    for (int end = 0; end < 2; end++) {
        struct tcp_address address = loopback(0);
        hose.listeners[end] = pccl__tcp_socket_listen(&address);
        EXPECT(hose.listeners[end] >= 0);
        hose.ports[end] = world->members[end].port;
        world->members[end].port = pccl__tcp_socket_port(hose.listeners[end]);
    }
}

/* The clock moves on when nothing else does. */
static bool step(struct pair *pair, bool wait) {
    bool moved = pump_all();
    hose.tcp.step(pair, false);
    if (wait && !moved) hose.now_ns += STEP_NS;
    return true;
}

static uint64_t now(struct pair *pair) {
    (void)pair;
    return hose.now_ns;
}

static void free_hose(struct pair *pair) {
    for (uint32_t i = 0; i < hose.pipes_count; i++) hang_up(&hose.pipes[i]);
    for (int end = 0; end < 2; end++) close(hose.listeners[end]);
    hose.tcp.free(pair);
}

static struct pair_driver hose_driver(struct tcp_setup *setup) {
    setup->address = "127.0.0.1";
    setup->connect_timeout_ms = LIMIT_MS;
    hose = (struct hose){.tcp = tcp_driver(setup), .now_ns = clock_now_ns()};
    allow_all(OPEN);
    struct pair_driver driver = hose.tcp;
    driver.make = make;
    driver.step = step;
    driver.now_ns = now;
    driver.free = free_hose;
    return driver;
}

/* A link whose stripes are all up and idle. */
static void begin(struct pair *pair, struct pair_driver *driver) {
    uint32_t stripes = ((struct tcp_setup *)driver->owner)->stripes;
    pair_new(pair, driver, 1, true);
    pair_settle(pair);
    for (int end = 0; end < 2; end++)
        while (pccl__tcp_test_stripes_up(pair->ends[end].channel) < stripes) EXPECT(pair_step(pair));
    for (int i = 0; i < 200; i++) pair_step(pair);
    for (int end = 0; end < 2; end++)
        EXPECT(pair->ends[end].channel->deadline_ns == NEVER_NS, "an idle link has a timer");
}

/* So much time passes, in small steps. */
static void pass(struct pair *pair, uint32_t ms) {
    for (uint64_t until_ns = hose.now_ns + ms * NS_PER_MS; hose.now_ns < until_ns; hose.now_ns += STEP_NS)
        pair_nudge(pair, 20);
}

/* Until an end's channel is broken: how long that took. */
static uint32_t break_ms(struct pair *pair, int end) {
    uint64_t start_ns = hose.now_ns;
    while (!pair->ends[end].channel->broken) {
        EXPECT(hose.now_ns - start_ns < 10 * LIMIT_MS * NS_PER_MS, "nobody notices");
        pass(pair, 20);
    }
    EXPECT(strstr(pair->ends[end].channel->error.message, "silent: "), "%s", pair->ends[end].channel->error.message);
    return (uint32_t)((hose.now_ns - start_ns) / NS_PER_MS);
}

/* Bytes go into a hole on their way there, on the way back, or both; they are data, a wish to send some, or a notice.
 */
static void test_hole(bool there, bool back, int what) {
    pair_context("a hole %s%s, %d", there ? "there" : "", back ? " back" : "", what);
    struct tcp_setup setup = {.stripes = 1};
    struct pair_driver driver = hose_driver(&setup);
    struct pair pair;
    begin(&pair, &driver);
    if (there) allow(0, 0, 0);
    if (back) allow(1, 0, 0);
    struct pccl__key key = pair_key(&pair, 1);
    if (what == 0) pair_send(&pair, 0, key, 100);
    if (what == 1) pair_send(&pair, 0, key, BULK_BYTES);
    if (what == 2) pair_notice(&pair, 0, KIND, NULL, 1);
    uint32_t took_ms = break_ms(&pair, 0);
    EXPECT(took_ms >= LIMIT_MS && took_ms < LIMIT_MS + 2000, "%u ms", took_ms);
    pair_free(&pair);
}

/* Both send, and one way leads nowhere: who gets no answers and hears nothing gives up, then both do. */
static void test_one_way(int dead) {
    pair_context("one way, from %d", dead);
    struct tcp_setup setup = {.stripes = 1};
    struct pair_driver driver = hose_driver(&setup);
    struct pair pair;
    begin(&pair, &driver);
    allow(dead, 0, 0);
    for (int end = 0; end < 2; end++) {
        struct pccl__key key = pair_key(&pair, 1);
        pair_recv(&pair, !end, key, BULK_BYTES);
        pair_send(&pair, end, key, BULK_BYTES);
    }
    uint32_t took_ms = break_ms(&pair, !dead);
    EXPECT(took_ms >= LIMIT_MS && took_ms < LIMIT_MS + 2000, "%u ms", took_ms);
    while (!pair.ends[dead].channel->broken) EXPECT(pair_step(&pair));
    pair_free(&pair);
}

/* A peer that is stopped for less than the limit keeps its link, and so does one that was itself stopped for longer. */
static void test_stopped(void) {
    pair_context("stopped");
    struct tcp_setup setup = {.stripes = 1};
    struct pair_driver driver = hose_driver(&setup);
    struct pair pair;
    begin(&pair, &driver);
    for (int end = 0; end < 2; end++) {
        struct pccl__key key = pair_key(&pair, 1);
        pair_recv(&pair, !end, key, BULK_BYTES);
        pair_send(&pair, end, key, BULK_BYTES);
    }
    pair.ends[1].dead = true;
    pass(&pair, LIMIT_MS - 1000);
    pair.ends[1].dead = false;
    pair_await_all(&pair);
    allow_all(0);
    pair_send(&pair, 0, pair_key(&pair, 1), 100);
    pass(&pair, LIMIT_MS - 1000);
    hose.now_ns += 10 * LIMIT_MS * NS_PER_MS;
    pass(&pair, LIMIT_MS - 1000);
    allow_all(OPEN);
    pair_settle(&pair);
    EXPECT(!pair.ends[0].channel->broken && !pair.ends[1].channel->broken);
    pair_free(&pair);
}

/* A few KiB in a second in one direction or both: no frame arrives within the limit, and all that was posted does. Both
 * ends see all the time that it moves. */
static void test_slow(bool there, bool back) {
    pair_context("slow%s%s", there ? " there" : "", back ? " back" : "");
    enum { SLOW_BYTES = 82 }; /* in 20 ms */
    struct tcp_setup setup = {.stripes = 1};
    struct pair_driver driver = hose_driver(&setup);
    struct pair pair;
    begin(&pair, &driver);
    for (int end = 0; end < 2; end++) {
        if (!(end ? back : there)) continue;
        allow(end, 0, 0);
        struct pccl__key key = pair_key(&pair, 1);
        pair_recv(&pair, !end, key, BULK_BYTES);
        pair_send(&pair, end, key, BULK_BYTES);
    }
    uint64_t start_ns = hose.now_ns;
    for (struct parcel *parcel = pair.parcels; parcel; parcel = parcel->next) {
        while (!parcel->completions) {
            if (there) allow(0, 0, SLOW_BYTES);
            if (back) allow(1, 0, SLOW_BYTES);
            pass(&pair, 20);
            EXPECT(hose.now_ns - start_ns < 100 * LIMIT_MS * NS_PER_MS, "it never arrives");
            for (int end = 0; end < 2; end++) {
                uint64_t moved_ns = max_u64(pair.ends[end].channel->moved_ns, start_ns);
                EXPECT(hose.now_ns - moved_ns < LIMIT_MS / 2 * NS_PER_MS, "end %d sees nothing move", end);
            }
        }
        EXPECT(parcel->transfer.status == PCCL_OK, "%s%s", pair.ends[0].channel->error.message,
               pair.ends[1].channel->error.message);
    }
    EXPECT(hose.now_ns - start_ns > 4 * LIMIT_MS * NS_PER_MS);
    pair_free(&pair);
}

/* One stripe of several is a hole, in one direction or both: it alone is given up, and what it carried comes exactly
 * once on the others. */
static void test_one_of_several(uint32_t stripe, int dead) {
    pair_context("one of several: %u, from %d", stripe, dead);
    struct tcp_setup setup = {.stripes = STRIPES};
    struct pair_driver driver = hose_driver(&setup);
    struct pair pair;
    begin(&pair, &driver);
    uint32_t generation = tcp_end(&pair, 0)->stripes[stripe]->generation;
    for (int end = 0; end < 2; end++)
        if (dead != !end) allow(end, stripe, 0);
    uint64_t start_ns = hose.now_ns;
    for (uint32_t i = 0; i < 16; i++) {
        int end = (int)(i % 2);
        struct pccl__key key = pair_key(&pair, 1);
        uint32_t bytes = i % 4 < 2 ? 1500000 : 3000;
        pair_recv(&pair, !end, key, bytes);
        pair_send(&pair, end, key, bytes);
        pair_notice(&pair, end, KIND, &key, i);
    }
    pair_await_all(&pair);
    for (int end = 0; end < 2; end++) pair_await_notices(&pair, end, KIND, 8);
    EXPECT(hose.now_ns - start_ns >= LIMIT_MS * NS_PER_MS, "nothing was ever missing");
    for (const struct parcel *parcel = pair.parcels; parcel; parcel = parcel->next)
        EXPECT(parcel->transfer.status == PCCL_OK);
    for (uint32_t i = 0; i < STRIPES; i++) {
        const struct tcp_stripe *each = tcp_end(&pair, 0)->stripes[i];
        bool kept = each->state == TCP_STRIPE_UP && each->generation == generation;
        EXPECT(kept == (i != stripe), "stripe %u", i);
    }
    pair_free(&pair);
}

/* All are holes, and only one has something to carry: the others are asked in time. */
static void test_all_of_several(void) {
    pair_context("all of several");
    struct tcp_setup setup = {.stripes = STRIPES};
    struct pair_driver driver = hose_driver(&setup);
    struct pair pair;
    begin(&pair, &driver);
    allow_all(0);
    pair_send(&pair, 0, pair_key(&pair, 1), 100);
    uint32_t took_ms = break_ms(&pair, 0);
    EXPECT(took_ms >= LIMIT_MS && took_ms < LIMIT_MS * 3 / 2 + 2000, "%u ms", took_ms);
    pair_free(&pair);
}

/* Shared memory that nobody reads. */
static void test_rings(void) {
    pair_context("rings");
    struct tcp_setup setup = {.stripes = 1, .ring_bytes = TCP_RING_LEAST};
    struct pair_driver driver = hose_driver(&setup);
    struct pair pair;
    begin(&pair, &driver);
    EXPECT(strcmp(pair.ends[0].channel->medium, "shm") == 0);
    pair.ends[1].dead = true;
    pair_send(&pair, 0, pair_key(&pair, 1), 100);
    uint32_t took_ms = break_ms(&pair, 0);
    EXPECT(took_ms >= LIMIT_MS && took_ms < LIMIT_MS + 2000, "%u ms", took_ms);
    pair_free(&pair);
}

int main(void) {
    for (int what = 0; what < 3; what++) {
        test_hole(true, true, what);
        test_hole(true, false, what);
        test_hole(false, true, what);
    }
    for (int dead = 0; dead < 2; dead++) test_one_way(dead);
    test_stopped();
    test_slow(true, false);
    test_slow(false, true);
    test_slow(true, true);
    for (uint32_t stripe = 0; stripe < STRIPES; stripe++)
        for (int dead = 0; dead < 3; dead++) test_one_of_several(stripe, dead);
    test_all_of_several();
    test_rings();
    pair_context(NULL);
    FINISH();
}
