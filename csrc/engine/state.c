/* SPDX-License-Identifier: MIT
 *
 * state.c - bulk transfer of shared state between members, outside epochs.
 *
 * A fetch is one posted receive; its key spells out what is wanted: tag = sync id, sequence = region, segment and
 * the lower half of step = the offset. The upper half of step counts fetches: what is still on its way for one
 * that was given up must not be taken for the data of the next. The channel tells the donor that such a receive
 * waits (WANTED), and the donor posts the send straight from the served memory. A wish that comes before its sync
 * id is served waits for that, within bounds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/check.h"
#include "base/status.h"
#include "engine/core.h"

/* FETCHES_MAX: each is a go-ahead that its donor keeps (inbox.h). */
enum { WISHES_MAX = 1024, UNSERVED_MAX = 16, FETCHES_MAX = 4096, OFFSET_BITS = 48 };

struct wish {
    struct list link;
    pccl_peer_id peer;
    struct pccl__key key;
    uint32_t bytes;
};

struct piece {
    struct list link;
    struct pccl__transfer transfer;
    pccl_peer_id peer;
};

/* With regions NULL: nobody serves it yet, wishes wait. */
struct served {
    struct list link;
    uint64_t sync_id;
    pccl_region *regions;
    uint32_t regions_count;
    struct list wishes, pieces;
    uint32_t wishes_count;
};

static struct served *find(struct pccl__core *core, uint64_t sync_id) {
    for (struct list *node = core->served.next; node != &core->served; node = node->next)
        if (LIST_ENTRY(node, struct served, link)->sync_id == sync_id) return LIST_ENTRY(node, struct served, link);
    return NULL;
}

static struct served *find_or_new(struct pccl__core *core, uint64_t sync_id) {
    struct served *served = find(core, sync_id);
    if (served) return served;
    served = calloc(1, sizeof *served);
    if (!served) return NULL;
    served->sync_id = sync_id;
    list_init(&served->link);
    list_init(&served->wishes);
    list_init(&served->pieces);
    list_push_back(&core->served, &served->link);
    return served;
}

static void refuse(struct pccl__core *core, const pccl_peer_id *peer, const struct pccl__key *key) {
    struct pccl__channel *channel = pccl__group_channel(&core->group, peer);
    struct pccl__stamp stamp = {{0}};
    if (!channel || channel->broken) return;
    channel->ops->decline(channel, key);
    channel->ops->post_notice(channel, PCCL__NOTICE_REFUSED, key, &stamp, NULL, 0);
}

static void fulfil(struct pccl__core *core, struct served *served, const struct wish *wish) {
    uint64_t offset = (uint64_t)(wish->key.step & 0xffff) << 32 | wish->key.segment;
    struct pccl__channel *channel = pccl__group_channel(&core->group, &wish->peer);
    if (!channel) return;
    const pccl_region *region =
        wish->key.sequence < served->regions_count ? &served->regions[wish->key.sequence] : NULL;
    struct piece *piece = NULL;
    if (region && offset <= region->bytes && wish->bytes <= region->bytes - offset)
        piece = pccl__pool_take(&core->pool, sizeof *piece);
    if (!piece) {
        refuse(core, &wish->peer, &wish->key);
        return;
    }
    *piece = (struct piece){.peer = wish->peer};
    piece->transfer = (struct pccl__transfer){
        .key = wish->key, .data = (uint8_t *)(uintptr_t)region->data + offset, .bytes = wish->bytes, .owner = piece};
    list_init(&piece->link);
    list_push_back(&served->pieces, &piece->link);
    if (channel->ops->post_send(channel, &piece->transfer) == PCCL_OK) return;
    list_remove(&piece->link);
    pccl__pool_put(&core->pool, piece, sizeof *piece);
    refuse(core, &wish->peer, &wish->key);
}

pccl_status pccl__core_serve(struct pccl__core *core, uint64_t sync_id, const pccl_region *regions, uint32_t count,
                             pccl_error *error) {
    struct served *served = find_or_new(core, sync_id);
    if (served && served->regions)
        return pccl__fail(error, PCCL_INVALID, "sync %llu is served already", (unsigned long long)sync_id);
    pccl_region *copy = malloc((count + 1) * sizeof *copy);
    if (!served || !copy) {
        free(copy);
        return pccl__fail(error, PCCL_NO_MEMORY, "no memory to serve %u regions", count);
    }
    if (count) memcpy(copy, regions, count * sizeof *copy);
    served->regions = copy;
    served->regions_count = count;
    struct list *node;
    while ((node = list_pop_front(&served->wishes))) {
        struct wish *wish = LIST_ENTRY(node, struct wish, link);
        fulfil(core, served, wish);
        free(wish);
    }
    served->wishes_count = 0;
    return PCCL_OK;
}

