/* SPDX-License-Identifier: MIT
 *
 * settle_test.c - from one epoch to the next: operations that waited for it, inputs that come back, calls behind
 * failures that nobody has looked at, views that cannot be installed, links that cannot be opened afresh.
 */
#include <string.h>

#include "check.h"
#include "shared_cores.h"
#include "shared_memory.h"
#include "shared_verdict.h"

static int32_t data[CORES_MAX][8];

static pccl_call call_of(pccl_collective collective, const int32_t *input, int32_t *output, uint32_t root) {
    return (pccl_call){
        .collective = collective, .dtype = PCCL_INT32, .count = 2, .root = root, .input = input, .output = output};
}

static void expect_end(pccl_operation *op, pccl_status status, const char *what) {
    EXPECT(op->ended && op->status == status, "%s: %s %s", what, pccl_status_string(op->status), op->text);
    pccl__core_handle_free(op);
}

/* Called for rank 2 of 3, begun as rank 1 of 2: what the buffers were good for then they are not now. */
static void test_queued_meets_another_group(void) {
    struct cores c;
    cores_make(&c, 3, NULL);
    for (uint32_t i = 1; i < 3; i++) pccl__core_freeze(c.core[i], PCCL_ABORTED, NULL, "a test");
    pccl_call sum = call_of(PCCL_ALL_REDUCE, data[2], data[2], 0), barrier = {.collective = PCCL_BARRIER, .tag = 4};
    pccl_operation *root = cores_start(&c, 2, call_of(PCCL_BROADCAST, NULL, data[2], 1)); /* it will be the root */
    pccl_operation *gather = cores_start(&c, 2, call_of(PCCL_ALL_GATHER, data[2] + 4, data[2], 0)); /* will move */
    pccl_operation *scatter = cores_start(&c, 2, call_of(PCCL_REDUCE_SCATTER, data[2], data[2] + 6, 0));
    sum.tag = 3;
    pccl_operation *reduce[2] = {cores_start(&c, 2, sum)}, *barriers[2] = {cores_start(&c, 2, barrier)};
    data[2][0] = 5;
    cores_kill(&c, 0);
    cores_run(&c, 100000);
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "rank 0 was lost");
    sum.input = sum.output = data[1];
    data[1][0] = 6;
    reduce[1] = cores_start(&c, 1, sum);
    barriers[1] = cores_start(&c, 1, barrier);
    cores_run(&c, 1000);
    EXPECT(strstr(root->text, "rank 1"), "%s", root->text);
    expect_end(root, PCCL_PEER_LOST, "a broadcast without input whose caller became the root");
    expect_end(gather, PCCL_PEER_LOST, "a gather that is in place no more");
    expect_end(scatter, PCCL_PEER_LOST, "a scatter of three blocks among two");
    for (int i = 0; i < 2; i++) {
        expect_end(reduce[i], PCCL_OK, "a sum fits any group");
        expect_end(barriers[i], PCCL_OK, "a barrier fits any group");
    }
    EXPECT(data[1][0] == 11 && data[2][0] == 11, "%d %d", data[1][0], data[2][0]);
    cores_free(&c);
}

/* ---------------------------------------------------------------- barriers */

/* One of four is lost before it calls a barrier that the others wait in: none of them has its data done, which is that
 * all have begun. */
static void test_barrier_of_who_never_came(void) {
    struct cores c;
    cores_make(&c, 4, NULL);
    const pccl_call barrier = {.collective = PCCL_BARRIER};
    struct report reports[3] = {0};
    pccl_operation *op[3];
    pccl_operation_name commits[1];
    for (uint32_t i = 0; i < 3; i++) op[i] = cores_start(&c, i, barrier);
    cores_run(&c, 10000);
    for (uint32_t i = 0; i < 3; i++) EXPECT(!op[i]->ended, "rank %u did not wait", i);
    cores_kill(&c, 3);
    cores_run(&c, 10000);
    for (uint32_t i = 0; i < 3; i++) {
        pccl__core_freeze(c.core[i], PCCL_ABORTED, NULL, "the master asks");
        EXPECT(pccl__core_report(c.core[i], c.epoch, reports[i].lines, REPORT_LINES, &reports[i].count) == PCCL_OK);
        EXPECT(reports[i].lines[0].state == PCCL_DATA_PHASE, "state %d", (int)reports[i].lines[0].state);
        reports[i].rank = i;
    }
    EXPECT(verdict(reports, 3, commits, 1) == 0, "it would have succeeded");
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "rank 3 was lost");
    for (uint32_t i = 0; i < 3; i++) expect_end(op[i], PCCL_PEER_LOST, "one never came");
    for (uint32_t i = 0; i < 3; i++) op[i] = cores_start(&c, i, barrier);
    cores_run(&c, 10000);
    for (uint32_t i = 0; i < 3; i++) expect_end(op[i], PCCL_OK, "all that are left have come");
    cores_free(&c);
}

