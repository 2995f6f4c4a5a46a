/* SPDX-License-Identifier: MIT
 *
 * team_test.c - operations that only some members make: who they are, which links they have, how long their scope
 * holds, and that nobody else is disturbed. Deaths in the middle of them are drawn in core_test.
 */
#include "engine/team.h"

#include <stdio.h>
#include <string.h>

#include "check.h"
#include "shared_cores.h"

enum { COUNT = 5 };

static int32_t input[CORES_MAX][COUNT * CORES_MAX], output[CORES_MAX][COUNT * CORES_MAX];

static pccl_call call_of(uint32_t peer, pccl_collective collective, uint64_t scope, uint64_t epoch) {
    return (pccl_call){.collective = collective,
                       .dtype = PCCL_INT32,
                       .flags = epoch ? PCCL_SAME_MEMBERS : 0,
                       .count = COUNT,
                       .input = input[peer],
                       .output = output[peer],
                       .scope = scope,
                       .expected_epoch = epoch};
}

static uint64_t scope_for(struct cores *c, uint32_t peer, const uint32_t *ranks, uint32_t count) {
    uint64_t scope = 0;
    pccl_error error = {.message = "none"};
    EXPECT(pccl__group_scope(&c->core[peer]->group, ranks, count, &scope, &error) == PCCL_OK, "%s", error.message);
    return scope;
}

static void expect_end(pccl_operation *op, pccl_status status, const char *part) {
    EXPECT(op->ended && op->status == status && strstr(op->text, part), "%s: %s", pccl_status_string(op->status),
           op->text);
    pccl__core_handle_free(op);
}

/* One call of each of these ranks, which are peers. */
static void run_among(struct cores *c, const uint32_t *ranks, uint32_t count, pccl_call call, pccl_status status,
                      const char *part) {
    pccl_operation *op[CORES_MAX];
    for (uint32_t i = 0; i < count; i++) {
        call.input = input[ranks[i]];
        call.output = output[ranks[i]];
        call.scope = scope_for(c, ranks[i], ranks, count);
        call.expected_epoch = c->epoch;
        op[i] = cores_start(c, ranks[i], call);
    }
    cores_run(c, 20000);
    for (uint32_t i = 0; i < count; i++) {
        if (status == PCCL_OK) EXPECT(op[i]->info.rank == i && op[i]->info.world_size == count, "info");
        expect_end(op[i], status, part);
    }
}

static void fill(void) {
    for (uint32_t p = 0; p < CORES_MAX; p++)
        for (uint32_t i = 0; i < COUNT * CORES_MAX; i++) input[p][i] = (int32_t)(1000 * p + i), output[p][i] = -1;
}

/* ---------------------------------------------------------------- scopes */