/* The channels let go in the progress after a cancel; then nothing reads the served memory any more. */
static void drop(struct pccl__core *core, struct served *served) {
    struct list *node;
    while ((node = list_pop_front(&served->wishes))) {
        refuse(core, &LIST_ENTRY(node, struct wish, link)->peer, &LIST_ENTRY(node, struct wish, link)->key);
        free(LIST_ENTRY(node, struct wish, link));
    }
    while (!list_empty(&served->pieces)) {
        struct piece *piece = LIST_ENTRY(served->pieces.next, struct piece, link);
        struct pccl__channel *channel = pccl__group_channel(&core->group, &piece->peer);
        CHECK(channel); /* a retired channel gave all its pieces back */
        channel->ops->cancel(channel, &piece->transfer, PCCL_ABORTED);
        pccl__core_run_channel(core, channel);
    }
    list_remove(&served->link);
    free(served->regions);
    free(served);
}

static struct pccl_operation *fetch_under(struct pccl__core *core, uint64_t sync_id) {
    for (struct list *node = core->open.next; node != &core->open; node = node->next) {
        struct pccl_operation *op = LIST_ENTRY(node, struct pccl_operation, link);
        if (op->is_fetch && op->fetch.key.tag == sync_id) return op;
    }
    return NULL;
}

void pccl__core_stop_state(struct pccl__core *core, uint64_t sync_id) {
    struct served *served = find(core, sync_id);
    if (served) drop(core, served);
    core->stopped[core->stopped_next++ % PCCL__STOPPED_MAX] = sync_id;
    struct pccl_operation *op;
    while ((op = fetch_under(core, sync_id))) {
        pccl_peer_id peer = op->fetch_peer;
        pccl__operation_end(op, PCCL_ABORTED, "the synchronisation was stopped");
        struct pccl__channel *channel = pccl__group_channel(&core->group, &peer);
        if (channel) pccl__core_run_channel(core, channel);
    }
}

void pccl__core_forget_wishes(struct pccl__core *core, const pccl_peer_id *peer) {
    for (struct list *at = core->served.next; at != &core->served; at = at->next) {
        struct served *served = LIST_ENTRY(at, struct served, link);
        for (struct list *node = served->wishes.next; node != &served->wishes;) {
            struct wish *wish = LIST_ENTRY(node, struct wish, link);
            node = node->next;
            if (memcmp(&wish->peer, peer, sizeof *peer) != 0) continue;
            list_remove(&wish->link);
            free(wish);
            served->wishes_count--;
        }
    }
}

void pccl__core_drop_served(struct pccl__core *core) {
    while (!list_empty(&core->served)) drop(core, LIST_ENTRY(core->served.next, struct served, link));
}

void pccl__core_served(struct pccl__core *core, struct pccl__transfer *transfer) {
    struct piece *piece = transfer->owner;
    list_remove(&piece->link);
    pccl__pool_put(&core->pool, piece, sizeof *piece);
}

static bool was_stopped(const struct pccl__core *core, uint64_t sync_id) {
    for (uint32_t i = 0; i < PCCL__STOPPED_MAX && i < core->stopped_next; i++)
        if (core->stopped[i] == sync_id) return true;
    return false;
}

/* Wishes under ids that nobody ever serves do not pile up: the oldest id gives way. */
static struct served *served_or_waiting(struct pccl__core *core, uint64_t sync_id) {
    struct served *served = find(core, sync_id), *oldest = NULL;
    uint32_t unserved = 0;
    if (served || was_stopped(core, sync_id)) return served;
    for (struct list *node = core->served.previous; node != &core->served; node = node->previous) {
        struct served *other = LIST_ENTRY(node, struct served, link);
        if (other->regions) continue;
        oldest = other;
        unserved++;
    }
    if (unserved == UNSERVED_MAX) drop(core, oldest);
    return find_or_new(core, sync_id);
}

