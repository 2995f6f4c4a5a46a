/* SPDX-License-Identifier: MIT */
#include "engine/unseen.h"

#include "check.h"

static struct pccl__unseen unseen;

/* The newest epoch that blocks, or NONE. */
enum { NONE = -1 };
static int64_t blocks(uint64_t tag, bool stepwise) {
    uint64_t epoch;
    return pccl__unseen_blocks(&unseen, tag, stepwise, &epoch) ? (int64_t)epoch : NONE;
}

int main(void) {
    pccl__unseen_init(&unseen);
    EXPECT(pccl__unseen_reserve(&unseen, 4) && unseen.spare_count == 4);
    pccl__unseen_add(&unseen, 1, false, 5);
    pccl__unseen_add(&unseen, 1, false, 5);
    pccl__unseen_add(&unseen, 2, true, 5);
    pccl__unseen_add(&unseen, 3, true, 5);
    EXPECT(blocks(1, false) == 5 && blocks(2, false) == 5, "their own tags");
    EXPECT(blocks(9, false) == NONE && blocks(9, true) == 5, "steps hold all tags");
    pccl__unseen_seen(&unseen, 1, 4);
    EXPECT(blocks(1, false) == 5, "an older failure of the tag says nothing about this one");
    pccl__unseen_seen(&unseen, 1, 5);
    EXPECT(blocks(1, false) == NONE && blocks(1, true) == 5, "the step is not seen");
    pccl__unseen_seen(&unseen, 3, 5);
    EXPECT(blocks(2, true) == NONE && blocks(3, true) == NONE, "one failure tells it all");
    EXPECT(unseen.spare_count == 4 && pccl__unseen_reserve(&unseen, 2) && unseen.spare_count == 4, "notes come back");
    pccl__unseen_add(&unseen, 4, true, 5);
    pccl__unseen_add(&unseen, 4, true, 7);
    pccl__unseen_seen(&unseen, 4, 5);
    EXPECT(blocks(4, true) == 7 && blocks(8, true) == 7, "the newer one is not seen");
    pccl__unseen_add(&unseen, 6, false, 0);
    EXPECT(blocks(6, false) == 0 && blocks(6, true) == 7, "before the first epoch had ended");
    pccl__unseen_seen(&unseen, 6, 0);
    EXPECT(blocks(6, false) == NONE, "seen");
    pccl__unseen_add(&unseen, 6, false, 6);
    pccl__unseen_add(&unseen, 2, true, 8);
    pccl__unseen_all_seen(&unseen, 7);
    EXPECT(blocks(6, false) == NONE && blocks(4, false) == NONE && blocks(2, false) == 8, "all of old, none of new");
    pccl__unseen_add(&unseen, 4, true, 7);
    pccl__unseen_clear(&unseen);
    EXPECT(blocks(4, true) == NONE, "cleared");
    FINISH();
}
