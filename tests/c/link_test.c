/* SPDX-License-Identifier: MIT
 *
 * link_test.c - groups whose members are not all linked, or not all alike: what reaches whom along which links, and
 * which links' breaking stops something.
 */
#include <string.h>

#include "check.h"
#include "shared_cores.h"
#include "shared_program.h"

enum { COUNT = 3000 };
static int32_t input[CORES_MAX][CORES_MAX * COUNT], output[CORES_MAX][CORES_MAX * COUNT];

/* Three ways to live without the links 0-3 and 1-2 of four members; and a star around 0. */
static const struct form {
    pccl_shape shape;
    uint32_t ring[4], parents[4], dead[3][2], dead_count;
} forms[] = {
    {PCCL_SHAPE_RING, {0, 1, 3, 2}, {0}, {{0, 3}, {1, 2}}, 2},
    {PCCL_SHAPE_TREE, {0, 1, 3, 2}, {0, 0, 1, 2}, {{0, 3}, {1, 2}}, 2},
    {PCCL_SHAPE_TREE, {1, 3, 2, 0}, {0, 0, 1, 0}, {{0, 3}, {1, 2}}, 2},
    {PCCL_SHAPE_TREE, {0, 1, 2, 3}, {0, 0, 0, 0}, {{1, 2}, {1, 3}, {2, 3}}, 3},
};
enum { FORMS = sizeof forms / sizeof *forms };

static void make(struct cores *c, const struct form *form) {
    cores_make(c, 4, NULL);
    for (uint32_t i = 0; i < form->dead_count; i++)
        pccl__sim_block(c->network, c->id[form->dead[i][0]], c->id[form->dead[i][1]]);
    c->shape = form->shape;
    c->ring = form->ring;
    c->parents = form->shape == PCCL_SHAPE_TREE ? form->parents : NULL;
    cores_install(c, NULL, 0, PCCL_OK, NULL);
}

/* Nothing was ever sent over a dead link. */
static void done(struct cores *c) {
    EXPECT(pccl__sim_blocked_frames(c->network) == 0, "%d frames", (int)pccl__sim_blocked_frames(c->network));
    cores_free(c);
}

static pccl_call call_of(uint32_t peer, pccl_collective collective, uint64_t count) {
    for (uint32_t i = 0; i < CORES_MAX * COUNT; i++) input[peer][i] = (int32_t)(i + 100000 * (peer + 1));
    return (pccl_call){.collective = collective,
                       .dtype = PCCL_INT32,
                       .count = count,
                       .root = 3,
                       .input = input[peer],
                       .output = output[peer]};
}

static void run_many(struct cores *c, pccl_collective collective, uint64_t count, pccl_algorithm wish,
                     pccl_algorithm expected_algorithm) {
    static const uint32_t members[] = {0, 1, 2, 3};
    struct program_step step = {
        .call = {.collective = collective, .dtype = PCCL_INT32, .count = count, .algorithm = wish},
        .root_is_last = true};
    struct program_buffers buffers[4];
    pccl_operation *op[4];
    for (uint32_t i = 0; i < 4; i++)
        op[i] = cores_start(c, i, program_prepare(&step, (struct program_group){4, i, members}, &buffers[i]));
    cores_run(c, 20000);
    for (uint32_t p = 0; p < 4; p++) {
        const char *name = pccl_collective_name(collective);
        EXPECT(op[p]->ended && op[p]->status == PCCL_OK, "%s: %s", name, op[p]->text);
        EXPECT(op[p]->info.algorithm == expected_algorithm, "%s: %s", name, pccl_algorithm_name(op[p]->info.algorithm));
        uint64_t wrong = program_first_wrong(&step, (struct program_group){4, p, members}, &buffers[p]);
        EXPECT(wrong == UINT64_MAX, "%s: rank %u, element %d", name, p, (int)wrong);
        pccl__core_handle_free(op[p]);
        program_release(&buffers[p]);
    }
}

static void run_all(struct cores *c, pccl_collective collective, pccl_algorithm expected_algorithm) {
    run_many(c, collective, COUNT, PCCL_AUTO, expected_algorithm);
}

/* Around the ring, or along it as a line. */
static pccl_algorithm around(pccl_collective collective) {
    switch (collective) {
    case PCCL_BROADCAST:
    case PCCL_REDUCE:
        return PCCL_CHAIN;
    case PCCL_GATHER:
    case PCCL_SCATTER:
    case PCCL_ALL_TO_ALL:
    case PCCL_SCAN:
    case PCCL_EXSCAN:
        return PCCL_LINE;
    default:
        return PCCL_RING;
    }
}

