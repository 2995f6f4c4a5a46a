/* SPDX-License-Identifier: MIT */
#include "engine/core.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"
#include "engine/match.h"
#include "engine/operands.h"

enum {
    PASSES_MAX = 16,              /* of one progress, ... */
    PROGRESS_BYTES = 1024 * 1024, /* ... as long as no more came; then the caller may look at the clock, and who died */
    REFUSED_EVERY_MS = 10000
};

/* ---------------------------------------------------------------- operations */

_Static_assert(sizeof(struct pccl_operation) < PCCL__POOL_SHARED_LEAST, "a forked child has its handles");

struct pccl_operation *pccl__operation_new(struct pccl__core *core, const pccl_call *call) {
    if (!pccl__unseen_reserve(&core->unseen, core->open_calls + 1)) return NULL;
    struct pccl_operation *op = pccl__pool_take(&core->pool, sizeof *op);
    if (!op) return NULL;
    memset(op, 0, offsetof(struct pccl_operation, text));
    op->text[0] = 0;
    op->call = *call;
    if ((call->flags & PCCL_NOTIFY) && !pccl__events_reserve(&core->events)) {
        pccl__pool_put(&core->pool, op, sizeof *op);
        return NULL;
    }
    op->core = core;
    op->handle_held = op->core_held = true;
    list_init(&op->link);
    list_init(&op->unmatched);
    core->open_calls++;
    return op;
}

void pccl__operation_text(const struct pccl_operation *op, char *text, size_t bytes) {
    char what[PCCL__DESCRIPTOR_TEXT];
    if (op->state == PCCL__QUEUED || (!op->started && !pccl__is_pair(op->call.collective))) {
        snprintf(text, bytes, "%s tag %llu, not begun", pccl_collective_name(op->call.collective),
                 (unsigned long long)op->call.tag);
        return;
    }
    if (!op->started) {
        char source[32] = "any rank";
        if (op->call.root != PCCL_ANY_SOURCE) snprintf(source, sizeof source, "rank %u", op->call.root);
        snprintf(text, bytes, "%s(%s[%llu]) tag %llu from %s of epoch %llu", pccl_collective_name(op->call.collective),
                 pccl_dtype_name(op->call.dtype), (unsigned long long)op->call.count, (unsigned long long)op->call.tag,
                 source, (unsigned long long)op->info.epoch);
        return;
    }
    char name[PCCL__NAME_TEXT];
    pccl__stamp_text(&op->stamp, op->call.collective == PCCL_RECV, what);
    pccl__name_text(op->name, op->info.epoch, name);
    snprintf(text, bytes, "%s %s", what, name);
}

/* Frees what nobody needs any more: transfers' memory when the channels let go, the object when both owners did. */
static void shed(struct pccl_operation *op) {
    struct pccl__core *core = op->core;
    if (op->state != PCCL__ENDED || op->borrowed > 0) return;
    if (op->core_held) {
        pccl__exec_release(&core->exec, op);
        pccl__wait_release(core, op);
        list_remove(&op->link);
        list_push_back(&core->held, &op->link);
        op->core_held = false;
    }
    if (op->handle_held) return;
    list_remove(&op->link);
    pccl__pool_put(&core->pool, op, sizeof *op);
}

void pccl__core_handle_free(struct pccl_operation *op) {
    op->handle_held = false;
    if (op->core && op->state == PCCL__ENDED && op->status != PCCL_OK && !(op->call.flags & PCCL_HOLD_TAG))
        pccl__unseen_seen(&op->core->unseen, op->call.tag, op->lost_epoch);
    if (op->core)
        shed(op);
    else
        free(op);
}

static void cancel_posted(struct pccl_operation *op, pccl_status why) {
    if (!op->is_fetch) {
        pccl__exec_cancel(&op->core->exec, op, why);
        return;
    }
    struct pccl__channel *channel = pccl__group_channel(&op->core->group, &op->fetch_peer);
    if (channel && op->fetch.state == PCCL__POSTED) channel->ops->cancel(channel, &op->fetch, why);
}

/* A commit waits for the deferred operations before it, and not for those after it: others may call them only when the
 * commit has ended. `open` is in the order of the calls. The first commit that can begin its finish phase, or NULL. */
static struct pccl_operation *ready_commit(const struct pccl__core *core) {
    for (struct list *node = core->open.next; node != &core->open; node = node->next) {
        struct pccl_operation *op = LIST_ENTRY(node, struct pccl_operation, link);
        if (op->call.flags & PCCL_DEFERRED) return NULL;
        if (op->call.collective == PCCL_COMMIT && op->state == PCCL__DATA) return op;
    }
    return NULL;
}

