/* SPDX-License-Identifier: MIT
 *
 * deferred_test.c - commit="deferred": operations return early, one commit settles the step, and a change of epoch in
 * the middle makes every survivor repeat the whole step, whatever it had already done.
 */
#include <string.h>

#include "check.h"
#include "shared_cores.h"

static int32_t data[CORES_MAX];

static pccl_call sum(uint32_t peer) {
    data[peer] = (int32_t)peer + 1;
    return (pccl_call){.collective = PCCL_ALL_REDUCE,
                       .dtype = PCCL_INT32,
                       .count = 1,
                       .input = &data[peer],
                       .output = &data[peer],
                       .flags = PCCL_DEFERRED};
}

static const pccl_call commit = {.collective = PCCL_COMMIT};

static void expect_end(pccl_operation *op, pccl_status status, const char *what) {
    EXPECT(op->ended && op->status == status, "%s: %s %s", what, pccl_status_string(op->status), op->text);
    pccl__core_handle_free(op);
}

static void test_good_step(void) {
    struct cores c;
    cores_make(&c, 3, NULL);
    pccl_operation *op[3], *end[3];
    for (uint32_t i = 0; i < 3; i++) op[i] = cores_start(&c, i, sum(i));
    for (uint32_t i = 0; i < 3; i++) end[i] = cores_start(&c, i, commit);
    EXPECT(pccl__core_pending(c.core[0]) == 3, "two operations and an open step");
    cores_run(&c, 1000);
    for (uint32_t i = 0; i < 3; i++) {
        expect_end(op[i], PCCL_OK, "deferred sum");
        expect_end(end[i], PCCL_OK, "commit");
        EXPECT(data[i] == 6, "%d", data[i]);
        EXPECT(pccl__core_pending(c.core[i]) == 0, "the step is closed");
    }
    cores_free(&c);
}

/* Three peers have done the first operation of a step. */
static void begin_step(struct cores *c) {
    cores_make(c, 3, NULL);
    pccl_operation *op[3];
    for (uint32_t i = 0; i < 3; i++) op[i] = cores_start(c, i, sum(i));
    cores_run(c, 1000);
    for (uint32_t i = 0; i < 3; i++) expect_end(op[i], PCCL_OK, "first operation");
}

/* Peer 0 is done with its step when peer 2 dies; peer 1 has not started it. Both must do it again, together. */
static void test_broken_step(void) {
    struct cores c;
    begin_step(&c);
    cores_kill(&c, 2);
    cores_run(&c, 100000);
    pccl_event event;
    EXPECT(cores_event(&c, 0, PCCL_EVENT_SUSPECT, &event), "the idle link's loss is told");
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "rank 2 was lost");
    pccl_operation *again = cores_start(&c, 0, sum(0)), *end = cores_start(&c, 1, commit);
    EXPECT(strstr(again->text, "repeat") && strstr(again->text, "rank 2 was lost"), "%s", again->text);
    expect_end(again, PCCL_PEER_LOST, "the next operation of a broken step");
    expect_end(end, PCCL_PEER_LOST, "the commit of a broken step");
    pccl_operation *op[2] = {cores_start(&c, 0, sum(0)), cores_start(&c, 1, sum(1))};
    pccl_operation *ends[2] = {cores_start(&c, 0, commit), cores_start(&c, 1, commit)};
    cores_run(&c, 1000);
    for (uint32_t i = 0; i < 2; i++) {
        expect_end(op[i], PCCL_OK, "repeated operation");
        expect_end(ends[i], PCCL_OK, "repeated commit");
        EXPECT(data[i] == 3, "%d", data[i]);
    }
    cores_free(&c);
}

/* A call for the epoch that has ended tells of the broken step, too: the next one begins it anew. */
static void test_broken_step_is_told_once(void) {
    struct cores c;
    begin_step(&c);
    pccl_call bound = sum(0);
    bound.expected_epoch = c.epoch;
    cores_kill(&c, 2);
    cores_run(&c, 100000);
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "rank 2 was lost");
    expect_end(cores_start(&c, 0, bound), PCCL_PEER_LOST, "a call for the epoch before");
    expect_end(cores_start(&c, 1, commit), PCCL_PEER_LOST, "the commit of a broken step");
    pccl_operation *op[2];
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT(pccl__core_pending(c.core[i]) == 0, "the broken step is over");
        op[i] = cores_start(&c, i, sum(i));
    }
    cores_run(&c, 1000);
    for (uint32_t i = 0; i < 2; i++) {
        expect_end(op[i], PCCL_OK, "repeated operation");
        EXPECT(data[i] == 3, "%d", data[i]);
    }
    cores_free(&c);
}

