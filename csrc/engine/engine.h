/* SPDX-License-Identifier: MIT
 *
 * engine.h - threads around one core: the lock, who polls, who sleeps.
 *
 * The idea: whoever waits for an operation polls and moves the core on itself (no hand-over between threads for small
 * messages); a background thread does it while nobody waits. At most one caller *drives*; other callers sleep on a
 * condition variable and take over when the driver leaves. The background thread sleeps in the poll set while nobody
 * drives. While callers drive it is parked, and looks every PARK_TICK_MS whether they have stopped: so a loop of
 * blocking operations never wakes it. Both may be inside pccl__poll_wait at once; all else happens under the lock.
 * Who drives gives way to who wants in (door.h): an urgent call must not wait for a large one's arithmetic. And while
 * calls come one upon the other, each moves the core on a bit, and the background thread keeps out of their way.
 *
 * System calls of one small blocking operation per peer and message: over TCP one send, and reads until one brings
 * something; through shared memory none while both sides look, and a bell each time that one sleeps. Who spins asks the
 * poll set now and then besides.
 */
#ifndef PCCL_ENGINE_ENGINE_H
#define PCCL_ENGINE_ENGINE_H

#include <pthread.h>

#include "channel/poll.h"
#include "engine/core.h"
#include "engine/door.h"

enum { PCCL__SPIN_MOST_NS = 2000 * 1000 };

struct pccl_engine {
    struct pccl__door door;
    pthread_cond_t parked; /* for the background thread; with door.inside */
    /* Operations ended, or the driver left. Who sleeps comes back through the door, so it has a mutex of its own, taken
     * behind the door. */
    pthread_mutex_t ended_mutex;
    pthread_cond_t ended;
    uint64_t endings; /* grows with each such news */
    pthread_t thread;
    struct pccl__core *core; /* NULL once it was freed: what is left waits for callers to give their operations back */
    struct pccl__poll *poll;
    struct pccl__arena arena;
    struct pccl__transport *transport;
    pccl_peer_id id;
    uint16_t port;
    int event_fd;
    bool event_shown;             /* event_fd is readable */
    bool driving;                 /* a caller polls */
    uint32_t sleepers;            /* callers on `ended` */
    uint64_t drives;              /* counts callers' turns */
    bool background_polls;        /* the background thread is in the poll set, or about to be */
    bool background_rests;        /* ... no: it lets callers work, and looks again in REST_NS */
    uint64_t started_ns;          /* when a caller last started an operation */
    uint64_t background_until_ns; /* ... and looks at the core's timers no later than this */
    uint64_t driver_until_ns;     /* the same of a caller in the poll set; 0: it is elsewhere, and looks soon */
    bool stopping, forked;
    size_t handles;   /* operations that callers hold */
    uint64_t spin_ns; /* how long a driver spins before it sleeps: halved when in vain, doubled when not */
    uint32_t spins_skipped;
    uint64_t polled_ns;  /* when the poll set was last asked */
    uint64_t yielded_ns; /* when a spin last gave its core away, or began */
};

/* All else is under the lock: between these two. False: the process is a fork's child, nothing was locked. */
bool pccl__engine_enter(struct pccl_engine *engine);
void pccl__engine_leave(struct pccl_engine *engine);
/* After anything that may have ended operations or made events. */
void pccl__engine_publish(struct pccl_engine *engine, uint32_t ended_before);
/* Drives or sleeps until the operation has ended or deadline_ns is reached, then sees that what is left under way is
 * somebody's business. Called with the lock held. */
void pccl__engine_wait(struct pccl_engine *engine, struct pccl_operation *operation, uint64_t deadline_ns);
/* Whoever polls, or will have to, looks at everything anew. */
void pccl__engine_kick(struct pccl_engine *engine);
/* After progress by a thread that will not sleep in the poll set: kicks only if the one that does would miss something
 * else. So starting many operations costs no wake-up for each. */
void pccl__engine_tend(struct pccl_engine *engine, uint32_t ended_before);
void *pccl__engine_main(void *engine);

#endif