/* ---------------------------------------------------------------- inputs that were overwritten */

enum { LARGE = 2 << 20 };
static int32_t large[2][LARGE];

static uint32_t overwritten(const int32_t *values, int32_t input) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < LARGE; i++) count += values[i] != input;
    return count;
}

/* When the epoch has stopped the input comes back before the verdict is there, and not in one go: what is told and
 * heard meanwhile has its turn. */
static void test_input_comes_back_little_by_little(void) {
    struct cores c;
    pccl_operation *op[2];
    pccl_event event;
    cores_make(&c, 2, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t j = 0; j < LARGE; j++) large[i][j] = (int32_t)i + 1;
        pccl_call sum = call_of(PCCL_ALL_REDUCE, large[i], large[i], 0);
        sum.count = LARGE;
        op[i] = cores_start(&c, i, sum);
    }
    while (overwritten(large[1], 2) < LARGE / 2) cores_run(&c, 1);
    EXPECT(op[1]->state == PCCL__DATA, "it is under way");
    pccl__core_handle_free(op[0]);
    cores_kill(&c, 0);
    uint32_t left = overwritten(large[1], 2), steps = 0;
    pccl__core_freeze(c.core[1], PCCL_PEER_LOST, NULL, "a test");
    for (; left > 0 && pccl__core_deadline(c.core[1]) <= c.now_ns; steps++) {
        pccl__core_progress(c.core[1], c.now_ns);
        uint32_t now_left = overwritten(large[1], 2);
        EXPECT(now_left <= left && left - now_left <= LARGE / 4, "%u after %u", now_left, left);
        left = now_left;
        if (steps == 0) EXPECT(cores_event(&c, 1, PCCL_EVENT_FROZEN, &event), "the owner is told first");
    }
    EXPECT(left == 0 && steps > 2 && !op[1]->ended, "all is back, %u steps, without a verdict", steps);
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "rank 0 was lost");
    EXPECT(overwritten(large[1], 2) == 0);
    expect_end(op[1], PCCL_PEER_LOST, "the sum of two");
    cores_free(&c);
}

/* ---------------------------------------------------------------- failures that were not looked at */

static pccl_call sum_of(uint32_t peer) { return call_of(PCCL_ALL_REDUCE, data[peer], data[peer], 0); }

/* A call made in ignorance of a failure must not take the number of its retry: rank 0 has seen the failure and retries,
 * rank 1 calls the next one behind it. */
static void test_unseen_failure(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    pccl_operation *first = cores_start(&c, 1, sum_of(1));
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "a test");
    EXPECT(first->ended && first->status == PCCL_PEER_LOST, "%s", first->text);
    pccl_operation *retry = cores_start(&c, 0, sum_of(0)), *ignorant = cores_start(&c, 1, sum_of(1));
    EXPECT(ignorant->ended && ignorant->status == PCCL_PEER_LOST, "%s", ignorant->text);
    EXPECT(strstr(ignorant->text, "not looked at"), "%s", ignorant->text);
    pccl__core_handle_free(first); /* seen */
    pccl__core_handle_free(ignorant);
    pccl_operation *informed = cores_start(&c, 1, sum_of(1));
    cores_run(&c, 1000);
    EXPECT(retry->ended && retry->status == PCCL_OK && informed->ended && informed->status == PCCL_OK, "they meet");
    pccl__core_handle_free(retry);
    pccl__core_handle_free(informed);
    cores_free(&c);
}

/* Two calls fail with one epoch, and the retry of the first with the next. Who looks at the second one now does not
 * know that yet: its retry must not take the number of the other's. */
static void test_unseen_failure_of_a_retry(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    pccl_operation *first = cores_start(&c, 1, sum_of(1)), *second = cores_start(&c, 1, sum_of(1));
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "a test");
    EXPECT(first->ended && second->ended, "both fail");
    pccl__core_handle_free(first); /* seen */
    pccl_operation *first_again = cores_start(&c, 1, sum_of(1));
    EXPECT(!first_again->ended, "%s", first_again->text);
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "a test");
    EXPECT(first_again->ended, "%s", first_again->text);
    pccl__core_handle_free(second);
    pccl_operation *second_again = cores_start(&c, 1, sum_of(1));
    EXPECT(second_again->ended && strstr(second_again->text, "not looked at"), "%s", second_again->text);
    pccl__core_handle_free(first_again);
    pccl_operation *informed = cores_start(&c, 1, sum_of(1));
    EXPECT(!informed->ended, "%s", informed->text);
    pccl__core_handle_free(second_again);
    pccl__core_handle_free(informed);
    cores_free(&c);
}

