/* SPDX-License-Identifier: MIT
 *
 * door.h - the lock around a core, whose holder gives way.
 *
 * Must not know: what is behind it. A thread that drives takes the lock again as soon as it has let go of it, and a
 * mutex lets it: others may stand there for as long as there is work. The idea: who finds the door shut joins a queue,
 * which the holder can see; to give way it steps out and joins the queue itself, behind whoever is next.
 */
#ifndef PCCL_ENGINE_DOOR_H
#define PCCL_ENGINE_DOOR_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct pccl__door {
    pthread_mutex_t inside; /* the lock itself, also for condition variables */
    pthread_mutex_t next;   /* held by the first in the queue */
    atomic_uint waiting;    /* in the queue, roughly */
};

static inline void pccl__door_init(struct pccl__door *door) {
    pthread_mutex_init(&door->inside, NULL);
    pthread_mutex_init(&door->next, NULL);
    atomic_init(&door->waiting, 0);
}

static inline void pccl__door_destroy(struct pccl__door *door) {
    pthread_mutex_destroy(&door->inside);
    pthread_mutex_destroy(&door->next);
}

/* Does anybody want in? Any thread. */
static inline bool pccl__door_wanted(const struct pccl__door *door) {
    return atomic_load_explicit(&door->waiting, memory_order_relaxed) > 0;
}

static inline void pccl__door_queue(struct pccl__door *door) {
    pthread_mutex_lock(&door->next);
    pthread_mutex_lock(&door->inside);
    pthread_mutex_unlock(&door->next);
}

static inline void pccl__door_enter(struct pccl__door *door) {
    if (!pccl__door_wanted(door) && pthread_mutex_trylock(&door->inside) == 0) return;
    atomic_fetch_add(&door->waiting, 1);
    pccl__door_queue(door);
    atomic_fetch_sub(&door->waiting, 1);
}

static inline void pccl__door_leave(struct pccl__door *door) { pthread_mutex_unlock(&door->inside); }

/* The holder lets in whoever waits, and comes back behind them. */
static inline void pccl__door_give_way(struct pccl__door *door) {
    if (!pccl__door_wanted(door)) return;
    pthread_mutex_unlock(&door->inside);
    pccl__door_queue(door);
}

#endif
