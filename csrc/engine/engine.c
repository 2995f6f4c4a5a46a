/* SPDX-License-Identifier: MIT */
#include "engine/engine.h"

#include <errno.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"

enum { PARK_TICK_MS = 5, SPIN_US = 100 };

static void timed_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t deadline_ns) {
    if (deadline_ns == NEVER_NS) {
        pthread_cond_wait(condition, mutex);
        return;
    }
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / UINT64_C(1000000000)),
                             .tv_nsec = (long)(deadline_ns % UINT64_C(1000000000))};
    pthread_cond_timedwait(condition, mutex, &until); /* the conditions use CLOCK_MONOTONIC */
}

void pccl__engine_publish(struct pccl_engine *engine, uint32_t ended_before) {
    if (engine->core->ended_count != ended_before && engine->sleepers > 0) pthread_cond_broadcast(&engine->ended);
    if (pccl__events_empty(&engine->core->events) || engine->event_shown) return;
    uint64_t one = 1;
    engine->event_shown = write(engine->event_fd, &one, sizeof one) == sizeof one;
}

/* One turn: sleeps up to timeout_ns outside the lock, then moves the core on. */
static int turn(struct pccl_engine *engine, uint64_t timeout_ns) {
    struct pccl__ready ready[PCCL__POLL_BATCH];
    pthread_mutex_unlock(&engine->mutex);
    int count = pccl__poll_wait(engine->poll, timeout_ns, ready);
    pthread_mutex_lock(&engine->mutex);
    if (engine->forked) return 0;
    uint32_t before = engine->core->ended_count;
    pccl__poll_dispatch(engine->poll, ready, count);
    pccl__core_progress(engine->core, clock_now_ns());
    pccl__engine_publish(engine, before);
    return count;
}

static uint64_t until(uint64_t deadline_ns, uint64_t now_ns) {
    return deadline_ns == NEVER_NS ? NEVER_NS : deadline_ns > now_ns ? deadline_ns - now_ns : 0;
}

/* Spinning pays when every member on this host can have a core of its own. */
static bool may_spin(const struct pccl_engine *engine) {
    return engine->core->group.host_members <= engine->cores && engine->sleepers == 0;
}

static void drive(struct pccl_engine *engine, struct pccl_operation *op, uint64_t deadline_ns) {
    uint64_t spin_until = 0;
    engine->driving = true;
    engine->drives++;
    uint64_t now = clock_now_ns();
    while (!op->ended && !engine->forked && now < deadline_ns) {
        if (spin_until == 0) spin_until = may_spin(engine) ? now + SPIN_US * UINT64_C(1000) : now;
        uint64_t limit = min_u64(deadline_ns, pccl__core_deadline(engine->core));
        int count = turn(engine, now < spin_until ? 0 : until(limit, now));
        now = clock_now_ns();
        if (count > 0) spin_until = 0;
    }
    engine->driving = false;
    if (engine->sleepers > 0) pthread_cond_broadcast(&engine->ended);
    else if (pccl__core_busy(engine->core)) pccl__engine_kick(engine);
}

void pccl__engine_wait(struct pccl_engine *engine, struct pccl_operation *op, uint64_t deadline_ns) {
    while (!op->ended && !engine->forked && clock_now_ns() < deadline_ns) {
        if (!engine->driving) {
            drive(engine, op, deadline_ns);
            continue;
        }
        engine->sleepers++;
        timed_wait(&engine->ended, &engine->mutex, deadline_ns);
        engine->sleepers--;
    }
}

void pccl__engine_kick(struct pccl_engine *engine) {
    if (engine->driving || engine->background_polls) {
        pccl__poll_wake(engine->poll);
    } else {
        engine->background_polls = true;
        pthread_cond_signal(&engine->parked);
    }
}

/* Waits while callers drive, and one tick longer. Returns when it is the background thread's turn. */
static void park(struct pccl_engine *engine) {
    engine->background_polls = false;
    uint64_t seen;
    do {
        seen = engine->drives;
        timed_wait(&engine->parked, &engine->mutex, clock_now_ns() + PARK_TICK_MS * NS_PER_MS);
        if (engine->background_polls && !engine->driving) break; /* kicked */
    } while (!engine->stopping && (engine->driving || engine->drives != seen));
    engine->background_polls = true;
}

void *pccl__engine_main(void *argument) {
    struct pccl_engine *engine = argument;
    pthread_mutex_lock(&engine->mutex);
    engine->background_polls = true;
    uint64_t seen = engine->drives;
    while (!engine->stopping) {
        if (engine->driving || engine->drives != seen) {
            pccl__poll_wake(engine->poll); /* a wake meant for the driver may have ended our own sleep */
            park(engine);
            seen = engine->drives;
            continue;
        }
        turn(engine, until(pccl__core_deadline(engine->core), clock_now_ns()));
    }
    pthread_mutex_unlock(&engine->mutex);
    return NULL;
}
