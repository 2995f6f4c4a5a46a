/* SPDX-License-Identifier: MIT
 *
 * mismatch.c - members called different things under one operation name (G6).
 *
 * Who sees a frame with another stamp than its own tells both stamps to the members next to it; everyone passes that on
 * once and fails the operation with the same text. Who has not started it yet owes itself the failure: its call of that
 * number ends at once. Only that operation fails, unless it was deferred and has returned somewhere: then the end of
 * the epoch tells of it. After PCCL__DISCARD_MAX failures the epoch is renewed, so that nothing piles up. Who was still
 * in the epoch before when it was told did not listen: its call will stall, announce itself, and be told again. What is
 * owed outlives the epoch, the youngest OWED_MAX of it: nobody can make us keep more. Such a call has no number in the
 * new epoch, in which the others do not make it any more.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "engine/core.h"

enum { NOTICE_BYTES = 8 + 2 * PCCL__STAMP_BYTES, OWED_MAX = PCCL__DISCARD_MAX };

struct mismatch {
    struct list link;
    uint64_t epoch;               /* in which it was met, ... */
    pccl_operation_name name;     /* ... under this name */
    bool owed;                    /* our call of that number has not come yet */
    uint32_t ahead;               /* owed from an epoch before: after so many numbered calls of this one it is due */
    uint8_t notice[NOTICE_BYTES]; /* as it was told */
    char text[PCCL_MESSAGE_BYTES];
};

static struct mismatch *mismatch_at(struct list *node) { return LIST_ENTRY(node, struct mismatch, link); }

/* That of this epoch. */
static struct mismatch *find(const struct pccl__core *core, pccl_operation_name name) {
    for (struct list *node = core->failed.next; node != &core->failed; node = node->next) {
        struct mismatch *mismatch = mismatch_at(node);
        if (pccl__name_equal(mismatch->name, name) && mismatch->epoch == core->group.epoch) return mismatch;
    }
    return NULL;
}

/* What is owed from an epoch before to the next call of a scope and tag, which would be `next` in this one. */
static struct mismatch *due(const struct pccl__core *core, pccl_operation_name next) {
    struct mismatch *first = NULL;
    for (struct list *node = core->failed.next; node != &core->failed; node = node->next) {
        struct mismatch *mismatch = mismatch_at(node);
        if (mismatch->epoch == core->group.epoch || mismatch->ahead != next.sequence) continue;
        if (mismatch->name.tag != next.tag || mismatch->name.scope != next.scope) continue;
        bool older = !first || mismatch->epoch < first->epoch ||
                     (mismatch->epoch == first->epoch && mismatch->name.sequence < first->name.sequence);
        if (older) first = mismatch;
    }
    return first;
}

static void forget(struct mismatch *mismatch) {
    list_remove(&mismatch->link);
    free(mismatch);
}

static void describe(char text[PCCL_MESSAGE_BYTES], const struct pccl__key *key, uint32_t rank_a, uint32_t rank_b,
                     const struct pccl__stamp *a, const struct pccl__stamp *b) {
    char what_a[PCCL__DESCRIPTOR_TEXT], what_b[PCCL__DESCRIPTOR_TEXT], name[PCCL__NAME_TEXT];
    if (rank_a > rank_b) {
        describe(text, key, rank_b, rank_a, b, a);
        return;
    }
    uint32_t target = pccl__scope_is_pair(key->scope) ? pccl__scope_target(key->scope) : UINT32_MAX;
    pccl__stamp_text(a, rank_a == target, what_a);
    pccl__stamp_text(b, rank_b == target, what_b);
    pccl__name_text(pccl__key_name(key), key->epoch, name);
    snprintf(text, PCCL_MESSAGE_BYTES, "operation %s: rank %u called %s, rank %u called %s", name, rank_a, what_a,
             rank_b, what_b);
}