/* The verdict on a commit is the same for all: here everyone had its data, but the finish frames were not through. */
static void test_commit_by_verdict(void) {
    struct cores c;
    cores_make(&c, 3, NULL);
    pccl_operation *op[3], *end[3];
    for (uint32_t i = 0; i < 3; i++) op[i] = cores_start(&c, i, sum(i));
    cores_run(&c, 1000);
    end[0] = cores_start(&c, 0, commit);
    end[1] = cores_start(&c, 1, commit);
    for (uint32_t i = 0; i < 3; i++) expect_end(op[i], PCCL_OK, "operation");
    cores_kill(&c, 2);
    cores_run(&c, 100000);
    pccl_operation_name name = {.sequence = 1};
    pccl_report_line lines[4];
    size_t count;
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT(pccl__core_report(c.core[i], c.epoch, lines, 4, &count) == PCCL_OK && count == 1, "frozen");
        EXPECT(lines[0].returned_below == 1 && lines[0].sequence == 1 && lines[0].state == PCCL_DATA_DONE, "report");
    }
    cores_install(&c, &name, 1, PCCL_PEER_LOST, "rank 2 was lost");
    for (uint32_t i = 0; i < 2; i++) {
        expect_end(end[i], PCCL_OK, "commit by verdict");
        EXPECT(pccl__core_pending(c.core[i]) == 0, "the step is closed");
    }
    cores_free(&c);
}

/* All others are gone before the step is committed. */
static void test_alone_in_a_step(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    pccl_operation *op[2];
    for (uint32_t i = 0; i < 2; i++) op[i] = cores_start(&c, i, sum(i));
    cores_run(&c, 1000);
    for (uint32_t i = 0; i < 2; i++) expect_end(op[i], PCCL_OK, "operation");
    cores_kill(&c, 1);
    cores_run(&c, 100000);
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "rank 1 was lost");
    EXPECT(pccl__core_pending(c.core[0]) == 1, "an open step");
    expect_end(cores_start(&c, 0, commit), PCCL_TOO_FEW_PEERS, "the commit of one who is alone");
    EXPECT(pccl__core_pending(c.core[0]) == 0, "joint calls may be made again");
    cores_free(&c);
}

/* Peer 0 goes on to the next step before its commit has ended, peer 1 waits for the commit first. */
static void test_steps_overlap(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    pccl_operation *op[2], *end[2], *next[2];
    static int32_t more[2] = {10, 20};
    pccl_call call = sum(0);
    op[0] = cores_start(&c, 0, sum(0));
    end[0] = cores_start(&c, 0, commit);
    call.tag = 1;
    call.input = call.output = &more[0];
    next[0] = cores_start(&c, 0, call);
    op[1] = cores_start(&c, 1, sum(1));
    end[1] = cores_start(&c, 1, commit);
    cores_run(&c, 1000);
    for (uint32_t i = 0; i < 2; i++) {
        expect_end(op[i], PCCL_OK, "first step");
        expect_end(end[i], PCCL_OK, "its commit");
    }
    call.input = call.output = &more[1];
    next[1] = cores_start(&c, 1, call);
    cores_run(&c, 1000);
    for (uint32_t i = 0; i < 2; i++) {
        expect_end(next[i], PCCL_OK, "second step");
        EXPECT(pccl__core_pending(c.core[i]) == 1, "the second step awaits its commit");
    }
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "a change");
    for (uint32_t i = 0; i < 2; i++)
        expect_end(cores_start(&c, i, commit), PCCL_PEER_LOST, "the commit of a broken step");
    cores_free(&c);
}

/* A mismatch in the step does not leave its commit waiting. */
static void test_commit_after_mismatch(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    pccl_operation *op[2], *end[2];
    for (uint32_t i = 0; i < 2; i++) {
        pccl_call call = sum(i);
        call.op = i ? PCCL_SUM : PCCL_MAX;
        op[i] = cores_start(&c, i, call);
        end[i] = cores_start(&c, i, commit);
    }
    cores_run(&c, 1000000);
    for (uint32_t i = 0; i < 2; i++) {
        expect_end(op[i], PCCL_MISMATCH, "different reductions");
        expect_end(end[i], PCCL_OK, "commit");
    }
    cores_free(&c);
}

/* The root of a deferred broadcast has returned when another member finds the mismatch: both begin anew, with one
 * numbering. */
