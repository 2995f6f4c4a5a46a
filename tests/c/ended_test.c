/* SPDX-License-Identifier: MIT
 *
 * ended_test.c - pccl_call.ended: called once for every operation, however it ends, when its outcome is there; and not
 * where a call is refused.
 */
#include <string.h>

#include "check.h"
#include "shared_cores.h"

enum { PEERS = 3 };

struct witness {
    int calls;
    pccl_operation *op; /* NULL: dropped, or not known yet */
};

static int32_t data[CORES_MAX];
static struct witness witnesses[CORES_MAX];

static void saw_end(void *context) {
    struct witness *witness = context;
    witness->calls++;
    if (witness->op) EXPECT(pccl_done(witness->op), "called before its end can be seen");
}

static pccl_call watched(uint32_t peer, pccl_collective collective, uint32_t flags) {
    data[peer] = (int32_t)peer + 1;
    witnesses[peer] = (struct witness){0};
    return (pccl_call){.collective = collective,
                       .dtype = PCCL_INT32,
                       .count = 1,
                       .input = &data[peer],
                       .output = &data[peer],
                       .flags = flags,
                       .ended = saw_end,
                       .context = &witnesses[peer]};
}

static void start_all(struct cores *c, uint32_t count, pccl_collective collective, uint32_t flags) {
    for (uint32_t i = 0; i < count; i++) witnesses[i].op = cores_start(c, i, watched(i, collective, flags));
}

static void expect_all(uint32_t count, pccl_status status, const char *what) {
    for (uint32_t i = 0; i < count; i++) {
        EXPECT(witnesses[i].calls == 1, "%s: peer %u was told %d times", what, i, witnesses[i].calls);
        EXPECT(witnesses[i].op->status == status, "%s: %s", what, witnesses[i].op->text);
        pccl__core_handle_free(witnesses[i].op);
        EXPECT(witnesses[i].calls == 1, "%s: told again", what);
    }
}

static void test_success(void) {
    static const struct {
        pccl_collective collective;
        uint32_t flags;
    } kinds[] = {{PCCL_ALL_REDUCE, 0},
                 {PCCL_ALL_REDUCE, PCCL_DEFERRED | PCCL_DISCARD_INPUT},
                 {PCCL_BROADCAST, 0},
                 {PCCL_BARRIER, 0}, /* of which little more than the name is kept */
                 {PCCL_COMMIT, 0}};
    struct cores c;
    cores_make(&c, PEERS, NULL);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        start_all(&c, PEERS, kinds[i].collective, kinds[i].flags);
        cores_run(&c, 1000);
        expect_all(PEERS, PCCL_OK, pccl_collective_name(kinds[i].collective));
    }
    cores_free(&c);
}

static void test_dropped(void) {
    struct cores c;
    cores_make(&c, PEERS, NULL);
    for (uint32_t i = 0; i < PEERS; i++) pccl__core_handle_free(cores_start(&c, i, watched(i, PCCL_ALL_REDUCE, 0)));
    cores_run(&c, 1000);
    for (uint32_t i = 0; i < PEERS; i++) EXPECT(witnesses[i].calls == 1 && data[i] == 6, "nobody holds it");
    cores_free(&c);
}

static void test_failure(void) {
    struct cores c;
    cores_make(&c, PEERS, NULL);
    start_all(&c, PEERS - 1, PCCL_ALL_REDUCE, 0);
    cores_run(&c, 1000);
    for (uint32_t i = 0; i < PEERS - 1; i++) pccl__core_halt(c.core[i], PCCL_EXPELLED, "for a test");
    expect_all(PEERS - 1, PCCL_EXPELLED, "halt");
    cores_free(&c);
}

/* A call that ends at once is told of before the caller has a handle; one that is refused is no operation. */
static void test_at_once(void) {
    struct cores c;
    cores_make(&c, 1, NULL);
    pccl_call call = watched(0, PCCL_ALL_REDUCE, 0);
    pccl_operation *op = cores_start(&c, 0, call);
    EXPECT(op->ended && witnesses[0].calls == 1, "a group of one is too small, or done at once");
    pccl__core_handle_free(op);
    call.dtype = PCCL_DTYPE_COUNT;
    op = NULL;
    EXPECT(pccl__core_start(c.core[0], &call, 0, &op, NULL) == PCCL_INVALID && !op, "no such dtype");
    EXPECT(witnesses[0].calls == 1, "told of a call that was refused");
    cores_free(&c);
}

int main(void) {
    test_success();
    test_dropped();
    test_failure();
    test_at_once();
    FINISH();
}
