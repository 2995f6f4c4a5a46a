/* SPDX-License-Identifier: MIT
 *
 * pccl.c - the public functions: lock, core, unlock.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/status.h"
#include "channel/tcp.h"
#include "engine/engine.h"

static uint32_t or_default(uint32_t value, uint32_t otherwise) { return value ? value : otherwise; }

static pccl_status new_parts(const pccl_options *options, pccl_engine *engine, pccl_error *error) {
    struct pccl__core_options core = {.id = options->id,
                                      .min_world_size = or_default(options->min_world_size, 2),
                                      .segment_bytes = options->segment_bytes,
                                      .operation_timeout_ms = or_default(options->operation_timeout_ms, 300000),
                                      .stall_ms = or_default(options->stall_ms, 100)};
    struct pccl__tcp_options tcp = {.id = options->id,
                                    .listen_address = options->listen_address ? options->listen_address : "127.0.0.1",
                                    .listen_port = options->listen_port,
                                    .stripes = options->stripes,
                                    .connect_timeout_ms = or_default(options->connect_timeout_ms, 10000),
                                    .checksum = options->checksum,
                                    .host_id = options->host_id,
                                    .no_sharing = options->shared_memory == 1,
                                    .rdma = options->rdma,
                                    .rdma_device = options->rdma_device};
    memcpy(tcp.run_secret, options->run_secret, sizeof tcp.run_secret);
    if (!tcp.no_sharing) pccl__arena_open(&engine->arena);
    tcp.arena = core.arena = engine->arena.at ? &engine->arena : NULL;
    engine->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (engine->event_fd < 0) return pccl__fail(error, PCCL_SYSTEM, "cannot make an event descriptor");
    pccl_status status = pccl__poll_new(&engine->poll);
    if (status != PCCL_OK) return pccl__fail(error, status, "cannot make a poll set");
    status = pccl__tcp_transport_new(&tcp, engine->poll, &engine->transport, error);
    if (status != PCCL_OK) return status;
    engine->port = pccl__tcp_transport_port(engine->transport);
    status = pccl__core_new(&core, engine->transport, &engine->core);
    if (status == PCCL_OK) engine->core->callers = &engine->door.waiting;
    return status == PCCL_OK ? PCCL_OK : pccl__fail(error, status, "no memory for an engine");
}

static void free_parts(pccl_engine *engine) {
    if (engine->core) pccl__core_free(engine->core);
    if (engine->transport) engine->transport->ops->free(engine->transport);
    if (engine->poll) pccl__poll_free(engine->poll);
    if (engine->event_fd >= 0) close(engine->event_fd);
    pccl__arena_close(&engine->arena);
    engine->core = NULL;
}

/* The door itself is the last to go: whoever frees an operation comes through it, also while the engine is freed. */
static void free_door(pccl_engine *engine) {
    pthread_cond_destroy(&engine->ended);
    pthread_cond_destroy(&engine->parked);
    pthread_mutex_destroy(&engine->ended_mutex);
    pccl__door_destroy(&engine->door);
    free(engine);
}

pccl_status pccl_engine_new(const pccl_options *options, pccl_engine **out, pccl_error *error) {
    if (!options || !out) return pccl__fail(error, PCCL_INVALID, "options and engine must not be NULL");
    if (options->segment_bytes > PCCL__TRANSFER_BYTES)
        return pccl__fail(error, PCCL_INVALID, "segments of %u bytes (at most %d)", options->segment_bytes,
                          PCCL__TRANSFER_BYTES);
    pccl_engine *engine = calloc(1, sizeof *engine);
    if (!engine) return pccl__fail(error, PCCL_NO_MEMORY, "no memory for an engine");
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pccl__door_init(&engine->door);
    pthread_mutex_init(&engine->ended_mutex, NULL);
    pthread_cond_init(&engine->ended, &monotonic);
    pthread_cond_init(&engine->parked, &monotonic);
    pthread_condattr_destroy(&monotonic);
    engine->id = options->id;
    engine->spin_ns = PCCL__SPIN_MOST_NS;
    pccl_status status = new_parts(options, engine, error);
    if (status == PCCL_OK && (errno = pthread_create(&engine->thread, NULL, pccl__engine_main, engine)) != 0)
        status = pccl__fail(error, PCCL_SYSTEM, "cannot start the background thread");
    if (status != PCCL_OK) {
        free_parts(engine);
        free_door(engine);
        return status;
    }
    *out = engine;
    return PCCL_OK;
}