static void advance_commits(struct pccl__core *core) {
    struct pccl_operation *op;
    while (!core->frozen && core->halted == PCCL_OK && (op = ready_commit(core))) pccl__operation_advance(op);
}

static void end(struct pccl_operation *op, pccl_status status, const char *format, va_list arguments) {
    CHECK(op->state != PCCL__ENDED);
    struct pccl__core *core = op->core;
    if (status != PCCL_OK) vsnprintf(op->text, sizeof op->text, format, arguments);
    if (op->entry && status == PCCL_OK)
        pccl__tags_returned(&core->tags, op->name, op->entry);
    else if (op->entry) {
        op->entry->operation = NULL;
        op->entry->state = PCCL_DATA_PHASE; /* no verdict may commit elsewhere what has failed here */
    }
    op->entry = NULL;
    pccl__core_goes_on(core, op);
    op->status = status;
    op->state = PCCL__ENDED;
    if (!op->is_fetch)
        pccl__record_operation(&core->recorder, op);
    else if (status != PCCL_OK)
        pccl__record_note(core, PCCL_RECORD_FETCH, status, &op->fetch_peer, op->text);
    heap_remove(&core->timers, &op->timer);
    core->open_calls--;
    core->open_fetches -= op->is_fetch;
    if (op->started) pccl__urgency_end(&core->urgency, op->call.priority);
    core->ended_count++;
    list_remove(&op->unmatched);
    list_remove(&op->link);
    list_push_back(&core->leaving, &op->link);
    if (op->borrowed > 0) cancel_posted(op, status == PCCL_OK ? PCCL_OK : PCCL_ABORTED);
    if (status != PCCL_OK) pccl__operands_restore(op, SIZE_MAX);
    if (op->call.flags & PCCL_NOTIFY) pccl__events_end(&core->events, op->call.token, op->prompt, core->now_ns);
    bool deferred = op->call.flags & PCCL_DEFERRED;
    void (*ended)(void *) = op->call.ended;
    void *context = op->call.context;
    atomic_store_explicit(&op->ended, true, memory_order_release);
    shed(op);
    if (ended) ended(context);
    if (deferred) advance_commits(core);
}

void pccl__operation_end(struct pccl_operation *op, pccl_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    end(op, status, format, arguments);
    va_end(arguments);
}

void pccl__operation_lost(struct pccl_operation *op, uint64_t epoch, pccl_status status, const char *format, ...) {
    struct pccl__core *core = op->core;
    op->lost_epoch = epoch;
    pccl__unseen_add(&core->unseen, op->call.tag, pccl__is_stepwise(op), epoch);
    /* A broken step is told of once, by any of its calls: else this caller would repeat it once more than others. */
    if (pccl__is_stepwise(op) && core->deferred.broken) core->deferred.broken = core->deferred.open = false;
    va_list arguments;
    va_start(arguments, format);
    end(op, status, format, arguments);
    va_end(arguments);
}

void pccl__operation_advance(struct pccl_operation *op) {
    struct pccl__core *core = op->core;
    if (core->frozen || op->is_fetch) return;
    if (op->state == PCCL__DATA) {
        bool deferred = op->call.flags & PCCL_DEFERRED;
        if (!pccl__exec_data_done(op, deferred)) return;
        if (op->call.collective == PCCL_COMMIT && ready_commit(core) != op) return;
        if (deferred) {
            pccl__operands_publish(op);
            pccl__core_remember(core, op);
            pccl__operation_end(op, PCCL_OK, "success");
            return;
        }
        op->data_done_ns = core->now_ns;
        op->entry->state = PCCL_DATA_DONE;
        op->state = PCCL__FINISH;
        pccl_status status = pccl__exec_begin_finish(&core->exec, op);
        if (status != PCCL_OK) {
            pccl__operation_failed(op, status);
            return;
        }
    }
    if (op->state != PCCL__FINISH || !pccl__exec_finished(op)) return;
    pccl__operands_publish(op);
    pccl__core_step_settled(core, op);
    pccl__operation_end(op, PCCL_OK, "success");
}

void pccl__core_step_settled(struct pccl__core *core, const struct pccl_operation *op) {
    if (op->call.collective == PCCL_COMMIT && op->settles == core->deferred.started) core->deferred.open = false;
}