void pccl__core_wanted(struct pccl__core *core, struct pccl__channel *channel, const struct pccl__notice *notice) {
    if (notice->bytes != 4) return;
    struct wish wish = {.peer = channel->peer, .key = notice->key, .bytes = get_u32(notice->data)};
    struct served *served = served_or_waiting(core, notice->key.tag);
    if (served && served->regions) {
        fulfil(core, served, &wish);
        return;
    }
    struct wish *kept = served && served->wishes_count < WISHES_MAX ? malloc(sizeof *kept) : NULL;
    if (!kept) {
        refuse(core, &wish.peer, &wish.key);
        return;
    }
    *kept = wish;
    list_init(&kept->link);
    list_push_back(&served->wishes, &kept->link);
    served->wishes_count++;
}

/* ---------------------------------------------------------------- fetching */

static struct pccl_operation *fetch_of(struct pccl__core *core, const pccl_peer_id *peer, const struct pccl__key *key) {
    for (struct list *node = core->open.next; node != &core->open; node = node->next) {
        struct pccl_operation *op = LIST_ENTRY(node, struct pccl_operation, link);
        if (!op->is_fetch || memcmp(&op->fetch_peer, peer, sizeof *peer)) continue;
        if (!key || pccl__key_equal(&op->fetch.key, key)) return op;
    }
    return NULL;
}

void pccl__core_refused(struct pccl__core *core, struct pccl__channel *channel, const struct pccl__notice *notice) {
    struct pccl_operation *op = fetch_of(core, &channel->peer, &notice->key);
    if (op)
        pccl__operation_end(op, PCCL_INVALID, "the donor does not serve region %u at this offset",
                            notice->key.sequence);
}

void pccl__core_fail_fetches(struct pccl__core *core, const pccl_peer_id *peer, const char *text) {
    struct pccl_operation *op;
    while ((op = fetch_of(core, peer, NULL)))
        pccl__operation_end(op, PCCL_PEER_LOST, "the link to the donor: %.800s", text);
}

pccl_status pccl__core_fetch(struct pccl__core *core, uint64_t sync_id, pccl_peer_id peer, uint32_t region,
                             uint64_t offset, uint64_t bytes, void *target, uint32_t timeout_ms, uint64_t now_ns,
                             struct pccl_operation **operation, pccl_error *error) {
    core->now_ns = now_ns;
    if (core->halted != PCCL_OK) return pccl__fail(error, core->halted, "%s", core->halt_text);
    if (bytes > PCCL__TRANSFER_BYTES || (bytes && !target))
        return pccl__fail(error, PCCL_INVALID, "a fetch of %llu bytes (at most %u)", (unsigned long long)bytes,
                          (unsigned)PCCL__TRANSFER_BYTES);
    if (offset >> OFFSET_BITS)
        return pccl__fail(error, PCCL_INVALID, "offset %llu is too large", (unsigned long long)offset);
    if (core->open_fetches >= FETCHES_MAX)
        return pccl__fail(error, PCCL_INVALID, "more than %d fetches at once: wait for some", FETCHES_MAX);
    struct pccl__channel *channel = pccl__group_channel(&core->group, &peer);
    if (!channel || channel->broken) return pccl__fail(error, PCCL_PEER_LOST, "the donor is not a member of the group");
    struct pccl_operation *op = pccl__operation_new(core, &(pccl_call){.timeout_ms = timeout_ms});
    if (!op) return pccl__fail(error, PCCL_NO_MEMORY, "no memory for a fetch");
    op->is_fetch = true;
    core->open_fetches++;
    op->fetch_peer = peer;
    op->started_ns = op->progressed_ns = now_ns;
    op->fetch = (struct pccl__transfer){.key = {.tag = sync_id,
                                                .sequence = region,
                                                .step = core->fetches++ << 16 | (uint32_t)(offset >> 32),
                                                .segment = (uint32_t)offset},
                                        .data = target,
                                        .bytes = (uint32_t)bytes,
                                        .owner = op};
    op->state = PCCL__DATA;
    list_push_back(&core->open, &op->link);
    pccl__core_watch(op);
    *operation = op;
    pccl_status status = channel->ops->post_recv(channel, &op->fetch);
    if (status == PCCL_OK)
        op->borrowed++;
    else if (status == PCCL_NO_MEMORY)
        pccl__operation_end(op, PCCL_NO_MEMORY, "no memory to ask the donor");
    else
        pccl__operation_end(op, PCCL_PEER_LOST, "the link to the donor is broken");
    return PCCL_OK;
}
