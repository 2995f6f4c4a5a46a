/* SPDX-License-Identifier: MIT */
#include "engine/scope.h"

#include <stdio.h>

uint64_t pccl_scope(uint32_t source, uint32_t target) { return ((uint64_t)source + 1) << 32 | ((uint64_t)target + 1); }

void pccl__name_text(pccl_operation_name name, uint64_t epoch, char text[PCCL__NAME_TEXT]) {
    char pair[48] = "";
    if (name.scope)
        snprintf(pair, sizeof pair, " from rank %u to rank %u", pccl__scope_source(name.scope),
                 pccl__scope_target(name.scope));
    snprintf(text, PCCL__NAME_TEXT, "tag %llu #%u%s of epoch %llu", (unsigned long long)name.tag, name.sequence, pair,
             (unsigned long long)epoch);
}
