/* SPDX-License-Identifier: MIT */
#include "engine/scope.h"

#include <stdio.h>

#include "base/bits.h"

uint64_t pccl_scope(uint32_t source, uint32_t target) { return ((uint64_t)source + 1) << 32 | ((uint64_t)target + 1); }

uint64_t pccl__scope_of_ranks(const uint32_t *ranks, uint32_t count) {
    uint8_t digest[16];
    pccl_hash128(ranks, (size_t)count * sizeof *ranks, digest);
    return get_u64(digest) | PCCL__SCOPE_OF_RANKS;
}

void pccl__name_text(pccl_operation_name name, uint64_t epoch, char text[PCCL__NAME_TEXT]) {
    char who[48] = "";
    if (pccl__scope_is_pair(name.scope))
        snprintf(who, sizeof who, " from rank %u to rank %u", pccl__scope_source(name.scope),
                 pccl__scope_target(name.scope));
    else if (name.scope)
        snprintf(who, sizeof who, " of subgroup %08x", (unsigned)(name.scope >> 32));
    snprintf(text, PCCL__NAME_TEXT, "tag %llu #%u%s of epoch %llu", (unsigned long long)name.tag, name.sequence, who,
             (unsigned long long)epoch);
}
