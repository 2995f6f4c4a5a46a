/* SPDX-License-Identifier: MIT
 *
 * recorder_test.c - what the flight recorder remembers of a story, that it forgets the oldest first, and its price.
 */
#include "engine/recorder.h"

#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "check.h"
#include "shared_cores.h"

enum { CAPACITY = PCCL_RECORD_OPERATIONS + PCCL_RECORD_NOTES + 64 };

static int32_t data[CORES_MAX];
static pccl_record records[CAPACITY];

static pccl_call sum(uint32_t peer, uint64_t tag) {
    return (pccl_call){.collective = PCCL_ALL_REDUCE,
                       .dtype = PCCL_INT32,
                       .op = PCCL_MAX,
                       .count = 1,
                       .tag = tag,
                       .input = &data[peer],
                       .output = &data[peer]};
}

static size_t read_all(struct cores *c, uint32_t peer) {
    size_t count = pccl__recorder_read(c->core[peer], c->now_ns, records, CAPACITY);
    EXPECT(count <= CAPACITY, "%zu", count);
    return count;
}

/* The index-th record of a kind; it must be there. */
static const pccl_record *nth(size_t count, pccl_record_kind kind, uint32_t index) {
    for (size_t i = 0; i < count; i++)
        if (records[i].kind == kind && index-- == 0) return &records[i];
    EXPECT(false, "record %u of kind %d", index, (int)kind);
    return NULL;
}

static uint32_t count_of(size_t count, pccl_record_kind kind) {
    uint32_t found = 0;
    for (size_t i = 0; i < count; i++) found += records[i].kind == kind;
    return found;
}

static void run_pair(struct cores *c, uint64_t tag, uint64_t us) {
    pccl_operation *op[2];
    for (uint32_t i = 0; i < 2; i++) op[i] = cores_start(c, i, sum(i, tag));
    cores_run(c, us);
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT(op[i]->ended && op[i]->status == PCCL_OK, "%s", op[i]->text);
        pccl__core_handle_free(op[i]);
    }
}

/* One success, one in the air, one in the queue of the next epoch, a freeze, a loss. */
static void test_story(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    run_pair(&c, 5, 1000);
    size_t count = read_all(&c, 0);
    const pccl_record *done = nth(count, PCCL_RECORD_OPERATION, 0);
    EXPECT(done->status == PCCL_OK && done->name.tag == 5 && done->name.sequence == 0, "tag %u", (int)done->name.tag);
    EXPECT(done->collective == PCCL_ALL_REDUCE && done->dtype == PCCL_INT32 && done->op == PCCL_MAX, "descriptor");
    EXPECT(done->algorithm == PCCL_DOUBLING && done->world_size == 2 && done->rank == 0 && done->count == 1, "choice");
    EXPECT(done->tx_bytes == 4 && done->rx_bytes == 4 && done->peer.bytes[0] == 2, "%d", done->peer.bytes[0]);
    EXPECT(done->called_ns <= done->started_ns && done->started_ns <= done->data_done_ns, "in order");
    EXPECT(done->data_done_ns <= done->at_ns && done->at_ns <= c.now_ns && !done->text[0], "in order");
    EXPECT(nth(count, PCCL_RECORD_EPOCH, 0)->world_size == 2 && nth(count, PCCL_RECORD_EPOCH, 0)->epoch == 1, "view");
    EXPECT(nth(count, PCCL_RECORD_LINK_UP, 0)->rank == 1, "the link to rank 1 came up");
    EXPECT(strcmp(nth(count, PCCL_RECORD_LINK, 0)->text, "sim: ") == 0, "%s", nth(count, PCCL_RECORD_LINK, 0)->text);

    pccl_operation *open = cores_start(&c, 0, sum(0, 5));
    cores_run(&c, 400000);
    const pccl_record *waiting = nth(read_all(&c, 0), PCCL_RECORD_OPERATION, 1);
    EXPECT(waiting->status == PCCL_PENDING && waiting->at_ns == 0 && waiting->started_ns > 0, "it runs");
    EXPECT(waiting->absent && waiting->waits_count == 1 && waiting->waits[0].rank == 1, "%u", waiting->waits_count);
    EXPECT(waiting->waits[0].heard_ns > 0, "its link was heard");

    pccl__core_freeze(c.core[0], PCCL_ABORTED, &c.id[1], "a reason");
    pccl_operation *queued = cores_start(&c, 0, sum(0, 6));
    count = read_all(&c, 0);
    EXPECT(nth(count, PCCL_RECORD_OPERATION, 2)->started_ns == 0, "it has not begun");
    const pccl_record *frozen = nth(count, PCCL_RECORD_FROZEN, 0);
    EXPECT(frozen->rank == 1 && frozen->peer.bytes[0] == 2 && !strcmp(frozen->text, "a reason"), "%s", frozen->text);
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "a loss");
    count = read_all(&c, 0);
    const pccl_record *lost = nth(count, PCCL_RECORD_OPERATION, 1);
    EXPECT(lost->status == PCCL_PEER_LOST && lost->at_ns && strstr(lost->text, "tag 5 #1 of epoch 1"), "%s",
           lost->text);
    EXPECT(lost->absent && lost->waits[0].rank == 1, "the wait is kept");
    const pccl_record *epoch = nth(count, PCCL_RECORD_EPOCH, 1);
    EXPECT(epoch->status == PCCL_PEER_LOST && epoch->epoch == 2 && !strcmp(epoch->text, "a loss"), "%s", epoch->text);
    pccl__core_halt(c.core[0], PCCL_EXPELLED, "out");
    count = read_all(&c, 0);
    EXPECT(nth(count, PCCL_RECORD_HALTED, 0)->status == PCCL_EXPELLED, "halted");
    EXPECT(nth(count, PCCL_RECORD_OPERATION, 2)->status == PCCL_EXPELLED, "and so ended the last one");
    pccl__core_handle_free(open);
    pccl__core_handle_free(queued);
    cores_free(&c);
}

