/* SPDX-License-Identifier: MIT */
#include "engine/wait.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "engine/core.h"

enum { NAMED_MAX = 4, OBSTACLE_BYTES = 120, ASKED_MAX = 16, ASKED_MS = 1000, BITS = 8 };

/* Of a set of ranks. 0: the group is too large for a notice; then only direct waits are named. */
static uint32_t set_bytes(const struct pccl__core *core) {
    uint32_t bytes = (core->group.size + BITS - 1) / BITS;
    return bytes <= PCCL__NOTICE_BYTES ? bytes : 0;
}

static struct pccl__wait *wait_of(struct pccl__core *core, struct pccl_operation *op) {
    if (op->wait) return op->wait;
    size_t bytes = sizeof(struct pccl__wait) + set_bytes(core);
    struct pccl__wait *wait = pccl__pool_take(&core->pool, bytes);
    if (!wait) return NULL;
    memset(wait, 0, bytes);
    wait->bytes = bytes;
    wait->epoch = core->group.epoch;
    op->wait = wait;
    return wait;
}

void pccl__wait_release(struct pccl__core *core, struct pccl_operation *op) {
    if (op->wait) pccl__pool_put(&core->pool, op->wait, op->wait->bytes);
    op->wait = NULL;
}

/* ---------------------------------------------------------------- asking */

/* An operation that waits elsewhere and has not begun here, or has ended. */
struct asked {
    struct list link;
    pccl_operation_name name;
    uint64_t since_ns;
    uint8_t started[PCCL__NOTICE_BYTES];
};

/* Bounded, and never cut short while news of an operation may still be on their way: who forgets what it has heard
 * takes it for news again. */
static struct asked *asked_of(struct pccl__core *core, pccl_operation_name name) {
    uint32_t count = 0;
    for (struct list *node = core->asked.next; node != &core->asked; node = node->next, count++) {
        struct asked *asked = LIST_ENTRY(node, struct asked, link);
        if (pccl__name_equal(asked->name, name)) return asked;
    }
    struct asked *oldest = LIST_ENTRY(core->asked.next, struct asked, link), *asked = NULL;
    if (count < ASKED_MAX) {
        asked = malloc(sizeof *asked);
    } else if (core->now_ns - oldest->since_ns >= ASKED_MS * NS_PER_MS) {
        list_remove(&oldest->link);
        asked = oldest;
    }
    if (!asked) return NULL;
    *asked = (struct asked){.name = name, .since_ns = core->now_ns};
    list_init(&asked->link);
    list_push_back(&core->asked, &asked->link);
    return asked;
}

static struct pccl_operation *open_operation(const struct pccl__core *core, pccl_operation_name name) {
    struct pccl__entry *entry = pccl__tags_entry(&core->tags, name);
    return entry ? entry->operation : NULL;
}

/* Who is known to have started it. NULL: no room. */
static uint8_t *started_of(struct pccl__core *core, pccl_operation_name name) {
    struct pccl_operation *op = open_operation(core, name);
    struct pccl__wait *wait = op ? wait_of(core, op) : NULL;
    if (op) return wait && wait->epoch == core->group.epoch ? wait->started : NULL;
    struct asked *asked = asked_of(core, name);
    return asked ? asked->started : NULL;
}

void pccl__wait_forget(struct pccl__core *core) {
    struct list *node;
    while ((node = list_pop_front(&core->asked))) free(LIST_ENTRY(node, struct asked, link));
}

static bool holds(const uint8_t *set, uint32_t rank) { return set[rank / BITS] >> rank % BITS & 1; }

/* True if any was news. */
static bool add_all(uint8_t *set, const uint8_t *more, uint32_t bytes) {
    bool news = false;
    for (uint32_t i = 0; i < bytes; i++) {
        news = news || (more[i] & ~set[i]);
        set[i] |= more[i];
    }
    return news;
}

static bool add_ourselves(struct pccl__core *core, pccl_operation_name name, uint8_t *set) {
    uint32_t rank = core->group.rank;
    if (holds(set, rank) || pccl__core_has_started(core, core->group.epoch, name) != 1) return false;
    set[rank / BITS] |= (uint8_t)(1 << rank % BITS);
    return true;
}

/* To one member, or with `to` NULL to all next to us. With our stamp, if we are still at it. */
static void tell(struct pccl__core *core, pccl_operation_name name, const uint8_t *set, struct pccl__channel *to) {
    const struct pccl_operation *op = open_operation(core, name);
    const struct pccl__stamp none = {{0}}, *stamp = op ? &op->stamp : &none;
    uint32_t kind = op ? PCCL__NOTICE_ANNOUNCE : PCCL__NOTICE_STARTED;
    struct pccl__key key = pccl__name_key(core->group.epoch, name);
    if (to)
        to->ops->post_notice(to, kind, &key, stamp, set, set_bytes(core));
    else
        pccl__core_notify(core, kind, &key, stamp, set, set_bytes(core));
}

void pccl__wait_ask(struct pccl__core *core, struct pccl_operation *op) {
    struct pccl__wait *wait = wait_of(core, op);
    if (!wait || wait->epoch != core->group.epoch) return; /* it will stall for longer */
    if (!wait->asked_ns) wait->asked_ns = core->now_ns;
    if (set_bytes(core)) add_ourselves(core, op->name, wait->started);
    tell(core, op->name, wait->started, NULL);
}

void pccl__wait_notice(struct pccl__core *core, uint32_t rank, const struct pccl__notice *notice) {
    if (notice->key.epoch != core->group.epoch || core->frozen || notice->bytes != set_bytes(core)) return;
    pccl_operation_name name = pccl__key_name(&notice->key);
    uint8_t *set = notice->bytes ? started_of(core, name) : NULL;
    struct pccl__channel *channel = core->group.channels[rank];
    if (!set || !channel || channel->broken) return;
    bool news = add_all(set, notice->data, notice->bytes);
    news = add_ourselves(core, name, set) || news;
    if (news)
        tell(core, name, set, NULL);
    else if (memcmp(set, notice->data, notice->bytes) != 0)
        tell(core, name, set, channel);
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

/* Answers need the time of some round trips; who was asked just now is not absent. */
static bool answers_are_in(const struct pccl__core *core, const struct pccl__wait *wait) {
    return wait->asked_ns && core->now_ns - wait->asked_ns >= core->options.stall_ms * NS_PER_MS / 2;
}

const struct pccl__wait *pccl__wait_note(struct pccl__core *core, struct pccl_operation *op, const uint8_t *waits) {
    struct pccl__wait *wait = wait_of(core, op);
    if (!wait || wait->epoch != core->group.epoch) return wait;
    uint32_t asked = answers_are_in(core, wait) && set_bytes(core) ? core->group.size : 0;
    wait->noted_ns = core->now_ns;
    wait->count = 0;
    for (uint32_t rank = 0; rank < asked; rank++)
        if (!holds(wait->started, rank) && pccl__team_has(&core->group, op->name.scope, rank))
            add(wait, &core->group, rank);
    wait->absent = wait->count > 0;
    for (uint32_t rank = 0; rank < core->group.size && !wait->absent; rank++)
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
    if (!wait || wait->count == 0 || wait->epoch != core->group.epoch) return;
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
