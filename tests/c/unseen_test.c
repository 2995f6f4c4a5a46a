/* SPDX-License-Identifier: MIT */
#include "engine/unseen.h"

#include "check.h"

int main(void) {
    struct pccl__unseen unseen;
    pccl__unseen_init(&unseen);
    EXPECT(pccl__unseen_reserve(&unseen, 4) && unseen.spare_count == 4);
    pccl__unseen_add(&unseen, 1, false, 5);
    pccl__unseen_add(&unseen, 1, false, 5);
    pccl__unseen_add(&unseen, 2, true, 5);
    pccl__unseen_add(&unseen, 3, true, 5);
    EXPECT(pccl__unseen_blocks(&unseen, 1, false) && pccl__unseen_blocks(&unseen, 2, false), "their own tags");
    EXPECT(!pccl__unseen_blocks(&unseen, 9, false) && pccl__unseen_blocks(&unseen, 9, true), "steps hold all tags");
    pccl__unseen_seen(&unseen, 1, 4);
    EXPECT(pccl__unseen_blocks(&unseen, 1, false) == 5, "an older failure of the tag says nothing about this one");
    pccl__unseen_seen(&unseen, 1, 5);
    EXPECT(!pccl__unseen_blocks(&unseen, 1, false) && pccl__unseen_blocks(&unseen, 1, true), "the step is not seen");
    pccl__unseen_seen(&unseen, 3, 5);
    EXPECT(!pccl__unseen_blocks(&unseen, 2, true) && !pccl__unseen_blocks(&unseen, 3, true),
           "one failure tells it all");
    EXPECT(unseen.spare_count == 4 && pccl__unseen_reserve(&unseen, 2) && unseen.spare_count == 4, "notes come back");
    pccl__unseen_add(&unseen, 4, true, 5);
    pccl__unseen_add(&unseen, 4, true, 7);
    pccl__unseen_seen(&unseen, 4, 5);
    EXPECT(pccl__unseen_blocks(&unseen, 4, true) == 7 && pccl__unseen_blocks(&unseen, 8, true) == 7,
           "the newer one is not seen");
    pccl__unseen_clear(&unseen);
    EXPECT(!pccl__unseen_blocks(&unseen, 4, true), "cleared");
    FINISH();
}
