/* SPDX-License-Identifier: MIT */
#include "engine/engine.h"

#include <errno.h>
#include <sched.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"

enum {
    PARK_TICK_MS = 5,
    BURST_NS = 60 * 1000, /* calls that come so soon after each other are a burst; some 20 us apart from Python */
    REST_NS = 100 * 1000,
    SPIN_LEAST_NS = 32 * 1000,
    SPIN_RETRY = 64,
    SHARED_LOOKS_NS = 40 * 1000,
    POLL_EVERY_NS = 20 * 1000,
    YIELD_EVERY_NS = 50 * 1000,
    GUESSES_MOST = 2
};

static void timed_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t deadline_ns) {
    if (deadline_ns == NEVER_NS) {
        pthread_cond_wait(condition, mutex);
        return;
    }
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / UINT64_C(1000000000)),
                             .tv_nsec = (long)(deadline_ns % UINT64_C(1000000000))};
    pthread_cond_timedwait(condition, mutex, &until); /* the conditions use CLOCK_MONOTONIC */
}

bool pccl__engine_enter(struct pccl_engine *engine) {
    if (engine->forked) return false;
    pccl__door_enter(&engine->door);
    return true;
}

void pccl__engine_leave(struct pccl_engine *engine) { pccl__door_leave(&engine->door); }

static void wake_sleepers(struct pccl_engine *engine) {
    if (engine->sleepers == 0) return;
    pthread_mutex_lock(&engine->ended_mutex);
    engine->endings++;
    pthread_cond_broadcast(&engine->ended);
    pthread_mutex_unlock(&engine->ended_mutex);
}

/* The lock is free meanwhile. What ends from now on wakes us: `sleepers` says that we are coming. */
static void sleep_until_news(struct pccl_engine *engine, uint64_t deadline_ns) {
    engine->sleepers++;
    pthread_mutex_lock(&engine->ended_mutex);
    pccl__door_leave(&engine->door);
    for (uint64_t seen = engine->endings; engine->endings == seen && clock_now_ns() < deadline_ns;)
        timed_wait(&engine->ended, &engine->ended_mutex, deadline_ns);
    pthread_mutex_unlock(&engine->ended_mutex);
    pccl__door_enter(&engine->door);
    engine->sleepers--;
}

void pccl__engine_publish(struct pccl_engine *engine, uint32_t ended_before) {
    if (engine->core->ended_count != ended_before) wake_sleepers(engine);
    struct pccl__events *events = &engine->core->events;
    if (!pccl__events_due(events, engine->core->now_ns)) return;
    events->tell_ns = NEVER_NS; /* all that are there are told with it */
    if (engine->event_shown) return;
    uint64_t one = 1;
    engine->event_shown = write(engine->event_fd, &one, sizeof one) == sizeof one;
}

static bool look(struct pccl_engine *engine, bool sleeping) {
    struct pccl__transport *transport = engine->transport;
    return transport->looks > 0 && transport->ops->look(transport, sleeping);
}

/* Does somebody else move the core on? For the background thread. */
static bool looked_after(const struct pccl_engine *engine) {
    return engine->driving || clock_now_ns() - engine->started_ns < BURST_NS;
}

/* Moves the core on. */
static void progress(struct pccl_engine *engine, uint64_t now_ns) {
    uint32_t before = engine->core->ended_count;
    pccl__core_progress(engine->core, now_ns);
    pccl__engine_publish(engine, before);
}

/* One turn: sleeps up to timeout_ns outside the lock, then moves the core on. True: there was news. */
static bool turn(struct pccl_engine *engine, uint64_t timeout_ns, bool background) {
    struct pccl__ready ready[PCCL__POLL_BATCH];
    bool news = look(engine, timeout_ns > 0);
    pccl__door_leave(&engine->door);
    int count = pccl__poll_wait(engine->poll, news ? 0 : timeout_ns, ready);
    pccl__door_enter(&engine->door);
    if (engine->forked || (background && looked_after(engine))) return false; /* what is ready stays so */
    pccl__poll_dispatch(engine->poll, ready, count);
    engine->polled_ns = clock_now_ns();
    progress(engine, engine->polled_ns);
    return news || count > 0;
}

