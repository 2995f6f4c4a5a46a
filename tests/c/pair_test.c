/* SPDX-License-Identifier: MIT
 *
 * pair_test.c - what one member sends to another: an operation of these two alone, under the rules of all operations.
 * Cores over the simulated network; deaths at every instant of a message.
 */
#include <string.h>

#include "base/clock.h"
#include "channel/sim_frame.h"
#include "check.h"
#include "engine/core.h"
#include "shared_cores.h"
#include "shared_verdict.h"

enum { COUNT_MAX = 2000000, TAG = 3 };

static int32_t source[COUNT_MAX], target[COUNT_MAX];

static pccl_call send_to(uint32_t to, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) source[i] = (int32_t)(7 * i + 1);
    return (pccl_call){
        .collective = PCCL_SEND, .dtype = PCCL_INT32, .count = count, .tag = TAG, .root = to, .input = source};
}

static pccl_call recv_from(uint32_t from, uint64_t count) {
    memset(target, 0, count * sizeof *target);
    return (pccl_call){
        .collective = PCCL_RECV, .dtype = PCCL_INT32, .count = count, .tag = TAG, .root = from, .output = target};
}

static void expect_received(uint64_t count) { EXPECT(memcmp(source, target, count * sizeof *source) == 0); }

static void expect_end(pccl_operation *op, pccl_status status, const char *part) {
    EXPECT(op->ended && op->status == status && strstr(op->text, part), "%s: %s", pccl_status_string(op->status),
           op->text);
    pccl__core_handle_free(op);
}

/* ---------------------------------------------------------------- bytes */

/* From nothing to many segments, whoever is first; the third member hears nothing of it. */
static void test_sizes(void) {
    static const uint64_t counts[] = {0, 1, 16383, 16384, 16385, 100000, COUNT_MAX};
    for (uint32_t i = 0; i < 2 * sizeof counts / sizeof *counts; i++) {
        uint64_t count = counts[i / 2];
        struct cores c;
        cores_make(&c, 3, NULL);
        pccl_call call[2] = {send_to(2, count), recv_from(1, count)};
        pccl_operation *op[2];
        for (uint32_t turn = 0; turn < 2; turn++) {
            uint32_t which = turn ^ (i & 1);
            op[which] = cores_start(&c, 1 + which, call[which]);
            cores_run(&c, 10000);
        }
        cores_run(&c, 100000);
        for (uint32_t k = 0; k < 2; k++) {
            pccl_info info = op[k]->info;
            EXPECT(op[k]->ended && op[k]->status == PCCL_OK, "%s", op[k]->text);
            EXPECT(info.peer == 2 - k && info.rank == 1 + k && info.world_size == 3 && info.epoch == 1, "info");
            EXPECT((k ? info.rx_bytes : info.tx_bytes) == count * 4 && (k ? info.tx_bytes : info.rx_bytes) == 0);
            EXPECT(info.algorithm == PCCL_PAIRWISE, "%s", pccl_algorithm_name(info.algorithm));
            pccl__core_handle_free(op[k]);
        }
        expect_received(count);
        EXPECT(!c.core[0]->group.channels[1]->heard_ns && !c.core[0]->group.channels[2]->heard_ns,
               "none of its business");
        cores_free(&c);
    }
}

/* A collective, two directions and two other pairs under one tag, several of each; the receives in another order. */
static void test_streams(void) {
    enum { EACH = 6, STREAMS = 4 };
    static const uint32_t from[STREAMS] = {0, 1, 2, 0}, to[STREAMS] = {1, 0, 0, 2};
    static int32_t sent[STREAMS][EACH], got[STREAMS][EACH], sums[3][EACH];
    struct cores c;
    cores_make(&c, 3, NULL);
    pccl_operation *op[STREAMS * EACH * 2 + 3 * EACH];
    uint32_t started = 0;
    for (uint32_t k = 0; k < EACH; k++) {
        for (uint32_t s = 0; s < STREAMS; s++) {
            pccl_call call = send_to(to[s], 1);
            sent[s][k] = (int32_t)(100 * s + k);
            call.input = &sent[s][k];
            op[started++] = cores_start(&c, from[s], call);
        }
        for (uint32_t p = 0; p < 3; p++) {
            sums[p][k] = (int32_t)(p + k);
            pccl_call sum = {.collective = PCCL_ALL_REDUCE, .dtype = PCCL_INT32, .count = 1, .tag = TAG};
            sum.input = sum.output = &sums[p][k];
            op[started++] = cores_start(&c, p, sum);
        }
    }
    for (uint32_t s = STREAMS; s-- > 0;) {
        for (uint32_t k = 0; k < EACH; k++) {
            pccl_call call = recv_from(from[s], 1);
            call.output = &got[s][k];
            op[started++] = cores_start(&c, to[s], call);
        }
    }
    cores_run(&c, 100000);
    for (uint32_t i = 0; i < started; i++) expect_end(op[i], PCCL_OK, "");
    for (uint32_t s = 0; s < STREAMS; s++)
        for (uint32_t k = 0; k < EACH; k++) EXPECT(got[s][k] == sent[s][k], "stream %u #%u: %d", s, k, (int)got[s][k]);
    for (uint32_t k = 0; k < EACH; k++) EXPECT(sums[0][k] == (int32_t)(3 + 3 * k), "sum %u", k);
    cores_free(&c);
}

