/* SPDX-License-Identifier: MIT
 *
 * inbox.c - see inbox.h.
 *
 * A kept entry (`struct pccl__early`) is an offer (no buffer) or an eager arrival (buffer of `bytes`, perhaps of size
 * 0). An eager arrival is one frame, so it is either wholly here (`arrived`) or one landing is filling it.
 */
#include "channel/inbox.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

struct pccl__early {
    struct list hash_link, all_link;
    struct pccl__key key;
    struct pccl__stamp stamp;
    uint32_t bytes;
    bool arrived;
    uint8_t *memory; /* NULL: an offer */
};

static struct list *bucket(struct list *buckets, const struct pccl__key *key) {
    return &buckets[pccl__key_hash(key) % PCCL__BOX_BUCKETS];
}

static bool stale(const struct pccl__inbox *inbox, const struct pccl__key *key) {
    if (key->epoch != 0 && key->epoch < inbox->epoch) return true;
    for (uint32_t i = 0; i < PCCL__DISCARD_MAX && i < inbox->discarded_count; i++) {
        const struct pccl__key *discarded = &inbox->discarded[i];
        if (discarded->epoch == key->epoch && discarded->tag == key->tag && discarded->scope == key->scope &&
            discarded->sequence == key->sequence)
            return true;
    }
    return false;
}

static struct pccl__transfer *find_posted(struct pccl__inbox *inbox, const struct pccl__key *key) {
    struct list *chain = bucket(inbox->posted, key);
    for (struct list *node = chain->next; node != chain; node = node->next) {
        struct pccl__transfer *transfer = LIST_ENTRY(node, struct pccl__transfer, hash_link);
        if (pccl__key_equal(&transfer->key, key)) return transfer;
    }
    return NULL;
}

static struct pccl__early *find_early(struct pccl__inbox *inbox, const struct pccl__key *key) {
    struct list *chain = bucket(inbox->kept, key);
    for (struct list *node = chain->next; node != chain; node = node->next) {
        struct pccl__early *early = LIST_ENTRY(node, struct pccl__early, hash_link);
        if (pccl__key_equal(&early->key, key)) return early;
    }
    return NULL;
}

void pccl__inbox_init(struct pccl__inbox *inbox, struct list *completed, struct list *notices) {
    *inbox = (struct pccl__inbox){.completed = completed, .notices = notices};
    for (int i = 0; i < PCCL__BOX_BUCKETS; i++) {
        list_init(&inbox->posted[i]);
        list_init(&inbox->kept[i]);
    }
    list_init(&inbox->all_kept);
    list_init(&inbox->landings);
}

/* Landings of a transfer or an early entry that goes away: their remaining bytes go nowhere. */
static void send_nowhere(struct pccl__inbox *inbox, const struct pccl__transfer *transfer,
                         const struct pccl__early *early) {
    for (struct list *node = inbox->landings.next; node != &inbox->landings; node = node->next) {
        struct pccl__landing *landing = LIST_ENTRY(node, struct pccl__landing, link);
        if (transfer && landing->transfer == transfer) landing->transfer = NULL;
        if (early && landing->early == early) landing->early = NULL;
    }
}

static void complete(struct pccl__inbox *inbox, struct pccl__transfer *transfer, pccl_status status) {
    DCHECK(transfer->state == PCCL__POSTED && !transfer->is_send);
    send_nowhere(inbox, transfer, NULL);
    bool used = status == PCCL_OK || status == PCCL_MISMATCH; /* else the other side still keeps the go-ahead */
    if ((transfer->flags & PCCL__TRANSFER_GO_AHEAD) && used && transfer->key.epoch == inbox->epoch) inbox->gos_ahead--;
    list_remove(&transfer->hash_link);
    inbox->posted_count--;
    transfer->state = PCCL__COMPLETED;
    transfer->status = status;
    list_push_back(inbox->completed, &transfer->link);
}

static void complete_mismatch(struct pccl__inbox *inbox, struct pccl__transfer *transfer,
                              const struct pccl__stamp *peer_stamp) {
    transfer->peer_stamp = *peer_stamp;
    complete(inbox, transfer, PCCL_MISMATCH);
}

static bool waits_for_offer(const struct pccl__transfer *transfer, bool offered) {
    return offered && !(transfer->flags & PCCL__TRANSFER_OFFER_SEEN) && transfer->key.epoch != 0;
}