/* A driver's turn that does not sleep and asks the poll set only now and then: for other links, wake-ups, the end of a
 * process. Memory is looked at, and so few sockets are simply read: in vain that costs what asking for them would, and
 * else it saves the call. */
static bool glance(struct pccl_engine *engine, uint64_t now_ns) {
    struct pccl__transport *transport = engine->transport;
    bool known = transport->looks + transport->sockets > 0 && transport->sockets <= GUESSES_MOST;
    if (!known || now_ns - engine->polled_ns >= POLL_EVERY_NS) return turn(engine, 0, false);
    pccl__door_give_way(&engine->door);
    uint64_t before = transport->arrived_bytes;
    bool news = look(engine, false);
    if (!news && transport->sockets == 0 && pccl__core_deadline(engine->core) > now_ns) return false;
    if (transport->sockets > 0) transport->ops->guess(transport);
    progress(engine, now_ns);
    return news || transport->arrived_bytes != before;
}

static uint64_t until(uint64_t deadline_ns, uint64_t now_ns) {
    return deadline_ns == NEVER_NS ? NEVER_NS : deadline_ns > now_ns ? deadline_ns - now_ns : 0;
}

static bool shares_cores(const struct pccl_engine *engine) {
    return engine->core->group.whole && engine->core->group.whole->crowded;
}

/* Spinning pays when every member on this host can have a core of its own, and lately it brought something: other load,
 * or long waits, make it vain. After SPIN_RETRY sleeps it is tried again, for long enough that a member that sleeps can
 * be woken and answer: else two of them would go on waking each other for good. Where members share cores it is only a
 * few looks that each give the core away first: a peer that is ready runs without the price of a sleep and a wake-up,
 * which counts most for small operations. */
static uint64_t spin_time(struct pccl_engine *engine, const struct pccl_operation *op) {
    if (engine->sleepers > 0) return 0;
    if (shares_cores(engine)) return op->segments <= 1 ? SHARED_LOOKS_NS : SHARED_LOOKS_NS / 4;
    if (engine->spin_ns >= SPIN_LEAST_NS) return engine->spin_ns;
    if (++engine->spins_skipped < SPIN_RETRY) return 0;
    engine->spins_skipped = 0;
    return SPIN_LEAST_NS;
}

