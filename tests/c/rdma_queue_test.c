/* SPDX-License-Identifier: MIT
 *
 * rdma_queue_test.c - a queue's life: made, connected, written and read through, told, broken; what a device may
 * refuse.
 */
#include "channel/rdma_queue.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "check.h"
#include "shared_fake.h"

enum { SENDS = 64, NOTES = 8, BYTES = 4096 };

static struct rdma_port port;
static struct rdma_queue ends[2];
static uint8_t bytes[2][BYTES];
static struct verbs_memory *memory[2];

static void set_up(void) {
    struct rdma_address addresses[2];
    fake_port(&port);
    for (int end = 0; end < 2; end++) {
        struct rdma_queue_options options = {.sends = SENDS, .notes = NOTES, .start = 0xfffffffe};
        EXPECT(pccl__rdma_queue_open(&ends[end], &port, &options) == 0);
        pccl__rdma_queue_address(&ends[end], &addresses[end]);
        EXPECT(addresses[end].number && addresses[end].start == 0xfffffe && addresses[end].reads == 8);
        memory[end] = port.verbs.reg_mr(port.domain, bytes[end], BYTES,
                                        VERBS_LOCAL_WRITE | VERBS_REMOTE_WRITE | VERBS_REMOTE_READ);
        memset(bytes[end], end + 1, BYTES);
    }
    for (int end = 0; end < 2; end++) EXPECT(pccl__rdma_queue_connect(&ends[end], &addresses[!end]) == 0);
}

static void tear_down(void) {
    for (int end = 0; end < 2; end++) {
        pccl__rdma_queue_close(&ends[end]);
        pccl__rdma_queue_close(&ends[end]);
        port.verbs.dereg_mr(memory[end]);
    }
    pccl__rdma_port_close(&port);
    fake_expect_clean();
}

static struct rdma_place at(int end, uint64_t offset) {
    return (struct rdma_place){(uintptr_t)bytes[end] + offset, memory[end]->remote_key};
}

static struct verbs_piece piece(int end, uint64_t offset, uint32_t count) {
    return (struct verbs_piece){(uintptr_t)bytes[end] + offset, count, memory[end]->local_key};
}

static struct rdma_news await(struct rdma_queue *queue, int kind) {
    for (int i = 0; i < 1000; i++) {
        struct rdma_news news = pccl__rdma_queue_poll(queue);
        if (news.kind == RDMA_NOTHING) continue;
        EXPECT((int)news.kind == kind, "%d", news.kind);
        return news;
    }
    EXPECT(false, "nothing came");
    return (struct rdma_news){0};
}

static void test_moves(void) {
    set_up();
    struct verbs_piece whole = piece(0, 0, 1000), into = piece(1, 2000, 500), spot = piece(0, 0, 8);
    EXPECT(pccl__rdma_queue_write(&ends[0], &whole, 1, at(1, 0), false));
    EXPECT(pccl__rdma_queue_write_noted(&ends[0], &spot, 1, at(1, 1000), true, 0x80000001));
    EXPECT(await(&ends[1], RDMA_NOTE).note == 0x80000001);
    EXPECT(bytes[1][0] == 1 && bytes[1][1007] == 1 && bytes[1][1008] == 2);
    bytes[0][3000] = 9;
    EXPECT(pccl__rdma_queue_read(&ends[1], &into, at(0, 3000), 513));
    EXPECT(await(&ends[1], RDMA_READ_DONE).read == 513);
    EXPECT(bytes[1][2000] == 9 && bytes[1][2499] == 1 && bytes[1][2500] == 2);
    tear_down();
}

/* Of many writes few are reported, and those tell of all before them; room never grows beyond what is there. */
static void test_reports(void) {
    set_up();
    struct verbs_piece spot = piece(0, 0, 8);
    uint64_t reported = fake_find()->reported;
    for (int i = 0; i < 1000; i++) {
        while (pccl__rdma_queue_room(&ends[0]) == 0) (void)pccl__rdma_queue_poll(&ends[0]);
        EXPECT(pccl__rdma_queue_write(&ends[0], &spot, 1, at(1, 0), false));
        EXPECT(pccl__rdma_queue_room(&ends[0]) <= SENDS);
        if (i % 10 == 0) (void)pccl__rdma_queue_poll(&ends[0]);
    }
    EXPECT(fake_find()->reported - reported <= 1000 / RDMA_REPORT_EACH + 1);
    pccl__rdma_queue_report(&ends[0]);
    while (pccl__rdma_queue_room(&ends[0]) < SENDS) (void)pccl__rdma_queue_poll(&ends[0]);
    tear_down();
}

