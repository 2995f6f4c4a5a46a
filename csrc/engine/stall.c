/* SPDX-License-Identifier: MIT
 *
 * stall.c - operations that wait: told to the owner (which asks the master whether anybody can move), announced to the
 * members next to us (of two that differ, some neighbours between them differ too: they find a mismatch), and in the
 * end a timeout. Whatever moves between us and a member that is waited for renews the patience, so a slow link that
 * other operations keep busy is never mistaken for a dead one; but only PATIENCE_MAX times over without progress of the
 * operation itself, so that a member busy with other things cannot hold it for ever. Notices move nothing: who merely
 * answers what we ask about the wait lives, but does not go on.
 *
 * Each operation has a timer that is never later than it must be: progress does not touch it, and who looks too early
 * sets it anew. So a round of checks costs as much as there is due, not as much as there is under way.
 */
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "engine/match.h"

enum { CHECKS_PER_STALL = 4, PATIENCE_MAX = 10 };

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
    bool stalls = op->started && !op->is_fetch;
    watch_until(op, stalls ? min_u64(op->next_stall_ns, end_ns) : end_ns);
}

static uint64_t last_news(const struct pccl__core *core, const struct pccl_operation *op, const uint8_t *waits) {
    uint64_t news = op->progressed_ns;
    for (uint32_t rank = 0; rank < core->group.size; rank++)
        if (waits[rank] && core->group.channels[rank]) news = max_u64(news, core->group.channels[rank]->moved_ns);
    return news;
}

static void report_stall(struct pccl__core *core, struct pccl_operation *op, const uint8_t *waits) {
    const struct pccl__wait *wait = pccl__wait_note(core, op, waits);
    if (!wait) return;
    pccl_event event = {.kind = PCCL_EVENT_STALLED,
                        .reason = PCCL_PENDING,
                        .epoch = op->info.epoch,
                        .name = op->name,
                        .waited_ms = (uint32_t)((core->now_ns - op->started_ns) / NS_PER_MS),
                        .ranks_count = wait->count,
                        .absent = wait->absent};
    memcpy(event.ranks, wait->ranks, sizeof event.ranks);
    char what[PCCL__DESCRIPTOR_TEXT + PCCL__NAME_TEXT], whom[PCCL__WAIT_TEXT];
    pccl__operation_text(op, what, sizeof what);
    pccl__wait_text(core, op, whom, sizeof whom);
    snprintf(event.text, sizeof event.text, "%s has waited %u ms: %s", what, event.waited_ms, whom);
    pccl__events_add(&core->events, &event);
    op->wait->told = true;
    pccl__wait_ask(core, op);
    op->next_stall_ns = core->now_ns + 2 * (core->now_ns - op->started_ns);
}

void pccl__core_goes_on(struct pccl__core *core, const struct pccl_operation *op) {
    if (!op->wait || !op->wait->told || core->frozen) return;
    pccl_event event = {.kind = PCCL_EVENT_STALLED, .epoch = op->info.epoch, .name = op->name};
    pccl__operation_text(op, event.text, sizeof event.text);
    pccl__events_add(&core->events, &event);
}

static void time_out(struct pccl__core *core, struct pccl_operation *op, const uint8_t *waits) {
    const struct pccl__wait *wait = pccl__wait_note(core, op, waits);
    char what[PCCL__DESCRIPTOR_TEXT + PCCL__NAME_TEXT], whom[PCCL__WAIT_TEXT], text[PCCL_MESSAGE_BYTES];
    pccl__operation_text(op, what, sizeof what);
    pccl__wait_text(core, op, whom, sizeof whom);
    snprintf(text, sizeof text, "%s made no progress for %llu ms at rank %u: %s", what,
             (unsigned long long)(timeout_ns(op) / NS_PER_MS), core->group.rank, whom);
    pccl__core_freeze(core, PCCL_TIMEOUT, wait && wait->count ? &core->group.members[wait->ranks[0]].id : NULL, text);
}

static uint64_t step_ns(const struct pccl__core *core) { return core->options.stall_ms * NS_PER_MS / CHECKS_PER_STALL; }

static void check_collective(struct pccl__core *core, struct pccl_operation *op, uint8_t *waits) {
    uint32_t count = pccl__exec_waits_for(&core->exec, op, waits);
    if (count == 0) { /* it waits for others of our own */
        watch_until(op, core->now_ns + core->options.stall_ms * NS_PER_MS);
        return;
    }
    if (core->now_ns >= op->next_stall_ns) report_stall(core, op, waits);
    uint64_t end_ns =
        min_u64(last_news(core, op, waits) + timeout_ns(op), op->progressed_ns + PATIENCE_MAX * timeout_ns(op));
    if (core->now_ns >= end_ns)
        time_out(core, op, waits);
    else
        watch_until(op, min_u64(op->next_stall_ns, end_ns));
}

