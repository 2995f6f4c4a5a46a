/* SPDX-License-Identifier: MIT
 *
 * rdma_stream_test.c - what one side writes the other one reads, byte for byte, whatever sizes both choose and however
 * late the device is; nobody writes where there is no room; and a side that lies is found out.
 */
#include "channel/rdma_stream.h"

#include <errno.h>
#include <string.h>

#include "base/prng.h"
#include "check.h"
#include "shared_fake.h"

#define PATIENCE_NS UINT64_C(10000000000)

static struct rdma_port port;
static struct rdma_stream ends[2];

static void tear_down(void) {
    for (int end = 0; end < 2; end++) pccl__rdma_stream_close(&ends[end], 0);
    pccl__rdma_port_close(&port);
    fake_expect_clean();
}

/* One direction: both sides count in this order, so each byte says where it belongs. */
struct way {
    uint64_t written, read;
};

static uint8_t byte_at(uint64_t position) { return (uint8_t)(position * 131 + (position >> 13)); }

static bool write_some(struct rdma_stream *stream, struct way *way, uint64_t *random, uint64_t most) {
    static uint8_t bytes[96 * 1024];
    uint64_t count = 1 + prng_below(random, most);
    for (uint64_t i = 0; i < count; i++) bytes[i] = byte_at(way->written + i);
    uint64_t first = prng_below(random, count + 1);
    struct iovec parts[3] = {{bytes, first}, {bytes + first, 0}, {bytes + first, count - first}};
    int64_t wrote = pccl__rdma_stream_write(stream, parts, 3);
    EXPECT(wrote >= 0 && (uint64_t)wrote <= count, "%s", stream->queue.why);
    way->written += (uint64_t)wrote;
    return wrote > 0;
}

static bool read_some(struct rdma_stream *stream, struct way *way, uint64_t *random, uint64_t most) {
    static uint8_t bytes[96 * 1024];
    uint64_t count = 1 + prng_below(random, most), first = prng_below(random, count + 1);
    struct iovec parts[2] = {{bytes, first}, {bytes + first, count - first}};
    int64_t got = pccl__rdma_stream_read(stream, parts, 2);
    EXPECT(got >= 0 && (uint64_t)got <= count, "%s", stream->queue.why);
    for (int64_t i = 0; i < got; i++) EXPECT(bytes[i] == byte_at(way->read + (uint64_t)i));
    way->read += (uint64_t)got;
    return got > 0;
}

static void test_bytes(uint64_t seed) {
    uint64_t random = seed;
    struct fake_verbs *fake = fake_find();
    fake->requests_a_poll = (uint32_t)prng_below(&random, 4);
    fake->polls_between = (uint32_t)prng_below(&random, 5);
    fake->partial = (uint32_t)prng_below(&random, 4) + 1 == 1 ? 0 : 3;
    fake->inline_bytes = seed % 3 ? 0 : 32;
    fake_port(&port);
    fake_streams(&port, ends, RDMA_RING_LEAST << prng_below(&random, 6), RDMA_RING_LEAST << prng_below(&random, 6));
    struct way ways[2] = {{0}};
    uint64_t most = UINT64_C(1) << (2 + prng_below(&random, 14)), goal = 200 * most < 2000000 ? 200 * most : 2000000;
    uint32_t idle = 0;
    while (ways[0].read < goal || ways[1].read < goal) {
        int end = (int)prng_below(&random, 2);
        bool writes = prng_below(&random, 2);
        if (prng_below(&random, 50) == 0) ends[end].limit = ends[end].capacity >> prng_below(&random, 3);
        bool moved = writes ? write_some(&ends[end], &ways[end], &random, most)
                            : read_some(&ends[end], &ways[!end], &random, most);
        idle = moved ? 0 : idle + 1;
        EXPECT(idle < 100000, "both wait for each other");
        EXPECT(ways[end].written - ways[end].read <= ends[end].capacity);
    }
    tear_down();
    fake->requests_a_poll = fake->polls_between = fake->partial = fake->inline_bytes = 0;
}