/* ---------------------------------------------------------------- what cannot be */

static void test_mismatches(void) {
    static const struct {
        uint64_t sent, received;
        pccl_dtype dtype;
        const char *a, *b;
    } cases[] = {{8, 9, PCCL_INT32, "rank 0 called send(int32[8])", "rank 1 called recv(int32[9])"},
                 {8, 8, PCCL_FLOAT32, "rank 0 called send(int32[8])", "rank 1 called recv(float32[8])"},
                 {0, 1, PCCL_INT32, "rank 0 called send(int32[0])", "rank 1 called recv(int32[1])"},
                 {1, 0, PCCL_INT32, "rank 0 called send(int32[1])", "rank 1 called recv(int32[0])"},
                 {300000, 1, PCCL_INT32, "rank 0 called send(int32[300000])", "rank 1 called recv(int32[1])"},
                 {300000, 299999, PCCL_INT32, "send(int32[300000])", "recv(int32[299999])"}};
    for (uint32_t i = 0; i < 4 * sizeof cases / sizeof *cases; i++) {
        struct cores c;
        cores_make(&c, 3, NULL);
        bool sender_first = i & 1, any = i & 2;
        pccl_operation *op[2] = {NULL};
        for (uint32_t turn = 0; turn < 2; turn++) {
            uint32_t who = sender_first ? turn : 1 - turn;
            pccl_call call =
                who ? recv_from(any ? PCCL_ANY_SOURCE : 0, cases[i / 4].received) : send_to(1, cases[i / 4].sent);
            if (who) call.dtype = cases[i / 4].dtype;
            op[who] = cores_start(&c, who, call);
            cores_run(&c, 5000);
        }
        cores_run(&c, 400000);
        for (uint32_t who = 0; who < 2; who++) {
            EXPECT(strstr(op[who]->text, "operation tag 3 #0 from rank 0 to rank 1 of epoch 1: "), "%s", op[who]->text);
            EXPECT(strstr(op[who]->text, cases[i / 4].a), "%s", op[who]->text);
            expect_end(op[who], PCCL_MISMATCH, cases[i / 4].b);
        }
        EXPECT(!c.core[0]->frozen && !c.core[2]->frozen, "the epoch goes on");
        op[0] = cores_start(&c, 0, send_to(1, 8));
        op[1] = cores_start(&c, 1, recv_from(0, 8));
        cores_run(&c, 5000);
        for (uint32_t who = 0; who < 2; who++) expect_end(op[who], PCCL_OK, "");
        cores_free(&c);
    }
}

