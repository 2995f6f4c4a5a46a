/* SPDX-License-Identifier: MIT */
#include "engine/tags.h"

#include "check.h"

static struct pccl__entry *begin(struct pccl__tags *tags, uint64_t tag) {
    struct pccl__entry *entry = NULL;
    EXPECT(pccl__tags_begin(tags, tag, &entry) == PCCL_OK, "begin");
    entry->operation = tags; /* anything but NULL: open */
    entry->fingerprint = tag << 8 | entry->sequence;
    return entry;
}

static void test_prefix(void) {
    struct pccl__tags tags;
    pccl__tags_init(&tags);
    struct pccl__entry *entries[5];
    for (uint32_t i = 0; i < 5; i++) {
        entries[i] = begin(&tags, 9);
        EXPECT(entries[i]->sequence == i, "numbers rise from 0");
    }
    pccl__tags_returned(&tags, 9, entries[1]);
    pccl__tags_returned(&tags, 9, entries[3]);
    pccl_report_line lines[8];
    EXPECT(pccl__tags_report(&tags, lines, 8) == 5, "nothing can be cut yet");
    pccl__tags_returned(&tags, 9, entries[0]);
    EXPECT(pccl__tags_report(&tags, lines, 8) == 3, "0 and 1 are in the prefix");
    EXPECT(lines[0].returned_below == 2 && lines[0].sequence == 2 && lines[0].state == PCCL_DATA_PHASE, "2 is open");
    EXPECT(lines[1].sequence == 3 && lines[1].state == PCCL_RETURNED, "3 returned out of order");
    EXPECT(lines[0].fingerprint == 0x902, "what was called");
    EXPECT(pccl__tags_entry(&tags, (pccl_operation_name){9, 1}) == NULL, "1 is gone");
    EXPECT(pccl__tags_entry(&tags, (pccl_operation_name){9, 2}) == entries[2], "2 is found");
    EXPECT(pccl__tags_has_open(&tags, 9) && !pccl__tags_has_open(&tags, 8), "open");
    pccl__tags_returned(&tags, 9, entries[2]);
    pccl__tags_returned(&tags, 9, entries[4]);
    EXPECT(pccl__tags_report(&tags, lines, 8) == 1, "one line tells an idle tag");
    EXPECT(lines[0].returned_below == 5 && lines[0].sequence == 5 && lines[0].state == PCCL_NOT_STARTED, "its prefix");
    EXPECT(lines[0].fingerprint == 0, "nothing is open");
    EXPECT(!pccl__tags_has_open(&tags, 9), "idle");
    pccl__tags_clear(&tags);
    EXPECT(pccl__tags_report(&tags, lines, 8) == 0 && begin(&tags, 9)->sequence == 0, "a new epoch starts at 0");
    pccl__tags_free(&tags);
}

static void test_limit(void) {
    struct pccl__tags tags;
    pccl__tags_init(&tags);
    for (uint64_t tag = 0; tag < PCCL__TAGS_MAX; tag++) pccl__tags_returned(&tags, tag * 977, begin(&tags, tag * 977));
    struct pccl__entry *entry;
    EXPECT(pccl__tags_begin(&tags, 5, &entry) == PCCL_INVALID, "too many tags");
    EXPECT(pccl__tags_begin(&tags, 977, &entry) == PCCL_OK && entry->sequence == 1, "known tags go on");
    EXPECT(pccl__tags_report(&tags, NULL, 0) == PCCL__TAGS_MAX, "the full number is told");
    pccl__tags_free(&tags);
}

int main(void) {
    test_prefix();
    test_limit();
    FINISH();
}