static void test_scopes(void) {
    static const uint32_t all[] = {0, 1, 2, 3}, some[] = {1, 3}, others[] = {3, 1};
    struct cores c;
    cores_make(&c, 4, NULL);
    EXPECT(scope_for(&c, 2, all, 4) == 0, "the whole group has no other name");
    uint64_t scope = scope_for(&c, 1, some, 2);
    EXPECT(scope != 0 && scope == scope_for(&c, 3, some, 2) && scope == scope_for(&c, 1, some, 2));
    EXPECT(scope != scope_for(&c, 1, others, 2), "ranks in another order");
    const struct pccl__group *group = &c.core[1]->group;
    for (uint32_t rank = 0; rank < 4; rank++)
        EXPECT(pccl__team_has(group, scope, rank) == (rank % 2 == 1) && pccl__team_has(group, 0, rank), "%u", rank);
    EXPECT(!pccl__team_has(&c.core[0]->group, scope, 1), "nobody asked for it here");
    EXPECT(pccl__team_has(group, pccl_scope(0, 2), 2) && !pccl__team_has(group, pccl_scope(0, 2), 1));

    static const uint32_t twice[] = {1, 1}, outside[] = {1, 4}, not_ours[] = {0, 2};
    const struct {
        const uint32_t *ranks;
        uint32_t count;
        const char *text;
    } bad[] = {{twice, 2, "rank 1 is named twice"},
               {outside, 2, "rank 4 is outside a group of 4"},
               {not_ours, 2, "rank 1, which is this peer, is not among the 2 ranks"},
               {some, 0, "at least one rank"},
               {NULL, 2, "at least one rank"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint64_t none = 7;
        pccl_error error = {.message = ""};
        EXPECT(pccl__group_scope(&c.core[1]->group, bad[i].ranks, bad[i].count, &none, &error) == PCCL_INVALID);
        EXPECT(strstr(error.message, bad[i].text) && none == 7, "%s", error.message);
    }
    cores_free(&c);
}

static void expect_refused(struct cores *c, pccl_call call, const char *part) {
    pccl_operation *op = NULL;
    pccl_error error = {.message = ""};
    EXPECT(pccl__core_start(c->core[1], &call, c->now_ns, &op, &error) == PCCL_INVALID && !op);
    EXPECT(strstr(error.message, part), "%s", error.message);
}

static void test_refusals(void) {
    static const uint32_t ranks[] = {0, 1};
    struct cores c;
    cores_make(&c, 3, NULL);
    uint64_t scope = scope_for(&c, 1, ranks, 2);
    expect_refused(&c, call_of(1, PCCL_ALL_REDUCE, scope, 0), "needs the epoch");
    expect_refused(&c, call_of(1, PCCL_SEND, scope, 1), "send is never one of a subgroup");
    expect_refused(&c, call_of(1, PCCL_RECV, scope, 1), "recv is never one of a subgroup");
    expect_refused(&c, call_of(1, PCCL_COMMIT, scope, 1), "commit is never one of a subgroup");
    expect_refused(&c, call_of(1, PCCL_BARRIER, scope + 1, 1), "epoch 1 has no scope");
    pccl_call call = call_of(1, PCCL_BROADCAST, scope, 1);
    call.root = 2;
    expect_end(cores_start(&c, 1, call), PCCL_INVALID, "root 2 is outside a subgroup of 2");
    cores_free(&c);
}

/* ---------------------------------------------------------------- what they bring */

static void test_results(void) {
    static const uint32_t ranks[] = {3, 0, 2};
    struct cores c;
    cores_make(&c, 4, NULL);
    fill();
    run_among(&c, ranks, 3, (pccl_call){.collective = PCCL_ALL_REDUCE, .dtype = PCCL_INT32, .count = COUNT}, PCCL_OK,
              "");
    for (uint32_t i = 0; i < 3; i++) EXPECT(output[ranks[i]][2] == 5000 + 3 * 2, "%d", output[ranks[i]][2]);
    pccl_call gather = {.collective = PCCL_GATHER, .dtype = PCCL_INT32, .count = COUNT, .root = 1};
    run_among(&c, ranks, 3, gather, PCCL_OK, "");
    for (uint32_t i = 0; i < 3; i++) EXPECT(output[0][i * COUNT] == (int32_t)(1000 * ranks[i]), "part %u", i);
    gather.collective = PCCL_ALL_GATHER;
    gather.flags = PCCL_DEFERRED;
    run_among(&c, ranks, 3, gather, PCCL_OK, "");
    for (uint32_t i = 0; i < 9; i++)
        EXPECT(output[ranks[i / 3]][i % 3 * COUNT] == (int32_t)(1000 * ranks[i % 3]), "part %u", i);
    run_among(&c, ranks, 3, (pccl_call){.collective = PCCL_BARRIER}, PCCL_OK, "");
    EXPECT(output[1][0] == -1 && !c.core[0]->group.channels[1]->heard_ns, "none of its business");
    run_among(&c, ranks, 1, (pccl_call){.collective = PCCL_ALL_REDUCE, .dtype = PCCL_INT32, .count = COUNT}, PCCL_OK,
              "");
    EXPECT(output[3][1] == 3001, "alone");
    cores_free(&c);
}

/* Two of one tag that share a member, and all together, at a time: numbers count apart. */
static void test_at_a_time(void) {
    static const uint32_t left[] = {0, 1}, right[] = {1, 2};
    struct cores c;
    cores_make(&c, 3, NULL);
    fill();
    uint64_t a[] = {scope_for(&c, 0, left, 2), scope_for(&c, 1, left, 2)};
    uint64_t b[] = {scope_for(&c, 1, right, 2), scope_for(&c, 2, right, 2)};
    pccl_operation *op[] = {cores_start(&c, 1, call_of(1, PCCL_BARRIER, b[0], 1)),
                            cores_start(&c, 1, call_of(1, PCCL_ALL_REDUCE, a[1], 1)),
                            cores_start(&c, 0, call_of(0, PCCL_ALL_REDUCE, a[0], 1)),
                            cores_start(&c, 0, call_of(0, PCCL_BARRIER, 0, 0)),
                            cores_start(&c, 1, call_of(1, PCCL_BARRIER, 0, 0)),
                            cores_start(&c, 2, call_of(2, PCCL_BARRIER, 0, 0)),
                            cores_start(&c, 2, call_of(2, PCCL_BARRIER, b[1], 1))};
    cores_run(&c, 20000);
    for (size_t i = 0; i < sizeof op / sizeof *op; i++) {
        EXPECT(op[i]->name.sequence == 0);
        expect_end(op[i], PCCL_OK, "");
    }
    EXPECT(output[0][0] == 1000 && output[1][0] == 1000);
    cores_free(&c);
}

/* ---------------------------------------------------------------- dead links */

static bool is_used(const struct cores *c, uint32_t a, uint32_t b) { return c->core[a]->group.used[b]; }

static void expect_only_used(const struct cores *c) {
    for (uint32_t a = 0; a < c->size; a++)
        for (uint32_t b = 0; b < c->size; b++)
            EXPECT(a == b || is_used(c, a, b) || !c->core[a]->group.channels[b]->heard_ns, "%u to %u", a, b);
}

/* Around the ring 0 2 4 1 3, and in a tree of the same order: 0 above 2 and 4, 4 above 1, 1 above 3. */
static void test_shapes(void) {
    static const uint32_t ring[] = {0, 2, 4, 1, 3}, parents[] = {0, 0, 0, 2, 3};
    static const uint32_t path[] = {4, 0, 2}, around[] = {3, 2, 0}, apart[] = {0, 1}, forked[] = {4, 0, 2, 1};
    pccl_call sum = {.collective = PCCL_ALL_REDUCE, .dtype = PCCL_INT32, .count = COUNT};
    pccl_call parts = {.collective = PCCL_ALL_GATHER, .dtype = PCCL_INT32, .count = COUNT};
    for (uint32_t tree = 0; tree < 2; tree++) {
        struct cores c = {
            .shape = tree ? PCCL_SHAPE_TREE : PCCL_SHAPE_RING, .ring = ring, .parents = tree ? parents : NULL};
        cores_make_among(&c, 5, NULL, 1, (struct pccl__sim_faults){0});
        fill();
        run_among(&c, path, 3, sum, PCCL_OK, "");
        for (uint32_t i = 0; i < 3; i++) EXPECT(output[path[i]][0] == 6000, "%d", output[path[i]][0]);
        run_among(&c, path, 3, parts, PCCL_OK, "");
        for (uint32_t i = 0; i < 3; i++) EXPECT(output[4][i * COUNT] == (int32_t)(1000 * path[i]), "part %u", i);
        run_among(&c, around, 3, sum, tree ? PCCL_UNSUPPORTED : PCCL_OK, tree ? "do not connect this subgroup" : "");
        run_among(&c, apart, 2, sum, PCCL_UNSUPPORTED, "do not connect this subgroup");
        run_among(&c, apart, 2, (pccl_call){.collective = PCCL_BARRIER}, PCCL_UNSUPPORTED,
                  "barrier: some links are down");
        run_among(&c, forked, 4, sum, PCCL_OK, "");
        expect_only_used(&c);
        char text[PCCL_MESSAGE_BYTES];
        pccl_error error;
        pccl_call call = call_of(0, PCCL_ALL_REDUCE, scope_for(&c, 0, apart, 2), 1);
        EXPECT(pccl__core_explain(c.core[0], &call, 0, text, sizeof text, &error) == PCCL_UNSUPPORTED);
        call.scope = scope_for(&c, 0, path, 3);
        EXPECT(pccl__core_explain(c.core[0], &call, 0, text, sizeof text, &error) == PCCL_OK && strstr(text, "tree: "),
               "%s", text);
        cores_free(&c);
    }
}

/* Hosts stay together in a team's ring, whatever the order of its ranks. */
static void test_hosts(void) {
    static const uint64_t hosts[] = {1, 2, 1, 2, 3};
    static const uint32_t ring[] = {0, 2, 1, 3, 4}, ranks[] = {3, 2, 1, 0};
    struct cores c = {.host_ids = hosts, .ring = ring};
    cores_make_among(&c, 5, NULL, 1, (struct pccl__sim_faults){0});
    const struct pccl__team *team = pccl__team_find(&c.core[1]->group, scope_for(&c, 1, ranks, 4));
    EXPECT(team->size == 4 && team->rank == 2 && team->position == 2 && team->host_members == 2 && !team->one_host);
    EXPECT(team->shape.hosts == 2 && team->shape.host_least == 2 && team->shape.kind == PCCL_SHAPE_FULL);
    for (uint32_t p = 0; p < 4; p++) EXPECT(team->links[p] == ring[p] && ranks[team->ring[p]] == ring[p], "%u", p);
    cores_free(&c);
}

/* ---------------------------------------------------------------- how long a scope holds */

static void test_epochs(void) {
    static const uint32_t ranks[] = {1, 2};
    struct cores c;
    cores_make(&c, 3, NULL);
    fill();
    uint64_t scope[] = {0, scope_for(&c, 1, ranks, 2), scope_for(&c, 2, ranks, 2)};
    for (uint32_t p = 0; p < 3; p++) pccl__core_freeze(c.core[p], PCCL_ABORTED, NULL, "a test");
    pccl_operation *queued[2];
    for (uint32_t i = 0; i < 2; i++)
        queued[i] = cores_start(&c, 1 + i, call_of(1 + i, PCCL_ALL_REDUCE, scope[1 + i], 1));
    cores_install(&c, NULL, 0, PCCL_TIMEOUT, "the same members");
    cores_run(&c, 20000);
    for (uint32_t i = 0; i < 2; i++) expect_end(queued[i], PCCL_OK, "");
    EXPECT(output[1][0] == 3000 && output[2][0] == 3000);

    for (uint32_t p = 0; p < 3; p++) pccl__core_freeze(c.core[p], PCCL_ABORTED, NULL, "a test");
    for (uint32_t i = 0; i < 2; i++)
        queued[i] = cores_start(&c, 1 + i, call_of(1 + i, PCCL_ALL_REDUCE, scope[1 + i], 2));
    cores_kill(&c, 0);
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "rank 0 is gone");
    for (uint32_t i = 0; i < 2; i++) expect_end(queued[i], PCCL_PEER_LOST, "the group changed from epoch 2 to 3");
    expect_end(cores_start(&c, 1, call_of(1, PCCL_ALL_REDUCE, scope[1], 2)), PCCL_PEER_LOST, "call again");
    pccl_call exact = call_of(1, PCCL_BARRIER, 0, 2);
    exact.flags = 0;
    expect_end(cores_start(&c, 1, exact), PCCL_PEER_LOST, "call again");
    static const uint32_t anew[] = {1, 0};
    pccl_operation *op[2];
    for (uint32_t i = 0; i < 2; i++)
        op[i] = cores_start(&c, 1 + i, call_of(1 + i, PCCL_ALL_REDUCE, scope_for(&c, 1 + i, anew, 2), 3));
    cores_run(&c, 20000);
    for (uint32_t i = 0; i < 2; i++) expect_end(op[i], PCCL_OK, "");
    cores_free(&c);
}

