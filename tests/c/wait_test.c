/* SPDX-License-Identifier: MIT
 *
 * wait_test.c - the names in errors: who has not started an operation, on every member that waits, and no innocent one.
 */
#include <string.h>

#include "check.h"
#include "shared_cores.h"

static int32_t data[CORES_MAX];

static pccl_call sum(uint32_t peer, uint32_t flags) {
    return (pccl_call){.collective = PCCL_ALL_REDUCE,
                       .dtype = PCCL_INT32,
                       .count = 1,
                       .flags = flags,
                       .input = &data[peer],
                       .output = &data[peer]};
}

static void free_all(pccl_operation **op, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) pccl__core_handle_free(op[i]);
}

/* The newest report of a wait. */
static pccl_event last_stall(struct cores *c, uint32_t peer) {
    pccl_event event = {.kind = 0}, next;
    while (cores_event(c, peer, PCCL_EVENT_STALLED, &next)) event = next;
    EXPECT(event.kind == PCCL_EVENT_STALLED, "rank %u waits", peer);
    return event;
}

/* Ranks 2 and 3 of 4 never come. Rank 0 waits for rank 1 in the plan, which is innocent. */
static void test_absent(void) {
    struct cores c;
    cores_make(&c, 4, NULL);
    pccl_operation *op[2];
    for (uint32_t i = 0; i < 2; i++) op[i] = cores_start(&c, i, sum(i, 0));
    cores_run(&c, 400000);
    for (uint32_t i = 0; i < 2; i++) {
        pccl_event event = last_stall(&c, i);
        EXPECT(event.absent && event.ranks_count == 2 && event.ranks[0] == 2 && event.ranks[1] == 3, "%s", event.text);
        EXPECT(strstr(event.text, "not started by rank 2 (peer 03000000 at 127.0.0.1:1"), "%s", event.text);
        char text[PCCL_MESSAGE_BYTES];
        pccl__core_describe(c.core[i], op[i], c.now_ns, text, sizeof text);
        EXPECT(strstr(text, "has run for 400 ms: not started by rank 2") && strstr(text, "rank 3"), "%s", text);
    }
    cores_run(&c, 6000000);
    pccl_event frozen;
    EXPECT(cores_event(&c, 0, PCCL_EVENT_FROZEN, &frozen) && frozen.reason == PCCL_TIMEOUT, "%s", frozen.text);
    EXPECT(strstr(frozen.text, "tag 0 #0 of epoch 1 made no progress for 5000 ms at rank 0: not started by rank 2"),
           "%s", frozen.text);
    EXPECT(frozen.peer.bytes[0] == 3, "an absent one is suspected, not a neighbour");
    cores_install(&c, NULL, 0, PCCL_TIMEOUT, "the cause");
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT(op[i]->ended && op[i]->status == PCCL_TIMEOUT, "%s", op[i]->text);
        EXPECT(strstr(op[i]->text, "not started by rank 2") && strstr(op[i]->text, ", rank 3 (peer 04000000"), "%s",
               op[i]->text);
        EXPECT(strstr(op[i]->text, " of epoch 1 aborted after 6400 ms") && strstr(op[i]->text, ": the cause"), "%s",
               op[i]->text);
    }
    free_all(op, 2);
    cores_free(&c);
}

/* Who has returned from a deferred operation already has started it, though it knows nothing of it any more. */
static void test_returned_is_not_absent(void) {
    struct cores c;
    cores_make(&c, 3, NULL);
    pccl_operation *op[2];
    pccl_call root = {.collective = PCCL_BROADCAST, .dtype = PCCL_INT32, .count = 1, .flags = PCCL_DEFERRED};
    pccl_call other = root;
    root.input = root.output = &data[0];
    other.output = &data[1];
    op[0] = cores_start(&c, 0, root);
    cores_run(&c, 1000);
    bool returned = op[0]->ended;
    op[1] = cores_start(&c, 1, other);
    pccl_operation *after[2];
    for (uint32_t i = 0; i < 2; i++) after[i] = cores_start(&c, i, (pccl_call){.collective = PCCL_BARRIER, .tag = 1});
    cores_run(&c, 400000);
    EXPECT(returned || op[0]->ended, "the root returns when its sends have gone");
    pccl_event event = last_stall(&c, 1);
    EXPECT(event.absent && event.ranks_count == 1 && event.ranks[0] == 2, "%s", event.text);
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "a test");
    free_all(op, 2);
    free_all(after, 2);
    cores_free(&c);
}

