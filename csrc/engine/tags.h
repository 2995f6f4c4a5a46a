/* SPDX-License-Identifier: MIT
 *
 * tags.h - numbers operations within one epoch, tag by tag, and remembers how far each got, for the report.
 *
 * A tag counts apart in each scope: for the whole group, and for each pair that sends in one direction. All that is
 * said of a tag here is meant of a tag in a scope.
 *
 * Per tag: the next number, the length of the prefix that has returned success, and the entries beyond it (open,
 * failed, or returned out of order). The prefix makes old operations free: a tag in steady state is one small record.
 * An epoch may use PCCL__TAGS_MAX distinct tags.
 *
 * Of sends to us it is known besides how many have come. Those that no receive was called for yet wait, the tags with
 * such ones in the order in which they got theirs; a tag that one was taken of goes to the end.
 */
#ifndef PCCL_ENGINE_TAGS_H
#define PCCL_ENGINE_TAGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "pccl.h"

enum { PCCL__TAGS_MAX = 65536 };

/* One operation beyond its tag's prefix. Owned by the table. */
struct pccl__entry {
    struct list link; /* in the tag's list, by sequence */
    uint32_t sequence;
    pccl_operation_state state;
    void *operation;      /* the open operation, or NULL */
    uint64_t fingerprint; /* of what was called; set by who sets `operation` */
};

struct pccl__tag {
    uint64_t tag, scope;
    uint32_t next_sequence;
    uint32_t returned_below;
    uint32_t announced; /* sends that have come, or more: all numbers below */
    struct list entries;
    struct list arrived;    /* in tags.arrived while announced > next_sequence */
    struct pccl__tag *next; /* in the bucket */
};

struct pccl__tags {
    struct pccl__tag **buckets;
    size_t buckets_count, tags_count;
    struct list spare;   /* entries for reuse */
    struct list arrived; /* pccl__tag.arrived, the longest wait first */
};

void pccl__tags_init(struct pccl__tags *tags);
/* A new epoch: forgets everything. */
void pccl__tags_clear(struct pccl__tags *tags);
void pccl__tags_free(struct pccl__tags *tags);
/* NULL: no operation of this tag was ever called in this epoch. */
struct pccl__tag *pccl__tags_find(const struct pccl__tags *tags, uint64_t scope, uint64_t tag);
/* The next operation of `tag`: a fresh entry in PCCL_DATA_PHASE. Errors: NO_MEMORY, INVALID (too many tags). */
pccl_status pccl__tags_begin(struct pccl__tags *tags, uint64_t scope, uint64_t tag, struct pccl__entry **entry);
/* The entry's operation returned success; the entry may be gone afterwards. */
void pccl__tags_returned(struct pccl__tags *tags, pccl_operation_name name, struct pccl__entry *entry);
/* NULL: returned, or never started. */
struct pccl__entry *pccl__tags_entry(const struct pccl__tags *tags, pccl_operation_name name);
/* The send of that name has come. Errors as pccl__tags_begin. */
pccl_status pccl__tags_announce(struct pccl__tags *tags, pccl_operation_name name);
/* Of the scopes in which a send of `tag` waits for a receive, the first one; NULL: none. */
const struct pccl__tag *pccl__tags_arrived(const struct pccl__tags *tags, uint64_t tag);
/* As pccl_engine_report. */
size_t pccl__tags_report(const struct pccl__tags *tags, pccl_report_line *lines, size_t capacity);

#endif