/* From now on frames of this operation go to nowhere. */
static void discard(struct pccl__core *core, pccl_operation_name name) {
    struct pccl__key key = pccl__name_key(core->group.epoch, name);
    for (uint32_t rank = 0; rank < core->group.size; rank++) {
        struct pccl__channel *channel = core->group.channels[rank];
        if (channel && !channel->broken) channel->ops->discard(channel, &key);
    }
}

static void fail(struct pccl__core *core, pccl_operation_name name, struct pccl_operation *op, bool owed,
                 const char *text, const uint8_t notice[NOTICE_BYTES]) {
    struct pccl__key key = pccl__name_key(core->group.epoch, name);
    struct pccl__stamp stamp = {{0}};
    pccl__core_notify(core, PCCL__NOTICE_MISMATCH, &key, &stamp, notice, NOTICE_BYTES);
    struct mismatch *mismatch = calloc(1, sizeof *mismatch);
    if (!mismatch) {
        pccl__core_freeze(core, PCCL_MISMATCH, NULL, text);
        return;
    }
    list_init(&mismatch->link);
    list_push_back(&core->failed, &mismatch->link);
    mismatch->epoch = core->group.epoch;
    mismatch->name = name;
    mismatch->owed = owed;
    memcpy(mismatch->notice, notice, sizeof mismatch->notice);
    snprintf(mismatch->text, sizeof mismatch->text, "%s", text);
    discard(core, name);
    if (op) pccl__operation_end(op, PCCL_MISMATCH, "%s", text);
    if (++core->failed_count >= PCCL__DISCARD_MAX) /* what else is open has no part in it, and may be retried */
        pccl__core_freeze(core, PCCL_NO_MEMORY, NULL, "too many mismatched operations in one epoch");
}

void pccl__core_mismatch(struct pccl__core *core, struct pccl_operation *op, const struct pccl__stamp *own,
                         uint32_t other_rank, const struct pccl__stamp *other) {
    pccl_operation_name name = op->name;
    struct pccl__key key = pccl__name_key(core->group.epoch, name);
    uint8_t data[NOTICE_BYTES];
    put_u32(data, core->group.rank);
    put_u32(data + 4, other_rank);
    memcpy(data + 8, own->bytes, PCCL__STAMP_BYTES);
    memcpy(data + 8 + PCCL__STAMP_BYTES, other->bytes, PCCL__STAMP_BYTES);
    char text[PCCL_MESSAGE_BYTES];
    describe(text, &key, core->group.rank, other_rank, own, other);
    fail(core, name, op, false, text, data);
}

static void tell_again(struct pccl__core *core, uint32_t rank, const struct pccl__key *key,
                       const struct pccl__stamp *stamp) {
    const struct mismatch *mismatch = find(core, pccl__key_name(key));
    struct pccl__channel *channel = core->group.channels[rank];
    if (mismatch && channel && !channel->broken)
        channel->ops->post_notice(channel, PCCL__NOTICE_MISMATCH, key, stamp, mismatch->notice, NOTICE_BYTES);
}

void pccl__core_announced(struct pccl__core *core, uint32_t rank, const struct pccl__key *key,
                          const struct pccl__stamp *stamp) {
    if (key->epoch != core->group.epoch || core->frozen || key->epoch == 0) return;
    struct pccl__entry *entry = pccl__tags_entry(&core->tags, pccl__key_name(key));
    struct pccl_operation *op = entry ? entry->operation : NULL;
    if (op && !pccl__stamp_agree(&op->stamp, stamp))
        pccl__core_mismatch(core, op, &op->stamp, rank, stamp);
    else if (!op)
        tell_again(core, rank, key, stamp);
}

