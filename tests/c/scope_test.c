/* SPDX-License-Identifier: MIT */
#include "engine/scope.h"

#include <string.h>

#include "check.h"

int main(void) {
    static const uint32_t ranks[] = {0, 1, 2, 16383, PCCL_ANY_SOURCE - 1};
    enum { RANKS = sizeof ranks / sizeof *ranks };
    for (uint32_t s = 0; s < RANKS; s++) {
        for (uint32_t t = 0; t < RANKS; t++) {
            uint64_t scope = pccl_scope(ranks[s], ranks[t]);
            EXPECT(scope != 0 && pccl__scope_source(scope) == ranks[s] && pccl__scope_target(scope) == ranks[t]);
            EXPECT(pccl__scope_is_pair(scope));
        }
    }
    static const uint32_t backwards[] = {2, 1, 0};
    uint64_t of_three = pccl__scope_of_ranks(ranks, 3);
    EXPECT(of_three != 0 && !pccl__scope_is_pair(of_three) && !pccl__scope_is_pair(0));
    EXPECT(of_three == pccl__scope_of_ranks(ranks, 3) && of_three != pccl__scope_of_ranks(ranks, 2));
    EXPECT(of_three != pccl__scope_of_ranks(backwards, 3), "order counts");

    pccl_operation_name name = {.tag = 3, .scope = pccl_scope(1, 0), .sequence = 7};
    struct pccl__key key = pccl__name_key(9, name);
    EXPECT(key.epoch == 9 && key.step == 0 && pccl__name_equal(pccl__key_name(&key), name));
    pccl_operation_name others[] = {name, name, name};
    others[0].tag++;
    others[1].scope = 0;
    others[2].sequence++;
    for (int i = 0; i < 3; i++) EXPECT(!pccl__name_equal(others[i], name), "%d", i);

    char text[PCCL__NAME_TEXT];
    pccl__name_text(name, 9, text);
    EXPECT(strcmp(text, "tag 3 #7 from rank 1 to rank 0 of epoch 9") == 0, "%s", text);
    pccl__name_text(others[1], 9, text);
    EXPECT(strcmp(text, "tag 3 #7 of epoch 9") == 0, "%s", text);
    name = (pccl_operation_name){UINT64_MAX, pccl_scope(PCCL_ANY_SOURCE - 1, PCCL_ANY_SOURCE - 1), UINT32_MAX};
    pccl__name_text(name, UINT64_MAX, text);
    EXPECT(strstr(text, " of epoch 18446744073709551615"), "whole: %s", text);
    name.scope = UINT64_C(0x9f3a12bc00000000);
    pccl__name_text(name, 1, text);
    EXPECT(strstr(text, " of subgroup 9f3a12bc of epoch 1"), "%s", text);
    FINISH();
}
