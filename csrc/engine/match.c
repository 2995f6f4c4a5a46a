/* SPDX-License-Identifier: MIT */
#include "engine/match.h"

#include <string.h>

static struct pccl_operation *unmatched_at(struct list *node) {
    return LIST_ENTRY(node, struct pccl_operation, unmatched);
}

static bool of_any_source(const struct pccl_operation *op) { return op->call.root == PCCL_ANY_SOURCE; }

bool pccl__match_delays(const struct pccl__core *core, const struct pccl_operation *op) {
    if (op->call.collective != PCCL_RECV) return false;
    bool delays = of_any_source(op);
    for (struct list *node = core->unmatched.next; node != &core->unmatched && !delays; node = node->next)
        delays = unmatched_at(node)->call.tag == op->call.tag && of_any_source(unmatched_at(node));
    return delays;
}

static void begin(struct pccl__core *core, struct pccl_operation *op, uint32_t source) {
    list_remove(&op->unmatched);
    op->call.root = source;
    pccl__core_begin(core, op);
}

void pccl__match_move_up(struct pccl__core *core, uint64_t tag) {
    bool behind_any = false;
    for (struct list *node = core->unmatched.next, *next; node != &core->unmatched && !core->frozen; node = next) {
        struct pccl_operation *op = unmatched_at(node);
        next = node->next;
        if (op->call.tag != tag) continue;
        const struct pccl__tag *sends = of_any_source(op) ? pccl__tags_arrived(&core->tags, tag) : NULL;
        if (sends)
            begin(core, op, pccl__scope_source(sends->scope));
        else if (of_any_source(op))
            behind_any = true;
        else if (!behind_any)
            begin(core, op, op->call.root);
    }
}

void pccl__match_add(struct pccl__core *core, struct pccl_operation *op) {
    list_push_back(&core->unmatched, &op->unmatched);
    pccl__match_move_up(core, op->call.tag);
}

void pccl__match_arrived(struct pccl__core *core, uint32_t rank, const struct pccl__key *key) {
    if (key->epoch != core->group.epoch || core->frozen || key->scope != pccl_scope(rank, core->group.rank)) return;
    if (rank == core->group.size || !core->group.used[rank])
        return; /* who sends all the same has been told that it cannot */
    pccl_status status = pccl__tags_announce(&core->tags, pccl__key_name(key));
    if (status != PCCL_OK)
        pccl__core_freeze(core, PCCL_NO_MEMORY, NULL, "no memory, or too many tags, to note what others send");
    else
        pccl__match_move_up(core, key->tag);
}

/* Ranks mean other peers then, so who says it is noted in the notice itself. */
bool pccl__match_keeps(struct pccl__core *core, const pccl_peer_id *peer, struct pccl__notice *notice) {
    if (notice->kind != PCCL__NOTICE_ARRIVED || !pccl__scope_is_pair(notice->key.scope) ||
        notice->key.epoch <= core->group.epoch)
        return false;
    memcpy(notice->data, peer, sizeof *peer);
    list_push_back(&core->early_sends, &notice->link);
    return true;
}

void pccl__match_renew(struct pccl__core *core) {
    for (struct list *node = core->early_sends.next, *next; node != &core->early_sends; node = next) {
        struct pccl__notice *notice = LIST_ENTRY(node, struct pccl__notice, link);
        next = node->next;
        if (notice->key.epoch > core->group.epoch) continue;
        pccl_peer_id peer;
        memcpy(&peer, notice->data, sizeof peer);
        pccl__match_arrived(core, pccl__group_rank_of(&core->group, &peer), &notice->key);
        list_remove(&notice->link);
        pccl__notice_free(notice);
    }
}

void pccl__match_forget(struct pccl__core *core) {
    struct list *node;
    while ((node = list_pop_front(&core->early_sends))) pccl__notice_free(LIST_ENTRY(node, struct pccl__notice, link));
}