void pccl__core_mismatch_notice(struct pccl__core *core, const struct pccl__notice *notice) {
    if (notice->key.epoch != core->group.epoch || core->frozen || notice->bytes != NOTICE_BYTES) return;
    pccl_operation_name name = pccl__key_name(&notice->key);
    uint32_t rank_a = get_u32(notice->data), rank_b = get_u32(notice->data + 4);
    struct pccl__stamp a, b;
    memcpy(a.bytes, notice->data + 8, sizeof a.bytes);
    memcpy(b.bytes, notice->data + 8 + PCCL__STAMP_BYTES, sizeof b.bytes);
    if (find(core, name)) return;
    struct pccl__entry *entry = pccl__tags_entry(&core->tags, name);
    struct pccl__tag *tag = pccl__tags_find(&core->tags, name.scope, name.tag);
    bool started = tag && name.sequence < tag->next_sequence;
    if (pccl__scope_is_pair(name.scope) && !started) return; /* who sends and who receives find out by what has come */
    char text[PCCL_MESSAGE_BYTES];
    describe(text, &notice->key, rank_a, rank_b, &a, &b);
    struct pccl_operation *op = entry ? entry->operation : NULL;
    bool returned = started && !op && core->deferred.open; /* or it had failed before */
    fail(core, name, op, !started, text, notice->data);
    /* No later call of ours can tell: those that have failed with it make other calls, and numbers would part. */
    if (returned) pccl__core_freeze(core, PCCL_MISMATCH, NULL, text);
}

bool pccl__core_owed_mismatch(struct pccl__core *core, struct pccl_operation *op) {
    struct pccl__tag *tag = pccl__tags_find(&core->tags, op->call.scope, op->call.tag);
    pccl_operation_name next = {.tag = op->call.tag, .scope = op->call.scope, .sequence = tag ? tag->next_sequence : 0};
    struct mismatch *mismatch = due(core, next);
    if (mismatch) {
        pccl__operation_end(op, PCCL_MISMATCH, "%s", mismatch->text);
        forget(mismatch);
        return true;
    }
    mismatch = find(core, next);
    if (!mismatch || !mismatch->owed) return false;
    mismatch->owed = false;
    struct pccl__entry *entry;
    if (pccl__tags_begin(&core->tags, next.scope, next.tag, &entry) != PCCL_OK)
        pccl__core_freeze(core, PCCL_NO_MEMORY, NULL, "no memory to number an operation");
    pccl__operation_end(op, PCCL_MISMATCH, "%s", mismatch->text);
    return true;
}

/* How many numbered calls come before it when numbers start anew: those before it now, without what we have called, and
 * without what is owed like itself. */
static uint32_t calls_ahead(const struct pccl__core *core, const struct mismatch *mismatch) {
    uint64_t epoch = core->group.epoch, tag = mismatch->name.tag, scope = mismatch->name.scope;
    const struct pccl__tag *called = pccl__tags_find(&core->tags, scope, tag);
    uint32_t place = mismatch->epoch == epoch ? mismatch->name.sequence : mismatch->ahead;
    uint32_t ahead = place - (called ? called->next_sequence : 0);
    for (struct list *node = core->failed.next; node != &core->failed; node = node->next) {
        const struct mismatch *other = mismatch_at(node);
        bool alike = other->epoch == epoch && other->name.tag == tag && other->name.scope == scope;
        if (alike && other->name.sequence < place) ahead--;
    }
    return ahead;
}

void pccl__core_renew_mismatches(struct pccl__core *core, bool same_members) {
    uint32_t owed = 0;
    for (struct list *node = core->failed.previous; node != &core->failed;) { /* the youngest first */
        struct mismatch *mismatch = mismatch_at(node);
        node = node->previous;
        bool passed = !mismatch->owed || (mismatch->name.scope && !same_members);
        if (passed || owed++ >= OWED_MAX) forget(mismatch);
    }
    for (struct list *node = core->failed.next; node != &core->failed; node = node->next)
        mismatch_at(node)->ahead = calls_ahead(core, mismatch_at(node));
    core->failed_count = 0;
}

void pccl__core_drop_mismatches(struct pccl__core *core) {
    while (!list_empty(&core->failed)) forget(mismatch_at(core->failed.next));
}
