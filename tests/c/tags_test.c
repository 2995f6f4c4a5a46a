/* SPDX-License-Identifier: MIT */
#include "engine/tags.h"

#include "check.h"

static struct pccl__entry *begin(struct pccl__tags *tags, uint64_t tag) {
    struct pccl__entry *entry = NULL;
    EXPECT(pccl__tags_begin(tags, 0, tag, &entry) == PCCL_OK, "begin");
    entry->operation = tags; /* anything but NULL: open */
    entry->fingerprint = tag << 8 | entry->sequence;
    return entry;
}

static void returned(struct pccl__tags *tags, struct pccl__entry *entry) {
    pccl__tags_returned(tags, (pccl_operation_name){.tag = 9}, entry);
}

static void test_prefix(void) {
    struct pccl__tags tags;
    pccl__tags_init(&tags);
    struct pccl__entry *entries[5];
    for (uint32_t i = 0; i < 5; i++) {
        entries[i] = begin(&tags, 9);
        EXPECT(entries[i]->sequence == i, "numbers rise from 0");
    }
    returned(&tags, entries[1]);
    returned(&tags, entries[3]);
    pccl_report_line lines[8];
    EXPECT(pccl__tags_report(&tags, lines, 8) == 5, "nothing can be cut yet");
    returned(&tags, entries[0]);
    EXPECT(pccl__tags_report(&tags, lines, 8) == 3, "0 and 1 are in the prefix");
    EXPECT(lines[0].returned_below == 2 && lines[0].sequence == 2 && lines[0].state == PCCL_DATA_PHASE, "2 is open");
    EXPECT(lines[1].sequence == 3 && lines[1].state == PCCL_RETURNED, "3 returned out of order");
    EXPECT(lines[0].fingerprint == 0x902, "what was called");
    EXPECT(pccl__tags_entry(&tags, (pccl_operation_name){.tag = 9, .sequence = 1}) == NULL, "1 is gone");
    EXPECT(pccl__tags_entry(&tags, (pccl_operation_name){.tag = 9, .sequence = 2}) == entries[2], "2 is found");
    returned(&tags, entries[2]);
    returned(&tags, entries[4]);
    EXPECT(pccl__tags_report(&tags, lines, 8) == 1, "one line tells an idle tag");
    EXPECT(lines[0].returned_below == 5 && lines[0].sequence == 5 && lines[0].state == PCCL_NOT_STARTED, "its prefix");
    EXPECT(lines[0].fingerprint == 0, "nothing is open");
    pccl__tags_clear(&tags);
    EXPECT(pccl__tags_report(&tags, lines, 8) == 0 && begin(&tags, 9)->sequence == 0, "a new epoch starts at 0");
    pccl__tags_free(&tags);
}

static void test_limit(void) {
    struct pccl__tags tags;
    pccl__tags_init(&tags);
    for (uint64_t tag = 0; tag < PCCL__TAGS_MAX; tag++)
        pccl__tags_returned(&tags, (pccl_operation_name){.tag = tag * 977}, begin(&tags, tag * 977));
    struct pccl__entry *entry;
    EXPECT(pccl__tags_begin(&tags, 0, 5, &entry) == PCCL_INVALID, "too many tags");
    EXPECT(pccl__tags_begin(&tags, 0, 977, &entry) == PCCL_OK && entry->sequence == 1, "known tags go on");
    EXPECT(pccl__tags_report(&tags, NULL, 0) == PCCL__TAGS_MAX, "the full number is told");
    pccl__tags_free(&tags);
}

/* The same tag of the whole group and of two pairs: three counts, three prefixes. */
static void test_scopes(void) {
    struct pccl__tags tags;
    pccl__tags_init(&tags);
    uint64_t scopes[] = {0, pccl_scope(0, 1), pccl_scope(1, 0)};
    struct pccl__entry *entry[3];
    for (uint32_t i = 0; i < 3; i++) {
        EXPECT(pccl__tags_begin(&tags, scopes[i], 9, &entry[i]) == PCCL_OK && entry[i]->sequence == 0, "scope %u", i);
        EXPECT(pccl__tags_find(&tags, scopes[i], 9)->next_sequence == 1, "scope %u", i);
    }
    pccl__tags_returned(&tags, (pccl_operation_name){.tag = 9, .scope = scopes[1]}, entry[1]);
    pccl_report_line lines[4];
    EXPECT(pccl__tags_report(&tags, lines, 4) == 3);
    for (uint32_t i = 0; i < 3; i++) {
        bool done = lines[i].scope == scopes[1];
        EXPECT(lines[i].returned_below == done && lines[i].state == (done ? PCCL_NOT_STARTED : PCCL_DATA_PHASE));
    }
    pccl__tags_free(&tags);
}

static void announce(struct pccl__tags *tags, uint32_t source, uint64_t tag, uint32_t sequence) {
    pccl_operation_name name = {.tag = tag, .scope = pccl_scope(source, 0), .sequence = sequence};
    EXPECT(pccl__tags_announce(tags, name) == PCCL_OK);
}

static uint32_t take(struct pccl__tags *tags, uint64_t tag) {
    const struct pccl__tag *found = pccl__tags_arrived(tags, tag);
    if (!found) return 0;
    uint64_t scope = found->scope;
    struct pccl__entry *entry;
    EXPECT(pccl__tags_begin(tags, scope, tag, &entry) == PCCL_OK);
    return (uint32_t)(scope >> 32) - 1;
}

/* Who has waited longest is taken first, then the next, and each as often as it has sent. */
static void test_arrivals(void) {
    struct pccl__tags tags;
    pccl__tags_init(&tags);
    EXPECT(!pccl__tags_arrived(&tags, 5), "nothing came");
    announce(&tags, 3, 5, 0);
    announce(&tags, 1, 5, 0);
    announce(&tags, 2, 6, 0);
    announce(&tags, 3, 5, 2); /* and so 1, of which nothing was seen */
    announce(&tags, 3, 5, 0); /* another frame of it */
    EXPECT(take(&tags, 6) == 2 && take(&tags, 6) == 0, "tags are apart");
    EXPECT(take(&tags, 5) == 3 && take(&tags, 5) == 1, "in turn");
    EXPECT(take(&tags, 5) == 3 && take(&tags, 5) == 3 && take(&tags, 5) == 0, "all three");
    struct pccl__entry *entry;
    EXPECT(pccl__tags_begin(&tags, pccl_scope(1, 0), 5, &entry) == PCCL_OK, "a receive that was called first");
    announce(&tags, 1, 5, 1);
    EXPECT(take(&tags, 5) == 0, "has its send");
    announce(&tags, 1, 5, 2);
    announce(&tags, 7, 7, UINT32_MAX); /* no number: it cannot be counted */
    EXPECT(take(&tags, 5) == 1 && take(&tags, 7) == 0);
    pccl_report_line lines[8];
    size_t count = pccl__tags_report(&tags, lines, 8);
    for (size_t i = 0; i < count; i++) EXPECT(lines[i].tag != 7, "what is not called is not reported");
    pccl__tags_clear(&tags);
    EXPECT(!pccl__tags_arrived(&tags, 5), "a new epoch");
    pccl__tags_free(&tags);
}

int main(void) {
    test_prefix();
    test_scopes();
    test_arrivals();
    test_limit();
    FINISH();
}