/* What was told of a wait is taken back when the operation has ended. */
static void test_goes_on(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    pccl_operation *op[2] = {cores_start(&c, 0, sum(0, 0))};
    cores_run(&c, 400000);
    EXPECT(last_stall(&c, 0).waited_ms >= 300, "it waits");
    op[1] = cores_start(&c, 1, sum(1, 0));
    cores_run(&c, 1000);
    pccl_event event = last_stall(&c, 0);
    EXPECT(event.waited_ms == 0 && event.ranks_count == 0 && event.epoch == 1, "%s", event.text);
    EXPECT(!cores_event(&c, 1, PCCL_EVENT_STALLED, &event), "rank 1 never waited");
    free_all(op, 2);
    cores_free(&c);
}

/* All have started, one of them is cut off: then it is the direct wait that counts, with the silence of its link. */
static void test_present_but_cut_off(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    pccl_operation *op[2];
    for (uint32_t i = 0; i < 2; i++) op[i] = cores_start(&c, i, sum(i, 0));
    pccl__sim_cut(c.network, c.id[0], c.id[1]);
    cores_run(&c, 400000);
    pccl_event frozen;
    EXPECT(cores_event(&c, 0, PCCL_EVENT_FROZEN, &frozen) && frozen.reason == PCCL_PEER_LOST, "the link broke");
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "the link broke");
    EXPECT(strstr(op[0]->text, "(waits for rank 1 (peer 02000000 at 127.0.0.1:1, "), "%s", op[0]->text);
    free_all(op, 2);
    cores_free(&c);
}

/* A halt names the operations that it ends, those that have not begun too. */
static void test_halt_names_operations(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    pccl_operation *op[2] = {cores_start(&c, 0, sum(0, 0))};
    pccl__core_freeze(c.core[0], PCCL_ABORTED, NULL, "a test");
    pccl_call other = sum(0, 0);
    other.tag = 7;
    op[1] = cores_start(&c, 0, other);
    pccl__core_halt(c.core[0], PCCL_MASTER_LOST, "the master is gone");
    EXPECT(op[0]->status == PCCL_MASTER_LOST && strstr(op[0]->text, "tag 0 #0 of epoch 1, ended: the master is gone"),
           "%s", op[0]->text);
    EXPECT(op[1]->status == PCCL_MASTER_LOST && strstr(op[1]->text, "all_reduce tag 7, not begun, ended: the master"),
           "%s", op[1]->text);
    free_all(op, 2);
    cores_free(&c);
}

/* A donor that never serves is named. */
static void test_fetch_names_its_donor(void) {
    struct cores c;
    cores_make(&c, 3, NULL);
    static uint8_t target[16];
    pccl_operation *op = NULL;
    pccl_status status =
        pccl__core_fetch(c.core[0], 9, c.id[2], 4, 0, sizeof target, target, 1000, c.now_ns, &op, NULL);
    EXPECT(status == PCCL_OK, "started");
    cores_run(&c, 3000000);
    EXPECT(op->ended && op->status == PCCL_TIMEOUT, "%s", op->text);
    EXPECT(strstr(op->text, "no byte of region 4 came for 1000 ms from rank 2 (peer 03000000 at 127.0.0.1:1"), "%s",
           op->text);
    pccl__core_handle_free(op);
    cores_free(&c);
}

int main(void) {
    test_fetch_names_its_donor();
    test_absent();
    test_returned_is_not_absent();
    test_goes_on();
    test_present_but_cut_off();
    test_halt_names_operations();
    FINISH();
}
