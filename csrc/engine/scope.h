/* SPDX-License-Identifier: MIT
 *
 * scope.h - who takes part in an operation, as its name says: the whole group, the two of a send and its receive, or
 * some members (team.h). One number, so that names stay comparable and small.
 */
#ifndef PCCL_ENGINE_SCOPE_H
#define PCCL_ENGINE_SCOPE_H

#include <stdbool.h>

#include "channel/channel.h"
#include "pccl.h"

/* Scopes of ranks have the highest bit, which no pair has. */
#define PCCL__SCOPE_OF_RANKS (UINT64_C(1) << 63)
static inline bool pccl__scope_is_pair(uint64_t scope) { return scope != 0 && !(scope & PCCL__SCOPE_OF_RANKS); }
/* A hash of the ranks in their order. */
uint64_t pccl__scope_of_ranks(const uint32_t *ranks, uint32_t count);

static inline uint32_t pccl__scope_source(uint64_t scope) { return (uint32_t)(scope >> 32) - 1; }
static inline uint32_t pccl__scope_target(uint64_t scope) { return (uint32_t)scope - 1; }

/* Between a name and what its frames and notices carry. */
static inline pccl_operation_name pccl__key_name(const struct pccl__key *key) {
    return (pccl_operation_name){.tag = key->tag, .scope = key->scope, .sequence = key->sequence};
}
static inline struct pccl__key pccl__name_key(uint64_t epoch, pccl_operation_name name) {
    return (struct pccl__key){.epoch = epoch, .tag = name.tag, .scope = name.scope, .sequence = name.sequence};
}
static inline bool pccl__name_equal(pccl_operation_name a, pccl_operation_name b) {
    return a.tag == b.tag && a.scope == b.scope && a.sequence == b.sequence;
}

enum { PCCL__NAME_TEXT = 112 };
/* "tag 3 #0 of epoch 7", "tag 3 #0 from rank 1 to rank 0 of epoch 7", "tag 3 #0 of subgroup 9f3a12bc of epoch 7" */
void pccl__name_text(pccl_operation_name name, uint64_t epoch, char text[PCCL__NAME_TEXT]);

#endif
