/* SPDX-License-Identifier: MIT
 *
 * event_test.c - order, the kinds of which one at most waits, and tokens, which are told together; what is told
 * only once.
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

static void test_tokens(void) {
    enum { MANY = 1000 };
    uint64_t taken[MANY], now_ns = 100;
    pccl__events_init(&events);
    for (int i = 0; i < MANY - 1; i++) EXPECT(pccl__events_reserve(&events));
    EXPECT(pccl__events_empty(&events) && !pccl__events_due(&events, now_ns));
    pccl__events_end(&events, 0, false, now_ns);
    EXPECT(!pccl__events_empty(&events) && !pccl__events_due(&events, now_ns), "others may end soon");
    EXPECT(pccl__events_due(&events, now_ns + PCCL__TOKENS_NS));
    pccl__events_end(&events, 1, true, now_ns);
    EXPECT(pccl__events_due(&events, now_ns), "somebody sleeps");
    EXPECT(pccl__events_take_tokens(&events, taken, 1) == 1 && taken[0] == 0);
    EXPECT(pccl__events_take_tokens(&events, taken, MANY) == 1 && taken[0] == 1);
    EXPECT(pccl__events_empty(&events) && !pccl__events_due(&events, UINT64_MAX - 1));
    for (uint64_t i = 2; i < MANY - 1; i++) {
        EXPECT(pccl__events_due(&events, now_ns) == (i >= 2 + PCCL__TOKENS_TOGETHER));
        pccl__events_end(&events, i, false, now_ns);
    }
    for (uint64_t i = 2; i < MANY - 1;) {
        size_t count = pccl__events_take_tokens(&events, taken, 100);
        for (size_t at = 0; at < count; at++) EXPECT(taken[at] == i++);
    }
    EXPECT(pccl__events_empty(&events));
    pccl__events_clear(&events);
}

int main(void) {
    pccl_event event;
    pccl__events_init(&events);
    EXPECT(pccl__events_empty(&events) && !pccl__events_take(&events, &event), "nothing is there yet");
    for (int round = 0; round < 2; round++) { /* FROZEN's place can be used again */
        EXPECT(add(PCCL_EVENT_SUSPECT, 1) && add(PCCL_EVENT_FROZEN, 1) && add(PCCL_EVENT_STALLED, 1));
        EXPECT(add(PCCL_EVENT_REFUSED, 0) && add(PCCL_EVENT_FROZEN, 2) && !pccl__events_empty(&events));
        expect_next(PCCL_EVENT_SUSPECT, 1);
        expect_next(PCCL_EVENT_FROZEN, 2); /* nobody wants the report of epoch 1 any more */
        expect_next(PCCL_EVENT_STALLED, 1);
        expect_next(PCCL_EVENT_REFUSED, 0);
        EXPECT(pccl__events_empty(&events));
    }
    EXPECT(add(PCCL_EVENT_FROZEN, 4) && add(PCCL_EVENT_SUSPECT, 4));
    pccl__events_clear(&events);
    EXPECT(pccl__events_empty(&events), "cleared");
    test_tokens();
    test_unshared();
    FINISH();
}