/* In an epoch that is stopped, too: when the next one begins, the failure may have been looked at, and rank 0's retry
 * would meet the call behind it. */
static void test_unseen_failure_in_a_stopped_epoch(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    pccl_operation *first = cores_start(&c, 1, sum_of(1)), *retry, *informed;
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "a test");
    for (uint32_t i = 0; i < 2; i++) pccl__core_freeze(c.core[i], PCCL_ABORTED, NULL, "a test");
    pccl_operation *ignorant = cores_start(&c, 1, sum_of(1));
    EXPECT(ignorant->ended && strstr(ignorant->text, "not looked at"), "%s", ignorant->text);
    EXPECT(ignorant->lost_epoch == 1, "it stands behind what epoch 1 failed, not behind the present one");
    pccl__core_handle_free(first); /* seen */
    pccl_call other = sum_of(1);
    other.tag = 9;
    pccl_operation *apart = cores_start(&c, 1, other);
    EXPECT(!apart->ended, "another tag waits for the next epoch: %s", apart->text);
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "a test");
    retry = cores_start(&c, 0, sum_of(0));
    cores_run(&c, 1000);
    EXPECT(!retry->ended && !apart->ended, "they have nobody to meet yet");
    pccl__core_handle_free(ignorant);
    informed = cores_start(&c, 1, sum_of(1));
    cores_run(&c, 1000);
    expect_end(retry, PCCL_OK, "the retry");
    expect_end(informed, PCCL_OK, "its partner");
    pccl__core_handle_free(apart);
    cores_free(&c);
}

/* A call that is refused when it is made fails by the epoch before, not by the end of the one that it was made in: to
 * have looked at it says nothing of what that end fails later. */
static void test_unseen_failure_behind_a_refusal(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "a test");
    pccl_call stale = sum_of(1);
    stale.expected_epoch = 1;
    pccl_operation *refused = cores_start(&c, 1, stale), *behind = cores_start(&c, 1, sum_of(1));
    EXPECT(refused->ended && refused->status == PCCL_PEER_LOST, "%s", refused->text);
    EXPECT(behind->ended && strstr(behind->text, "not looked at"), "%s", behind->text);
    pccl__core_handle_free(refused); /* seen */
    pccl_operation *again = cores_start(&c, 1, sum_of(1));
    EXPECT(!again->ended, "%s", again->text);
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "a test");
    EXPECT(again->ended, "%s", again->text);
    pccl__core_handle_free(behind); /* seen, and nothing newer */
    pccl_operation *behind_again = cores_start(&c, 1, sum_of(1));
    EXPECT(behind_again->ended && strstr(behind_again->text, "not looked at"), "%s", behind_again->text);
    pccl__core_handle_free(again);
    pccl__core_handle_free(behind_again);
    cores_free(&c);
}

/* A call that finds no memory has no number, so the call behind it must not take that. */
static void test_no_memory_to_start(void) {
    if (!memory_supported()) return;
    struct cores c;
    cores_make(&c, 2, NULL);
    pccl_call call = sum_of(1);
    call.flags = PCCL_NOTIFY;
    uint64_t refused = 0;
    pccl_operation *hungry = NULL, *meets, *behind;
    for (uint64_t nth = 1; !hungry; nth++) { /* its first allocations give up the call as a whole */
        uint64_t before = memory_refused();
        memory_refuse(nth, 1);
        if (pccl__core_start(c.core[1], &call, c.now_ns, &hungry, NULL) != PCCL_OK) hungry = NULL;
        memory_refuse(0, 0);
        refused += memory_refused() - before;
    }
    EXPECT(refused > 0 && hungry->ended && hungry->status == PCCL_NO_MEMORY, "%s", hungry->text);
    behind = cores_start(&c, 1, sum_of(1));
    EXPECT(behind->ended && strstr(behind->text, "not looked at"), "%s", behind->text);
    pccl__core_handle_free(hungry);
    pccl__core_handle_free(behind);
    meets = cores_start(&c, 0, sum_of(0));
    hungry = cores_start(&c, 1, call);
    cores_run(&c, 1000);
    expect_end(meets, PCCL_OK, "the first call");
    expect_end(hungry, PCCL_OK, "its repetition");
    cores_free(&c);
}

/* ---------------------------------------------------------------- several failures at once */

/* The first loss stops the epoch; the master must still hear of the second one, or it waits for a report of the dead.
 */
