/* SPDX-License-Identifier: MIT
 *
 * scope.h - who takes part in an operation, as its name says: the whole group, or the two of a send and its receive.
 */
#ifndef PCCL_ENGINE_SCOPE_H
#define PCCL_ENGINE_SCOPE_H

#include <stdbool.h>

#include "channel/channel.h"
#include "pccl.h"

static inline uint32_t pccl__scope_source(uint64_t scope) { return (uint32_t)(scope >> 32) - 1; }
static inline uint32_t pccl__scope_target(uint64_t scope) { return (uint32_t)scope - 1; }

/* Does `rank` take part? */
static inline bool pccl__scope_has(uint64_t scope, uint32_t rank) {
    return scope == 0 || rank == pccl__scope_source(scope) || rank == pccl__scope_target(scope);
}

/* Do these two different ranks? Of a pair: are they the two? What others say of it counts for nothing. */
static inline bool pccl__scope_joins(uint64_t scope, uint32_t a, uint32_t b) {
    return pccl__scope_has(scope, a) && pccl__scope_has(scope, b);
}

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
/* "tag 3 #0 of epoch 7", "tag 3 #0 from rank 1 to rank 0 of epoch 7" */
void pccl__name_text(pccl_operation_name name, uint64_t epoch, char text[PCCL__NAME_TEXT]);

#endif
