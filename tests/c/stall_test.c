/* SPDX-License-Identifier: MIT
 *
 * stall_test.c - waits are told with names, in virtual time, and end in a timeout that stops the epoch for everybody.
 */
#include <string.h>

#include "check.h"
#include "shared_cores.h"

static int32_t data[CORES_MAX];

static pccl_call sum(uint32_t peer, uint32_t timeout_ms) {
    return (pccl_call){.collective = PCCL_ALL_REDUCE,
                       .algorithm = PCCL_DOUBLING, /* rank 1 waits for rank 2 itself */
                       .dtype = PCCL_INT32,
                       .count = 1,
                       .input = &data[peer],
                       .output = &data[peer],
                       .timeout_ms = timeout_ms};
}

static void test_report_and_timeout(void) {
    struct cores c;
    cores_make(&c, 3, NULL);
    pccl_operation *op[3];
    op[0] = cores_start(&c, 0, sum(0, 0));
    op[1] = cores_start(&c, 1, sum(1, 2000));
    pccl_event event;
    cores_run(&c, 90000);
    EXPECT(!cores_event(&c, 0, PCCL_EVENT_STALLED, &event), "too early");
    cores_run(&c, 60000);
    EXPECT(cores_event(&c, 0, PCCL_EVENT_STALLED, &event), "told after 100 ms");
    EXPECT(event.waited_ms >= 100 && event.waited_ms < 160 && event.ranks_count >= 1, "waited %u", event.waited_ms);
    EXPECT(strstr(event.text, "all_reduce(int32[1]"), "%s", event.text);
    EXPECT(pccl__core_has_started(c.core[2], c.epoch, event.name) == 0, "rank 2 has not");
    EXPECT(pccl__core_has_started(c.core[1], c.epoch, event.name) == 1, "rank 1 has");
    EXPECT(pccl__core_has_started(c.core[1], c.epoch + 1, event.name) == -1, "another epoch");
    cores_run(&c, 3000000);
    for (uint32_t i = 0; i < 3; i++) EXPECT(cores_event(&c, i, PCCL_EVENT_FROZEN, &event), "all stop, rank %u too", i);
    cores_install(&c, NULL, 0, PCCL_TIMEOUT, "rank 2 never called it");
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT(op[i]->ended && op[i]->status == PCCL_TIMEOUT && strstr(op[i]->text, "rank 2 never"), "%s", op[i]->text);
        pccl__core_handle_free(op[i]);
    }
    for (uint32_t i = 0; i < 3; i++) op[i] = cores_start(&c, i, sum(i, 0));
    cores_run(&c, 10000);
    for (uint32_t i = 0; i < 3; i++) {
        EXPECT(op[i]->status == PCCL_OK && op[i]->ended, "%s", op[i]->text);
        pccl__core_handle_free(op[i]);
    }
    cores_free(&c);
}

/* Who only answers our questions does not go on, however often we ask: a timeout lasts as long as it says. */
static void test_answers_are_no_progress(void) {
    struct cores c;
    cores_make(&c, 3, NULL);
    pccl_operation *op[] = {cores_start(&c, 0, sum(0, 6000)), cores_start(&c, 1, sum(1, 60000))};
    pccl_event event;
    cores_run(&c, 5900000);
    EXPECT(!cores_event(&c, 0, PCCL_EVENT_FROZEN, &event), "too early");
    cores_run(&c, 200000);
    EXPECT(cores_event(&c, 0, PCCL_EVENT_FROZEN, &event), "no answer made it wait any longer");
    cores_install(&c, NULL, 0, PCCL_TIMEOUT, "rank 2 never called it");
    for (uint32_t i = 0; i < 2; i++) pccl__core_handle_free(op[i]);
    cores_free(&c);
}

static pccl_call message(pccl_collective kind, uint32_t peer, uint32_t root) {
    return (pccl_call){.collective = kind,
                       .dtype = PCCL_INT32,
                       .count = 1,
                       .root = root,
                       .tag = 5,
                       .input = &data[peer],
                       .output = &data[peer]};
}

/* Data of other operations show that a member is busy, not gone; so they renew the patience, but not for ever. */
static void test_a_busy_member_is_waited_for(void) {
    struct cores c;
    cores_make(&c, 3, NULL);
    pccl_operation *op[] = {cores_start(&c, 0, sum(0, 60000)), cores_start(&c, 1, sum(1, 2000))};
    pccl_event event;
    uint32_t seconds = 0;
    while (seconds < 60 && !cores_event(&c, 1, PCCL_EVENT_FROZEN, &event)) {
        pccl_operation *pair[] = {cores_start(&c, 2, message(PCCL_SEND, 2, 1)),
                                  cores_start(&c, 1, message(PCCL_RECV, 1, 2))};
        cores_run(&c, 1000000);
        for (uint32_t i = 0; i < 2; i++) pccl__core_handle_free(pair[i]);
        seconds++;
    }
    EXPECT(seconds >= 20 && seconds <= 21, "ten times the timeout, not %u s", seconds);
    cores_install(&c, NULL, 0, PCCL_TIMEOUT, "rank 2 never called it");
    for (uint32_t i = 0; i < 2; i++) pccl__core_handle_free(op[i]);
    cores_free(&c);
}