static bool readable(const struct rdma_queue *queue) {
    struct pollfd fd = {.fd = pccl__rdma_queue_fd(queue), .events = POLLIN};
    return poll(&fd, 1, 0) == 1;
}

static void test_sleep(void) {
    set_up();
    struct verbs_piece spot = piece(0, 0, 8);
    for (int armed = 0; armed < 2; armed++) {
        if (armed) pccl__rdma_queue_arm(&ends[1]);
        EXPECT(pccl__rdma_queue_write_noted(&ends[0], &spot, 1, at(1, 0), false, 5));
        EXPECT(pccl__rdma_queue_poll(&ends[0]).kind == RDMA_NOTHING);
        EXPECT(readable(&ends[1]) == armed && ends[1].armed == armed);
        pccl__rdma_queue_wake(&ends[1]);
        EXPECT(!readable(&ends[1]) && (!armed || !ends[1].armed));
        EXPECT(await(&ends[1], RDMA_NOTE).note == 5);
    }
    tear_down();
}

/* Each failure is one of the whole queue, says why, and is the last thing to happen. */
static void test_failure(uint32_t status, int error) {
    set_up();
    struct verbs_piece spot = piece(0, 0, 8);
    fake_find()->fail_after = fake_find()->requests;
    fake_find()->fail_status = status;
    EXPECT(pccl__rdma_queue_write(&ends[0], &spot, 1, at(1, 0), false));
    (void)await(&ends[0], RDMA_FAILED);
    EXPECT(ends[0].error == error && ends[0].why && !pccl__rdma_queue_sound(&ends[0]));
    EXPECT(bytes[1][0] == 2, "nothing was written");
    pccl__rdma_queue_fail(&ends[0], EIO, "later");
    EXPECT(ends[0].error == error, "the first one counts");
    tear_down();
}

/* Memory that is not the other side's to write fails the writer, and stays as it is. */
static void test_keys(void) {
    set_up();
    struct verbs_piece spot = piece(0, 0, 8);
    EXPECT(pccl__rdma_queue_write(&ends[0], &spot, 1, at(1, BYTES - 7), false));
    (void)await(&ends[0], RDMA_FAILED);
    EXPECT(ends[0].error == EPROTO && bytes[1][BYTES - 7] == 2);
    tear_down();
}

static void test_refusals(void) {
    struct rdma_queue_options options = {.sends = SENDS, .notes = NOTES};
    struct rdma_address nobody = {.number = 99, .layer = VERBS_ETHERNET, .mtu = 5};
    fake_port(&port);
    fake_find()->refuse_pairs = 4;
    EXPECT(pccl__rdma_queue_open(&ends[0], &port, &options) == EINVAL && !ends[0].pair);
    fake_find()->inline_bytes = 100;
    EXPECT(pccl__rdma_queue_open(&ends[0], &port, &options) == 0 && ends[0].inline_bytes == 64);
    fake_find()->inline_bytes = 0;
    fake_find()->refuse_connects = 1;
    EXPECT(pccl__rdma_queue_connect(&ends[0], &nobody) == ENETUNREACH);
    nobody.layer = VERBS_INFINIBAND;
    EXPECT(pccl__rdma_queue_connect(&ends[0], &nobody) == EPROTONOSUPPORT);
    pccl__rdma_queue_close(&ends[0]);
    pccl__rdma_port_close(&port);
    fake_expect_clean();
}

int main(void) {
    test_moves();
    test_reports();
    test_sleep();
    test_failure(VERBS_RETRIES_EXCEEDED, ETIMEDOUT);
    test_failure(VERBS_NOT_READY_EXCEEDED, EPROTO);
    test_failure(VERBS_FLUSHED, ECONNRESET);
    test_keys();
    test_refusals();
    FINISH();
}