static void test_refusals(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    expect_end(cores_start(&c, 0, send_to(0, 1)), PCCL_INVALID, "send: rank 0 is this peer itself");
    expect_end(cores_start(&c, 0, recv_from(0, 1)), PCCL_INVALID, "recv: rank 0 is this peer itself");
    expect_end(cores_start(&c, 0, send_to(2, 1)), PCCL_INVALID, "send: rank 2 is outside a group of 2");
    pccl_operation *op;
    pccl_error error;
    pccl_call call = send_to(PCCL_ANY_SOURCE, 1);
    EXPECT(pccl__core_start(c.core[0], &call, 0, &op, &error) == PCCL_INVALID, "to anybody");
    EXPECT(strstr(error.message, "send needs the rank that it goes to"), "%s", error.message);
    call = send_to(1, 1);
    call.flags = PCCL_UNEVEN;
    EXPECT(pccl__core_start(c.core[0], &call, 0, &op, &error) == PCCL_INVALID, "uneven");
    call.flags = PCCL_DETERMINISTIC;
    EXPECT(pccl__core_start(c.core[0], &call, 0, &op, &error) == PCCL_INVALID, "deterministic");
    call.flags = 0;
    call.input = NULL;
    EXPECT(pccl__core_start(c.core[0], &call, 0, &op, &error) == PCCL_INVALID, "no memory");
    call = recv_from(1, 1);
    call.algorithm = PCCL_RING;
    EXPECT(pccl__core_start(c.core[0], &call, 0, &op, &error) == PCCL_INVALID, "by a ring");
    char text[128];
    call.algorithm = PCCL_AUTO;
    EXPECT(pccl__core_explain(c.core[0], &call, 0, text, sizeof text, NULL) == PCCL_OK);
    EXPECT(strcmp(text, "pairwise: straight over the link between the two") == 0, "%s", text);
    EXPECT(pccl__core_pending(c.core[0]) == 0, "nothing is left");
    cores_free(&c);
}

/* Who is alone does not wait for a message that nobody can send before the next epoch, which would end the wait. */
static void test_alone(void) {
    static const struct pccl__core_options options = {
        .min_world_size = 1, .operation_timeout_ms = 5000, .stall_ms = 100};
    struct cores c;
    cores_make(&c, 1, &options);
    expect_end(cores_start(&c, 0, recv_from(PCCL_ANY_SOURCE, 1)), PCCL_TOO_FEW_PEERS, "no other member");
    expect_end(cores_start(&c, 0, recv_from(0, 1)), PCCL_INVALID, "recv: rank 0 is this peer itself");
    cores_free(&c);
}

/* Where links are down, neighbours in the shape still reach each other; others are told, alike. */
static void test_shapes(void) {
    static const uint32_t ring[] = {0, 1, 2, 3}, parents[] = {0, 0, 1, 2};
    for (int kind = PCCL_SHAPE_RING; kind <= PCCL_SHAPE_TREE; kind++) {
        struct cores c;
        cores_make(&c, 4, NULL);
        pccl__sim_block(c.network, c.id[0], c.id[2]);
        c.shape = (pccl_shape)kind;
        c.ring = ring;
        c.parents = parents;
        cores_install(&c, NULL, 0, PCCL_OK, NULL);
        pccl_operation *op[2] = {cores_start(&c, 1, send_to(2, 8)), cores_start(&c, 2, recv_from(PCCL_ANY_SOURCE, 8))};
        cores_run(&c, 5000);
        for (uint32_t i = 0; i < 2; i++) expect_end(op[i], PCCL_OK, "");
        expect_end(cores_start(&c, 0, send_to(2, 8)), PCCL_UNSUPPORTED, "send: some links are down, and there is none");
        expect_end(cores_start(&c, 2, recv_from(0, 8)), PCCL_UNSUPPORTED, "to rank 0 that operations use");
        EXPECT(pccl__sim_blocked_frames(c.network) == 0, "a dead link was used");
        cores_free(&c);
    }
}

/* ---------------------------------------------------------------- whom it waits for */

