/* SPDX-License-Identifier: MIT
 *
 * start_test.c - a call that is meant for another epoch than the one that its core is in: views reach callers a little
 * before they are installed, and retries may come after. It is not judged by a group that it was not made for.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "shared_cores.h"

static void expect_end(pccl_operation *op, pccl_status status, const char *what) {
    EXPECT(op->ended && op->status == status, "%s: %s %s", what, pccl_status_string(op->status), op->text);
    pccl__core_handle_free(op);
}

static void lose_first_of_three(struct cores *c) {
    cores_make(c, 3, NULL);
    cores_kill(c, 0);
    pccl__core_freeze(c->core[1], PCCL_ABORTED, NULL, "a test");
    pccl__core_freeze(c->core[2], PCCL_ABORTED, NULL, "a test");
}

/* In place where the ranks of the next epoch put it, which overlaps wrongly by those of the present one. */
static pccl_call gather_in_place(int32_t *all, uint32_t rank, uint64_t epoch) {
    all[rank] = (int32_t)rank + 10;
    return (pccl_call){.collective = PCCL_ALL_GATHER,
                       .dtype = PCCL_INT32,
                       .count = 1,
                       .input = &all[rank],
                       .output = all,
                       .expected_epoch = epoch};
}

static void test_ahead_of_the_view(void) {
    struct cores c;
    lose_first_of_three(&c);
    int32_t all[2][2] = {{0}};
    pccl_operation *ahead[] = {cores_start(&c, 1, gather_in_place(all[0], 0, 2)),
                               cores_start(&c, 2, gather_in_place(all[1], 1, 2))};
    EXPECT(!ahead[0]->ended && !ahead[1]->ended, "queued");
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "a test");
    cores_run(&c, 1000);
    for (uint32_t i = 0; i < 2; i++) {
        expect_end(ahead[i], PCCL_OK, "a call for the epoch that came");
        EXPECT(all[i][0] == 10 && all[i][1] == 11);
    }
    cores_free(&c);
}

/* Memory for just as many counts as the other group has members; one look beyond it is seen by ASan. */
static pccl_call exchange(const uint64_t *counts, int32_t *memory, uint64_t epoch) {
    return (pccl_call){.collective = PCCL_ALL_TO_ALL,
                       .dtype = PCCL_INT32,
                       .flags = PCCL_UNEVEN,
                       .input = memory,
                       .output = memory + 2,
                       .input_counts = counts,
                       .output_counts = counts,
                       .expected_epoch = epoch};
}

static void test_uneven_parts_ahead_of_the_view(void) {
    struct cores c;
    lose_first_of_three(&c);
    uint64_t *counts = calloc(2, sizeof *counts);
    counts[0] = counts[1] = 1;
    int32_t memory[2][4] = {{1, 2}, {3, 4}};
    for (uint32_t i = 0; i < 2; i++) {
        pccl_operation *ahead = cores_start(&c, 1 + i, exchange(counts, memory[i], 2));
        EXPECT(ahead->ended && strstr(ahead->text, "not installed yet"), "%s", ahead->text);
        expect_end(ahead, PCCL_PEER_LOST, "nobody knows how many counts there are");
    }
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "a test");
    pccl_operation *again[2];
    for (uint32_t i = 0; i < 2; i++) again[i] = cores_start(&c, 1 + i, exchange(counts, memory[i], 2));
    cores_run(&c, 1000);
    for (uint32_t i = 0; i < 2; i++) expect_end(again[i], PCCL_OK, "the retry");
    EXPECT(memory[0][3] == 3 && memory[1][2] == 2, "they meet");
    free(counts);
    cores_free(&c);
}

/* Wrong by the ranks of the present group (its own part has two lengths), and too few counts for it. */
static void test_behind_the_view(void) {
    struct cores c;
    cores_make(&c, 3, NULL);
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "a test");
    uint64_t *counts = calloc(1, sizeof *counts);
    int32_t memory[4];
    expect_end(cores_start(&c, 2, exchange(counts, memory, 1)), PCCL_PEER_LOST, "a call for an epoch that is over");
    free(counts);
    cores_free(&c);
}

int main(void) {
    test_ahead_of_the_view();
    test_uneven_parts_ahead_of_the_view();
    test_behind_the_view();
    FINISH();
}
