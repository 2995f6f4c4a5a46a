/* SPDX-License-Identifier: MIT
 *
 * outbox.c - see outbox.h.
 */
#include "channel/outbox.h"

#include <stdlib.h>

#include "base/bits.h"
#include "base/check.h"

struct pccl__grant {
    struct list hash_link, all_link;
    struct pccl__key key;
};

static struct list *bucket(struct list *buckets, const struct pccl__key *key) {
    return &buckets[pccl__key_hash(key) % PCCL__BOX_BUCKETS];
}

static bool stale(const struct pccl__outbox *outbox, const struct pccl__key *key) {
    return key->epoch != 0 && key->epoch < outbox->epoch;
}

void pccl__outbox_init(struct pccl__outbox *outbox, struct list *notices) {
    *outbox = (struct pccl__outbox){.notices = notices};
    for (int i = 0; i < PCCL__BOX_BUCKETS; i++) {
        list_init(&outbox->waiting[i]);
        list_init(&outbox->grants[i]);
    }
    list_init(&outbox->all_grants);
    list_init(&outbox->held);
}

static struct pccl__grant *find_grant(struct pccl__outbox *outbox, const struct pccl__key *key) {
    struct list *chain = bucket(outbox->grants, key);
    for (struct list *node = chain->next; node != chain; node = node->next) {
        struct pccl__grant *grant = LIST_ENTRY(node, struct pccl__grant, hash_link);
        if (pccl__key_equal(&grant->key, key)) return grant;
    }
    return NULL;
}

static void forget(struct pccl__outbox *outbox, struct pccl__grant *grant) {
    list_remove(&grant->hash_link);
    list_remove(&grant->all_link);
    outbox->grants_count--;
    free(grant);
}

/* Offers outside epochs are not kept by the other side. Older epochs' are swept out of there. */
static bool counts(const struct pccl__outbox *outbox, const struct pccl__transfer *transfer) {
    return transfer->key.epoch != 0 && transfer->key.epoch == outbox->epoch;
}

enum pccl__way pccl__outbox_post(struct pccl__outbox *outbox, struct pccl__transfer *transfer) {
    list_init(&transfer->hash_link);
    struct pccl__grant *grant = outbox->grants_count ? find_grant(outbox, &transfer->key) : NULL;
    if (grant) {
        forget(outbox, grant);
        return PCCL__WAY_GRANTED;
    }
    uint64_t charged = outbox->charged_bytes + pccl__eager_charge(transfer->bytes);
    if (transfer->bytes <= PCCL__EAGER_BYTES && transfer->key.epoch != 0 &&
        charged - outbox->released_bytes <= PCCL__EAGER_WINDOW) {
        outbox->charged_bytes = charged;
        return PCCL__WAY_EAGER;
    }
    list_push_back(bucket(outbox->waiting, &transfer->key), &transfer->hash_link);
    if (!counts(outbox, transfer)) return PCCL__WAY_OFFER;
    if (outbox->offers >= PCCL__AHEAD_MAX || !list_empty(&outbox->held)) {
        transfer->flags |= PCCL__TRANSFER_HELD;
        list_push_back(&outbox->held, &transfer->link);
        return PCCL__WAY_HOLD;
    }
    outbox->offers++;
    return PCCL__WAY_OFFER;
}

struct pccl__transfer *pccl__outbox_next_offer(struct pccl__outbox *outbox) {
    if (list_empty(&outbox->held) || outbox->offers >= PCCL__AHEAD_MAX) return NULL;
    struct pccl__transfer *transfer = LIST_ENTRY(list_pop_front(&outbox->held), struct pccl__transfer, link);
    transfer->flags &= ~(uint32_t)PCCL__TRANSFER_HELD;
    if (counts(outbox, transfer)) outbox->offers++;
    return transfer;
}

static pccl_status keep(struct pccl__outbox *outbox, const struct pccl__key *key, uint32_t bytes) {
    if (stale(outbox, key) || find_grant(outbox, key)) return PCCL_OK;
    if (outbox->grants_count >= PCCL__BOX_ENTRIES) return PCCL_PROTOCOL;
    struct pccl__grant *grant = malloc(sizeof *grant);
    struct pccl__notice *notice = NULL;
    if (grant && key->epoch == 0) {
        uint8_t data[4];
        put_u32(data, bytes);
        notice = pccl__notice_new(PCCL__NOTICE_WANTED, key, NULL, data, sizeof data);
    }
    if (!grant || (key->epoch == 0 && !notice)) {
        free(grant);
        return PCCL_NO_MEMORY;
    }
    grant->key = *key;
    list_push_back(bucket(outbox->grants, key), &grant->hash_link);
    list_push_back(&outbox->all_grants, &grant->all_link);
    outbox->grants_count++;
    if (notice) list_push_back(outbox->notices, &notice->link);
    return PCCL_OK;
}

pccl_status pccl__outbox_go(struct pccl__outbox *outbox, const struct pccl__key *key, uint32_t bytes,
                            struct pccl__transfer **transfer) {
    *transfer = NULL;
    struct list *chain = bucket(outbox->waiting, key);
    for (struct list *node = chain->next; node != chain; node = node->next) {
        struct pccl__transfer *waiting = LIST_ENTRY(node, struct pccl__transfer, hash_link);
        if (!pccl__key_equal(&waiting->key, key)) continue;
        list_remove(&waiting->hash_link);
        if (counts(outbox, waiting) && !(waiting->flags & PCCL__TRANSFER_HELD)) outbox->offers--;
        *transfer = waiting;
        return PCCL_OK;
    }
    return keep(outbox, key, bytes);
}

void pccl__outbox_decline(struct pccl__outbox *outbox, const struct pccl__key *key) {
    struct pccl__grant *grant = find_grant(outbox, key);
    if (grant) forget(outbox, grant);
}

pccl_status pccl__outbox_release(struct pccl__outbox *outbox, uint64_t released_bytes) {
    if (released_bytes > outbox->charged_bytes) return PCCL_PROTOCOL;
    /* Stripes overtake: an older count may come later. */
    outbox->released_bytes = max_u64(outbox->released_bytes, released_bytes);
    return PCCL_OK;
}

void pccl__outbox_remove(struct pccl__outbox *outbox, struct pccl__transfer *transfer) {
    (void)outbox;
    list_remove(&transfer->hash_link);
}

void pccl__outbox_expect(struct pccl__outbox *outbox, uint64_t epoch) {
    CHECK(epoch >= outbox->epoch);
    outbox->epoch = epoch;
    outbox->offers = 0;
    for (struct list *node = outbox->all_grants.next, *next; node != &outbox->all_grants; node = next) {
        next = node->next;
        struct pccl__grant *grant = LIST_ENTRY(node, struct pccl__grant, all_link);
        if (stale(outbox, &grant->key)) forget(outbox, grant);
    }
}

void pccl__outbox_clear(struct pccl__outbox *outbox) {
    CHECK(list_empty(&outbox->held));
    while (!list_empty(&outbox->all_grants))
        forget(outbox, LIST_ENTRY(outbox->all_grants.next, struct pccl__grant, all_link));
    for (int i = 0; i < PCCL__BOX_BUCKETS; i++)
        while (list_pop_front(&outbox->waiting[i])) continue;
}
