/* SPDX-License-Identifier: MIT
 *
 * door_test.c - one thread holds the lock of a door all the time but for giving way; others get in nevertheless, each
 * by itself.
 */
#include "engine/door.h"

#include "check.h"

enum { GUESTS = 6, VISITS = 2000 };

static struct pccl__door door;
static uint64_t inside; /* under the lock: as many as may be there */
static uint64_t visits;
static atomic_uint guests_left = GUESTS;

static void visit(void) {
    EXPECT(inside == 0, "two at once");
    inside++;
    visits++;
    inside--;
}

static void *guest(void *argument) {
    (void)argument;
    for (int i = 0; i < VISITS; i++) {
        pccl__door_enter(&door);
        visit();
        pccl__door_leave(&door);
    }
    atomic_fetch_sub(&guests_left, 1);
    return NULL;
}

int main(void) {
    pthread_t threads[GUESTS];
    pccl__door_init(&door);
    pccl__door_enter(&door);
    for (int i = 0; i < GUESTS; i++) EXPECT(pthread_create(&threads[i], NULL, guest, NULL) == 0);
    while (atomic_load(&guests_left) > 0) { /* never lets go of it otherwise */
        visit();
        pccl__door_give_way(&door);
    }
    for (int i = 0; i < GUESTS; i++) pthread_join(threads[i], NULL);
    EXPECT(visits > GUESTS * VISITS && !pccl__door_wanted(&door));
    pccl__door_leave(&door);
    pccl__door_destroy(&door);
    FINISH();
}
