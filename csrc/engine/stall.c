/* SPDX-License-Identifier: MIT
 *
 * stall.c - operations that wait: told to the owner (which asks the master whether anybody can move), announced to the
 * members (which find a mismatch), and in the end a timeout. Any byte from a member that is waited for renews the
 * patience, so a slow link that other operations keep busy is never mistaken for a dead one; but only PATIENCE_MAX
 * times over without progress of the operation itself, so that a member busy with other things cannot hold it for ever.
 *
 * Each operation has a timer that is never later than it must be: progress does not touch it, and who looks too early
 * sets it anew. So a round of checks costs as much as there is due, not as much as there is under way.
 */
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "engine/core.h"

enum { CHECKS_PER_STALL = 4, RANKS_NAMED = 8, PATIENCE_MAX = 10 };

static uint64_t timeout_ns(const struct pccl_operation *op) {
    uint32_t timeout_ms = op->call.timeout_ms ? op->call.timeout_ms : op->core->options.operation_timeout_ms;
    return timeout_ms * NS_PER_MS;
}

static void watch_until(struct pccl_operation *op, uint64_t due_ns) {
    heap_remove(&op->core->timers, &op->timer);
    heap_add(&op->core->timers, &op->timer, due_ns);
}

void pccl__core_watch(struct pccl_operation *op) {
    uint64_t end_ns = op->progressed_ns + timeout_ns(op);
    bool stalls = op->state != PCCL__QUEUED && !op->is_fetch;
    watch_until(op, stalls ? min_u64(op->next_stall_ns, end_ns) : end_ns);
}

static uint64_t last_news(const struct pccl__core *core, const struct pccl_operation *op, const uint8_t *waits) {
    uint64_t news = op->progressed_ns;
    for (uint32_t rank = 0; rank < core->group.size; rank++)
        if (waits[rank] && core->group.channels[rank]) news = max_u64(news, core->group.channels[rank]->heard_ns);
    return news;
}

static void name_ranks(const struct pccl__core *core, const uint8_t *waits, char *text, size_t bytes) {
    size_t length = 0;
    uint32_t named = 0, count = 0;
    for (uint32_t rank = 0; rank < core->group.size; rank++) {
        if (!waits[rank]) continue;
        if (count++ >= RANKS_NAMED || length >= bytes) continue;
        length += (size_t)snprintf(text + length, bytes - length, "%s%u", named++ ? ", " : "rank ", rank);
    }
    if (count > RANKS_NAMED && length < bytes)
        snprintf(text + length, bytes - length, " and %u more", count - RANKS_NAMED);
}

static void report_stall(struct pccl__core *core, struct pccl_operation *op, const uint8_t *waits, uint32_t count) {
    pccl_event event = {.kind = PCCL_EVENT_STALLED,
                        .reason = PCCL_PENDING,
                        .epoch = op->info.epoch,
                        .name = op->name,
                        .waited_ms = (uint32_t)((core->now_ns - op->started_ns) / NS_PER_MS),
                        .ranks_count = count};
    uint32_t named = 0;
    for (uint32_t rank = 0; rank < core->group.size && named < PCCL_EVENT_RANKS; rank++)
        if (waits[rank]) event.ranks[named++] = rank;
    pccl__operation_text(op, event.text, sizeof event.text);
    pccl__events_add(&core->events, &event);
    struct pccl__key key = {.epoch = op->info.epoch, .tag = op->name.tag, .sequence = op->name.sequence};
    pccl__core_notify_all(core, PCCL__NOTICE_ANNOUNCE, &key, &op->stamp, NULL, 0);
    op->next_stall_ns = core->now_ns + 2 * (core->now_ns - op->started_ns);
}

static void time_out(struct pccl__core *core, struct pccl_operation *op, const uint8_t *waits) {
    char what[PCCL__DESCRIPTOR_TEXT + 64], ranks[96] = "nobody", text[PCCL_MESSAGE_BYTES];
    pccl__operation_text(op, what, sizeof what);
    name_ranks(core, waits, ranks, sizeof ranks);
    snprintf(text, sizeof text, "%s made no progress for %llu ms; rank %u waited for %s", what,
             (unsigned long long)(timeout_ns(op) / NS_PER_MS), core->group.rank, ranks);
    uint32_t suspect = 0;
    while (suspect < core->group.size && !waits[suspect]) suspect++;
    pccl__core_freeze(core, PCCL_TIMEOUT, suspect < core->group.size ? &core->group.members[suspect].id : NULL, text);
}

static uint64_t step_ns(const struct pccl__core *core) { return core->options.stall_ms * NS_PER_MS / CHECKS_PER_STALL; }

static void check_collective(struct pccl__core *core, struct pccl_operation *op, uint8_t *waits) {
    uint32_t count = pccl__exec_waits_for(&core->exec, op, waits);
    if (count == 0) { /* it waits for others of our own */
        watch_until(op, core->now_ns + core->options.stall_ms * NS_PER_MS);
        return;
    }
    if (core->now_ns >= op->next_stall_ns) report_stall(core, op, waits, count);
    uint64_t end_ns =
        min_u64(last_news(core, op, waits) + timeout_ns(op), op->progressed_ns + PATIENCE_MAX * timeout_ns(op));
    if (core->now_ns >= end_ns)
        time_out(core, op, waits);
    else
        watch_until(op, min_u64(op->next_stall_ns, end_ns));
}

static void check_fetch(struct pccl__core *core, struct pccl_operation *op) {
    const struct pccl__channel *channel = pccl__group_channel(&core->group, &op->fetch_peer);
    uint64_t end_ns = max_u64(op->progressed_ns, channel ? channel->heard_ns : 0) + timeout_ns(op);
    if (core->now_ns < end_ns)
        watch_until(op, end_ns);
    else
        pccl__operation_end(op, PCCL_TIMEOUT, "the donor sent nothing for %llu ms",
                            (unsigned long long)(timeout_ns(op) / NS_PER_MS));
}

/* Nothing was sent for it yet and nobody counts on it, so it may end without a verdict. */
static void time_out_queued(struct pccl_operation *op) {
    pccl__operation_lost(op, PCCL_TIMEOUT, "epoch %llu is stopped, and no view of the next one came for %llu ms",
                         (unsigned long long)op->core->group.epoch, (unsigned long long)(timeout_ns(op) / NS_PER_MS));
}

uint64_t pccl__core_stall_deadline(const struct pccl__core *core) {
    return core->timers.first ? max_u64(core->timers.first->due_ns, core->stalls_checked_ns + step_ns(core)) : NEVER_NS;
}

void pccl__core_check_stalls(struct pccl__core *core) {
    if (core->now_ns < pccl__core_stall_deadline(core)) return;
    core->stalls_checked_ns = core->now_ns;
    uint8_t *waits = pccl__pool_take(&core->pool, core->group.size);
    if (!waits) return; /* in the next round, then */
    while (core->timers.first && core->timers.first->due_ns <= core->now_ns) {
        struct pccl_operation *op = LIST_ENTRY(core->timers.first, struct pccl_operation, timer);
        heap_remove(&core->timers, &op->timer);
        if (op->is_fetch)
            check_fetch(core, op);
        else if (op->state == PCCL__QUEUED)
            time_out_queued(op);
        else if (!core->frozen) /* else it ends with its epoch */
            check_collective(core, op, waits);
    }
    pccl__pool_put(&core->pool, waits, core->group.size);
}