void pccl__operation_failed(struct pccl_operation *op, pccl_status status) {
    CHECK(status == PCCL_NO_MEMORY || status == PCCL_PEER_LOST);
    if (status == PCCL_PEER_LOST) return; /* the broken channel is found and named by progress */
    char what[PCCL__DESCRIPTOR_TEXT + PCCL__NAME_TEXT], text[PCCL_MESSAGE_BYTES];
    pccl__operation_text(op, what, sizeof what);
    snprintf(text, sizeof text, "rank %u has no memory for %s", op->core->group.rank, what);
    pccl__core_freeze(op->core, PCCL_NO_MEMORY, NULL, text);
}

/* ---------------------------------------------------------------- what channels hand over */

static void fetched(struct pccl_operation *op, const struct pccl__transfer *transfer,
                    const struct pccl__channel *channel) {
    op->info.rx_bytes = transfer->status == PCCL_OK ? transfer->bytes : 0;
    if (transfer->status == PCCL_OK)
        pccl__operation_end(op, PCCL_OK, "success");
    else if (transfer->status == PCCL_MISMATCH)
        pccl__operation_end(op, PCCL_PROTOCOL, "the donor answers with something else than was asked for");
    else
        pccl__operation_end(op, transfer->status, "%s", channel->error.message);
}

static void transfer_done(struct pccl__core *core, struct pccl__channel *channel, struct pccl__transfer *transfer) {
    if (transfer->key.epoch == 0 && transfer->is_send) {
        pccl__core_served(core, transfer);
        return;
    }
    struct pccl_operation *op = transfer->owner;
    op->borrowed--;
    if (op->state == PCCL__ENDED) {
        shed(op);
    } else if (op->is_fetch) {
        fetched(op, transfer, channel);
    } else if (core->frozen) {
        return; /* late frames change nothing */
    } else if (transfer->status == PCCL_OK) {
        op->progressed_ns = core->now_ns;
        op->last_peer = channel->peer;
        pccl_status status = pccl__exec_completed(&core->exec, op, transfer);
        if (status == PCCL_MISMATCH)
            pccl__core_mismatch(core, op, &transfer->stamp, pccl__exec_origin(op, transfer), &transfer->peer_stamp);
        else if (status == PCCL_QUANTIZATION)
            pccl__core_unfit(core, op);
        else if (status != PCCL_OK)
            pccl__operation_failed(op, status);
        else
            pccl__operation_advance(op);
    } else if (transfer->status == PCCL_MISMATCH) {
        pccl__core_mismatch(core, op, &transfer->stamp, pccl__group_rank_of(&core->group, &channel->peer),
                            &transfer->peer_stamp);
    }
}

/* Only who takes part may speak. */
static bool is_for_us(const struct pccl__core *core, uint32_t rank, const struct pccl__key *key) {
    return key->epoch != core->group.epoch || (pccl__team_has(&core->group, key->scope, rank) &&
                                               pccl__team_has(&core->group, key->scope, core->group.rank));
}

static void notice_came(struct pccl__core *core, struct pccl__channel *channel, const struct pccl__notice *notice) {
    uint32_t rank = pccl__group_rank_of(&core->group, &channel->peer);
    if (rank == core->group.size || !is_for_us(core, rank, &notice->key)) return;
    switch (notice->kind) {
    case PCCL__NOTICE_ANNOUNCE:
        pccl__wait_notice(core, rank, notice);
        pccl__core_announced(core, rank, &notice->key, &notice->stamp);
        pccl__match_arrived(core, rank, &notice->key);
        break;
    case PCCL__NOTICE_ARRIVED:
        pccl__core_announced(core, rank, &notice->key, &notice->stamp);
        pccl__core_arrived(core, rank, &notice->key);
        pccl__match_arrived(core, rank, &notice->key);
        break;
    case PCCL__NOTICE_STARTED:
        pccl__wait_notice(core, rank, notice);
        break;
    case PCCL__NOTICE_WANTED:
        pccl__core_wanted(core, channel, notice);
        break;
    case PCCL__NOTICE_REFUSED:
        pccl__core_refused(core, channel, notice);
        break;
    case PCCL__NOTICE_ABORT:
        pccl__core_abort_notice(core, notice);
        break;
    case PCCL__NOTICE_MISMATCH:
        pccl__core_mismatch_notice(core, notice);
        break;
    default:
        break; /* a newer peer's: protocol versions guard meaning, so ignoring is safe */
    }
}

/* Before the transfers, with which a commit may have come: it would settle a step in which members called different
 * things. */