void pccl_engine_free(pccl_engine *engine) {
    if (!engine || engine->forked) return; /* a child's copy: see pccl_engine_forked */
    pccl__door_enter(&engine->door);
    engine->stopping = true;
    pthread_cond_signal(&engine->parked);
    pccl__poll_wake(engine->poll);
    pccl__engine_leave(engine);
    pthread_join(engine->thread, NULL);
    pccl__door_enter(&engine->door);
    free_parts(engine);
    bool unused = engine->handles == 0;
    pccl__engine_leave(engine);
    if (unused) free_door(engine);
}

void pccl_engine_forked(pccl_engine *engine) {
    /* The lock's state was copied from the parent in mid-flight and the thread does not exist here: touch neither. */
    engine->forked = true;
    pccl__poll_forked(engine->poll);
    close(engine->event_fd);
    engine->event_fd = -1;
    pccl__arena_forked(&engine->arena);
}

uint16_t pccl_engine_port(const pccl_engine *engine) { return engine->port; }
int pccl_engine_event_fd(const pccl_engine *engine) { return engine->event_fd; }

/* ---------------------------------------------------------------- under the lock */

/* Runs what the call made possible, tells who sleeps, and makes sure that somebody polls. `kick`: whoever does is told
 * in any case. */
static void leave(pccl_engine *engine, uint32_t ended_before, bool kick) {
    pccl__core_step(engine->core, clock_now_ns());
    pccl__engine_publish(engine, ended_before);
    if (kick)
        pccl__engine_kick(engine);
    else
        pccl__engine_tend(engine, ended_before);
    pccl__engine_leave(engine);
}

static pccl_status refuse_child(pccl_error *error) {
    return pccl__fail(error, PCCL_CLOSED, "this communicator belongs to the parent process");
}

pccl_status pccl_engine_install(pccl_engine *engine, const pccl_view *view, pccl_error *error) {
    if (!pccl__engine_enter(engine)) return refuse_child(error);
    uint32_t before = engine->core->ended_count;
    pccl_status status = pccl__core_install(engine->core, view, clock_now_ns(), error);
    leave(engine, before, true);
    return status;
}

void pccl_engine_halt(pccl_engine *engine, pccl_status status, const char *text) {
    if (!pccl__engine_enter(engine)) return;
    uint32_t before = engine->core->ended_count;
    pccl__core_halt(engine->core, status, text);
    leave(engine, before, true);
}

void pccl_engine_freeze(pccl_engine *engine, uint64_t epoch) {
    if (!pccl__engine_enter(engine)) return;
    uint32_t before = engine->core->ended_count;
    if (epoch == engine->core->group.epoch)
        pccl__core_freeze(engine->core, PCCL_ABORTED, NULL, "the master stopped this epoch");
    leave(engine, before, true);
}

void pccl_engine_dial(pccl_engine *engine, uint64_t epoch, pccl_peer_id peer) {
    if (!pccl__engine_enter(engine)) return;
    uint32_t before = engine->core->ended_count;
    pccl__core_dial(engine->core, epoch, &peer);
    leave(engine, before, true);
}