static void complete_if_whole(struct pccl__inbox *inbox, struct pccl__transfer *transfer) {
    bool offer_missing = waits_for_offer(transfer, transfer->flags & PCCL__TRANSFER_OFFERED);
    if (transfer->moved == transfer->bytes && !offer_missing) complete(inbox, transfer, PCCL_OK);
}

static bool matches(const struct pccl__transfer *transfer, const struct pccl__stamp *stamp, uint32_t bytes) {
    return transfer->bytes == bytes && memcmp(&transfer->stamp, stamp, sizeof *stamp) == 0;
}

/* A buffer's charge is released here if its frame has ended, else when its landing ends. */
static void free_buffer(struct pccl__inbox *inbox, struct pccl__early *early) {
    if (!early->memory) return;
    inbox->held_bytes -= pccl__eager_charge(early->bytes);
    if (early->arrived) inbox->released_bytes += pccl__eager_charge(early->bytes);
    early->arrived = false;
    free(early->memory);
    early->memory = NULL;
}

static void forget(struct pccl__inbox *inbox, struct pccl__early *early) {
    send_nowhere(inbox, NULL, early);
    free_buffer(inbox, early);
    list_remove(&early->hash_link);
    list_remove(&early->all_link);
    inbox->kept_count--;
    free(early);
}

/* Remembers that `key` came before its receive, and tells the owner. */
static pccl_status keep(struct pccl__inbox *inbox, const struct pccl__key *key, const struct pccl__stamp *stamp,
                        uint32_t bytes, struct pccl__early **kept) {
    if (inbox->kept_count >= PCCL__BOX_ENTRIES) return PCCL_PROTOCOL;
    struct pccl__early *early = calloc(1, sizeof *early);
    struct pccl__notice *notice = pccl__notice_new(PCCL__NOTICE_ARRIVED, key, stamp, NULL, 0);
    if (!early || !notice) {
        free(early);
        pccl__notice_free(notice);
        return PCCL_NO_MEMORY;
    }
    early->key = *key;
    early->stamp = *stamp;
    early->bytes = bytes;
    list_push_back(bucket(inbox->kept, key), &early->hash_link);
    list_push_back(&inbox->all_kept, &early->all_link);
    inbox->kept_count++;
    list_push_back(inbox->notices, &notice->link);
    *kept = early;
    return PCCL_OK;
}

static pccl_status hold_buffer(struct pccl__inbox *inbox, struct pccl__early *early) {
    uint32_t charge = pccl__eager_charge(early->bytes);
    if (inbox->held_bytes + charge > PCCL__EAGER_WINDOW) return PCCL_PROTOCOL;
    early->memory = malloc(early->bytes ? early->bytes : 1);
    if (!early->memory) return PCCL_NO_MEMORY;
    inbox->held_bytes += charge;
    return PCCL_OK;
}

/* The kept bytes become the transfer's. A landing in the middle of the buffer goes on in the transfer's memory. */
static void move_over(struct pccl__inbox *inbox, struct pccl__early *early, struct pccl__transfer *transfer) {
    if (early->bytes) memcpy(transfer->data, early->memory, early->bytes);
    for (struct list *node = inbox->landings.next; node != &inbox->landings; node = node->next) {
        struct pccl__landing *landing = LIST_ENTRY(node, struct pccl__landing, link);
        if (landing->early != early) continue;
        landing->early = NULL;
        landing->transfer = transfer;
    }
    if (!early->arrived) return;
    transfer->moved = transfer->bytes;
    complete(inbox, transfer, PCCL_OK);
}

