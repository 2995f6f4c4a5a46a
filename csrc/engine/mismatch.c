/* SPDX-License-Identifier: MIT
 *
 * mismatch.c - operations that nobody can complete: members called different things under one name (G6), or one of them
 * has a value that cannot be quantized.
 *
 * Who sees a frame with another stamp than its own tells both stamps to the members next to it, and who has such a
 * value where it is; everyone passes that on once and fails the operation with the same text. Who has not started it
 * yet owes itself the failure: its call of that number ends at once. Only that operation fails, unless it was deferred
 * and has returned somewhere: then the end of the epoch tells of it. After PCCL__DISCARD_MAX mismatches the epoch is
 * renewed, so that nothing piles up. Who was still in the epoch before when it was told did not listen: its call will
 * stall, announce itself, and be told again. What is owed outlives the epoch, the youngest of it: nobody can
 * make us keep more. Such a call has no number in the new epoch, in which the others do not make it any more.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "engine/core.h"

enum { NOTICE_BYTES = 8 + 2 * PCCL__STAMP_BYTES };

/* What is where in a notice: two ranks and their stamps; or one rank, NOBODY, and what it could not quantize. */
enum { RANK_A = 0, RANK_B = 4, STAMP_A = 8, STAMP_B = STAMP_A + PCCL__STAMP_BYTES };
enum { ELEMENT = 8, TENSOR = 16, VALUE = 20, FORMAT = 24, IS_SUM = 25 };
#define NOBODY UINT32_MAX
#define ALONE  UINT32_MAX /* not one of several tensors */