static void test_second_loss_is_told(void) {
    struct cores c;
    cores_make(&c, 4, NULL);
    pccl_call barrier = {.collective = PCCL_BARRIER};
    pccl_operation *op[4];
    for (uint32_t i = 0; i < 4; i++) op[i] = cores_start(&c, i, barrier);
    cores_run(&c, 1000);
    for (uint32_t i = 0; i < 4; i++) expect_end(op[i], PCCL_OK, "a barrier, which makes all links");
    for (uint32_t i = 0; i < 2; i++) op[i] = cores_start(&c, i, barrier);
    cores_run(&c, 1000);
    cores_kill(&c, 2);
    cores_kill(&c, 3);
    cores_run(&c, 100000);
    for (uint32_t i = 0; i < 2; i++) {
        pccl_event first, second;
        EXPECT(cores_event(&c, i, PCCL_EVENT_FROZEN, &first), "peer %u stopped", i);
        EXPECT(cores_event(&c, i, PCCL_EVENT_SUSPECT, &second), "peer %u tells of the other loss", i);
        EXPECT(second.reason == PCCL_ABORTED && second.epoch == first.epoch, "%s", second.text);
        EXPECT(second.peer.bytes[0] == 3 || second.peer.bytes[0] == 4, "peer %d", second.peer.bytes[0]);
        EXPECT(memcmp(&first.peer, &second.peer, sizeof first.peer) != 0, "it is another one: %s", second.text);
        EXPECT(!cores_event(&c, i, PCCL_EVENT_SUSPECT, &second), "once: %s", second.text);
    }
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "two were lost");
    for (uint32_t i = 0; i < 2; i++) expect_end(op[i], PCCL_PEER_LOST, "what was in flight");
    cores_free(&c);
}

/* ---------------------------------------------------------------- links that cannot be opened */

static pccl_status open_nothing(struct pccl__transport *transport, const pccl_member *member,
                                struct pccl__channel **channel) {
    (void)transport, (void)member, (void)channel;
    return PCCL_NO_MEMORY;
}

static const struct pccl__transport_ops *without_memory(struct cores *c, uint32_t peer) {
    static struct pccl__transport_ops ops;
    const struct pccl__transport_ops *sound = c->transport[peer]->ops;
    ops = *sound;
    ops.open = open_nothing;
    c->transport[peer]->ops = &ops;
    return sound;
}

/* A view that cannot be installed changes nothing: what runs goes on. */
static void test_failed_install(void) {
    struct cores c;
    cores_make(&c, 3, NULL);
    pccl_operation *op[3];
    for (uint32_t i = 0; i < 2; i++) op[i] = cores_start(&c, i, call_of(PCCL_ALL_REDUCE, data[i], data[i], 0));
    cores_run(&c, 1000);
    pccl_member members[4];
    for (uint32_t i = 0; i < 3; i++) members[i] = (pccl_member){.id = c.id[i], .address = "127.0.0.1", .port = 1};
    members[3] = (pccl_member){.id = {{9}}, .address = "127.0.0.1", .port = 1};
    pccl_view view = {.epoch = c.epoch + 1, .size = 4, .members = members};
    const struct pccl__transport_ops *sound = without_memory(&c, 0);
    EXPECT(pccl__core_install(c.core[0], &view, c.now_ns, NULL) == PCCL_NO_MEMORY, "rank 3 cannot be opened");
    c.transport[0]->ops = sound;
    op[2] = cores_start(&c, 2, call_of(PCCL_ALL_REDUCE, data[2], data[2], 0));
    cores_run(&c, 1000);
    for (uint32_t i = 0; i < 3; i++) expect_end(op[i], PCCL_OK, "started before");
    cores_free(&c);
}

/* An idle link breaks and no fresh one can be made: the epoch stops, and what is called then waits for the next. */
static void test_failed_replacement(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    pccl_operation *op[2];
    pccl_event event;
    const struct pccl__transport_ops *sound = without_memory(&c, 0);
    pccl__sim_cut(c.network, c.id[0], c.id[1]);
    cores_run(&c, 100000);
    c.transport[0]->ops = sound;
    EXPECT(cores_event(&c, 0, PCCL_EVENT_FROZEN, &event) && event.reason == PCCL_NO_MEMORY, "the owner is told");
    op[0] = cores_start(&c, 0, call_of(PCCL_ALL_REDUCE, data[0], data[0], 0));
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "a fresh link");
    op[1] = cores_start(&c, 1, call_of(PCCL_ALL_REDUCE, data[1], data[1], 0));
    cores_run(&c, 1000);
    for (uint32_t i = 0; i < 2; i++) expect_end(op[i], PCCL_OK, "in the next epoch");
    cores_free(&c);
}

int main(void) {
    test_queued_meets_another_group();
    test_barrier_of_who_never_came();
    test_input_comes_back_little_by_little();
    test_unseen_failure();
    test_unseen_failure_of_a_retry();
    test_unseen_failure_in_a_stopped_epoch();
    test_unseen_failure_behind_a_refusal();
    test_no_memory_to_start();
    test_second_loss_is_told();
    test_failed_install();
    test_failed_replacement();
    FINISH();
}