/* A writer whose reader sleeps stops when the ring is full, or its notes are used up, and is told when to go on. */
static void test_full(uint64_t message) {
    fake_port(&port);
    fake_streams(&port, ends, 64 * 1024, 1024 * 1024);
    EXPECT(ends[0].capacity == 64 * 1024 && ends[1].capacity == 64 * 1024, "the smaller of both");
    static uint8_t bytes[64 * 1024];
    struct iovec part = {bytes, message};
    uint64_t count = 0;
    while (pccl__rdma_stream_write(&ends[0], &part, 1) == (int64_t)message) count++;
    EXPECT(count == (message == 8 ? RDMA_NOTES_AHEAD : 64 * 1024 / message), "%d", (int)count);
    EXPECT(!pccl__rdma_stream_writable(&ends[0]));
    struct iovec all = {bytes, sizeof bytes};
    while (pccl__rdma_stream_read(&ends[1], &all, 1) > 0) continue;
    pccl__rdma_stream_look(&ends[0]);
    EXPECT(pccl__rdma_stream_writable(&ends[0]) && !pccl__rdma_stream_readable(&ends[0]));
    tear_down();
}

/* A small message is one request, without an image. */
static void test_price(void) {
    fake_port(&port);
    fake_streams(&port, ends, 64 * 1024, 64 * 1024);
    uint8_t bytes[136] = {1};
    struct iovec part = {bytes, sizeof bytes};
    uint64_t before = fake_find()->requests;
    EXPECT(pccl__rdma_stream_write(&ends[0], &part, 1) == sizeof bytes);
    EXPECT(pccl__rdma_stream_read(&ends[1], &part, 1) == sizeof bytes);
    EXPECT(fake_find()->requests == before + 1 && ends[0].image[0] == 0);
    tear_down();
}

/* Last words arrive though their writer closes at once; what was here before a failure is read. */
static void test_last_words(void) {
    fake_port(&port);
    fake_streams(&port, ends, 64 * 1024, 64 * 1024);
    fake_find()->polls_between = 7;
    uint8_t bytes[100] = {42}, back[200];
    struct iovec part = {bytes, sizeof bytes}, into = {back, sizeof back};
    EXPECT(pccl__rdma_stream_write(&ends[0], &part, 1) == sizeof bytes);
    pccl__rdma_stream_close(&ends[0], PATIENCE_NS);
    int64_t got = 0;
    for (int i = 0; i < 10 && got == 0; i++) got = pccl__rdma_stream_read(&ends[1], &into, 1);
    EXPECT(got == sizeof bytes && back[0] == 42);
    fake_find()->polls_between = 0;
    tear_down();
}

static void test_failure(void) {
    fake_port(&port);
    fake_streams(&port, ends, 64 * 1024, 64 * 1024);
    uint8_t bytes[100] = {0};
    struct iovec part = {bytes, sizeof bytes};
    EXPECT(pccl__rdma_stream_write(&ends[1], &part, 1) == sizeof bytes);
    pccl__rdma_stream_look(&ends[0]);
    fake_find()->fail_after = fake_find()->requests;
    fake_find()->fail_status = VERBS_RETRIES_EXCEEDED;
    while (pccl__rdma_stream_write(&ends[0], &part, 1) > 0) continue;
    EXPECT(ends[0].queue.error == ETIMEDOUT && pccl__rdma_stream_readable(&ends[0]));
    EXPECT(pccl__rdma_stream_read(&ends[0], &part, 1) == sizeof bytes, "what had come");
    EXPECT(pccl__rdma_stream_read(&ends[0], &part, 1) == -1);
    tear_down();
}

/* Notes that cannot be break the stream: more bytes than the ring has, more returned than was sent. */
static void test_lies(uint32_t note) {
    fake_port(&port);
    fake_streams(&port, ends, 64 * 1024, 64 * 1024);
    EXPECT(pccl__rdma_queue_write_noted(&ends[1].queue, NULL, 0, ends[1].out, false, note));
    pccl__rdma_stream_look(&ends[1]);
    pccl__rdma_stream_look(&ends[0]);
    EXPECT(ends[0].queue.error == EPROTO, "%x", note);
    tear_down();
}

static void test_refusals(void) {
    const char *why;
    fake_port(&port);
    fake_find()->lock_bytes = 64 * 1024;
    EXPECT(pccl__rdma_stream_open(&ends[0], &port, 64 * 1024, 0, &why) == ENOMEM && strstr(why, "lock memory"));
    fake_find()->lock_bytes = 0;
    fake_find()->refuse_pairs = 4;
    EXPECT(pccl__rdma_stream_open(&ends[0], &port, 64 * 1024, 0, &why) == EINVAL && strstr(why, "queue"));
    tear_down();
}

int main(void) {
    for (uint64_t seed = 1; seed <= 40; seed++) test_bytes(seed);
    test_full(8);
    test_full(1000);
    test_full(4096);
    test_price();
    test_last_words();
    test_failure();
    test_lies(64 * 1024 + 1);
    test_lies(0x80000000 | 1);
    test_lies(0x80000000 | 1 << 22);
    test_refusals();
    FINISH();
}
