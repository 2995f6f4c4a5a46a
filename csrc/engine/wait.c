/* SPDX-License-Identifier: MIT */
#include "engine/wait.h"

#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "engine/core.h"

enum { NAMED_MAX = 4, OBSTACLE_BYTES = 120 };

static struct pccl__wait *wait_of(struct pccl__core *core, struct pccl_operation *op) {
    if (op->wait) return op->wait;
    size_t bytes = sizeof(struct pccl__wait) + core->group.size;
    struct pccl__wait *wait = pccl__pool_take(&core->pool, bytes);
    if (!wait) return NULL;
    memset(wait, 0, bytes);
    wait->bytes = bytes;
    wait->size = core->group.size;
    op->wait = wait;
    return wait;
}

void pccl__wait_release(struct pccl__core *core, struct pccl_operation *op) {
    if (op->wait) pccl__pool_put(&core->pool, op->wait, op->wait->bytes);
    op->wait = NULL;
}

/* ---------------------------------------------------------------- asking */

void pccl__wait_ask(struct pccl__core *core, struct pccl_operation *op) {
    struct pccl__wait *wait = wait_of(core, op);
    if (wait && !wait->asked_ns) wait->asked_ns = core->now_ns;
    struct pccl__key key = {.epoch = op->info.epoch, .tag = op->name.tag, .sequence = op->name.sequence};
    pccl__core_notify_all(core, PCCL__NOTICE_ANNOUNCE, &key, &op->stamp, NULL, 0);
}

static void answer(struct pccl__core *core, uint32_t rank, const struct pccl__notice *notice) {
    pccl_operation_name name = {notice->key.tag, notice->key.sequence};
    struct pccl__channel *channel = core->group.channels[rank];
    if (channel && !channel->broken && pccl__core_has_started(core, notice->key.epoch, name) == 1)
        channel->ops->post_notice(channel, PCCL__NOTICE_STARTED, &notice->key, &notice->stamp, NULL, 0);
}

void pccl__wait_notice(struct pccl__core *core, uint32_t rank, const struct pccl__notice *notice) {
    if (notice->key.epoch != core->group.epoch || core->frozen) return;
    if (notice->kind == PCCL__NOTICE_ANNOUNCE) answer(core, rank, notice);
    struct pccl__entry *entry =
        pccl__tags_entry(&core->tags, (pccl_operation_name){notice->key.tag, notice->key.sequence});
    struct pccl_operation *op = entry ? entry->operation : NULL;
    struct pccl__wait *wait = op ? op->wait : NULL;
    if (wait && rank < wait->size) wait->started[rank] = 1;
}

/* ---------------------------------------------------------------- noting */

static void add(struct pccl__wait *wait, const struct pccl__group *group, uint32_t rank) {
    if (wait->count < PCCL_EVENT_RANKS) {
        const struct pccl__channel *channel = group->channels[rank];
        wait->ranks[wait->count] = rank;
        wait->heard_ns[wait->count] = channel ? channel->heard_ns : 0;
    }
    wait->count++;
}

/* Answers need the time of a round trip; who was asked just now is not absent. */
static bool answers_are_in(const struct pccl__core *core, const struct pccl__wait *wait) {
    return wait->asked_ns && core->now_ns - wait->asked_ns >= core->options.stall_ms * NS_PER_MS / 2;
}

const struct pccl__wait *pccl__wait_note(struct pccl__core *core, struct pccl_operation *op, const uint8_t *waits) {
    struct pccl__wait *wait = wait_of(core, op);
    if (!wait || wait->size != core->group.size) return wait;
    wait->noted_ns = core->now_ns;
    wait->count = 0;
    for (uint32_t rank = 0; rank < wait->size && answers_are_in(core, wait); rank++)
        if (rank != core->group.rank && !wait->started[rank]) add(wait, &core->group, rank);
    wait->absent = wait->count > 0;
    for (uint32_t rank = 0; rank < wait->size && !wait->absent; rank++)
        if (waits[rank]) add(wait, &core->group, rank);
    return wait;
}

/* ---------------------------------------------------------------- words */

static size_t append(char *text, size_t bytes, size_t length, const char *more) {
    if (length >= bytes) return length;
    return min_u64(length + (size_t)snprintf(text + length, bytes - length, "%s", more), bytes - 1);
}

static void describe(const struct pccl__core *core, uint32_t rank, uint64_t heard_ns, uint64_t now_ns, char *text,
                     size_t bytes) {
    const pccl_member *member = &core->group.members[rank];
    const struct pccl__channel *channel = core->group.channels[rank];
    const uint8_t *id = member->id.bytes;
    char life[64] = "never heard of over its link", obstacle[OBSTACLE_BYTES] = "";
    if (heard_ns)
        snprintf(life, sizeof life, "silent for %llu ms",
                 (unsigned long long)((now_ns - min_u64(now_ns, heard_ns)) / NS_PER_MS));
    if (channel && (channel->broken || channel->doubted))
        snprintf(obstacle, sizeof obstacle, "; %.*s", OBSTACLE_BYTES - 3, channel->error.message);
    snprintf(text, bytes, "rank %u (peer %02x%02x%02x%02x at %s:%u, %s%s)", rank, id[0], id[1], id[2], id[3],
             member->address, member->port, life, obstacle);
}

void pccl__wait_member_text(const struct pccl__core *core, uint32_t rank, char *text, size_t bytes) {
    const struct pccl__channel *channel = core->group.channels[rank];
    describe(core, rank, channel ? channel->heard_ns : 0, core->now_ns, text, bytes);
}

void pccl__wait_text(const struct pccl__core *core, const struct pccl_operation *op, char *text, size_t bytes) {
    const struct pccl__wait *wait = op->wait;
    text[0] = 0;
    if (!wait || wait->count == 0 || wait->size != core->group.size) return;
    size_t length = append(text, bytes, 0, wait->absent ? "not started by " : "waits for ");
    for (uint32_t i = 0; i < wait->count && i < NAMED_MAX; i++) {
        char one[PCCL__WAIT_TEXT];
        describe(core, wait->ranks[i], wait->heard_ns[i], wait->noted_ns, one, sizeof one);
        if (i > 0) length = append(text, bytes, length, ", ");
        length = append(text, bytes, length, one);
    }
    char rest[48];
    if (wait->count <= NAMED_MAX) return;
    snprintf(rest, sizeof rest, " and %u more", wait->count - NAMED_MAX);
    append(text, bytes, length, rest);
}
