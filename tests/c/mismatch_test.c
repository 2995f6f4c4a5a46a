/* SPDX-License-Identifier: MIT
 *
 * mismatch_test.c - members that call different things all get the same error, nothing else is disturbed, and who calls
 * late is told at once.
 */
#include <string.h>

#include "check.h"
#include "shared_cores.h"
#include "shared_verdict.h"

enum { BIG = 300000 };
static float data[CORES_MAX][BIG];

static pccl_call call_of(uint32_t peer, pccl_collective collective, uint64_t count, pccl_reduce_op op, uint32_t root) {
    return (pccl_call){.collective = collective,
                       .dtype = PCCL_FLOAT32,
                       .op = op,
                       .count = count,
                       .root = root,
                       .input = data[peer],
                       .output = data[peer]};
}

static void expect_mismatch(pccl_operation *op, const char *a, const char *b) {
    EXPECT(op->ended && op->status == PCCL_MISMATCH, "%s: %s", pccl_status_string(op->status), op->text);
    EXPECT(strstr(op->text, a) && strstr(op->text, b), "%s", op->text);
    pccl__core_handle_free(op);
}

static void expect_good(struct cores *c) {
    pccl_operation *op[CORES_MAX];
    for (uint32_t i = 0; i < c->size; i++) op[i] = cores_start(c, i, call_of(i, PCCL_ALL_REDUCE, 5, PCCL_SUM, 0));
    cores_run(c, 10000);
    for (uint32_t i = 0; i < c->size; i++) {
        EXPECT(op[i]->ended && op[i]->status == PCCL_OK, "%s", op[i]->text);
        pccl__core_handle_free(op[i]);
    }
}

/* Every pair of these differs; each of them against the first, at every rank. */
static void test_pairs(void) {
    const struct {
        pccl_collective collective;
        uint64_t count;
        pccl_reduce_op op;
        uint32_t root;
    } kinds[] = {
        {PCCL_ALL_REDUCE, 8, PCCL_SUM, 0},   {PCCL_ALL_REDUCE, 8, PCCL_MAX, 0}, {PCCL_ALL_REDUCE, 9, PCCL_SUM, 0},
        {PCCL_ALL_REDUCE, BIG, PCCL_SUM, 0}, {PCCL_BROADCAST, 8, PCCL_SUM, 0},  {PCCL_BROADCAST, 8, PCCL_SUM, 2},
        {PCCL_BROADCAST, BIG, PCCL_SUM, 1},  {PCCL_BARRIER, 0, PCCL_SUM, 0},    {PCCL_ALL_REDUCE, 0, PCCL_SUM, 0}};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    struct cores c;
    cores_make(&c, 3, NULL);
    for (uint32_t a = 0; a < KINDS; a++) {
        for (uint32_t b = 0; b < KINDS; b++) {
            if (a == b) continue;
            pccl_operation *op[3];
            for (uint32_t i = 0; i < 3; i++) {
                uint32_t k = i == (a + b) % 3 ? b : a;
                op[i] = cores_start(&c, i, call_of(i, kinds[k].collective, kinds[k].count, kinds[k].op, kinds[k].root));
            }
            cores_run(&c, 400000); /* two sides that only wait announce themselves after the stall time */
            for (uint32_t i = 0; i < 3; i++) expect_mismatch(op[i], "rank ", "called");
            expect_good(&c);
            if (c.core[0]->failed_count > 20) cores_install(&c, NULL, 0, PCCL_OK, NULL);
        }
    }
    cores_free(&c);
}

/* Rank 2 calls late: its call of that number fails at once, and the numbers stay in step, also over a change of epoch.
 */
static void test_late_caller(bool next_epoch) {
    struct cores c;
    cores_make(&c, 3, NULL);
    pccl_operation *op[3];
    op[0] = cores_start(&c, 0, call_of(0, PCCL_ALL_REDUCE, 8, PCCL_SUM, 0));
    op[1] = cores_start(&c, 1, call_of(1, PCCL_ALL_REDUCE, 8, PCCL_MIN, 0));
    cores_run(&c, 400000);
    expect_mismatch(op[0], "op=sum", "op=min");
    expect_mismatch(op[1], "op=sum", "op=min");
    if (next_epoch) cores_install(&c, NULL, 0, PCCL_OK, NULL);
    op[2] = cores_start(&c, 2, call_of(2, PCCL_ALL_REDUCE, 8, PCCL_SUM, 0));
    expect_mismatch(op[2], "rank 0 called", "rank 1 called");
    expect_good(&c);
    cores_free(&c);
}