static void test_link_down(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    run_pair(&c, 0, 1000);
    pccl__sim_cut(c.network, c.id[0], c.id[1]);
    cores_run(&c, 400000);
    size_t count = read_all(&c, 0);
    const pccl_record *down = nth(count, PCCL_RECORD_LINK_DOWN, 0);
    EXPECT(down->rank == 1 && down->status == PCCL_PEER_LOST && down->text[0], "%s", down->text);
    EXPECT(nth(count, PCCL_RECORD_LINK_UP, 0)->at_ns < down->at_ns, "up before down");
    cores_free(&c);
}

/* The newest are kept, and nothing is written beyond `capacity`. */
static void test_ring(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    for (uint32_t i = 0; i < PCCL_RECORD_OPERATIONS + 7; i++) run_pair(&c, 3, 200);
    size_t count = read_all(&c, 1);
    EXPECT(count_of(count, PCCL_RECORD_OPERATION) == PCCL_RECORD_OPERATIONS, "%zu", count);
    EXPECT(records[0].name.sequence == 7, "the oldest is %u", records[0].name.sequence);
    EXPECT(records[PCCL_RECORD_OPERATIONS - 1].name.sequence == PCCL_RECORD_OPERATIONS + 6, "the newest");
    for (uint32_t i = 0; i < PCCL_RECORD_NOTES + 9; i++)
        pccl__record_note(c.core[1], PCCL_RECORD_FROZEN, PCCL_OK, NULL, i == 8 ? "gone" : "kept");
    count = read_all(&c, 1);
    EXPECT(count_of(count, PCCL_RECORD_FROZEN) == PCCL_RECORD_NOTES, "%zu", count);
    for (uint32_t i = 0; i < PCCL_RECORD_NOTES; i++)
        EXPECT(!strcmp(nth(count, PCCL_RECORD_FROZEN, i)->text, "kept"), "the oldest notes went");
    memset(records, 0x5a, sizeof records);
    EXPECT(pccl__recorder_read(c.core[1], c.now_ns, records, 3) == count, "the full number is told");
    EXPECT(records[2].kind == PCCL_RECORD_OPERATION && (int)records[3].kind == 0x5a5a5a5a, "only three were written");
    cores_free(&c);
}

/* A number to read, not to expect: what recording adds to an operation. */
static void measure(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    pccl_operation *op[2] = {cores_start(&c, 0, sum(0, 0)), cores_start(&c, 1, sum(1, 0))};
    cores_run(&c, 1000);
    EXPECT(op[0]->ended && op[0]->status == PCCL_OK, "%s", op[0]->text);
    enum { BATCHES = 50, TIMES = 20000 };
    uint64_t best_ns = UINT64_MAX; /* the others were disturbed */
    for (uint32_t batch = 0; batch < BATCHES; batch++) {
        uint64_t begin = clock_now_ns();
        for (uint32_t i = 0; i < TIMES; i++) pccl__record_operation(&c.core[0]->recorder, op[0]);
        best_ns = min_u64(best_ns, clock_now_ns() - begin);
    }
    printf("recording: %.1f ns per operation\n", (double)best_ns / TIMES);
    for (uint32_t i = 0; i < 2; i++) pccl__core_handle_free(op[i]);
    cores_free(&c);
}

int main(void) {
    test_story();
    test_link_down();
    test_ring();
    measure();
    FINISH();
}
