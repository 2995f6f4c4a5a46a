/* SPDX-License-Identifier: MIT
 *
 * match_test.c - which send a receive gets: every order of a few sends by two peers and receives from one of them or
 * from any, against the rule of MPI: a send goes to the receive that was called first of those that fit it. Then sends
 * that come early: before their epoch has begun at the one that receives.
 */
#include "engine/match.h"

#include <string.h>

#include "base/prng.h"
#include "check.h"
#include "shared_cores.h"

enum { EVENTS_MAX = 12, TAG = 5, NOBODY = 0, SETTLE_US = 2000 };

/* What happens at peer 0, or comes to it. */
enum event { SEND_OF_1, SEND_OF_2, RECV_OF_1, RECV_OF_2, RECV_OF_ANY, EVENT_KINDS };

static bool is_send(enum event event) { return event <= SEND_OF_2; }
static uint32_t peer_of(enum event event) { return event == RECV_OF_ANY ? PCCL_ANY_SOURCE : 1 + event % 2; }

/* ---------------------------------------------------------------- the rule */

/* `partner[i]`: the event that goes with event i; -1: none does. */
struct rule {
    const enum event *events;
    int partner[EVENTS_MAX];
    uint32_t line[2], waiting; /* who has sends that wait, in the order in which they are taken */
};

static int first_unpaired(const struct rule *rule, int count, bool send, uint32_t peer) {
    for (int i = 0; i < count; i++) {
        enum event event = rule->events[i];
        bool fits = peer_of(event) == peer || peer_of(event) == PCCL_ANY_SOURCE;
        if (rule->partner[i] < 0 && is_send(event) == send && fits) return i;
    }
    return -1;
}

/* Takes a sender out of the line; it goes to the end if it has more that waits. */
static void step_back(struct rule *rule, uint32_t peer, bool more) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < rule->waiting; i++)
        if (rule->line[i] != peer) rule->line[kept++] = rule->line[i];
    if (more) rule->line[kept++] = peer;
    rule->waiting = kept;
}

static void pair(struct rule *rule, int a, int b) {
    rule->partner[a] = b;
    rule->partner[b] = a;
}

static void add(struct rule *rule, int i) {
    uint32_t peer = peer_of(rule->events[i]);
    rule->partner[i] = -1;
    if (is_send(rule->events[i])) {
        int receive = first_unpaired(rule, i, false, peer);
        bool lined_up = rule->waiting && (rule->line[0] == peer || (rule->waiting > 1 && rule->line[1] == peer));
        if (receive >= 0)
            pair(rule, receive, i);
        else if (!lined_up)
            rule->line[rule->waiting++] = peer;
        return;
    }
    if (peer == PCCL_ANY_SOURCE) peer = rule->waiting ? rule->line[0] : NOBODY;
    int send = peer == NOBODY ? -1 : first_unpaired(rule, i, true, peer);
    if (send < 0) return;
    pair(rule, send, i);
    step_back(rule, peer, first_unpaired(rule, i, true, peer) >= 0);
}

/* ---------------------------------------------------------------- the cores */

static int32_t memory[EVENTS_MAX];

static pccl_operation *start(struct cores *c, enum event event, int i) {
    pccl_call call = {.dtype = PCCL_INT32, .count = 1, .tag = TAG};
    memory[i] = is_send(event) ? i : -1;
    if (is_send(event)) {
        call.collective = PCCL_SEND;
        call.input = &memory[i];
        return cores_start(c, peer_of(event), call);
    }
    call.collective = PCCL_RECV;
    call.root = peer_of(event);
    call.output = &memory[i];
    return cores_start(c, 0, call);
}

static void expect_as_ruled(const enum event *events, int count) {
    struct rule rule = {.events = events};
    struct cores c;
    pccl_operation *op[EVENTS_MAX];
    cores_make(&c, 3, NULL);
    for (int i = 0; i < count; i++) {
        add(&rule, i);
        op[i] = start(&c, events[i], i);
        cores_run(&c, SETTLE_US);
    }
    for (int i = 0; i < count; i++) {
        int partner = rule.partner[i];
        EXPECT(op[i]->ended == (partner >= 0), "event %d: %s", i, op[i]->text);
        if (partner < 0) continue;
        EXPECT(op[i]->status == PCCL_OK, "%s", op[i]->text);
        if (is_send(events[i])) continue;
        EXPECT(memory[i] == partner, "receive %d got send %d, not %d", i, (int)memory[i], partner);
        EXPECT(op[i]->info.peer == peer_of(events[partner]), "rank %u", op[i]->info.peer);
    }
    for (int i = 0; i < count; i++) pccl__core_handle_free(op[i]);
    cores_free(&c);
}

static void test_every_order(int count) {
    enum event events[EVENTS_MAX] = {0};
    for (int at = 0; at < count;) {
        expect_as_ruled(events, count);
        for (at = 0; at < count && ++events[at] == EVENT_KINDS; at++) events[at] = 0;
    }
}

static void test_long_orders(uint32_t seeds) {
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        uint64_t random = seed;
        enum event events[EVENTS_MAX];
        for (int i = 0; i < EVENTS_MAX; i++) events[i] = (enum event)prng_below(&random, EVENT_KINDS);
        expect_as_ruled(events, EVENTS_MAX);
    }
}

/* ---------------------------------------------------------------- early and late */

static void install_at(struct cores *c, uint32_t peer) {
    pccl_member members[2];
    for (uint32_t i = 0; i < 2; i++) members[i] = (pccl_member){.id = c->id[i], .address = "127.0.0.1", .port = 1};
    pccl_view view = {.epoch = c->epoch, .size = 2, .rank = peer, .members = members};
    pccl_error error;
    EXPECT(pccl__core_install(c->core[peer], &view, c->now_ns, &error) == PCCL_OK, "%s", error.message);
}