/* What all members do may last as long, too. */
static void test_same_members(void) {
    struct cores c;
    cores_make(&c, 3, NULL);
    fill();
    pccl_call call = call_of(1, PCCL_ALL_REDUCE, 0, 0);
    call.flags = PCCL_SAME_MEMBERS;
    expect_refused(&c, call, "the same members as in which epoch?");
    call.expected_epoch = 1;
    cores_install(&c, NULL, 0, PCCL_TIMEOUT, "the same members");
    pccl_operation *op[3];
    for (uint32_t p = 0; p < 3; p++) {
        call.input = input[p];
        call.output = output[p];
        op[p] = cores_start(&c, p, call);
    }
    cores_run(&c, 20000);
    for (uint32_t p = 0; p < 3; p++) expect_end(op[p], PCCL_OK, "");
    cores_kill(&c, 0);
    for (uint32_t p = 1; p < 3; p++) pccl__core_freeze(c.core[p], PCCL_ABORTED, NULL, "a test");
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "rank 0 is gone");
    expect_end(cores_start(&c, 1, call), PCCL_PEER_LOST, "the group changed from epoch 1 to 3");
    cores_free(&c);
}

/* ---------------------------------------------------------------- what goes wrong */

/* Its members are told, also who calls late and in the next epoch; nobody else hears of it. */
static void test_mismatch(bool next_epoch) {
    static const uint32_t ranks[] = {3, 1, 0};
    struct cores c;
    cores_make(&c, 4, NULL);
    uint64_t scope = scope_for(&c, 0, ranks, 3);
    for (uint32_t i = 0; i < 2; i++) EXPECT(scope_for(&c, ranks[i], ranks, 3) == scope);
    pccl_call other = call_of(1, PCCL_ALL_REDUCE, scope, 1);
    other.op = PCCL_MIN;
    pccl_operation *op[] = {cores_start(&c, 3, call_of(3, PCCL_ALL_REDUCE, scope, 1)), cores_start(&c, 1, other)};
    cores_run(&c, 400000);
    for (uint32_t i = 0; i < 2; i++) expect_end(op[i], PCCL_MISMATCH, "rank 1 called all_reduce(int32[5], op=min");
    if (next_epoch) cores_install(&c, NULL, 0, PCCL_OK, NULL);
    expect_end(cores_start(&c, 0, call_of(0, PCCL_ALL_REDUCE, scope, 1)), PCCL_MISMATCH, "rank 3 called all_reduce");
    EXPECT(list_empty(&c.core[2]->failed) && !c.core[2]->frozen, "none of its business");
    fill();
    run_among(&c, ranks, 3, (pccl_call){.collective = PCCL_ALL_REDUCE, .dtype = PCCL_INT32, .count = COUNT}, PCCL_OK,
              "");
    EXPECT(output[0][0] == 4000);
    cores_free(&c);
}

