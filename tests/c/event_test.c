/* SPDX-License-Identifier: MIT
 *
 * event_test.c - order, the kinds of which one at most waits, and reserved places; what is told only once.
 */
#include "engine/event.h"

#include <errno.h>
#include <string.h>

#include "check.h"
#include "shared_cores.h"

static struct pccl__events events;

static bool add(pccl_event_kind kind, uint64_t epoch) {
    return pccl__events_add(&events, &(pccl_event){.kind = kind, .epoch = epoch});
}

static void expect_next(pccl_event_kind kind, uint64_t epoch) {
    pccl_event event;
    EXPECT(pccl__events_take(&events, &event) && event.kind == kind && event.epoch == epoch, "kind %d epoch %" PRIu64,
           event.kind, event.epoch);
}

/* A transport that cannot share memory within the host is mentioned, however often it finds that out. */
static void test_unshared(void) {
    struct cores cores;
    pccl_event event;
    cores_make(&cores, 2, NULL);
    cores_run(&cores, 1000);
    EXPECT(!cores_event(&cores, 0, PCCL_EVENT_UNSHARED, &event));
    for (int i = 0; i < 3; i++) {
        cores.transport[0]->unshared = "cannot open it";
        cores.transport[0]->unshared_errno = EACCES;
        cores_run(&cores, 1000);
        bool told = cores_event(&cores, 0, PCCL_EVENT_UNSHARED, &event);
        EXPECT(told == (i == 0));
        if (told) EXPECT(strstr(event.text, "cannot open it: ") && strstr(event.text, strerror(EACCES)));
    }
    cores_free(&cores);
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
    test_unshared();
    FINISH();
}