/* Peer 1 is an epoch ahead and sends. What it sends is there when the epoch begins at peer 0, for a receive that was
 * called before (frozen) or is called after. */
static void test_early(bool called_before) {
    struct cores c;
    cores_make(&c, 2, NULL);
    c.epoch++;
    install_at(&c, 1);
    pccl_operation *send = start(&c, SEND_OF_1, 0), *more = start(&c, SEND_OF_1, 1), *any[2];
    cores_run(&c, SETTLE_US);
    if (called_before) {
        pccl__core_freeze(c.core[0], PCCL_ABORTED, NULL, "a test");
        for (int i = 0; i < 2; i++) any[i] = start(&c, RECV_OF_ANY, 2 + i);
    }
    install_at(&c, 0);
    for (int i = 0; i < 2 && !called_before; i++) any[i] = start(&c, RECV_OF_ANY, 2 + i);
    cores_run(&c, SETTLE_US);
    for (int i = 0; i < 2; i++) {
        EXPECT(any[i]->ended && any[i]->status == PCCL_OK && memory[2 + i] == i, "%s", any[i]->text);
        pccl__core_handle_free(any[i]);
    }
    EXPECT(send->ended && send->status == PCCL_OK && more->ended, "%s", send->text);
    pccl__core_handle_free(send);
    pccl__core_handle_free(more);
    cores_free(&c);
}

/* Who was a member, and names itself as the rank behind the last one of an epoch that it is not in. */
static void test_early_of_a_stranger(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    c.epoch++;
    struct pccl__key key = {.epoch = c.epoch, .tag = TAG, .scope = pccl_scope(2, 0)};
    struct pccl__stamp stamp = {{0}};
    struct pccl__notice *notice = pccl__notice_new(PCCL__NOTICE_ARRIVED, &key, &stamp, NULL, 0);
    pccl_peer_id stranger = {{99}};
    EXPECT(notice && pccl__match_keeps(c.core[0], &stranger, notice), "kept");
    install_at(&c, 0);
    c.core[0]->group.doubts_told[0] = 1; /* what stands behind `used` */
    pccl__match_arrived(c.core[0], 2, &key);
    EXPECT(list_empty(&c.core[0]->early_sends) && !pccl__tags_arrived(&c.core[0]->tags, TAG), "nobody sends");
    pccl_operation *any = start(&c, RECV_OF_ANY, 0);
    cores_run(&c, SETTLE_US);
    EXPECT(!any->ended && any->state == PCCL__UNMATCHED, "%s", any->text);
    pccl__core_handle_free(any);
    cores_free(&c);
}

/* What came early for an epoch that is skipped is forgotten; so is what waits when the core goes. */
static void test_early_in_vain(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    c.epoch++;
    install_at(&c, 1);
    pccl_operation *send = start(&c, SEND_OF_1, 0);
    cores_run(&c, SETTLE_US);
    EXPECT(!list_empty(&c.core[0]->early_sends), "kept");
    c.epoch++;
    install_at(&c, 0);
    EXPECT(list_empty(&c.core[0]->early_sends), "gone");
    pccl_operation *any = start(&c, RECV_OF_ANY, 1);
    cores_run(&c, SETTLE_US);
    EXPECT(!any->ended && any->state == PCCL__UNMATCHED, "%s", any->text);
    install_at(&c, 1);
    EXPECT(send->ended && send->status == PCCL_PEER_LOST, "%s", send->text);
    pccl__core_handle_free(send);
    send = start(&c, SEND_OF_1, 0);
    cores_run(&c, SETTLE_US);
    EXPECT(any->ended && any->status == PCCL_OK && memory[1] == 0, "%s", any->text);
    pccl__core_handle_free(any);
    pccl__core_handle_free(send);
    cores_free(&c);
}

/* Nobody counts on a receive that nothing came for: it ends alone, and those behind it go on. */
static void test_timeout(void) {
    struct cores c;
    cores_make(&c, 3, NULL);
    pccl_call call = {.collective = PCCL_RECV,
                      .dtype = PCCL_INT32,
                      .count = 1,
                      .tag = TAG,
                      .root = PCCL_ANY_SOURCE,
                      .timeout_ms = 50};
    call.output = &memory[0];
    pccl_operation *any = cores_start(&c, 0, call), *behind = start(&c, RECV_OF_2, 1);
    char text[PCCL_MESSAGE_BYTES];
    pccl__core_describe(c.core[0], any, c.now_ns, text, sizeof text);
    EXPECT(strstr(text, "recv(int32[1]) tag 5 from any rank of epoch 1 has waited 0 ms"), "%s", text);
    cores_run(&c, 200000);
    EXPECT(any->ended && any->status == PCCL_TIMEOUT && strstr(any->text, "nothing came for 50 ms"), "%s", any->text);
    EXPECT(!behind->ended && behind->state == PCCL__DATA, "it has its number now");
    pccl_operation *send = start(&c, SEND_OF_2, 2);
    cores_run(&c, SETTLE_US);
    EXPECT(behind->ended && behind->status == PCCL_OK && memory[1] == 2, "%s", behind->text);
    EXPECT(!c.core[0]->frozen && !c.core[1]->frozen, "the epoch goes on");
    pccl__core_handle_free(any);
    pccl__core_handle_free(behind);
    pccl__core_handle_free(send);
    cores_free(&c);
}

int main(void) {
    test_every_order(5);
    test_long_orders(500);
    test_early(false);
    test_early(true);
    test_early_in_vain();
    test_early_of_a_stranger();
    test_timeout();
    FINISH();
}
