/* SPDX-License-Identifier: MIT
 *
 * engine.h - threads around one core: the lock, who polls, who sleeps.
 *
 * The idea: whoever waits for an operation polls and moves the core on itself (no hand-over between threads for small
 * messages); a background thread does it while nobody waits. At most one caller *drives*; other callers sleep on a
 * condition variable and take over when the driver leaves. The background thread sleeps in the poll set while nobody
 * drives. While callers drive it is parked, and looks every PARK_TICK_MS whether they have stopped: so a loop of
 * blocking operations never wakes it. Both may be inside pccl__poll_wait at once; all else happens under the lock.
 *
 * System calls of one small blocking operation per peer and message: over TCP one sendmsg, one recv, and the polls
 * while waiting; through shared memory none while both sides look, and a bell each time that one sleeps.
 */
#ifndef PCCL_ENGINE_ENGINE_H
#define PCCL_ENGINE_ENGINE_H

#include <pthread.h>

#include "channel/poll.h"
#include "engine/core.h"

enum { PCCL__SPIN_MOST_NS = 2000 * 1000 };

struct pccl_engine {
    pthread_mutex_t mutex;
    pthread_cond_t ended;  /* operations ended, or the driver left */
    pthread_cond_t parked; /* for the background thread */
    pthread_t thread;
    struct pccl__core *core;
    struct pccl__poll *poll;
    struct pccl__transport *transport;
    pccl_peer_id id;
    uint16_t port;
    int event_fd;
    bool event_shown;             /* event_fd is readable */
    bool driving;                 /* a caller polls */
    uint32_t sleepers;            /* callers on `ended` */
    uint64_t drives;              /* counts callers' turns */
    bool background_polls;        /* the background thread is in the poll set, or about to be */
    uint64_t background_until_ns; /* ... and looks at the core's timers no later than this */
    bool stopping, forked;
    uint32_t cores;   /* this process may run on */
    uint64_t spin_ns; /* how long a driver spins before it sleeps: halved when in vain, doubled when not */
    uint32_t spins_skipped;
    uint32_t turns_unpolled; /* since the poll set was asked */
};

/* Under the lock: after anything that may have ended operations or made events. */
void pccl__engine_publish(struct pccl_engine *engine, uint32_t ended_before);
/* Drives or sleeps until the operation has ended or deadline_ns is reached, then sees that what is left under way is
 * somebody's business. Called with the lock held. */
void pccl__engine_wait(struct pccl_engine *engine, struct pccl_operation *operation, uint64_t deadline_ns);
/* Work appeared and no caller will wait for it: sees that the background thread polls with the right timeout. */
void pccl__engine_kick(struct pccl_engine *engine);
/* Under the lock, after progress by a thread that will not sleep in the poll set: what it took from shared memory, or
 * could not put there, may be what another thread sleeps for. True: that one has to be kicked. */
bool pccl__engine_look(struct pccl_engine *engine, bool sleeping);
void *pccl__engine_main(void *engine);

#endif
