/* SPDX-License-Identifier: MIT
 *
 * urgency_test.c - when queues are short, in which order arrivals are worked on, and both for operations of cores.
 */
#include "engine/urgency.h"

#include "base/clock.h"
#include "check.h"
#include "shared_cores.h"

static void test_hurry(void) {
    struct pccl__urgency urgency = {.levels = 0};
    uint64_t now_ns = 1000;
    EXPECT(!pccl__urgency_hurry(&urgency, now_ns));
    for (int priority = PCCL_PRIORITY_MIN; priority <= PCCL_PRIORITY_MAX; priority++) {
        for (int i = 0; i < 2; i++) pccl__urgency_begin(&urgency, priority);
        EXPECT(pccl__urgency_hurry(&urgency, now_ns) == (priority > PCCL_PRIORITY_MIN));
    }
    for (int priority = PCCL_PRIORITY_MIN; priority <= PCCL_PRIORITY_MAX; priority++) {
        EXPECT(pccl__urgency_hurry(&urgency, now_ns));
        for (int i = 0; i < 2; i++) pccl__urgency_end(&urgency, priority);
    }
    EXPECT(pccl__urgency_hurry(&urgency, now_ns) && pccl__urgency_hurry(&urgency, now_ns + NS_PER_MS), "for a while");
    EXPECT(!pccl__urgency_hurry(&urgency, now_ns + 1000 * NS_PER_MS));
}

static void test_order(void) {
    static const int8_t given[] = {0, 0, -2, 3, 0, 3, 1}, expected[] = {3, 5, 6, 0, 1, 4, 2};
    enum { COUNT = sizeof given };
    struct pccl__transfer transfers[COUNT];
    struct list list;
    list_init(&list);
    for (int i = 0; i < COUNT; i++) {
        transfers[i] = (struct pccl__transfer){.priority = given[i]};
        list_push_back(&list, &transfers[i].link);
    }
    pccl__urgency_sort(&list);
    for (int i = 0; i < COUNT; i++) EXPECT(list_pop_front(&list) == &transfers[expected[i]].link, "at %d", i);
    pccl__urgency_sort(&list);
    EXPECT(list_empty(&list));
}

/* Whatever becomes of operations, none is counted for ever. */
static void test_operations(void) {
    struct cores c;
    cores_make(&c, 2, NULL);
    float memory[2][2] = {{0}};
    pccl_operation *ops[2][2];
    for (uint32_t peer = 0; peer < 2; peer++)
        for (uint32_t i = 0; i < 2; i++)
            ops[peer][i] = cores_start(&c, peer,
                                       (pccl_call){.collective = PCCL_ALL_REDUCE,
                                                   .dtype = PCCL_FLOAT32,
                                                   .count = 1,
                                                   .tag = i ? i + peer : 0, /* the second ones never meet */
                                                   .priority = i ? 2 : -1,
                                                   .input = &memory[peer][i],
                                                   .output = &memory[peer][i]});
    EXPECT(c.core[0]->urgency.levels == (1u << (PCCL_PRIORITY_MAX + 1) | 1u << (PCCL_PRIORITY_MAX - 2)));
    cores_run(&c, 1000);
    EXPECT(c.transport[0]->hurry && ops[0][0]->ended && !ops[0][1]->ended);
    EXPECT(c.core[0]->urgency.levels == 1u << (PCCL_PRIORITY_MAX - 2));
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "the epoch ends");
    cores_run(&c, 1000000);
    for (uint32_t peer = 0; peer < 2; peer++) {
        EXPECT(c.core[peer]->urgency.levels == 0 && !c.transport[peer]->hurry);
        for (uint32_t i = 0; i < 2; i++) pccl__core_handle_free(ops[peer][i]);
    }
    cores_free(&c);
}

int main(void) {
    test_hurry();
    test_order();
    test_operations();
    FINISH();
}