pccl_status pccl_scope_of(pccl_engine *engine, uint64_t epoch, const uint32_t *ranks, uint32_t count, uint64_t *scope,
                          pccl_error *error) {
    if (!pccl__engine_enter(engine)) return refuse_child(error);
    struct pccl__group *group = &engine->core->group;
    pccl_status status = PCCL_OK;
    if (group->epoch == 0 || epoch > group->epoch)
        status = pccl__fail(error, PCCL_INVALID, "no view of epoch %llu is installed yet", (unsigned long long)epoch);
    else if (epoch < group->since)
        status = pccl__fail(error, PCCL_PEER_LOST, "the group changed since epoch %llu: ranks mean other members now",
                            (unsigned long long)epoch);
    else
        status = pccl__group_scope(group, ranks, count, scope, error);
    pccl__engine_leave(engine);
    return status;
}

size_t pccl_scope_ranks(pccl_engine *engine, uint64_t scope, uint32_t *ranks, size_t capacity) {
    if (!pccl__engine_enter(engine)) return 0;
    const struct pccl__team *team = pccl__team_find(&engine->core->group, scope);
    size_t count = team && scope ? team->size : 0;
    for (size_t i = 0; i < count && i < capacity; i++) ranks[i] = team->members[i];
    pccl__engine_leave(engine);
    return count;
}

pccl_status pccl_engine_report(pccl_engine *engine, uint64_t epoch, pccl_report_line *lines, size_t capacity,
                               size_t *count) {
    if (!pccl__engine_enter(engine)) return PCCL_CLOSED;
    pccl_status status = pccl__core_report(engine->core, epoch, lines, capacity, count);
    pccl__engine_leave(engine);
    return status;
}

int pccl_engine_has_started(pccl_engine *engine, uint64_t epoch, pccl_operation_name name) {
    if (!pccl__engine_enter(engine)) return -1;
    int started = pccl__core_has_started(engine->core, epoch, name);
    pccl__engine_leave(engine);
    return started;
}

size_t pccl_engine_trace(pccl_engine *engine, pccl_record *records, size_t capacity) {
    if (!pccl__engine_enter(engine)) return 0;
    size_t count = pccl__recorder_read(engine->core, clock_now_ns(), records, capacity);
    pccl__engine_leave(engine);
    return count;
}

uint32_t pccl_engine_pending(pccl_engine *engine) {
    if (!pccl__engine_enter(engine)) return 0;
    uint32_t pending = pccl__core_pending(engine->core);
    pccl__engine_leave(engine);
    return pending;
}

static void leave_told(pccl_engine *engine) {
    if (pccl__events_empty(&engine->core->events) && engine->event_shown) {
        uint64_t ignored;
        engine->event_shown = read(engine->event_fd, &ignored, sizeof ignored) != sizeof ignored;
    }
    pccl__engine_leave(engine);
}

int pccl_engine_next_event(pccl_engine *engine, pccl_event *event) {
    if (!pccl__engine_enter(engine)) return 0;
    bool taken = pccl__events_take(&engine->core->events, event);
    leave_told(engine);
    return taken;
}

size_t pccl_engine_take_ended(pccl_engine *engine, uint64_t *tokens, size_t capacity) {
    if (!pccl__engine_enter(engine)) return 0;
    size_t count = pccl__events_take_tokens(&engine->core->events, tokens, capacity);
    leave_told(engine);
    return count;
}

void pccl_prompt(pccl_operation *op) {
    pccl_engine *engine = op->engine;
    if (!pccl__engine_enter(engine)) return;
    op->prompt = true;
    if (engine->core) {
        if (op->ended && engine->core->events.tokens_count > 0) engine->core->events.tell_ns = 0;
        pccl__engine_publish(engine, engine->core->ended_count);
    }
    pccl__engine_leave(engine);
}

/* ---------------------------------------------------------------- operations */

/* Under the lock, or for success. */
static pccl_status outcome(const pccl_operation *op, pccl_info *info, pccl_error *error) {
    if (op->status != PCCL_OK) {
        if (op->core && !(op->call.flags & PCCL_HOLD_TAG))
            pccl__unseen_seen(&op->core->unseen, op->call.tag, op->lost_epoch);
        pccl__fail(error, op->status, "%s", op->text);
        if (error) error->epoch = op->lost_epoch;
        return op->status;
    }
    if (info) *info = op->info;
    return PCCL_OK;
}