static void test_collectives(const struct form *form) {
    struct cores c;
    make(&c, form);
    for (int i = 0; i < PCCL_SEND; i++) {
        pccl_collective collective = (pccl_collective)i;
        run_all(&c, collective, form->shape == PCCL_SHAPE_RING ? around(collective) : PCCL_TREE);
    }
    done(&c);
}

/* One member differs: all hear of both sides, whoever they are linked to, and the next operation is as good as any. */
static void test_mismatch(const struct form *form) {
    for (uint32_t other = 0; other < 4; other++) {
        struct cores c;
        make(&c, form);
        pccl_operation *op[4];
        for (uint32_t i = 0; i < 4; i++)
            op[i] = cores_start(&c, i, call_of(i, PCCL_ALL_REDUCE, i == other ? COUNT - 1 : COUNT));
        cores_run(&c, 400000);
        for (uint32_t i = 0; i < 4; i++) {
            EXPECT(op[i]->ended && op[i]->status == PCCL_MISMATCH, "rank %u: %s", i, op[i]->text);
            EXPECT(strstr(op[i]->text, "int32[3000]") && strstr(op[i]->text, "int32[2999]"), "%s", op[i]->text);
            pccl__core_handle_free(op[i]);
        }
        run_all(&c, PCCL_BARRIER, form->shape == PCCL_SHAPE_RING ? PCCL_RING : PCCL_TREE);
        done(&c);
    }
}

/* Whoever stops, all stop, and are told who was the first. Whoever does not come is named by all. */
static void test_stop_and_absence(const struct form *form) {
    for (uint32_t one = 0; one < 4; one++) {
        struct cores c;
        make(&c, form);
        pccl_operation *op[4] = {NULL};
        for (uint32_t i = 0; i < 4; i++)
            if (i != one) op[i] = cores_start(&c, i, call_of(i, PCCL_BARRIER, 0));
        cores_run(&c, 900000);
        pccl_event event, last = {.ranks_count = 0};
        for (uint32_t i = 0; i < 4; i++) {
            if (i == one) continue;
            while (cores_event(&c, i, PCCL_EVENT_STALLED, &event)) last = event;
            EXPECT(last.absent && last.ranks_count == 1 && last.ranks[0] == one, "rank %u of %u: %s", i, one,
                   last.text);
        }
        pccl__core_freeze(c.core[one], PCCL_NO_MEMORY, NULL, "a reason");
        cores_run(&c, 10000);
        char told[64];
        snprintf(told, sizeof told, "rank %u stopped: a reason", one);
        for (uint32_t i = 0; i < 4; i++) {
            EXPECT(cores_event(&c, i, PCCL_EVENT_FROZEN, &event), "rank %u did not stop", i);
            EXPECT(i == one || strcmp(event.text, told) == 0, "%s", event.text);
        }
        cores_install(&c, NULL, 0, PCCL_PEER_LOST, "a test");
        for (uint32_t i = 0; i < 4; i++)
            if (op[i]) pccl__core_handle_free(op[i]);
        run_all(&c, PCCL_ALL_REDUCE, form->shape == PCCL_SHAPE_RING ? PCCL_RING : PCCL_TREE);
        done(&c);
    }
}

/* A link that the shape leaves out is made when asked for, and breaks without stopping the operations beside it. */
static void test_unused_link(void) {
    struct cores c;
    make(&c, &(struct form){PCCL_SHAPE_TREE, {0, 1, 2, 3}, {0, 0, 0, 0}, {{0}}, 0});
    pccl_operation *op[4];
    for (uint32_t i = 0; i < 3; i++) op[i] = cores_start(&c, i, call_of(i, PCCL_ALL_REDUCE, COUNT));
    pccl__core_dial(c.core[1], c.epoch, &c.id[2]);
    pccl__core_dial(c.core[1], c.epoch - 1, &c.id[3]);
    cores_run(&c, 1000);
    pccl_event event;
    EXPECT(!cores_event(&c, 1, PCCL_EVENT_LINKED, &event), "the other end has said nothing yet");
    pccl__core_dial(c.core[2], c.epoch, &c.id[1]);
    cores_run(&c, 1000);
    EXPECT(cores_event(&c, 1, PCCL_EVENT_LINKED, &event) && event.peer.bytes[0] == 3, "%s", event.text);
    pccl__sim_block(c.network, c.id[1], c.id[2]);
    cores_run(&c, 1000);
    EXPECT(cores_event(&c, 1, PCCL_EVENT_SUSPECT, &event) && event.reason == PCCL_PEER_LOST, "%s", event.text);
    pccl__core_dial(c.core[1], c.epoch, &c.id[2]);
    cores_run(&c, 1000);
    EXPECT(cores_event(&c, 1, PCCL_EVENT_SUSPECT, &event), "it cannot be made again");
    op[3] = cores_start(&c, 3, call_of(3, PCCL_ALL_REDUCE, COUNT));
    cores_run(&c, 20000);
    for (uint32_t i = 0; i < 4; i++) {
        EXPECT(!c.core[i]->frozen && op[i]->ended && op[i]->status == PCCL_OK, "%s", op[i]->text);
        pccl__core_handle_free(op[i]);
    }
    cores_free(&c);
}