/* While frozen, a call of an idle tag waits for the next epoch; one behind an open call of its tag is aborted with it.
 */
static void test_calls_while_frozen(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    pccl_operation *open = cores_start(&c, 0, sum(0, 0));
    pccl__core_freeze(c.core[0], PCCL_ABORTED, NULL, "for a test");
    cores_run(&c, 1000);
    pccl_call other = sum(0, 0);
    other.tag = 5;
    pccl_operation *behind = cores_start(&c, 0, sum(0, 0)), *waiting = cores_start(&c, 0, other);
    EXPECT(!behind->ended && !waiting->ended, "nothing ends before the verdict");
    EXPECT(c.core[1]->frozen, "the notice stopped the other side");
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "a test");
    EXPECT(open->ended && open->status == PCCL_PEER_LOST, "%s", open->text);
    EXPECT(behind->ended && behind->status == PCCL_PEER_LOST, "%s", behind->text);
    EXPECT(!waiting->ended, "runs in the next epoch");
    other.input = other.output = &data[1];
    pccl_operation *meets = cores_start(&c, 1, other);
    cores_run(&c, 1000);
    EXPECT(waiting->ended && waiting->status == PCCL_OK && meets->ended && meets->status == PCCL_OK, "they meet");
    pccl_operation *all[] = {open, behind, waiting, meets};
    for (int i = 0; i < 4; i++) pccl__core_handle_free(all[i]);
    cores_free(&c);
}

/* No view comes: what waits for it ends by its own timeout, and with it what was called behind it in ignorance. Else
 * that would be ahead of the retry. */
static void test_queued_times_out(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    pccl_operation *open = cores_start(&c, 0, sum(0, 500));
    pccl__core_freeze(c.core[0], PCCL_ABORTED, NULL, "for a test");
    pccl_call other = sum(0, 2000), patient = sum(0, 60000);
    other.tag = patient.tag = 5;
    pccl_operation *fated = cores_start(&c, 0, sum(0, 1000)), *queued = cores_start(&c, 0, other);
    pccl_operation *behind = cores_start(&c, 0, patient), *apart;
    pccl_call elsewhere = sum(0, 60000);
    elsewhere.tag = 6;
    apart = cores_start(&c, 0, elsewhere);
    cores_run(&c, 1500000);
    EXPECT(fated->ended && fated->status == PCCL_TIMEOUT && strstr(fated->text, "1000 ms"), "%s", fated->text);
    EXPECT(!queued->ended, "its timeout is longer");
    cores_run(&c, 1000000);
    EXPECT(queued->ended && queued->status == PCCL_TIMEOUT && strstr(queued->text, "no view"), "%s", queued->text);
    EXPECT(behind->ended && behind->status == PCCL_TIMEOUT && strstr(behind->text, "behind"), "%s", behind->text);
    EXPECT(!open->ended && !apart->ended, "one has begun, and only a verdict ends it; the other has time");
    pccl__core_handle_free(queued); /* seen */
    pccl_operation *retry = cores_start(&c, 0, patient);
    EXPECT(!retry->ended, "%s", retry->text);
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "a test");
    EXPECT(open->ended && open->status == PCCL_PEER_LOST, "%s", open->text);
    patient.input = patient.output = &data[1];
    pccl_operation *meets = cores_start(&c, 1, patient);
    cores_run(&c, 1000);
    EXPECT(meets->ended && meets->status == PCCL_OK && retry->ended && retry->status == PCCL_OK, "they meet");
    pccl_operation *all[] = {open, fated, behind, apart, retry, meets};
    for (int i = 0; i < 6; i++) pccl__core_handle_free(all[i]);
    cores_free(&c);
}

/* Many wait at once, each is told once, and looking after them costs nothing while none is due. */
static void test_many_wait(void) {
    enum { MANY = 2000 };
    static pccl_operation *op[MANY];
    struct cores c;
    cores_make(&c, 2, NULL);
    for (uint32_t i = 0; i < MANY; i++) {
        pccl_call call = sum(0, 60000);
        call.tag = i;
        op[i] = cores_start(&c, 0, call);
    }
    cores_run(&c, 90000);
    EXPECT(pccl__core_deadline(c.core[0]) >= c.now_ns + 9000000, "nobody is due yet");
    cores_run(&c, 50000);
    pccl_event event;
    uint32_t told = 0;
    while (cores_event(&c, 0, PCCL_EVENT_STALLED, &event)) told++;
    EXPECT(told == MANY, "told %u", told);
    for (uint32_t i = 0; i < MANY; i++) {
        pccl_call call = sum(1, 0);
        call.tag = i;
        pccl_operation *meets = cores_start(&c, 1, call);
        cores_run(&c, 10);
        EXPECT(meets->ended && op[i]->ended && op[i]->status == PCCL_OK, "%s", op[i]->text);
        pccl__core_handle_free(meets);
        pccl__core_handle_free(op[i]);
    }
    EXPECT(!c.core[0]->timers.first && !c.core[1]->timers.first, "no timer outlives its operation");
    cores_free(&c);
}

int main(void) {
    test_report_and_timeout();
    test_answers_are_no_progress();
    test_a_busy_member_is_waited_for();
    test_calls_while_frozen();
    test_queued_times_out();
    test_many_wait();
    FINISH();
}