static void learn_spin(struct pccl_engine *engine, bool useful) {
    if (shares_cores(engine)) return;
    engine->spin_ns =
        useful ? min_u64(max_u64(engine->spin_ns, SPIN_LEAST_NS) * 2, PCCL__SPIN_MOST_NS) : engine->spin_ns / 2;
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Between two glances. Where members share cores the core is given away each time, and while the background thread has
 * to learn that it may park. Else seldom: the other side may have been put on this core, but whatever else waits for it
 * would keep it for milliseconds. */
static void make_way(struct pccl_engine *engine, uint64_t now_ns) {
    bool yields = shares_cores(engine) || (engine->background_polls && !engine->background_rests);
    if (!yields && now_ns - engine->yielded_ns < YIELD_EVERY_NS) {
        relax();
        return;
    }
    pccl__door_leave(&engine->door);
    sched_yield();
    pccl__door_enter(&engine->door);
    engine->yielded_ns = now_ns;
}

/* Sleeps until something is ready, with a spin before. Whatever a turn did may have ended the operation (a wake-up that
 * it consumed announced just that), so nobody sleeps without looking again. */
static void next_event(struct pccl_engine *engine, const struct pccl_operation *op, uint64_t now_ns,
                       uint64_t limit_ns) {
    uint64_t spin_ns = spin_time(engine, op), spin_until = min_u64(now_ns + spin_ns, limit_ns);
    engine->yielded_ns = now_ns;
    while (now_ns < spin_until) {
        bool useful = glance(engine, now_ns);
        if (useful) learn_spin(engine, true);
        if (useful || op->ended || engine->forked) return;
        make_way(engine, now_ns);
        now_ns = clock_now_ns();
    }
    if (spin_ns > 0) learn_spin(engine, false);
    engine->driver_until_ns = min_u64(limit_ns, pccl__core_deadline(engine->core));
    turn(engine, until(engine->driver_until_ns, now_ns), false);
    engine->driver_until_ns = 0;
}

static void drive(struct pccl_engine *engine, struct pccl_operation *op, uint64_t deadline_ns) {
    engine->driving = true;
    engine->drives++;
    engine->core->awaited = op;
    for (uint64_t now; !op->ended && !engine->forked && (now = clock_now_ns()) < deadline_ns;)
        next_event(engine, op, now, deadline_ns);
    engine->core->awaited = NULL;
    engine->driving = false;
    wake_sleepers(engine);
}

/* What an operation had to say when it ended may still stand in a channel, and others wait for it: it goes before the
 * caller does, who may not come back for long. */
static void last_word(struct pccl_engine *engine) {
    uint64_t now_ns = engine->core->now_ns;
    if (pccl__core_deadline(engine->core) > now_ns) return;
    uint32_t before = engine->core->ended_count;
    pccl__core_step(engine->core, now_ns);
    pccl__engine_publish(engine, before);
}

void pccl__engine_wait(struct pccl_engine *engine, struct pccl_operation *op, uint64_t deadline_ns) {
    while (!op->ended && !engine->forked && clock_now_ns() < deadline_ns) {
        if (engine->driving)
            sleep_until_news(engine, deadline_ns);
        else
            drive(engine, op, deadline_ns);
    }
    if (engine->driving || engine->sleepers > 0 || engine->forked) return;
    last_word(engine);
    pccl__engine_tend(engine, engine->core->ended_count);
}

void pccl__engine_kick(struct pccl_engine *engine) {
    if (engine->driving || engine->background_polls) {
        pccl__poll_wake(engine->poll);
    } else {
        engine->background_polls = true;
        pthread_cond_signal(&engine->parked);
    }
}

/* Who sleeps in the poll set hears of descriptors by itself, but knows no timer that came since it went there, nothing
 * of shared memory that we have looked at instead, and not that what it waits for has ended by our doing. A parked
 * background thread looks soon by itself, which is late only for operations under way. */
void pccl__engine_tend(struct pccl_engine *engine, uint32_t ended_before) {
    if (engine->background_rests && !engine->driving) return;
    bool polls = engine->driving || engine->background_polls;
    uint64_t until_ns = engine->driving ? engine->driver_until_ns : engine->background_until_ns;
    bool sooner = pccl__core_deadline(engine->core) < until_ns;
    bool ended = engine->driving && engine->core->ended_count != ended_before;
    if (polls ? look(engine, true) || sooner || ended : pccl__core_busy(engine->core)) pccl__engine_kick(engine);
}

/* Waits while callers drive, and one tick longer. Returns when it is the background thread's turn. */
static void park(struct pccl_engine *engine) {
    engine->background_polls = false;
    uint64_t seen;
    do {
        seen = engine->drives;
        timed_wait(&engine->parked, &engine->door.inside, clock_now_ns() + PARK_TICK_MS * NS_PER_MS);
        if (engine->background_polls && !engine->driving) break; /* kicked */
    } while (!engine->stopping && (engine->driving || engine->drives != seen));
    engine->background_polls = true;
}

static void rest(struct pccl_engine *engine) {
    engine->background_rests = true;
    timed_wait(&engine->parked, &engine->door.inside, clock_now_ns() + REST_NS);
    engine->background_rests = false;
}

void *pccl__engine_main(void *argument) {
    struct pccl_engine *engine = argument;
    pccl__door_enter(&engine->door);
    engine->background_polls = true;
    uint64_t seen = engine->drives;
    while (!engine->stopping) {
        if (engine->driving || engine->drives != seen) {
            pccl__poll_wake(engine->poll); /* a wake meant for the driver may have ended our own sleep */
            park(engine);
            seen = engine->drives;
            continue;
        }
        if (looked_after(engine)) {
            rest(engine);
            continue;
        }
        engine->background_until_ns = pccl__core_deadline(engine->core);
        turn(engine, until(engine->background_until_ns, clock_now_ns()), true);
    }
    pccl__door_leave(&engine->door);
    return NULL;
}