static void test_stalls(void) {
    struct cores c;
    cores_make(&c, 3, NULL);
    pccl_operation *op = cores_start(&c, 0, recv_from(1, 8));
    cores_run(&c, 500000);
    pccl_event event;
    EXPECT(cores_event(&c, 0, PCCL_EVENT_STALLED, &event), "told");
    while (cores_event(&c, 0, PCCL_EVENT_STALLED, &event)) continue; /* the last one knows most */
    EXPECT(event.name.scope == pccl_scope(1, 0) && event.name.tag == TAG, "its name");
    EXPECT(event.ranks_count == 1 && event.ranks[0] == 1 && event.absent, "%s", event.text);
    EXPECT(strstr(event.text, "recv(int32[8]) tag 3 #0 from rank 1 to rank 0 of epoch 1"), "%s", event.text);
    EXPECT(strstr(event.text, "not started by rank 1"), "%s", event.text);
    pccl_operation_name name = event.name;
    EXPECT(pccl__core_has_started(c.core[0], 1, name) == 1 && pccl__core_has_started(c.core[1], 1, name) == 0);
    EXPECT(list_empty(&c.core[2]->asked) && !c.core[2]->group.channels[0]->heard_ns, "no business of rank 2");
    pccl_operation *send = cores_start(&c, 1, send_to(0, 8));
    cores_run(&c, 5000);
    expect_end(op, PCCL_OK, "");
    expect_end(send, PCCL_OK, "");

    op = cores_start(&c, 0, send_to(1, 8)); /* it is on its way, and nobody wants it */
    cores_run(&c, 500000);
    while (cores_event(&c, 0, PCCL_EVENT_STALLED, &event)) continue;
    EXPECT(strstr(op->wait ? event.text : "", "not started by rank 1"), "%s", event.text);
    cores_run(&c, 10000000);
    EXPECT(c.core[0]->frozen && c.core[2]->frozen, "a timeout stops the epoch");
    EXPECT(cores_event(&c, 0, PCCL_EVENT_FROZEN, &event) && event.reason == PCCL_TIMEOUT, "%s", event.text);
    EXPECT(event.peer.bytes[0] == c.id[1].bytes[0], "who did not come");
    cores_install(&c, NULL, 0, PCCL_TIMEOUT, "a timeout");
    expect_end(op, PCCL_TIMEOUT, "send(int32[8]) tag 3 #0 from rank 0 to rank 1");
    cores_free(&c);
}

/* ---------------------------------------------------------------- verdicts */

static void next_epoch(struct cores *c) {
    struct report reports[CORES_MAX] = {0};
    uint32_t alive = 0;
    for (uint32_t p = 0; p < c->size; p++) {
        if (!c->core[p]) continue;
        pccl__core_freeze(c->core[p], PCCL_PEER_LOST, NULL, "a death");
        reports[alive].rank = c->core[p]->group.rank;
        EXPECT(pccl__core_report(c->core[p], c->epoch, reports[alive].lines, REPORT_LINES, &reports[alive].count) ==
               PCCL_OK);
        alive++;
    }
    pccl_operation_name commits[4];
    uint32_t count = verdict(reports, alive, commits, 4);
    cores_install(c, commits, count, PCCL_PEER_LOST, "a death");
}

enum { SENDER = 1, RECEIVER = 2, THIRD = 0 };

/* One of three is killed at one instant of a message. Returns whether it was over before. */
static bool strike(uint32_t victim, uint64_t instant_us, uint64_t count, uint32_t from, uint32_t *committed) {
    struct cores c;
    cores_make(&c, 3, NULL);
    c.network->faults = (struct pccl__sim_faults){.delay_us_max = 100, .piece_bytes_max = 20000, .reorder_percent = 20};
    pccl_operation *op[3] = {NULL};
    op[SENDER] = cores_start(&c, SENDER, send_to(RECEIVER, count));
    op[RECEIVER] = cores_start(&c, RECEIVER, recv_from(from, count));
    cores_run(&c, instant_us);
    bool over = op[SENDER]->ended && op[RECEIVER]->ended, returned[3] = {false, op[SENDER]->ended, op[RECEIVER]->ended};
    cores_kill(&c, victim);
    cores_run(&c, 3000);
    for (uint32_t who = SENDER; who <= RECEIVER; who++)
        returned[who] = op[who]->ended && (who != victim || returned[who]);
    next_epoch(&c);
    bool good[3] = {false};
    for (uint32_t who = SENDER; who <= RECEIVER; who++) {
        if (who == victim) continue;
        good[who] = op[who]->status == PCCL_OK;
        EXPECT(op[who]->ended && (good[who] || op[who]->status == PCCL_PEER_LOST), "%s", op[who]->text);
        EXPECT(good[who] || !returned[who], "what has returned stays");
        *committed += good[who] && !returned[who];
    }
    if (victim == THIRD) EXPECT(good[SENDER] == good[RECEIVER], "split at %u us", (unsigned)instant_us);
    if (victim == SENDER) EXPECT(good[RECEIVER] || !returned[SENDER], "it was told that this one has it");
    if (victim == RECEIVER) EXPECT(good[SENDER] == returned[SENDER], "nobody has it");
    if (good[RECEIVER]) expect_received(count);
    for (uint32_t who = SENDER; who <= RECEIVER; who++) pccl__core_handle_free(op[who]);
    if (victim == THIRD) { /* the retries meet, whatever their ranks are now */
        op[SENDER] = cores_start(&c, SENDER, send_to(RECEIVER - 1, count));
        op[RECEIVER] = cores_start(&c, RECEIVER, recv_from(SENDER - 1, count));
        cores_run(&c, 200000);
        for (uint32_t who = SENDER; who <= RECEIVER; who++) expect_end(op[who], PCCL_OK, "");
        expect_received(count);
    }
    cores_free(&c);
    return over;
}

