/* SPDX-License-Identifier: MIT
 *
 * group_test.c - what a view says of hosts and their cores: members of one host come to the same answer, whatever each
 * of them told, and so do all who cut what they send each other by it.
 */
#include "engine/group.h"

#include "check.h"
#include "shared_cores.h"

enum { MEMBERS = 4, KIB = 1024, BYTES = 1024 * KIB };

struct view {
    const char *name;
    uint64_t hosts[MEMBERS];
    uint32_t usable[MEMBERS];
    uint32_t host_members[MEMBERS];
    bool one_host, crowded[MEMBERS];
    uint32_t segments; /* of each chunk of an all_reduce of BYTES around the ring */
};

static const struct view views[] = {
    {"a core for each", {1, 1, 1, 1}, {4, 4, 4, 4}, {4, 4, 4, 4}, true, {false}, 4},
    {"two for all", {1, 1, 1, 1}, {2, 2, 2, 2}, {4, 4, 4, 4}, true, {true, true, true, true}, 1},
    {"one is bound to two", {1, 1, 1, 1}, {8, 8, 2, 8}, {4, 4, 4, 4}, true, {true, true, true, true}, 1},
    {"unknown", {1, 1, 1, 1}, {0}, {4, 4, 4, 4}, true, {false}, 4},
    {"one knows, and has enough", {1, 1, 1, 1}, {0, 4, 0, 0}, {4, 4, 4, 4}, true, {false}, 4},
    {"one knows, and has not", {1, 1, 1, 1}, {0, 0, 0, 3}, {4, 4, 4, 4}, true, {true, true, true, true}, 1},
    {"two hosts of two cores", {1, 1, 2, 2}, {2, 2, 2, 2}, {2, 2, 2, 2}, false, {false}, 4},
    {"one of them with one", {1, 1, 2, 2}, {2, 2, 1, 2}, {2, 2, 2, 2}, false, {false, false, true, true}, 4},
    {"no two together", {1, 2, 3, 4}, {1, 1, 1, 1}, {1, 1, 1, 1}, false, {false}, 4},
};

static void test_view(const struct view *view) {
    static float memory[MEMBERS][BYTES / sizeof(float)];
    struct cores c = {.host_ids = view->hosts, .usable = view->usable};
    cores_make_among(&c, MEMBERS, NULL, 1, (struct pccl__sim_faults){0});
    pccl_operation *ops[MEMBERS];
    for (uint32_t rank = 0; rank < MEMBERS; rank++) {
        const struct pccl__team *all = c.core[rank]->group.whole;
        EXPECT(all->host_members == view->host_members[rank] && all->one_host == view->one_host, "%s", view->name);
        EXPECT(all->crowded == view->crowded[rank], "%s: rank %u", view->name, rank);
        for (size_t i = 0; i < BYTES / sizeof(float); i++) memory[rank][i] = 1;
        ops[rank] = cores_start(&c, rank,
                                (pccl_call){.collective = PCCL_ALL_REDUCE,
                                            .dtype = PCCL_FLOAT32,
                                            .algorithm = PCCL_RING,
                                            .count = BYTES / sizeof(float),
                                            .input = memory[rank],
                                            .output = memory[rank]});
    }
    cores_run(&c, 100000);
    for (uint32_t rank = 0; rank < MEMBERS; rank++) {
        EXPECT(ops[rank]->ended && ops[rank]->status == PCCL_OK, "%s: %s", view->name, ops[rank]->text);
        EXPECT(ops[rank]->segments == view->segments, "%s: %u segments", view->name, ops[rank]->segments);
        EXPECT(memory[rank][0] == MEMBERS && memory[rank][BYTES / sizeof(float) - 1] == MEMBERS, "%s", view->name);
        pccl__core_handle_free(ops[rank]);
    }
    cores_free(&c);
}

int main(void) {
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) test_view(&views[i]);
    FINISH();
}