/* Each root has its data, and then both fail: a verdict on that epoch must not commit it for a third member. */
static void test_failed_is_not_done(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    pccl_operation *op[2];
    for (uint32_t i = 0; i < 2; i++) op[i] = cores_start(&c, i, call_of(i, PCCL_BROADCAST, 8, PCCL_SUM, i));
    cores_run(&c, 400000);
    for (uint32_t i = 0; i < 2; i++) expect_mismatch(op[i], "root=0", "root=1");
    pccl__core_freeze(c.core[0], PCCL_TIMEOUT, NULL, "a test");
    pccl_report_line line;
    size_t count;
    EXPECT(pccl__core_report(c.core[0], c.epoch, &line, 1, &count) == PCCL_OK && count == 1, "frozen");
    EXPECT(line.returned_below == 0 && line.state == PCCL_DATA_PHASE, "state %d", (int)line.state);
    cores_free(&c);
}

/* Each root has its data when the epoch stops, and neither has heard of the other's call: what they report must tell
 * the master that they differ. The retry finds the mismatch. */
static void test_different_and_done(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    pccl_operation *op[2];
    struct report reports[2] = {0};
    for (uint32_t i = 0; i < 2; i++) op[i] = cores_start(&c, i, call_of(i, PCCL_BROADCAST, 8, PCCL_SUM, i));
    for (uint32_t i = 0; i < 2; i++) {
        pccl__core_freeze(c.core[i], PCCL_TIMEOUT, NULL, "a test");
        EXPECT(pccl__core_report(c.core[i], c.epoch, reports[i].lines, REPORT_LINES, &reports[i].count) == PCCL_OK);
        reports[i].rank = i;
        EXPECT(reports[i].lines[0].state == PCCL_DATA_DONE, "state %d", (int)reports[i].lines[0].state);
    }
    pccl_operation_name commits[1];
    uint32_t count = verdict(reports, 2, commits, 1);
    EXPECT(count == 0, "different calls would commit");
    cores_install(&c, commits, count, PCCL_PEER_LOST, "a test");
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT(op[i]->ended && op[i]->status == PCCL_PEER_LOST, "%s", op[i]->text);
        pccl__core_handle_free(op[i]);
        op[i] = cores_start(&c, i, call_of(i, PCCL_BROADCAST, 8, PCCL_SUM, i));
    }
    cores_run(&c, 400000);
    for (uint32_t i = 0; i < 2; i++) expect_mismatch(op[i], "root=0", "root=1");
    expect_good(&c);
    cores_free(&c);
}

/* Other operations in flight are not disturbed. */
static void test_isolation(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    pccl_operation *bad[2], *good[2];
    for (uint32_t i = 0; i < 2; i++) {
        pccl_call call = call_of(i, PCCL_ALL_REDUCE, BIG, PCCL_SUM, 0);
        call.tag = 1;
        good[i] = cores_start(&c, i, call);
        static float spare[2][8];
        bad[i] = cores_start(&c, i,
                             (pccl_call){.collective = PCCL_ALL_REDUCE,
                                         .dtype = i ? PCCL_INT32 : PCCL_FLOAT32,
                                         .count = 8,
                                         .input = spare[i],
                                         .output = spare[i]});
    }
    cores_run(&c, 500000);
    for (uint32_t i = 0; i < 2; i++) {
        expect_mismatch(bad[i], "float32[8]", "int32[8]");
        EXPECT(good[i]->ended && good[i]->status == PCCL_OK, "%s", good[i]->text);
        pccl__core_handle_free(good[i]);
    }
    cores_free(&c);
}