static void test_deaths(void) {
    static const uint64_t counts[] = {0, 5, 40000, 1500000};
    uint32_t committed = 0;
    for (uint32_t victim = 0; victim < 3; victim++) {
        for (uint32_t i = 0; i < 8; i++) {
            bool over = false;
            for (uint64_t at_us = 0; !over; at_us += 3)
                over = strike(victim, at_us, counts[i / 2], i % 2 ? PCCL_ANY_SOURCE : SENDER, &committed);
        }
    }
    EXPECT(committed > 20, "only %u were decided by the master", committed);
}

/* A call behind a failure that was not looked at fails, too, whoever the other one is; once it was, all go on. */
static void test_unseen(void) {
    struct cores c;
    cores_make(&c, 3, NULL);
    pccl_call call = recv_from(1, 1);
    pccl_operation *op = cores_start(&c, 0, call);
    cores_run(&c, 1000);
    pccl__core_freeze(c.core[0], PCCL_ABORTED, NULL, "a test");
    pccl_operation *fated = cores_start(&c, 0, recv_from(2, 1));
    cores_run(&c, 1000);
    next_epoch(&c);
    pccl_operation *behind = cores_start(&c, 0, recv_from(PCCL_ANY_SOURCE, 1));
    expect_end(behind, PCCL_PEER_LOST, "called behind a failure that was not looked at yet");
    expect_end(fated, PCCL_PEER_LOST, "aborted");
    expect_end(op, PCCL_PEER_LOST, "aborted");
    op = cores_start(&c, 0, recv_from(PCCL_ANY_SOURCE, 1));
    pccl_operation *send = cores_start(&c, 2, send_to(0, 1));
    cores_run(&c, 1000);
    expect_end(op, PCCL_OK, "");
    expect_end(send, PCCL_OK, "");
    cores_free(&c);
}

/* ---------------------------------------------------------------- steps */

/* Deferred, a send returns when it has left and a receive when it has come; the commit settles them. A receive of any
 * source that nothing came for holds the commit up. */
static void test_deferred(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    pccl_call send = send_to(1, 8), recv = recv_from(PCCL_ANY_SOURCE, 8);
    send.flags = recv.flags = PCCL_DEFERRED;
    pccl_operation *op[2], *commit[2];
    op[1] = cores_start(&c, 1, recv);
    for (uint32_t p = 0; p < 2; p++) commit[p] = cores_start(&c, p, (pccl_call){.collective = PCCL_COMMIT, .tag = 9});
    cores_run(&c, 5000);
    EXPECT(!commit[0]->ended && !commit[1]->ended, "rank 1 still receives");
    op[0] = cores_start(&c, 0, send);
    cores_run(&c, 5000);
    expect_end(op[0], PCCL_OK, "");
    expect_end(op[1], PCCL_OK, "");
    for (uint32_t p = 0; p < 2; p++) expect_end(commit[p], PCCL_OK, "");
    expect_received(8);
    cores_free(&c);
}

/* The send had returned when the receiver finds that it is another: then the step is over for everyone. */
static void test_deferred_mismatch(void) {
    struct cores c;
    cores_make(&c, 3, NULL);
    pccl_call send = send_to(1, 8), recv = recv_from(0, 9);
    send.flags = recv.flags = PCCL_DEFERRED;
    pccl_operation *op = cores_start(&c, 0, send);
    cores_run(&c, 5000);
    expect_end(op, PCCL_OK, "");
    op = cores_start(&c, 1, recv);
    cores_run(&c, 5000);
    expect_end(op, PCCL_MISMATCH, "rank 0 called send(int32[8], commit=deferred)");
    for (uint32_t p = 0; p < 3; p++) EXPECT(c.core[p]->frozen, "rank %u", p);
    cores_free(&c);
}

int main(void) {
    test_sizes();
    test_streams();
    test_mismatches();
    test_refusals();
    test_alone();
    test_shapes();
    test_stalls();
    test_deaths();
    test_unseen();
    test_deferred();
    test_deferred_mismatch();
    FINISH();
}
