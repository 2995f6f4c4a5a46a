/* SPDX-License-Identifier: MIT
 *
 * event_test.c - order, the kinds of which one at most waits, and reserved places.
 */
#include "engine/event.h"

#include "check.h"

static struct pccl__events events;

static bool add(pccl_event_kind kind, uint64_t epoch) {
    return pccl__events_add(&events, &(pccl_event){.kind = kind, .epoch = epoch});
}

static void expect_next(pccl_event_kind kind, uint64_t epoch) {
    pccl_event event;
    EXPECT(pccl__events_take(&events, &event) && event.kind == kind && event.epoch == epoch, "kind %d epoch %" PRIu64,
           event.kind, event.epoch);
}

int main(void) {
    pccl_event event;
    pccl__events_init(&events);
    struct pccl__event_node *place = pccl__events_reserve();
    EXPECT(place && pccl__events_empty(&events) && !pccl__events_take(&events, &event), "nothing is there yet");
    for (int round = 0; round < 2; round++) { /* FROZEN's place can be used again */
        EXPECT(add(PCCL_EVENT_SUSPECT, 1) && add(PCCL_EVENT_FROZEN, 1) && add(PCCL_EVENT_STALLED, 1));
        EXPECT(add(PCCL_EVENT_REFUSED, 0) && add(PCCL_EVENT_FROZEN, 2) && !pccl__events_empty(&events));
        expect_next(PCCL_EVENT_SUSPECT, 1);
        expect_next(PCCL_EVENT_FROZEN, 2); /* nobody wants the report of epoch 1 any more */
        expect_next(PCCL_EVENT_STALLED, 1);
        expect_next(PCCL_EVENT_REFUSED, 0);
        EXPECT(pccl__events_empty(&events));
    }
    pccl__events_add_reserved(&events, place, &(pccl_event){.kind = PCCL_EVENT_DONE, .epoch = 3});
    expect_next(PCCL_EVENT_DONE, 3);
    EXPECT(add(PCCL_EVENT_FROZEN, 4) && add(PCCL_EVENT_SUSPECT, 4));
    pccl__events_clear(&events);
    EXPECT(pccl__events_empty(&events), "cleared");
    FINISH();
}