/* Who has not come is named; who has no part is not. */
static void test_stall(void) {
    static const uint32_t ranks[] = {0, 1, 3};
    struct cores c;
    cores_make(&c, 4, NULL);
    uint64_t scope = scope_for(&c, 0, ranks, 3);
    EXPECT(scope_for(&c, 1, ranks, 3) == scope);
    pccl_operation *op[] = {cores_start(&c, 0, call_of(0, PCCL_BARRIER, scope, 1)),
                            cores_start(&c, 1, call_of(1, PCCL_BARRIER, scope, 1))};
    cores_run(&c, 1000000);
    pccl_event event = {.kind = 0}, last = event;
    while (cores_event(&c, 0, PCCL_EVENT_STALLED, &event)) last = event;
    EXPECT(last.kind == PCCL_EVENT_STALLED && last.absent && last.ranks_count == 1 && last.ranks[0] == 3, "%s",
           last.text);
    EXPECT(last.name.scope == scope && strstr(last.text, " of subgroup "), "%s", last.text);
    EXPECT(scope_for(&c, 3, ranks, 3) == scope);
    pccl_operation *late = cores_start(&c, 3, call_of(3, PCCL_BARRIER, scope, 1));
    cores_run(&c, 20000);
    for (uint32_t i = 0; i < 2; i++) expect_end(op[i], PCCL_OK, "");
    expect_end(late, PCCL_OK, "");
    cores_free(&c);
}

