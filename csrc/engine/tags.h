/* SPDX-License-Identifier: MIT
 *
 * tags.h - numbers operations within one epoch, tag by tag, and remembers how far each got, for the report.
 *
 * Per tag: the next number, the length of the prefix that has returned success, and the entries beyond it (open,
 * failed, or returned out of order). The prefix makes old operations free: a tag in steady state is one small record.
 * An epoch may use PCCL__TAGS_MAX distinct tags.
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
    uint64_t tag;
    uint32_t next_sequence;
    uint32_t returned_below;
    struct list entries;
    struct pccl__tag *next; /* in the bucket */
};

struct pccl__tags {
    struct pccl__tag **buckets;
    size_t buckets_count, tags_count;
    struct list spare; /* entries for reuse */
};

void pccl__tags_init(struct pccl__tags *tags);
/* A new epoch: forgets everything. */
void pccl__tags_clear(struct pccl__tags *tags);
void pccl__tags_free(struct pccl__tags *tags);
/* NULL: no operation of this tag was ever called in this epoch. */
struct pccl__tag *pccl__tags_find(const struct pccl__tags *tags, uint64_t tag);
/* The next operation of `tag`: a fresh entry in PCCL_DATA_PHASE. Errors: NO_MEMORY, INVALID (too many tags). */
pccl_status pccl__tags_begin(struct pccl__tags *tags, uint64_t tag, struct pccl__entry **entry);
/* The entry's operation returned success; the entry may be gone afterwards. */
void pccl__tags_returned(struct pccl__tags *tags, uint64_t tag, struct pccl__entry *entry);
/* NULL: returned, or never started. */
struct pccl__entry *pccl__tags_entry(const struct pccl__tags *tags, pccl_operation_name name);
bool pccl__tags_has_open(const struct pccl__tags *tags, uint64_t tag);
/* As pccl_engine_report. */
size_t pccl__tags_report(const struct pccl__tags *tags, pccl_report_line *lines, size_t capacity);

#endif
