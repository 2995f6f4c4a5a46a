/* SPDX-License-Identifier: MIT
 *
 * stall.c - operations that wait: told to the owner (which asks the master whether anybody can move), announced to the
 * members (which find a mismatch), and in the end a timeout. Any byte from a member that is waited for renews the
 * patience, so a slow link that other operations keep busy is never mistaken for a dead one; but only PATIENCE_MAX
 * times over without progress of the operation itself, so that a member busy with other things cannot hold it for ever.
 */
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "engine/core.h"

enum { CHECKS_PER_STALL = 4, RANKS_NAMED = 8, PATIENCE_MAX = 10 };

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

static void time_out(struct pccl__core *core, struct pccl_operation *op, const uint8_t *waits, uint32_t timeout_ms) {
    char what[PCCL__DESCRIPTOR_TEXT + 64], ranks[96] = "nobody", text[PCCL_MESSAGE_BYTES];
    pccl__operation_text(op, what, sizeof what);
    name_ranks(core, waits, ranks, sizeof ranks);
    snprintf(text, sizeof text, "%s made no progress for %u ms; rank %u waited for %s", what, timeout_ms,
             core->group.rank, ranks);
    uint32_t suspect = 0;
    while (suspect < core->group.size && !waits[suspect]) suspect++;
    pccl__core_freeze(core, PCCL_TIMEOUT, suspect < core->group.size ? &core->group.members[suspect].id : NULL, text);
}

static uint64_t elapsed(uint64_t now_ns, uint64_t since_ns) { return now_ns - min_u64(now_ns, since_ns); }

static void check_one(struct pccl__core *core, struct pccl_operation *op, uint8_t *waits) {
    uint32_t count = pccl__exec_waits_for(&core->exec, op, waits);
    if (count == 0) return;
    if (core->now_ns >= op->next_stall_ns) report_stall(core, op, waits, count);
    uint32_t timeout_ms = op->call.timeout_ms ? op->call.timeout_ms : core->options.operation_timeout_ms;
    uint64_t timeout_ns = timeout_ms * NS_PER_MS;
    if (elapsed(core->now_ns, last_news(core, op, waits)) >= timeout_ns ||
        elapsed(core->now_ns, op->progressed_ns) >= PATIENCE_MAX * timeout_ns)
        time_out(core, op, waits, timeout_ms);
}

static void check_fetch(struct pccl__core *core, struct pccl_operation *op) {
    uint32_t timeout_ms = op->call.timeout_ms ? op->call.timeout_ms : core->options.operation_timeout_ms;
    const struct pccl__channel *channel = pccl__group_channel(&core->group, &op->fetch_peer);
    uint64_t news = max_u64(op->progressed_ns, channel ? channel->heard_ns : 0);
    if (elapsed(core->now_ns, news) >= timeout_ms * NS_PER_MS)
        pccl__operation_end(op, PCCL_TIMEOUT, "the donor sent nothing for %u ms", timeout_ms);
}

void pccl__core_check_stalls(struct pccl__core *core) {
    if (list_empty(&core->open) || core->now_ns < core->next_stall_check_ns) return;
    core->next_stall_check_ns = core->now_ns + core->options.stall_ms * NS_PER_MS / CHECKS_PER_STALL;
    uint8_t *waits = pccl__pool_take(&core->pool, core->group.size);
    if (!waits) return;
    for (struct list *node = core->open.next; node != &core->open;) {
        struct pccl_operation *op = LIST_ENTRY(node, struct pccl_operation, link);
        node = node->next;
        if (op->is_fetch)
            check_fetch(core, op);
        else if (!core->frozen)
            check_one(core, op, waits);
    }
    pccl__pool_put(&core->pool, waits, core->group.size);
}