/* Under the lock. */
static void hand_out(pccl_engine *engine, pccl_operation *op) {
    op->engine = engine;
    engine->handles++;
}

/* Under the lock. */
static void take_back(pccl_engine *engine, pccl_operation *op) {
    pccl__core_handle_free(op);
    engine->handles--;
}

static uint64_t deadline_after(int64_t timeout_ms) {
    uint64_t now = clock_now_ns(), ns;
    if (timeout_ms < 0 || mul_overflows((uint64_t)timeout_ms, NS_PER_MS, &ns) || ns > NEVER_NS - now) return NEVER_NS;
    return now + ns;
}

pccl_status pccl_start(pccl_engine *engine, const pccl_call *call, pccl_operation **operation, pccl_error *error) {
    if (!pccl__engine_enter(engine)) return refuse_child(error);
    uint32_t before = engine->core->ended_count;
    engine->started_ns = clock_now_ns();
    pccl_status status = pccl__core_start(engine->core, call, engine->started_ns, operation, error);
    if (status == PCCL_OK) hand_out(engine, *operation);
    leave(engine, before, false);
    return status;
}

pccl_status pccl_wait(pccl_operation *op, int64_t timeout_ms, pccl_info *info, pccl_error *error) {
    pccl_engine *engine = op->engine;
    if (pccl_done(op) && op->status == PCCL_OK) return outcome(op, info, error);
    if (!pccl__engine_enter(engine)) return refuse_child(error);
    if (engine->core) pccl__engine_wait(engine, op, deadline_after(timeout_ms)); /* else it has ended */
    pccl_status status = PCCL_PENDING;
    if (op->ended) status = outcome(op, info, error);
    pccl__engine_leave(engine);
    if (status != PCCL_PENDING) return status;
    return engine->forked ? refuse_child(error)
                          : pccl__fail(error, PCCL_PENDING, "still running after %lld ms", (long long)timeout_ms);
}

pccl_status pccl_run(pccl_engine *engine, const pccl_call *call, int64_t timeout_ms, pccl_operation **operation,
                     pccl_info *info, pccl_error *error) {
    *operation = NULL;
    if (!pccl__engine_enter(engine)) return refuse_child(error);
    pccl_operation *op = NULL;
    uint64_t now = clock_now_ns();
    uint32_t before = engine->core->ended_count;
    pccl_status status = pccl__core_start(engine->core, call, now, &op, error);
    if (status == PCCL_OK) {
        hand_out(engine, op);
        pccl__core_step(engine->core, now);
        pccl__engine_publish(engine, before);
        if (engine->driving) pccl__engine_tend(engine, before); /* else we do it ourselves */
        pccl__engine_wait(engine, op, deadline_after(timeout_ms));
        status = op->ended ? outcome(op, info, error)
                           : pccl__fail(error, PCCL_PENDING, "still running after %lld ms", (long long)timeout_ms);
        if (op->ended)
            take_back(engine, op);
        else
            *operation = op;
    }
    pccl__engine_leave(engine);
    return status;
}

void pccl_release_tag(pccl_engine *engine, uint64_t tag, uint64_t epoch) {
    if (!pccl__engine_enter(engine)) return;
    pccl__unseen_seen(&engine->core->unseen, tag, epoch);
    pccl__engine_leave(engine);
}

void pccl_release_tags(pccl_engine *engine, uint64_t epoch) {
    if (!pccl__engine_enter(engine)) return;
    struct pccl__core *core = engine->core;
    pccl__unseen_all_seen(&core->unseen, epoch);
    if (core->deferred.broken && epoch + 1 >= core->group.epoch) core->deferred.open = core->deferred.broken = false;
    pccl__engine_leave(engine);
}