/* Rank 3 comes to the epoch when the others have met the mismatch, and its own call agrees with its neighbours'. */
static void test_late_view(void) {
    struct cores c;
    cores_make(&c, 4, NULL);
    struct pccl__core *late = c.core[3];
    pccl_member members[4];
    for (uint32_t i = 0; i < 4; i++) members[i] = (pccl_member){.id = c.id[i], .address = "127.0.0.1", .port = 1};
    pccl_view view = {.epoch = ++c.epoch, .size = 4, .members = members};
    for (; view.rank < 3; view.rank++)
        EXPECT(pccl__core_install(c.core[view.rank], &view, c.now_ns, NULL) == PCCL_OK, "install");
    pccl_operation *op[4];
    for (uint32_t i = 0; i < 3; i++)
        op[i] = cores_start(&c, i, call_of(i, PCCL_ALL_REDUCE, i == 1 ? 9 : 8, PCCL_SUM, 0));
    cores_run(&c, 300000);
    EXPECT(pccl__core_install(late, &view, c.now_ns, NULL) == PCCL_OK, "install");
    op[3] = cores_start(&c, 3, call_of(3, PCCL_ALL_REDUCE, 8, PCCL_SUM, 0));
    cores_run(&c, 300000);
    for (uint32_t i = 0; i < 4; i++) expect_mismatch(op[i], "float32[8]", "float32[9]");
    expect_good(&c);
    cores_free(&c);
}

/* Rank 2 owes itself two failures and the call between them when the epoch changes: its calls come in the old order,
 * and only the one between has a number now. */
static void test_owed_in_order(void) {
    struct cores c;
    cores_make(&c, 3, NULL);
    pccl_operation *op[3][3];
    for (uint32_t k = 0; k < 3; k++)
        for (uint32_t i = 0; i < 2; i++)
            op[k][i] = cores_start(&c, i, call_of(i, PCCL_ALL_REDUCE, k == 1 ? 8 : 20 + 10 * k + i, PCCL_SUM, 0));
    cores_run(&c, 400000);
    for (uint32_t i = 0; i < 2; i++) {
        expect_mismatch(op[0][i], "float32[20]", "float32[21]");
        expect_mismatch(op[2][i], "float32[40]", "float32[41]");
    }
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "a test");
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT(op[1][i]->ended && op[1][i]->status == PCCL_PEER_LOST, "%s", op[1][i]->text);
        pccl__core_handle_free(op[1][i]);
        op[1][i] = cores_start(&c, i, call_of(i, PCCL_ALL_REDUCE, 8, PCCL_SUM, 0));
    }
    cores_run(&c, 400000); /* they stall, ask, and must not be told of what is over */
    expect_mismatch(cores_start(&c, 2, call_of(2, PCCL_ALL_REDUCE, 20, PCCL_SUM, 0)), "float32[20]", "float32[21]");
    op[1][2] = cores_start(&c, 2, call_of(2, PCCL_ALL_REDUCE, 8, PCCL_SUM, 0));
    expect_mismatch(cores_start(&c, 2, call_of(2, PCCL_ALL_REDUCE, 40, PCCL_SUM, 0)), "float32[40]", "float32[41]");
    cores_run(&c, 400000);
    for (uint32_t i = 0; i < 3; i++) {
        EXPECT(op[1][i]->ended && op[1][i]->status == PCCL_OK, "rank %u: %s", i, op[1][i]->text);
        pccl__core_handle_free(op[1][i]);
    }
    expect_good(&c);
    cores_free(&c);
}

/* Mismatches of numbers that this member never calls, epoch after epoch: it keeps the youngest. */
static void test_owed_is_bounded(void) {
    enum { EACH = PCCL__DISCARD_MAX - 4, EPOCHS = PCCL__OWED_MAX / EACH + 2 };
    struct cores c;
    cores_make(&c, 3, NULL);
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        for (uint32_t k = 0; k < EACH; k++) {
            pccl_operation *op[2];
            for (uint32_t i = 0; i < 2; i++) {
                pccl_call call = call_of(i, PCCL_ALL_REDUCE, 8 + i, PCCL_SUM, 0);
                call.tag = epoch * EACH + k;
                op[i] = cores_start(&c, i, call);
            }
            cores_run(&c, 10000);
            for (uint32_t i = 0; i < 2; i++) expect_mismatch(op[i], "float32[8]", "float32[9]");
        }
        cores_install(&c, NULL, 0, PCCL_OK, NULL);
    }
    uint32_t kept = 0;
    for (struct list *node = c.core[2]->failed.next; node != &c.core[2]->failed; node = node->next) kept++;
    EXPECT(kept == PCCL__OWED_MAX, "kept %u", kept);
    pccl_call call = call_of(2, PCCL_ALL_REDUCE, 8, PCCL_SUM, 0);
    call.tag = EPOCHS * EACH - 1;
    expect_mismatch(cores_start(&c, 2, call), "float32[8]", "float32[9]");
    cores_free(&c);
}