static void test_mismatch_after_return(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    pccl_call send = {.collective = PCCL_BROADCAST,
                      .dtype = PCCL_INT32,
                      .count = 1,
                      .input = &data[0],
                      .output = &data[0],
                      .flags = PCCL_DEFERRED};
    pccl_operation *root = cores_start(&c, 0, send);
    cores_run(&c, 1000);
    expect_end(root, PCCL_OK, "the root is done at once");
    pccl_call other = send;
    other.count = 2;
    static int32_t room[2];
    other.input = other.output = room;
    pccl_operation *leaf = cores_start(&c, 1, other);
    cores_run(&c, 1000);
    expect_end(leaf, PCCL_MISMATCH, "the leaf");
    EXPECT(c.core[0]->frozen && c.core[1]->frozen, "the step is over for both");
    cores_free(&c);
}

static pccl_call broadcast(uint32_t peer, uint32_t root) {
    return (pccl_call){.collective = PCCL_BROADCAST,
                       .dtype = PCCL_INT32,
                       .count = 1,
                       .root = root,
                       .input = &data[peer],
                       .output = &data[peer],
                       .flags = PCCL_DEFERRED};
}

/* Each is the root of its own broadcast, so all are done at once; what comes from the others tells. */
static void test_roots_of_their_own(uint32_t size) {
    struct cores c;
    cores_make(&c, size, NULL);
    pccl_operation *op[CORES_MAX], *end[CORES_MAX];
    for (uint32_t i = 0; i < size; i++) op[i] = cores_start(&c, i, broadcast(i, i));
    for (uint32_t i = 0; i < size; i++) pccl__core_progress(c.core[i], c.now_ns);
    for (uint32_t i = 0; i < size; i++) EXPECT(op[i]->ended && op[i]->status == PCCL_OK, "%s", op[i]->text);
    for (uint32_t i = 0; i < size; i++) end[i] = cores_start(&c, i, commit);
    cores_run(&c, 2000);
    for (uint32_t i = 0; i < size; i++) {
        EXPECT(c.core[i]->frozen, "the step is over for %u", i);
        pccl__core_handle_free(op[i]);
    }
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "roots differ");
    for (uint32_t i = 0; i < size; i++) expect_end(end[i], PCCL_PEER_LOST, "to be repeated");
    cores_free(&c);
}

/* The root has returned, and the others wait in something else: what they say when they have waited for a while is
 * compared with what the root called. */
static void test_others_wait_for_more(void) {
    struct cores c;
    cores_make(&c, 3, NULL);
    pccl_operation *root = cores_start(&c, 0, broadcast(0, 0)), *op[3];
    cores_run(&c, 1000);
    expect_end(root, PCCL_OK, "the root is done at once");
    for (uint32_t i = 1; i < 3; i++) {
        pccl_call call = sum(i);
        call.collective = PCCL_REDUCE;
        call.root = 1;
        op[i] = cores_start(&c, i, call);
    }
    cores_run(&c, 400000);
    for (uint32_t i = 0; i < 3; i++) EXPECT(c.core[i]->frozen, "the step is over for %u", i);
    EXPECT(op[1]->status == PCCL_MISMATCH && strstr(op[1]->text, "rank 0 called broadcast"), "%s", op[1]->text);
    EXPECT(strstr(op[1]->text, "called reduce"), "%s", op[1]->text);
    for (uint32_t i = 1; i < 3; i++) pccl__core_handle_free(op[i]);
    cores_free(&c);
}

/* What returned in an epoch before has nothing to do with the operations of this one. */
static void test_forgotten_with_the_epoch(void) {
    struct cores c;
    begin_step(&c);
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "the master says so");
    pccl_operation *end[3];
    for (uint32_t i = 0; i < 3; i++) expect_end(cores_start(&c, i, commit), PCCL_PEER_LOST, "the step");
    for (uint32_t i = 0; i < 3; i++) {
        EXPECT(c.core[i]->returned_count == 0, "%u", c.core[i]->returned_count);
        pccl__core_handle_free(cores_start(&c, i, broadcast(i, 1)));
    }
    for (uint32_t i = 0; i < 3; i++) end[i] = cores_start(&c, i, commit);
    cores_run(&c, 2000);
    for (uint32_t i = 0; i < 3; i++) expect_end(end[i], PCCL_OK, "another step");
    cores_free(&c);
}

int main(void) {
    test_good_step();
    test_broken_step();
    test_broken_step_is_told_once();
    test_commit_by_verdict();
    test_alone_in_a_step();
    test_steps_overlap();
    test_commit_after_mismatch();
    test_mismatch_after_return();
    for (uint32_t size = 2; size <= 4; size++) test_roots_of_their_own(size);
    test_others_wait_for_more();
    test_forgotten_with_the_epoch();
    FINISH();
}