pccl_status pccl__inbox_post(struct pccl__inbox *inbox, struct pccl__transfer *transfer, bool *go) {
    *go = false;
    if (transfer->bytes > PCCL__TRANSFER_BYTES) return PCCL_INVALID;
    DCHECK(!find_posted(inbox, &transfer->key));
    transfer->is_send = false;
    transfer->state = PCCL__POSTED;
    transfer->moved = 0;
    transfer->flags = 0;
    list_push_back(bucket(inbox->posted, &transfer->key), &transfer->hash_link);
    inbox->posted_count++;
    if (stale(inbox, &transfer->key)) return PCCL_OK;

    struct pccl__early *early = find_early(inbox, &transfer->key);
    if (early && !matches(transfer, &early->stamp, early->bytes)) {
        complete_mismatch(inbox, transfer, &early->stamp);
    } else if (early && early->memory) {
        move_over(inbox, early, transfer);
    } else {
        /* Only large transfers and those outside epochs always wait for a GO; a small one without an offer is on its
         * way or will be offered, and so will be a large one beyond what we may be ahead. */
        bool counted = !early && transfer->key.epoch != 0;
        *go = !counted || (transfer->bytes > PCCL__EAGER_BYTES && inbox->gos_ahead < PCCL__AHEAD_MAX);
        if (*go) transfer->flags |= PCCL__TRANSFER_GO;
        if (*go && counted && transfer->key.epoch == inbox->epoch) {
            transfer->flags |= PCCL__TRANSFER_GO_AHEAD;
            inbox->gos_ahead++;
        }
        if (early) transfer->flags |= PCCL__TRANSFER_OFFER_SEEN;
    }
    if (early) forget(inbox, early);
    return PCCL_OK;
}

pccl_status pccl__inbox_offer(struct pccl__inbox *inbox, const struct pccl__key *key, const struct pccl__stamp *stamp,
                              uint32_t bytes, bool *go) {
    *go = false;
    if (bytes > PCCL__TRANSFER_BYTES) return PCCL_PROTOCOL;
    if (stale(inbox, key)) return PCCL_OK;
    struct pccl__transfer *transfer = find_posted(inbox, key);
    if (!transfer) {
        if (key->epoch == 0) return PCCL_OK; /* perhaps we gave up on it, and nothing would ever sweep it out */
        struct pccl__early *early = find_early(inbox, key);
        return early ? PCCL_OK : keep(inbox, key, stamp, bytes, &early);
    }
    if (!matches(transfer, stamp, bytes)) {
        complete_mismatch(inbox, transfer, stamp);
        return PCCL_OK;
    }
    *go = !(transfer->flags & PCCL__TRANSFER_GO);
    transfer->flags |= PCCL__TRANSFER_GO | PCCL__TRANSFER_OFFER_SEEN;
    if (transfer->flags & PCCL__TRANSFER_OFFERED) complete_if_whole(inbox, transfer); /* the data was faster */
    return PCCL_OK;
}

/* Eager data without a posted receive: finds or makes the buffer for it. NULL in `*kept`: it is a repetition. */
static pccl_status keep_arrival(struct pccl__inbox *inbox, const struct pccl__arrival *arrival,
                                struct pccl__early **kept) {
    struct pccl__early *early = find_early(inbox, &arrival->key);
    pccl_status status = PCCL_OK;
    if (!early) status = keep(inbox, &arrival->key, &arrival->stamp, arrival->bytes, &early);
    if (status != PCCL_OK) return status;
    if (early->bytes != arrival->bytes) return PCCL_PROTOCOL;
    if (!early->memory) status = hold_buffer(inbox, early);
    *kept = early->arrived ? NULL : early;
    return status;
}

pccl_status pccl__inbox_land(struct pccl__inbox *inbox, const struct pccl__arrival *arrival,
                             struct pccl__landing *landing) {
    if (arrival->bytes > PCCL__TRANSFER_BYTES || arrival->offset > arrival->bytes ||
        arrival->payload_bytes > arrival->bytes - arrival->offset)
        return PCCL_PROTOCOL;
    if (arrival->eager &&
        (arrival->bytes > PCCL__EAGER_BYTES || arrival->payload_bytes != arrival->bytes || arrival->key.epoch == 0))
        return PCCL_PROTOCOL;
    struct pccl__transfer *transfer = NULL;
    struct pccl__early *early = NULL;
    if (!stale(inbox, &arrival->key)) {
        transfer = find_posted(inbox, &arrival->key);
        if (transfer && !matches(transfer, &arrival->stamp, arrival->bytes)) {
            if (!waits_for_offer(transfer, arrival->offered)) /* else the offer will */
                complete_mismatch(inbox, transfer, &arrival->stamp);
            transfer = NULL;
        } else if (!transfer && arrival->eager) {
            pccl_status status = keep_arrival(inbox, arrival, &early);
            if (status != PCCL_OK) return status;
        }
    }
    *landing = (struct pccl__landing){.inbox = inbox,
                                      .transfer = transfer,
                                      .early = early,
                                      .key = arrival->key,
                                      .offset = arrival->offset,
                                      .payload_bytes = arrival->payload_bytes,
                                      .eager = arrival->eager,
                                      .offered = arrival->offered};
    list_push_back(&inbox->landings, &landing->link);
    return PCCL_OK;
}