/* When there is no room for more of them the epoch is renewed: for that reason, not for a mismatch, which no other
 * operation in flight is. */
static void test_too_many(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    pccl_call other = call_of(0, PCCL_ALL_REDUCE, 8, PCCL_SUM, 0);
    other.tag = 1;
    pccl_operation *innocent = cores_start(&c, 0, other), *op[2];
    for (uint32_t k = 0; k < PCCL__DISCARD_MAX; k++) {
        for (uint32_t i = 0; i < 2; i++) op[i] = cores_start(&c, i, call_of(i, PCCL_ALL_REDUCE, 8 + i, PCCL_SUM, 0));
        cores_run(&c, 1000);
        for (uint32_t i = 0; i < 2; i++) expect_mismatch(op[i], "float32[8]", "float32[9]");
    }
    EXPECT(c.core[0]->frozen && c.core[1]->frozen && !innocent->ended, "%s", innocent->text);
    for (uint32_t i = 0; i < 2; i++) {
        pccl_event event;
        EXPECT(cores_event(&c, i, PCCL_EVENT_FROZEN, &event), "peer %u stopped", i);
        EXPECT(event.reason != PCCL_MISMATCH, "%s", event.text);
    }
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "too many mismatches");
    EXPECT(innocent->ended && innocent->status == PCCL_PEER_LOST, "%s", innocent->text);
    pccl__core_handle_free(innocent);
    expect_good(&c);
    cores_free(&c);
}

/* Where links are down a part passes through others: who it is for finds out by the length that goes first, and names
 * who sends it, not who passed it on. */
static void test_lengths_that_went_first(void) {
    static const uint32_t parents[] = {0, 0, 1, 1};
    enum { MEMBERS = 4 };
    for (pccl_shape shape = PCCL_SHAPE_RING; shape <= PCCL_SHAPE_TREE; shape++) {
        struct cores c;
        cores_make(&c, MEMBERS, NULL);
        c.shape = shape;
        c.parents = shape == PCCL_SHAPE_TREE ? parents : NULL;
        cores_install(&c, NULL, 0, PCCL_OK, NULL);
        pccl_operation *op[MEMBERS];
        for (uint32_t i = 0; i < MEMBERS; i++) {
            uint64_t sent[MEMBERS] = {1, 2, 0, 3}, received[MEMBERS];
            for (uint32_t from = 0; from < MEMBERS; from++) received[from] = sent[i];
            if (i == 3) received[0] = 5; /* of which there are 3 */
            pccl_call call = call_of(i, PCCL_ALL_TO_ALL, 0, PCCL_SUM, 0);
            call.flags = PCCL_UNEVEN;
            call.input_counts = sent;
            call.output_counts = received;
            call.output = data[i] + BIG / 2;
            op[i] = cores_start(&c, i, call);
        }
        cores_run(&c, 1000);
        for (uint32_t i = 0; i < MEMBERS; i++)
            expect_mismatch(op[i], "rank 0 called all_to_all(float32[3], uneven",
                            "rank 3 called all_to_all(float32[5]");
        expect_good(&c);
        cores_free(&c);
    }
}

int main(void) {
    test_lengths_that_went_first();
    test_pairs();
    test_late_caller(false);
    test_late_caller(true);
    test_failed_is_not_done();
    test_different_and_done();
    test_isolation();
    test_late_view();
    test_owed_in_order();
    test_owed_is_bounded();
    test_too_many();
    FINISH();
}
