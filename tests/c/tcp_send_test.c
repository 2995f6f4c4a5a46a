/* SPDX-License-Identifier: MIT
 *
 * tcp_send_test.c - who goes first over a real link, through sockets and shared memory, with one stripe and several:
 * an urgent send waits for no more than what is on its way already, operations take turns, and the link tells what it
 * carries. (The rules of the line itself: line_test.)
 */
#include "check.h"
#include "shared_tcp.h"

enum {
    SEGMENT = 256 * 1024,
    BULK = 40, /* segments */
    SMALL = 1000,
    ON_THE_WAY = 2 * 1024 * 1024 / SEGMENT, /* queues of both kernels, and what stripes have taken */
    PASSED = 4 * 1024 * 1024 / SEGMENT      /* bytes after which who is passed has a turn (line.h) */
};

struct flow {
    uint64_t tag;
    int8_t priority;
    uint32_t count;
    struct parcel *recv[BULK];
};

static void post(struct pair *pair, struct flow *flow, uint32_t bytes) {
    for (uint32_t i = 0; i < flow->count; i++) {
        struct pccl__key key = {.epoch = 1, .tag = flow->tag, .segment = i};
        flow->recv[i] = pair_recv(pair, 1, key, bytes);
    }
    for (uint32_t i = 0; i < flow->count; i++) {
        struct pccl__key key = {.epoch = 1, .tag = flow->tag, .segment = i};
        struct parcel *send = pair_parcel(pair, 0, true, key, bytes);
        send->transfer.priority = flow->priority;
        EXPECT(pair_post(pair, send) == PCCL_OK);
    }
}

static uint32_t arrived(const struct flow *flow) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < flow->count; i++) count += flow->recv[i]->completions > 0;
    return count;
}

static void await(struct pair *pair, const struct flow *flow, uint32_t count) {
    while (arrived(flow) < count) EXPECT(pair_step(pair), "%u of %u never arrive", count, flow->count);
}

/* How many segments of a large operation arrive between the post of a small send and its arrival. */
static uint32_t overtaken(struct pair_driver *driver, uint64_t seed, int8_t priority, bool hurry) {
    struct pair pair;
    pair_new(&pair, driver, seed, true);
    pair_settle(&pair);
    struct tcp_world *world = pair.state;
    for (int end = 0; end < 2; end++) world->transports[end]->hurry = hurry;
    struct flow bulk = {.tag = 1, .count = BULK}, small = {.tag = 2, .priority = priority, .count = 1};
    post(&pair, &bulk, SEGMENT);
    await(&pair, &bulk, 4);
    uint32_t before = arrived(&bulk);
    post(&pair, &small, SMALL);
    await(&pair, &small, 1);
    uint32_t after = arrived(&bulk);
    pair_free(&pair);
    return after - before;
}

static void urgent_overtakes(struct pair_driver *driver, uint64_t seed) {
    uint32_t first = overtaken(driver, seed, 1, false), alike = overtaken(driver, seed, 0, false);
    uint32_t last = overtaken(driver, seed, -1, false);
    EXPECT(first <= ON_THE_WAY && alike <= ON_THE_WAY, "urgent after %u segments, equal after %u", first, alike);
    EXPECT(last >= PASSED - 2 && last <= PASSED + ON_THE_WAY, "unimportant after %u segments", last);
}

/* Where the owner says that there are urgent ones, hardly anything is on its way: less than a segment in the ring, and
 * the rest of the one that is being received. */
static void short_queues_in_a_hurry(uint64_t seed) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 1, .ring_bytes = TCP_RING_BYTES};
    struct pair_driver driver = tcp_driver(&setup);
    uint32_t first = overtaken(&driver, seed, 1, true);
    EXPECT(first <= 2, "urgent after %u segments", first);
}

static void operations_take_turns(struct pair_driver *driver, uint64_t seed) {
    struct pair pair;
    pair_new(&pair, driver, seed, true);
    pair_settle(&pair);
    struct flow first = {.tag = 1, .count = BULK}, second = {.tag = 2, .count = 6};
    post(&pair, &first, SEGMENT);
    post(&pair, &second, SEGMENT);
    await(&pair, &second, second.count);
    EXPECT(arrived(&first) <= 2 * second.count + ON_THE_WAY, "%u of the first", arrived(&first));
    await(&pair, &first, BULK);
    pair_free(&pair);
}

/* Sockets that always have more to send tell a pace; those that have not, and shared memory, tell none. */
static void a_busy_link_tells_its_pace(struct pair_driver *driver, bool sockets, uint64_t seed) {
    struct pair pair;
    pair_new(&pair, driver, seed, true);
    pair_settle(&pair);
    struct pccl__channel *sender = pair.ends[0].channel;
    struct flow idle = {.tag = 1, .count = 1};
    struct flow busy[3] = {{.tag = 2, .count = BULK}, {.tag = 3, .count = BULK}, {.tag = 4, .count = BULK}};
    post(&pair, &idle, SMALL);
    await(&pair, &idle, 1);
    sender->ops->measure(sender);
    EXPECT(sender->bytes_per_s == 0, "%llu", (unsigned long long)sender->bytes_per_s);
    for (int i = 0; i < 3; i++) post(&pair, &busy[i], SEGMENT);
    for (int i = 0; i < 3; i++) await(&pair, &busy[i], BULK);
    sender->ops->measure(sender);
    EXPECT((sender->bytes_per_s > 0) == sockets, "%llu", (unsigned long long)sender->bytes_per_s);
    pair_free(&pair);
}

int main(void) {
    for (uint32_t stripes = 1; stripes <= 3; stripes += 2)
        for (uint32_t ring_bytes = 0; ring_bytes <= 64 * 1024; ring_bytes += 64 * 1024) {
            struct tcp_setup setup = {.address = "127.0.0.1", .stripes = stripes, .ring_bytes = ring_bytes};
            struct pair_driver driver = tcp_driver(&setup);
            for (uint64_t seed = 1; seed <= 3; seed++) {
                urgent_overtakes(&driver, seed);
                operations_take_turns(&driver, seed);
                a_busy_link_tells_its_pace(&driver, ring_bytes == 0, seed);
            }
        }
    for (uint64_t seed = 1; seed <= 10; seed++) short_queues_in_a_hurry(seed);
    FINISH();
}