uint8_t *pccl__landing_memory(const struct pccl__landing *landing) {
    if (landing->early) return landing->early->memory;
    if (landing->transfer && landing->payload_bytes) return (uint8_t *)landing->transfer->data + landing->offset;
    return NULL;
}

void pccl__landing_void(struct pccl__landing *landing) {
    CHECK(!landing->eager);
    landing->transfer = NULL;
}

pccl_status pccl__landing_end(struct pccl__landing *landing) {
    struct pccl__inbox *inbox = landing->inbox;
    list_remove(&landing->link);
    if (landing->early) {
        /* Its charge stays with the buffer. A second landing of the same frame finds nothing to fill. */
        struct pccl__early *early = landing->early;
        early->arrived = true;
        send_nowhere(inbox, NULL, early);
        return PCCL_OK;
    }
    if (landing->eager) inbox->released_bytes += pccl__eager_charge(landing->payload_bytes);
    struct pccl__transfer *transfer = landing->transfer;
    if (!transfer) return PCCL_OK;
    if (landing->payload_bytes > transfer->bytes - transfer->moved) return PCCL_PROTOCOL;
    transfer->moved += landing->payload_bytes;
    if (landing->offered) transfer->flags |= PCCL__TRANSFER_OFFERED;
    complete_if_whole(inbox, transfer);
    return PCCL_OK;
}

void pccl__landing_drop(struct pccl__landing *landing) {
    struct pccl__inbox *inbox = landing->inbox;
    struct pccl__early *early = landing->early;
    list_remove(&landing->link);
    if (!early) return;
    for (struct list *node = inbox->landings.next; node != &inbox->landings; node = node->next)
        if (LIST_ENTRY(node, struct pccl__landing, link)->early == early) return;
    free_buffer(inbox, early); /* as good as an offer now: the frame comes again, or the link is lost */
}

void pccl__inbox_cancel(struct pccl__inbox *inbox, struct pccl__transfer *transfer, pccl_status why) {
    if (transfer->state == PCCL__POSTED) complete(inbox, transfer, why);
}

/* What arrived early and is stale now goes; so do the rest of its landings. */
static void forget_stale(struct pccl__inbox *inbox) {
    for (struct list *node = inbox->all_kept.next, *next; node != &inbox->all_kept; node = next) {
        next = node->next;
        struct pccl__early *early = LIST_ENTRY(node, struct pccl__early, all_link);
        if (stale(inbox, &early->key)) forget(inbox, early);
    }
    for (struct list *node = inbox->landings.next; node != &inbox->landings; node = node->next) {
        struct pccl__landing *landing = LIST_ENTRY(node, struct pccl__landing, link);
        if (stale(inbox, &landing->key)) landing->transfer = NULL;
    }
}

pccl_status pccl__inbox_discard(struct pccl__inbox *inbox, const struct pccl__key *key) {
    inbox->discarded[inbox->discarded_count++ % PCCL__DISCARD_MAX] = *key;
    forget_stale(inbox);
    return PCCL_OK;
}

void pccl__inbox_expect(struct pccl__inbox *inbox, uint64_t epoch) {
    CHECK(epoch >= inbox->epoch);
    inbox->epoch = epoch;
    inbox->discarded_count = 0; /* all of older epochs */
    inbox->gos_ahead = 0;
    forget_stale(inbox);
}

void pccl__inbox_fail(struct pccl__inbox *inbox, pccl_status why) {
    for (int i = 0; i < PCCL__BOX_BUCKETS; i++) {
        while (!list_empty(&inbox->posted[i]))
            complete(inbox, LIST_ENTRY(inbox->posted[i].next, struct pccl__transfer, hash_link), why);
    }
    while (!list_empty(&inbox->all_kept)) forget(inbox, LIST_ENTRY(inbox->all_kept.next, struct pccl__early, all_link));
}