static void fetch_timed_out(struct pccl__core *core, struct pccl_operation *op) {
    uint32_t rank = pccl__group_rank_of(&core->group, &op->fetch_peer);
    char donor[PCCL__WAIT_TEXT] = "a donor that left the group";
    if (rank < core->group.size) pccl__wait_member_text(core, rank, donor, sizeof donor);
    pccl__operation_end(op, PCCL_TIMEOUT, "no byte of region %u came for %llu ms from %s", op->fetch.key.sequence,
                        (unsigned long long)(timeout_ns(op) / NS_PER_MS), donor);
}

static void check_fetch(struct pccl__core *core, struct pccl_operation *op) {
    const struct pccl__channel *channel = pccl__group_channel(&core->group, &op->fetch_peer);
    uint64_t end_ns = max_u64(op->progressed_ns, channel ? channel->moved_ns : 0) + timeout_ns(op);
    if (core->now_ns < end_ns)
        watch_until(op, end_ns);
    else
        fetch_timed_out(core, op);
}

/* Nothing was sent for it yet and nobody counts on it, so it may end without a verdict. What was called behind it ends
 * as well, or it would be ahead of the retry. */
static void time_out_queued(struct pccl__core *core, struct pccl_operation *op) {
    uint64_t epoch = core->group.epoch, tag = op->call.tag;
    unsigned long long waited_ms = timeout_ns(op) / NS_PER_MS;
    bool stepwise = pccl__is_stepwise(op);
    const char *how = "";
    for (struct list *node = &op->link; node != &core->queued;) {
        op = LIST_ENTRY(node, struct pccl_operation, link);
        node = node->next;
        if (op->call.tag != tag && !(stepwise && pccl__is_stepwise(op))) continue;
        char what[PCCL__DESCRIPTOR_TEXT + PCCL__NAME_TEXT];
        pccl__operation_text(op, what, sizeof what);
        pccl__operation_lost(op, pccl__core_past_epoch(core), PCCL_TIMEOUT,
                             "%s%s: epoch %llu is stopped, and no view of the next one came for %llu ms", what, how,
                             (unsigned long long)epoch, waited_ms);
        how = ", behind one that was called before";
    }
}

/* Nobody counts on it: it has no name yet. */
static void check_unmatched(struct pccl__core *core, struct pccl_operation *op) {
    if (core->now_ns < op->progressed_ns + timeout_ns(op)) {
        pccl__core_watch(op);
        return;
    }
    uint64_t tag = op->call.tag;
    char what[PCCL__DESCRIPTOR_TEXT + PCCL__NAME_TEXT];
    pccl__operation_text(op, what, sizeof what);
    pccl__operation_end(op, PCCL_TIMEOUT, "%s: nothing came for %llu ms", what,
                        (unsigned long long)(timeout_ns(op) / NS_PER_MS));
    pccl__match_move_up(core, tag);
}

void pccl__core_describe(struct pccl__core *core, struct pccl_operation *op, uint64_t now_ns, char *text,
                         size_t bytes) {
    char what[PCCL__DESCRIPTOR_TEXT + PCCL__NAME_TEXT] = "a fetch of shared state", whom[PCCL__WAIT_TEXT] = "";
    core->now_ns = now_ns;
    if (!op->is_fetch) pccl__operation_text(op, what, sizeof what);
    uint8_t *waits = pccl__pool_take(&core->pool, core->group.size);
    bool waiting = op->state == PCCL__DATA || op->state == PCCL__FINISH;
    if (waits && waiting && !op->is_fetch && !core->frozen && pccl__exec_waits_for(&core->exec, op, waits)) {
        pccl__wait_note(core, op, waits);
        pccl__wait_text(core, op, whom, sizeof whom);
    }
    pccl__pool_put(&core->pool, waits, core->group.size);
    if (op->state == PCCL__ENDED)
        snprintf(text, bytes, "%s has ended: %s", what, pccl_status_string(op->status));
    else if (op->state == PCCL__QUEUED)
        snprintf(text, bytes, "%s: the epoch is frozen", what);
    else if (op->state == PCCL__UNMATCHED)
        snprintf(text, bytes, "%s has waited %llu ms for a send of that tag", what,
                 (unsigned long long)((now_ns - min_u64(now_ns, op->started_ns)) / NS_PER_MS));
    else
        snprintf(text, bytes, "%s has run for %llu ms%s%s", what,
                 (unsigned long long)((now_ns - min_u64(now_ns, op->started_ns)) / NS_PER_MS), whom[0] ? ": " : "",
                 whom);
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
            time_out_queued(core, op);
        else if (!core->frozen && op->state == PCCL__UNMATCHED) /* else it ends with its epoch, as all below */
            check_unmatched(core, op);
        else if (!core->frozen)
            check_collective(core, op, waits);
    }
    pccl__pool_put(&core->pool, waits, core->group.size);
}