/* What has returned here before it was found to differ elsewhere can only be taken back with the step of everyone. */
static void test_deferred_mismatch(void) {
    static const uint32_t ranks[] = {0, 1};
    struct cores c;
    cores_make(&c, 3, NULL);
    pccl_call call = call_of(0, PCCL_BROADCAST, scope_for(&c, 0, ranks, 2), 1);
    call.flags |= PCCL_DEFERRED;
    pccl_operation *sent = cores_start(&c, 0, call);
    cores_run(&c, 1000);
    expect_end(sent, PCCL_OK, "");
    call = call_of(1, PCCL_BROADCAST, scope_for(&c, 1, ranks, 2), 1);
    call.flags |= PCCL_DEFERRED;
    call.count = COUNT - 1;
    pccl_operation *other = cores_start(&c, 1, call);
    cores_run(&c, 20000);
    expect_end(other, PCCL_MISMATCH, "rank 0 called broadcast(int32[5]");
    EXPECT(c.core[0]->frozen && c.core[2]->frozen, "the step is over for all");
    cores_free(&c);
}

int main(void) {
    test_scopes();
    test_refusals();
    test_results();
    test_at_a_time();
    test_shapes();
    test_hosts();
    test_epochs();
    test_same_members();
    test_mismatch(false);
    test_mismatch(true);
    test_stall();
    test_deferred_mismatch();
    FINISH();
}
