/* SPDX-License-Identifier: MIT
 *
 * settle_test.c - from one epoch to the next: operations that waited for it, views that cannot be installed, links that
 * cannot be opened afresh.
 */
#include <string.h>

#include "check.h"
#include "shared_cores.h"

static int32_t data[CORES_MAX][8];

static pccl_call call_of(pccl_collective collective, const int32_t *input, int32_t *output, uint32_t root) {
    return (pccl_call){.collective = collective, .dtype = PCCL_INT32, .count = 2, .root = root, .input = input,
                       .output = output};
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
    pccl_operation *gather = cores_start(&c, 2, call_of(PCCL_ALL_GATHER, data[2] + 4, data[2], 0)); /* its block moved */
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

int main(void) {
    test_queued_meets_another_group();
    FINISH();
}