static void compare_arrived(struct pccl__core *core, const struct pccl__channel *channel, const struct list *notices) {
    uint32_t rank = pccl__group_rank_of(&core->group, &channel->peer);
    for (const struct list *node = notices->next; node != notices; node = node->next) {
        const struct pccl__notice *notice = LIST_ENTRY(node, const struct pccl__notice, link);
        if (notice->kind == PCCL__NOTICE_ARRIVED && rank < core->group.size && is_for_us(core, rank, &notice->key))
            pccl__core_compare(core, rank, &notice->key, &notice->stamp);
    }
}

void pccl__core_run_channel(struct pccl__core *core, struct pccl__channel *channel) {
    struct pccl__done done;
    pccl__done_init(&done);
    channel->ops->progress(channel, core->now_ns, &done);
    if (!list_empty(&done.notices)) compare_arrived(core, channel, &done.notices);
    pccl__urgency_sort(&done.transfers);
    struct list *node;
    while ((node = list_pop_front(&done.transfers)))
        transfer_done(core, channel, LIST_ENTRY(node, struct pccl__transfer, link));
    while ((node = list_pop_front(&done.notices))) {
        struct pccl__notice *notice = LIST_ENTRY(node, struct pccl__notice, link);
        if (pccl__match_keeps(core, &channel->peer, notice)) continue;
        notice_came(core, channel, notice);
        pccl__notice_free(notice);
    }
}

void pccl__core_retire(struct pccl__core *core, struct pccl__channel **slot) {
    struct pccl__channel *channel = *slot;
    if (!channel) return;
    pccl__core_forget_wishes(core, &channel->peer);
    channel->ops->close(channel, PCCL_PEER_LOST);
    pccl__core_run_channel(core, channel);
    *slot = NULL;
    channel->ops->free(channel);
}

void pccl__core_notify(struct pccl__core *core, uint32_t kind, const struct pccl__key *key,
                       const struct pccl__stamp *stamp, const void *data, uint32_t bytes) {
    for (uint32_t rank = 0; rank < core->group.size; rank++) {
        struct pccl__channel *channel = core->group.channels[rank];
        if (pccl__group_tells(&core->group, key->scope, rank))
            channel->ops->post_notice(channel, kind, key, stamp, data, bytes);
    }
}

/* ---------------------------------------------------------------- progress */

static bool due(const struct pccl__core *core, bool ready, uint64_t deadline_ns) {
    return ready || deadline_ns <= core->now_ns;
}

static bool run_once(struct pccl__core *core) {
    bool any = false;
    if (due(core, core->transport->ready, core->transport->deadline_ns)) {
        core->transport->ops->progress(core->transport, core->now_ns);
        any = true;
    }
    for (uint32_t rank = 0; rank < core->group.size; rank++) {
        struct pccl__channel *channel = core->group.channels[rank];
        if (!channel || !due(core, channel->ready, channel->deadline_ns)) continue;
        pccl__core_run_channel(core, channel);
        any = true;
    }
    return any;
}

/* A scan or a flood gives one event in a while, not one per connection. */
static void tell_refused(struct pccl__core *core) {
    if (core->transport->refused == core->refused_told || core->now_ns < core->next_refused_ns) return;
    core->refused_told = core->transport->refused;
    core->next_refused_ns = core->now_ns + REFUSED_EVERY_MS * NS_PER_MS;
    pccl_event event = {.kind = PCCL_EVENT_REFUSED, .reason = PCCL_PROTOCOL, .token = core->refused_told};
    snprintf(event.text, sizeof event.text, "%llu connections so far that are not of this run were closed",
             (unsigned long long)core->refused_told);
    pccl__events_add(&core->events, &event);
}

static void tell_unshared(struct pccl__core *core) {
    if (!core->transport->unshared || core->unshared_told) return;
    pccl_event event = {.kind = PCCL_EVENT_UNSHARED, .reason = PCCL_SYSTEM};
    snprintf(event.text, sizeof event.text, "%s: %s", core->transport->unshared,
             strerror(core->transport->unshared_errno));
    core->unshared_told = pccl__events_add(&core->events, &event);
}

static void tell_detour(struct pccl__core *core) {
    if (!core->transport->detour || core->detour_told) return;
    pccl_event event = {.kind = PCCL_EVENT_DETOUR, .reason = PCCL_UNSUPPORTED};
    snprintf(event.text, sizeof event.text, "%s", core->transport->detour);
    core->detour_told = pccl__events_add(&core->events, &event);
}

