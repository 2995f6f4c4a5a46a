/* SPDX-License-Identifier: MIT
 *
 * schedule_test.c - what a schedule finds out about a plan: who waits for whom, what is written last, and whether a
 * reduction may grow in the memory of its input.
 */
#include "engine/schedule.h"

#include "check.h"

enum { SIZES = 64 };

static bool grows_in_place(const struct pccl__planner *planner, uint32_t position, const struct pccl__shape *shape) {
    struct pccl__schedule *schedule;
    EXPECT(pccl__schedule_new(planner, position, shape, 0, &schedule) == PCCL_OK);
    bool in_place = schedule->in_place;
    pccl__schedule_free(schedule);
    return in_place;
}

/* Large vectors are reduced by these. Each position of a power of two by doubling sends and adds in every round. */
static void large_reductions_grow_in_place(void) {
    for (uint32_t size = 1; size <= SIZES; size++) {
        const pccl_collective collectives[] = {PCCL_ALL_REDUCE, PCCL_REDUCE_SCATTER};
        uint32_t parents[SIZES] = {0};
        for (uint32_t p = 1; p < size; p++) parents[p] = p & (p - 1); /* in preorder */
        struct pccl__shape full = {0}, tree = {0};
        EXPECT(pccl__shape_init(&full, PCCL_SHAPE_FULL, size, NULL) == PCCL_OK);
        EXPECT(pccl__shape_init(&tree, PCCL_SHAPE_TREE, size, parents) == PCCL_OK);
        for (uint32_t p = 0; p < size; p++) {
            for (int i = 0; i < 2; i++) {
                EXPECT(grows_in_place(pccl__planner_find(collectives[i], PCCL_RING), p, &full));
                EXPECT(grows_in_place(pccl__planner_find(collectives[i], PCCL_TREE), p, &tree));
            }
            EXPECT(grows_in_place(pccl__planner_find(PCCL_ALL_REDUCE, PCCL_DIRECT), p, &full));
            if (size > 1 && (size & (size - 1)) == 0)
                EXPECT(!grows_in_place(pccl__planner_find(PCCL_ALL_REDUCE, PCCL_DOUBLING), p, &full));
        }
        pccl__shape_free(&tree);
    }
}

/* ---------------------------------------------------------------- by hand */

struct given {
    uint32_t count;
    struct pccl__step steps[4];
};

static struct given given;

static pccl_status build_given(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                               struct pccl__plan *plan) {
    (void)root;
    pccl_status status = pccl__plan_begin(plan, position, shape->size, 2, 4);
    for (uint32_t i = 0; status == PCCL_OK && i < given.count; i++) status = pccl__plan_add(plan, given.steps[i]);
    return status;
}

static struct pccl__schedule *schedule_of(struct given wanted) {
    const struct pccl__planner planner = {.build = build_given};
    const struct pccl__shape three = {.kind = PCCL_SHAPE_FULL, .size = 3};
    struct pccl__schedule *schedule;
    given = wanted;
    EXPECT(pccl__schedule_new(&planner, 0, &three, 0, &schedule) == PCCL_OK);
    return schedule;
}

static bool given_in_place(struct given wanted) {
    struct pccl__schedule *schedule = schedule_of(wanted);
    bool in_place = schedule->in_place;
    pccl__schedule_free(schedule);
    return in_place;
}

static void a_send_of_the_input_is_not_overtaken(void) {
    const struct pccl__step send = {.peer = 1}, send_later = {.peer = 1, .round = 1}, other = {.peer = 2},
                            other_chunk = {.peer = 2, .chunk = 1}, add = {.peer = 1, .kind = PCCL__REDUCE_LEFT},
                            add_later = {.peer = 2, .round = 1, .kind = PCCL__REDUCE_RIGHT},
                            copy = {.peer = 1, .round = 2, .kind = PCCL__COPY};
    EXPECT(given_in_place((struct given){2, {send, copy}}));
    EXPECT(given_in_place((struct given){2, {add, send_later}}), "what is sent is no input");
    EXPECT(given_in_place((struct given){4, {send, other_chunk, add_later, copy}}), "the copy comes last");
    EXPECT(!given_in_place((struct given){2, {send, add}}), "both in one round");
    EXPECT(!given_in_place((struct given){2, {send, add_later}}));
    EXPECT(!given_in_place((struct given){3, {send, other, copy}}), "only one of the two need have arrived");
}

static void knows_who_waits_for_whom(void) {
    const struct pccl__step send = {.peer = 1}, add = {.peer = 1, .kind = PCCL__REDUCE_LEFT},
                            pass_on = {.peer = 2, .round = 1}, copy = {.peer = 2, .round = 2, .kind = PCCL__COPY};
    struct pccl__schedule *schedule = schedule_of((struct given){4, {send, add, pass_on, copy}});
    EXPECT(schedule->previous[0] == PCCL__NO_STEP && schedule->previous[1] == PCCL__NO_STEP);
    EXPECT(schedule->previous[2] == 1 && schedule->previous[3] == 1);
    EXPECT(schedule->first_dependent[1] == 3 && schedule->next_dependent[3] == 2);
    EXPECT(schedule->next_dependent[2] == PCCL__NO_STEP && schedule->first_dependent[3] == PCCL__NO_STEP);
    EXPECT(!schedule->last[1] && schedule->last[3]);
    EXPECT(schedule->received[0] && !schedule->received[1]);
    EXPECT(schedule->receives_count == 2 && schedule->receives[0] == 1 && schedule->receives[1] == 3);
    pccl__schedule_free(schedule);
}

int main(void) {
    large_reductions_grow_in_place();
    a_send_of_the_input_is_not_overtaken();
    knows_who_waits_for_whom();
    FINISH();
}
