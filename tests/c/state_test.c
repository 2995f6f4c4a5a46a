/* SPDX-License-Identifier: MIT
 *
 * state_test.c - fetches that are refused, repeated or doubled, in virtual time.
 */
#include <string.h>

#include "check.h"
#include "shared_cores.h"

enum { BYTES = 100 };
static uint8_t served[BYTES], target[2][BYTES];

static pccl_operation *fetch(struct cores *c, uint64_t offset, uint64_t bytes, void *to) {
    pccl_operation *op = NULL;
    pccl_error error = {.message = ""};
    EXPECT(pccl__core_fetch(c->core[0], 9, c->id[1], 0, offset, bytes, to, 1000, c->now_ns, &op, &error) == PCCL_OK,
           "%s", error.message);
    return op;
}

static void expect_end(pccl_operation *op, pccl_status status, const char *what) {
    EXPECT(op->ended && op->status == status, "%s: %s %s", what, pccl_status_string(op->status), op->text);
    pccl__core_handle_free(op);
}

static void serve(struct cores *c) {
    static const pccl_region region = {served, BYTES};
    for (int i = 0; i < BYTES; i++) served[i] = (uint8_t)(i + 1);
    EXPECT(pccl__core_serve(c->core[1], 9, &region, 1, NULL) == PCCL_OK, "serve");
}

/* The donor keeps nothing of wishes that it refuses, however many come, and answers the same one again. */
static void test_refused(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    serve(&c);
    for (int round = 0; round < 3; round++) {
        pccl_operation *outside = fetch(&c, 50, BYTES, target[0]);
        cores_run(&c, 1000);
        expect_end(outside, PCCL_INVALID, "beyond the region");
        pccl_operation *inside = fetch(&c, 50, 50, target[0]);
        cores_run(&c, 1000);
        expect_end(inside, PCCL_OK, "within it, from the same offset");
        EXPECT(!memcmp(target[0], served + 50, 50), "the bytes");
    }
    cores_free(&c);
}

/* One that timed out is asked for again while the first wish still waits at the donor; two at once are two. */
static void test_repeated(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    pccl_operation *late = fetch(&c, 0, BYTES, target[0]);
    cores_run(&c, 1100000);
    expect_end(late, PCCL_TIMEOUT, "nobody serves it");
    pccl_operation *twice[2] = {fetch(&c, 0, BYTES, target[0]), fetch(&c, 0, BYTES, target[1])};
    serve(&c);
    cores_run(&c, 10000);
    for (int i = 0; i < 2; i++) {
        expect_end(twice[i], PCCL_OK, "asked for again, twice");
        EXPECT(!memcmp(target[i], served, BYTES), "the bytes");
    }
    cores_free(&c);
}

/* The link breaks while a wish waits: the donor forgets it, and answers the one that comes over the fresh link. */
static void test_link_lost(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    pccl_operation *lost = fetch(&c, 0, BYTES, target[0]);
    cores_run(&c, 1000);
    pccl__sim_cut(c.network, c.id[0], c.id[1]);
    cores_run(&c, 100000);
    expect_end(lost, PCCL_PEER_LOST, "its link broke");
    pccl_operation *again = fetch(&c, 0, BYTES, target[0]);
    cores_run(&c, 1000);
    serve(&c);
    cores_run(&c, 1000);
    expect_end(again, PCCL_OK, "over the fresh link");
    EXPECT(c.core[1]->served.next->next == &c.core[1]->served && !pccl__core_busy(c.core[0]), "nothing is left over");
    cores_free(&c);
}

static void test_too_many(void) {
    enum { MANY = 4096 };
    static pccl_operation *op[MANY];
    struct cores c;
    cores_make(&c, 2, NULL);
    for (int i = 0; i < MANY; i++) op[i] = fetch(&c, 0, BYTES, target[0]);
    pccl_operation *more;
    EXPECT(pccl__core_fetch(c.core[0], 9, c.id[1], 0, 0, 1, target[0], 0, 0, &more, NULL) == PCCL_INVALID, "one more");
    cores_run(&c, 1000);
    uint32_t refused = 0;
    for (int i = 0; i < MANY; i++) refused += op[i]->ended && op[i]->status == PCCL_INVALID;
    EXPECT(refused >= MANY - 1024, "the donor lets only so many wait: %u", refused);
    serve(&c);
    cores_run(&c, 1000);
    for (int i = 0; i < MANY; i++) {
        EXPECT(op[i]->ended, "each is answered");
        pccl__core_handle_free(op[i]);
    }
    more = fetch(&c, 0, BYTES, target[0]);
    cores_run(&c, 1000);
    expect_end(more, PCCL_OK, "there is room again");
    cores_free(&c);
}

static void test_offsets(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    pccl_operation *op;
    EXPECT(pccl__core_fetch(c.core[0], 9, c.id[1], 0, UINT64_C(1) << 48, 1, target[0], 0, 0, &op, NULL) == PCCL_INVALID,
           "no key holds such an offset");
    cores_free(&c);
}

int main(void) {
    test_refused();
    test_repeated();
    test_link_lost();
    test_too_many();
    test_offsets();
    FINISH();
}