static bool hurries(const struct pccl__core *core) {
    if (core->callers && atomic_load_explicit(core->callers, memory_order_relaxed) > 0) return true;
    return core->awaited && core->awaited->state == PCCL__ENDED;
}

/* Does the caller have more urgent things to do than to call us again? */
static bool pauses(const struct pccl__core *core, uint64_t before) {
    if (core->transport->arrived_bytes - before >= PROGRESS_BYTES) return true;
    return pccl__events_due(&core->events, core->now_ns) || hurries(core);
}

static void progress(struct pccl__core *core, uint64_t now_ns, int passes) {
    uint64_t before = core->transport->arrived_bytes;
    core->now_ns = now_ns;
    core->transport->hurry = pccl__urgency_hurry(&core->urgency, now_ns);
    while (passes-- > 0 && run_once(core)) {
        pccl__core_check_links(core);
        if (pauses(core, before)) break;
    }
    if (core->restoring) core->restoring = pccl__core_restore(core);
    pccl__core_check_stalls(core);
    tell_refused(core);
    tell_unshared(core);
    tell_detour(core);
}

void pccl__core_progress(struct pccl__core *core, uint64_t now_ns) { progress(core, now_ns, PASSES_MAX); }

void pccl__core_step(struct pccl__core *core, uint64_t now_ns) { progress(core, now_ns, 1); }

uint64_t pccl__core_deadline(const struct pccl__core *core) {
    bool ready = core->transport->ready || core->restoring;
    uint64_t deadline = ready ? core->now_ns : core->transport->deadline_ns;
    for (uint32_t rank = 0; rank < core->group.size; rank++) {
        const struct pccl__channel *channel = core->group.channels[rank];
        if (channel) deadline = min_u64(deadline, channel->ready ? core->now_ns : channel->deadline_ns);
    }
    return min_u64(min_u64(deadline, core->events.tell_ns), pccl__core_stall_deadline(core));
}

uint32_t pccl__core_pending(const struct pccl__core *core) {
    return core->open_calls - core->open_fetches + core->deferred.open;
}

bool pccl__core_busy(const struct pccl__core *core) { return core->open_calls > 0 || !list_empty(&core->served); }

/* ---------------------------------------------------------------- life */

pccl_status pccl__core_new(const struct pccl__core_options *options, struct pccl__transport *transport,
                           struct pccl__core **out) {
    struct pccl__core *core = calloc(1, sizeof *core);
    if (!core) return PCCL_NO_MEMORY;
    if (pccl__recorder_init(&core->recorder) != PCCL_OK) {
        free(core);
        return PCCL_NO_MEMORY;
    }
    core->options = *options;
    core->transport = transport;
    pccl__pool_init(&core->pool, options->arena);
    pccl__tags_init(&core->tags);
    pccl__unseen_init(&core->unseen);
    pccl__events_init(&core->events);
    struct list *lists[] = {&core->open, &core->queued, &core->unmatched, &core->early_sends, &core->leaving,
                            &core->held, &core->failed, &core->served,    &core->asked};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) list_init(lists[i]);
    core->exec = (struct pccl__exec){.group = &core->group,
                                     .pool = &core->pool,
                                     .kernels = pccl__kernels(),
                                     .segment_bytes = options->segment_bytes,
                                     .lend_least = options->lend_least ? options->lend_least : PCCL__EAGER_BYTES + 1};
    *out = core;
    return PCCL_OK;
}

void pccl__core_free(struct pccl__core *core) {
    pccl__core_halt(core, PCCL_CLOSED, "the communicator was closed");
    for (uint32_t rank = 0; rank < core->group.size; rank++) pccl__core_retire(core, &core->group.channels[rank]);
    CHECK(list_empty(&core->leaving));
    struct list *node;
    while ((node = list_pop_front(&core->held))) { /* handles may outlive us */
        struct pccl_operation *op = LIST_ENTRY(node, struct pccl_operation, link);
        op->core = NULL;
        pccl__pool_disown(&core->pool, sizeof *op);
    }
    pccl__core_drop_served(core);
    pccl__core_drop_mismatches(core);
    pccl__wait_forget(core);
    pccl__match_forget(core);
    pccl__group_clear(&core->group);
    pccl__tags_free(&core->tags);
    pccl__unseen_clear(&core->unseen);
    pccl__events_clear(&core->events);
    pccl__recorder_free(&core->recorder);
    pccl__pool_clear(&core->pool);
    free(core);
}
