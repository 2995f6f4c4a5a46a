/* SPDX-License-Identifier: MIT */
#include "engine/tags.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { FIRST_BUCKETS = 64 };

static size_t bucket_of(uint64_t scope, uint64_t tag, size_t buckets) {
    uint64_t mixed = (tag ^ scope << 17 ^ scope >> 19) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(mixed >> 32) & (buckets - 1);
}

static struct pccl__entry *entry_at(struct list *node) { return LIST_ENTRY(node, struct pccl__entry, link); }

void pccl__tags_init(struct pccl__tags *tags) {
    *tags = (struct pccl__tags){0};
    list_init(&tags->spare);
    list_init(&tags->arrived);
}

void pccl__tags_clear(struct pccl__tags *tags) {
    for (size_t i = 0; i < tags->buckets_count; i++) {
        while (tags->buckets[i]) {
            struct pccl__tag *tag = tags->buckets[i];
            tags->buckets[i] = tag->next;
            list_splice(&tags->spare, &tag->entries);
            list_remove(&tag->arrived);
            free(tag);
        }
    }
    tags->tags_count = 0;
}

void pccl__tags_free(struct pccl__tags *tags) {
    pccl__tags_clear(tags);
    struct list *node;
    while ((node = list_pop_front(&tags->spare))) free(entry_at(node));
    free(tags->buckets);
    pccl__tags_init(tags);
}

struct pccl__tag *pccl__tags_find(const struct pccl__tags *tags, uint64_t scope, uint64_t tag) {
    if (!tags->buckets_count) return NULL;
    struct pccl__tag *at = tags->buckets[bucket_of(scope, tag, tags->buckets_count)];
    while (at && (at->tag != tag || at->scope != scope)) at = at->next;
    return at;
}

static pccl_status grow(struct pccl__tags *tags) {
    size_t count = tags->buckets_count ? tags->buckets_count * 4 : FIRST_BUCKETS;
    struct pccl__tag **buckets = calloc(count, sizeof(struct pccl__tag *));
    if (!buckets) return PCCL_NO_MEMORY;
    for (size_t i = 0; i < tags->buckets_count; i++) {
        while (tags->buckets[i]) {
            struct pccl__tag *tag = tags->buckets[i];
            tags->buckets[i] = tag->next;
            struct pccl__tag **bucket = &buckets[bucket_of(tag->scope, tag->tag, count)];
            tag->next = *bucket;
            *bucket = tag;
        }
    }
    free(tags->buckets);
    tags->buckets = buckets;
    tags->buckets_count = count;
    return PCCL_OK;
}

static pccl_status find_or_make(struct pccl__tags *tags, uint64_t scope, uint64_t number, struct pccl__tag **out) {
    *out = pccl__tags_find(tags, scope, number);
    if (*out) return PCCL_OK;
    if (tags->tags_count >= PCCL__TAGS_MAX) return PCCL_INVALID;
    if (tags->tags_count >= tags->buckets_count) {
        pccl_status status = grow(tags);
        if (status != PCCL_OK) return status;
    }
    struct pccl__tag *tag = calloc(1, sizeof *tag);
    if (!tag) return PCCL_NO_MEMORY;
    tag->tag = number;
    tag->scope = scope;
    list_init(&tag->entries);
    list_init(&tag->arrived);
    struct pccl__tag **bucket = &tags->buckets[bucket_of(scope, number, tags->buckets_count)];
    tag->next = *bucket;
    *bucket = tag;
    tags->tags_count++;
    *out = tag;
    return PCCL_OK;
}

/* It was counted on, or counts now: at the end, or not any more. */
static void line_up(struct pccl__tags *tags, struct pccl__tag *tag, bool anew) {
    bool waits = tag->announced > tag->next_sequence, lined_up = !list_empty(&tag->arrived);
    if (waits && lined_up && !anew) return;
    list_remove(&tag->arrived);
    if (waits) list_push_back(&tags->arrived, &tag->arrived);
}