int pccl_done(pccl_operation *op) { return atomic_load_explicit(&op->ended, memory_order_acquire); }

void pccl_operation_free(pccl_operation *op) {
    if (!op) return;
    pccl_engine *engine = op->engine;
    if (!pccl__engine_enter(engine)) return;
    take_back(engine, op);
    bool last = engine->handles == 0 && !engine->core;
    pccl__engine_leave(engine);
    if (last) free_door(engine);
}

void pccl_describe(pccl_operation *op, char *text, size_t text_bytes) {
    pccl_engine *engine = op->engine;
    bool entered = pccl__engine_enter(engine);
    if (entered && engine->core)
        pccl__core_describe(engine->core, op, clock_now_ns(), text, text_bytes);
    else
        snprintf(text, text_bytes, "an operation of a communicator that is closed");
    if (entered) pccl__engine_leave(engine);
}

static double coding_speed;

/* Some values there and back, three times: others may have had the core. */
static void measure_coding(void) {
    enum { VALUES = 32768, TRIES = 3 };
    float *values = calloc(VALUES, sizeof *values);
    uint8_t *wire = malloc(2 * VALUES);
    const struct pccl__codec codec = pccl__codec_of(&(pccl_quantization){.format = PCCL_INT8_BLOCK});
    struct pccl__fold encode = {
        .codec = &codec, .elements = VALUES, .left = {.values = values, .dtype = PCCL_FLOAT32}, .wire = wire};
    struct pccl__fold decode = {
        .codec = &codec, .elements = VALUES, .left = {.wire = wire}, .values = values, .dtype = PCCL_FLOAT32};
    for (int i = 0; values && wire && i < TRIES; i++) {
        uint64_t begin_ns = clock_now_ns();
        pccl__kernels()->fold(&encode);
        pccl__kernels()->fold(&decode);
        double speed = (double)(VALUES * sizeof *values) / (double)max_u64(clock_now_ns() - begin_ns, 1);
        if (speed > coding_speed) coding_speed = speed;
    }
    free(values);
    free(wire);
}

pccl_status pccl_explain(pccl_engine *engine, const pccl_call *call, char *text, size_t text_bytes, pccl_error *error) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, measure_coding);
    if (!pccl__engine_enter(engine)) return refuse_child(error);
    pccl_status status = pccl__core_explain(engine->core, call, coding_speed, text, text_bytes, error);
    pccl__engine_leave(engine);
    return status;
}

/* ---------------------------------------------------------------- shared state */

pccl_status pccl_state_serve(pccl_engine *engine, uint64_t sync_id, const pccl_region *regions, uint32_t count,
                             pccl_error *error) {
    if (!pccl__engine_enter(engine)) return refuse_child(error);
    uint32_t before = engine->core->ended_count;
    pccl_status status = pccl__core_serve(engine->core, sync_id, regions, count, error);
    leave(engine, before, true);
    return status;
}

void pccl_state_stop(pccl_engine *engine, uint64_t sync_id) {
    if (!pccl__engine_enter(engine)) return;
    uint32_t before = engine->core->ended_count;
    pccl__core_stop_state(engine->core, sync_id);
    leave(engine, before, true); /* whoever drives may have waited for a fetch that this ended */
}

pccl_status pccl_state_fetch(pccl_engine *engine, uint64_t sync_id, pccl_peer_id peer, uint32_t region, uint64_t offset,
                             uint64_t bytes, void *target, uint32_t timeout_ms, pccl_operation **operation,
                             pccl_error *error) {
    if (!pccl__engine_enter(engine)) return refuse_child(error);
    uint32_t before = engine->core->ended_count;
    pccl_status status = pccl__core_fetch(engine->core, sync_id, peer, region, offset, bytes, target, timeout_ms,
                                          clock_now_ns(), operation, error);
    if (status == PCCL_OK) hand_out(engine, *operation);
    leave(engine, before, false);
    return status;
}