struct mismatch {
    struct list link;
    uint64_t epoch;           /* in which it was met, ... */
    pccl_operation_name name; /* ... under this name */
    bool owed;                /* our call of that number has not come yet */
    uint32_t ahead;           /* owed from an epoch before: after so many numbered calls of this one it is due */
    pccl_status status;
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

/* Those that we have called are only kept so that what is told of them again is known. */
static void forget_oldest(struct pccl__core *core) {
    uint32_t called = 0, owed = 0;
    for (struct list *node = core->failed.previous; node != &core->failed;) {
        struct mismatch *mismatch = mismatch_at(node);
        node = node->previous;
        if (mismatch->owed ? ++owed > PCCL__OWED_MAX : ++called > PCCL__DISCARD_MAX) forget(mismatch);
    }
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

static void describe_unfit(char text[PCCL_MESSAGE_BYTES], const struct pccl__key *key, const uint8_t *notice) {
    char name[PCCL__NAME_TEXT], tensor[32] = "";
    pccl__name_text(pccl__key_name(key), key->epoch, name);
    if (get_u32(notice + TENSOR) != ALONE) snprintf(tensor, sizeof tensor, " of tensor %u", get_u32(notice + TENSOR));
    uint32_t bits = get_u32(notice + VALUE);
    float value;
    memcpy(&value, &bits, sizeof value);
    snprintf(text, PCCL_MESSAGE_BYTES,
             "operation %s: rank %u cannot quantize %s element %llu%s, which is %g, to %s: values must be finite and "
             "within its range",
             name, get_u32(notice + RANK_A), notice[IS_SUM] ? "the sum at" : "its input's",
             (unsigned long long)get_u64(notice + ELEMENT), tensor, (double)value,
             pccl_format_name((pccl_format)notice[FORMAT]));
}

/* What a notice says. */
static pccl_status read_notice(const struct pccl__key *key, const uint8_t *notice, char text[PCCL_MESSAGE_BYTES]) {
    if (get_u32(notice + RANK_B) == NOBODY) {
        describe_unfit(text, key, notice);
        return PCCL_QUANTIZATION;
    }
    struct pccl__stamp a, b;
    memcpy(a.bytes, notice + STAMP_A, sizeof a.bytes);
    memcpy(b.bytes, notice + STAMP_B, sizeof b.bytes);
    describe(text, key, get_u32(notice + RANK_A), get_u32(notice + RANK_B), &a, &b);
    return PCCL_MISMATCH;
}

/* From now on frames of this operation go to nowhere. */
static void discard(struct pccl__core *core, pccl_operation_name name) {
    struct pccl__key key = pccl__name_key(core->group.epoch, name);
    for (uint32_t rank = 0; rank < core->group.size; rank++) {
        struct pccl__channel *channel = core->group.channels[rank];
        if (channel && !channel->broken) channel->ops->discard(channel, &key);
    }
}

/* `returned`: it has succeeded here. Then no later call of ours can tell: those that have failed with it make other
 * calls, and numbers would part. */
static void fail(struct pccl__core *core, pccl_operation_name name, struct pccl_operation *op, bool owed, bool returned,
                 const uint8_t notice[NOTICE_BYTES]) {
    struct pccl__key key = pccl__name_key(core->group.epoch, name);
    struct pccl__stamp stamp = {{0}};
    char text[PCCL_MESSAGE_BYTES];
    pccl_status status = read_notice(&key, notice, text);
    pccl__core_notify(core, PCCL__NOTICE_MISMATCH, &key, &stamp, notice, NOTICE_BYTES);
    struct mismatch *mismatch = calloc(1, sizeof *mismatch);
    if (!mismatch) {
        pccl__core_freeze(core, status, NULL, text);
        return;
    }
    list_init(&mismatch->link);
    list_push_back(&core->failed, &mismatch->link);
    mismatch->epoch = core->group.epoch;
    mismatch->name = name;
    mismatch->owed = owed;
    mismatch->status = status;
    memcpy(mismatch->notice, notice, sizeof mismatch->notice);
    snprintf(mismatch->text, sizeof mismatch->text, "%s", text);
    discard(core, name);
    if (op) pccl__operation_end(op, status, "%s", text);
    forget_oldest(core);
    /* What else is open has no part in it, and may be retried. Values that cannot be quantized are nobody's mistake,
     * and must not cost an epoch. */
    if (status == PCCL_MISMATCH && ++core->failed_count >= PCCL__DISCARD_MAX)
        pccl__core_freeze(core, PCCL_NO_MEMORY, NULL, "too many mismatched operations in one epoch");
    else if (returned)
        pccl__core_freeze(core, status, NULL, text);
}

void pccl__core_remember(struct pccl__core *core, const struct pccl_operation *op) {
    if (pccl__scope_is_pair(op->name.scope)) return; /* whose ends find out by what has come */
    core->returned[core->returned_count++ % PCCL__RETURNED_MAX] =
        (struct pccl__returned){.name = op->name, .stamp = op->stamp};
}

/* NULL: it has not returned, or long ago. */
static const struct pccl__returned *recall(const struct pccl__core *core, pccl_operation_name name) {
    for (uint32_t i = 0; i < PCCL__RETURNED_MAX && i < core->returned_count; i++)
        if (pccl__name_equal(core->returned[i].name, name)) return &core->returned[i];
    return NULL;
}

static void tell_stamps(struct pccl__core *core, pccl_operation_name name, struct pccl_operation *op,
                        const struct pccl__stamp *own, uint32_t other_rank, const struct pccl__stamp *other) {
    uint8_t data[NOTICE_BYTES];
    put_u32(data + RANK_A, core->group.rank);
    put_u32(data + RANK_B, other_rank);
    memcpy(data + STAMP_A, own->bytes, PCCL__STAMP_BYTES);
    memcpy(data + STAMP_B, other->bytes, PCCL__STAMP_BYTES);
    fail(core, name, op, false, op == NULL, data);
}

void pccl__core_mismatch(struct pccl__core *core, struct pccl_operation *op, const struct pccl__stamp *own,
                         uint32_t other_rank, const struct pccl__stamp *other) {
    tell_stamps(core, op->name, op, own, other_rank, other);
}

void pccl__core_unfit(struct pccl__core *core, struct pccl_operation *op) {
    const struct pccl__unfit *unfit = &op->coding.unfit;
    uint8_t data[NOTICE_BYTES] = {0};
    uint64_t element = unfit->element;
    uint32_t tensor = ALONE, bits;
    struct pccl__stretch at = {0};
    if (op->tensors && pccl__tensors_next(op->tensors, element, element + 1, &at)) {
        tensor = at.tensor;
        element -= op->tensors->begins[tensor];
    }
    memcpy(&bits, &unfit->value, sizeof bits);
    put_u32(data + RANK_A, core->group.rank);
    put_u32(data + RANK_B, NOBODY);
    put_u64(data + ELEMENT, element);
    put_u32(data + TENSOR, tensor);
    put_u32(data + VALUE, bits);
    data[FORMAT] = (uint8_t)op->coding.codec.format;
    data[IS_SUM] = unfit->is_sum;
    fail(core, op->name, op, false, false, data);
}

static void tell_again(struct pccl__core *core, uint32_t rank, const struct pccl__key *key,
                       const struct pccl__stamp *stamp) {
    const struct mismatch *mismatch = find(core, pccl__key_name(key));
    struct pccl__channel *channel = core->group.channels[rank];
    if (mismatch && channel && !channel->broken)
        channel->ops->post_notice(channel, PCCL__NOTICE_MISMATCH, key, stamp, mismatch->notice, NOTICE_BYTES);
}

void pccl__core_compare(struct pccl__core *core, uint32_t rank, const struct pccl__key *key,
                        const struct pccl__stamp *stamp) {
    if (key->epoch != core->group.epoch || core->frozen || key->epoch == 0) return;
    pccl_operation_name name = pccl__key_name(key);
    const struct pccl__tag *tag = pccl__tags_find(&core->tags, name.scope, name.tag);
    if (!tag || name.sequence >= tag->next_sequence || pccl__tags_entry(&core->tags, name)) return;
    const struct pccl__returned *returned = recall(core, name);
    if (returned && !find(core, name) && !pccl__stamp_agree(&returned->stamp, stamp))
        tell_stamps(core, name, NULL, &returned->stamp, rank, stamp);
}

void pccl__core_arrived(struct pccl__core *core, uint32_t rank, const struct pccl__key *key) {
    if (key->epoch != core->group.epoch || core->frozen || key->epoch == 0) return;
    pccl_operation_name name = pccl__key_name(key);
    const struct pccl__tag *tag = pccl__tags_find(&core->tags, name.scope, name.tag);
    if (!tag || name.sequence >= tag->next_sequence || pccl__tags_entry(&core->tags, name)) return;
    core->group.channels[rank]->ops->discard(core->group.channels[rank], key);
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
    pccl__core_compare(core, rank, key, stamp);
}

void pccl__core_mismatch_notice(struct pccl__core *core, const struct pccl__notice *notice) {
    if (notice->key.epoch != core->group.epoch || core->frozen || notice->bytes != NOTICE_BYTES) return;
    pccl_operation_name name = pccl__key_name(&notice->key);
    if (find(core, name)) return;
    struct pccl__entry *entry = pccl__tags_entry(&core->tags, name);
    struct pccl__tag *tag = pccl__tags_find(&core->tags, name.scope, name.tag);
    bool started = tag && name.sequence < tag->next_sequence;
    if (pccl__scope_is_pair(name.scope) && !started) return; /* who sends and who receives find out by what has come */
    struct pccl_operation *op = entry ? entry->operation : NULL;
    bool returned = started && !op && core->deferred.open; /* or it had failed before */
    bool old = tag && (uint64_t)name.sequence + PCCL__DISCARD_MAX < tag->next_sequence;
    if (started && !op && old && !recall(core, name)) return; /* it had, and is forgotten */
    fail(core, name, op, !started, returned, notice->data);
}

bool pccl__core_owed_mismatch(struct pccl__core *core, struct pccl_operation *op) {
    struct pccl__tag *tag = pccl__tags_find(&core->tags, op->call.scope, op->call.tag);
    pccl_operation_name next = {.tag = op->call.tag, .scope = op->call.scope, .sequence = tag ? tag->next_sequence : 0};
    struct mismatch *mismatch = due(core, next);
    if (mismatch) {
        pccl__operation_end(op, mismatch->status, "%s", mismatch->text);
        forget(mismatch);
        return true;
    }
    mismatch = find(core, next);
    if (!mismatch || !mismatch->owed) return false;
    mismatch->owed = false;
    struct pccl__entry *entry;
    if (pccl__tags_begin(&core->tags, next.scope, next.tag, &entry) != PCCL_OK)
        pccl__core_freeze(core, PCCL_NO_MEMORY, NULL, "no memory to number an operation");
    pccl__operation_end(op, mismatch->status, "%s", mismatch->text);
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
        if (passed || owed++ >= PCCL__OWED_MAX) forget(mismatch);
    }
    for (struct list *node = core->failed.next; node != &core->failed; node = node->next)
        mismatch_at(node)->ahead = calls_ahead(core, mismatch_at(node));
    core->failed_count = core->returned_count = 0;
}

void pccl__core_drop_mismatches(struct pccl__core *core) {
    while (!list_empty(&core->failed)) forget(mismatch_at(core->failed.next));
}