/* What a transport knows for certain of the other end is told, whenever its link breaks: while an operation needs it,
 * while none does, and behind another failure. */
static void test_certain_death(void) {
    static const pccl_event_kind kinds[] = {PCCL_EVENT_FROZEN, PCCL_EVENT_SUSPECT, PCCL_EVENT_SUSPECT};
    for (int how = 0; how < 3; how++) {
        struct cores c;
        cores_make(&c, 2, NULL);
        pccl_operation *op = how == 0 ? cores_start(&c, 0, call_of(0, PCCL_ALL_REDUCE, COUNT)) : NULL;
        if (how == 2) pccl__core_freeze(c.core[0], PCCL_NO_MEMORY, NULL, "a reason");
        struct pccl__channel *channel = c.core[0]->group.channels[1];
        channel->broken = channel->ended = channel->ready = true;
        cores_run(&c, 1000);
        pccl_event event;
        EXPECT(cores_event(&c, 0, kinds[how], &event) && event.reason == PCCL_PEER_DIED, "%d: %s", how, event.text);
        EXPECT(memcmp(&event.peer, &c.id[1], sizeof event.peer) == 0);
        cores_install(&c, NULL, 0, PCCL_PEER_LOST, "a test");
        if (op) pccl__core_handle_free(op);
        cores_free(&c);
    }
}

/* A stall makes no links but those of the ring. */
static void test_stall_dials_no_more_than_the_ring(void) {
    struct cores c;
    cores_make(&c, 4, NULL);
    pccl_operation *op = cores_start(&c, 0, call_of(0, PCCL_BROADCAST, COUNT));
    pccl__sim_block(c.network, c.id[0], c.id[2]); /* in rank order, across the ring; counts what is sent there */
    cores_run(&c, 2000000);
    EXPECT(pccl__sim_blocked_frames(c.network) == 0, "%d frames", (int)pccl__sim_blocked_frames(c.network));
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "a test");
    pccl__core_handle_free(op);
    cores_free(&c);
}

/* Two hosts: the all-reduce works in two levels if the ring keeps each together. A wish is followed on any ring. */
static void test_hosts(void) {
    static const uint64_t host_ids[] = {5, 6, 5, 6};
    static const uint32_t together[] = {0, 2, 1, 3}, torn[] = {0, 1, 2, 3};
    struct cores c;
    cores_make(&c, 4, NULL);
    c.host_ids = host_ids;
    for (int i = 0; i < 2; i++) {
        c.ring = i ? torn : together;
        cores_install(&c, NULL, 0, PCCL_OK, NULL);
        run_many(&c, PCCL_ALL_REDUCE, 1 << 17, PCCL_AUTO, i ? PCCL_DOUBLING : PCCL_HIERARCHICAL);
        run_many(&c, PCCL_ALL_REDUCE, 10, PCCL_AUTO, i ? PCCL_DOUBLING : PCCL_LEADERS);
        run_many(&c, PCCL_ALL_REDUCE, 10, PCCL_HIERARCHICAL, PCCL_HIERARCHICAL);
    }
    cores_free(&c);
}

int main(void) {
    for (uint32_t i = 0; i < FORMS; i++) {
        test_collectives(&forms[i]);
        test_mismatch(&forms[i]);
        test_stop_and_absence(&forms[i]);
    }
    test_unused_link();
    test_certain_death();
    test_stall_dials_no_more_than_the_ring();
    test_hosts();
    FINISH();
}