pccl_status pccl__tags_begin(struct pccl__tags *tags, uint64_t scope, uint64_t number, struct pccl__entry **out) {
    struct pccl__tag *tag;
    pccl_status status = find_or_make(tags, scope, number, &tag);
    if (status != PCCL_OK) return status;
    struct list *node = list_pop_front(&tags->spare);
    struct pccl__entry *entry = node ? entry_at(node) : malloc(sizeof *entry);
    if (!entry) return PCCL_NO_MEMORY;
    *entry = (struct pccl__entry){.sequence = tag->next_sequence++, .state = PCCL_DATA_PHASE};
    list_init(&entry->link);
    list_push_back(&tag->entries, &entry->link);
    line_up(tags, tag, true);
    *out = entry;
    return PCCL_OK;
}

pccl_status pccl__tags_announce(struct pccl__tags *tags, pccl_operation_name name) {
    struct pccl__tag *tag;
    pccl_status status = find_or_make(tags, name.scope, name.tag, &tag);
    if (status != PCCL_OK) return status;
    if (name.sequence >= tag->announced && name.sequence < UINT32_MAX) tag->announced = name.sequence + 1;
    line_up(tags, tag, false);
    return PCCL_OK;
}

const struct pccl__tag *pccl__tags_arrived(const struct pccl__tags *tags, uint64_t number) {
    for (struct list *node = tags->arrived.next; node != &tags->arrived; node = node->next) {
        const struct pccl__tag *tag = LIST_ENTRY(node, struct pccl__tag, arrived);
        if (tag->tag == number) return tag;
    }
    return NULL;
}

void pccl__tags_returned(struct pccl__tags *tags, pccl_operation_name name, struct pccl__entry *entry) {
    struct pccl__tag *tag = pccl__tags_find(tags, name.scope, name.tag);
    CHECK(tag);
    entry->state = PCCL_RETURNED;
    entry->operation = NULL;
    while (!list_empty(&tag->entries)) {
        struct pccl__entry *first = entry_at(tag->entries.next);
        if (first->sequence != tag->returned_below || first->state != PCCL_RETURNED) break;
        tag->returned_below++;
        list_remove(&first->link);
        list_push_back(&tags->spare, &first->link);
    }
}

struct pccl__entry *pccl__tags_entry(const struct pccl__tags *tags, pccl_operation_name name) {
    struct pccl__tag *tag = pccl__tags_find(tags, name.scope, name.tag);
    /* Early arrivals ask for what is not started yet, one by one: that must not cost a walk. */
    if (!tag || name.sequence < tag->returned_below || name.sequence >= tag->next_sequence) return NULL;
    for (struct list *node = tag->entries.next; node != &tag->entries; node = node->next)
        if (entry_at(node)->sequence == name.sequence) return entry_at(node);
    return NULL;
}

size_t pccl__tags_report(const struct pccl__tags *tags, pccl_report_line *lines, size_t capacity) {
    size_t count = 0;
    for (size_t i = 0; i < tags->buckets_count; i++) {
        for (struct pccl__tag *tag = tags->buckets[i]; tag; tag = tag->next) {
            pccl_report_line line = {.tag = tag->tag,
                                     .scope = tag->scope,
                                     .returned_below = tag->returned_below,
                                     .sequence = tag->returned_below,
                                     .state = PCCL_NOT_STARTED};
            if (list_empty(&tag->entries) && tag->next_sequence > 0) {
                if (count++ < capacity) lines[count - 1] = line;
            }
            for (struct list *node = tag->entries.next; node != &tag->entries; node = node->next) {
                line.sequence = entry_at(node)->sequence;
                line.state = entry_at(node)->state;
                line.fingerprint = entry_at(node)->fingerprint;
                if (count++ < capacity) lines[count - 1] = line;
            }
        }
    }
    return count;
}
