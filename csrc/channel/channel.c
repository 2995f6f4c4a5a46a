/* SPDX-License-Identifier: MIT
 *
 * channel.c - what all transports share besides inbox and outbox: keys, notices, the list of what is done.
 */
#include "channel/channel.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* One multiply-and-fold round per word: keys of one operation differ in few low bits, and the caller takes the low bits
 * of the result as a bucket. */
static uint64_t fold(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 32);
}

uint64_t pccl__key_hash(const struct pccl__key *key) {
    uint64_t hash = fold(0, key->epoch);
    hash = fold(hash, key->tag);
    hash = fold(hash, key->scope);
    hash = fold(hash, (uint64_t)key->sequence << 32 | key->step);
    return fold(hash, key->segment);
}

bool pccl__key_equal(const struct pccl__key *a, const struct pccl__key *b) {
    return a->epoch == b->epoch && a->tag == b->tag && a->scope == b->scope && a->sequence == b->sequence &&
           a->step == b->step && a->segment == b->segment;
}

struct pccl__notice *pccl__notice_new(uint32_t kind, const struct pccl__key *key, const struct pccl__stamp *stamp,
                                      const void *data, uint32_t bytes) {
    CHECK(bytes <= PCCL__NOTICE_BYTES);
    struct pccl__notice *notice = malloc(sizeof *notice);
    if (!notice) return NULL;
    list_init(&notice->link);
    notice->kind = kind;
    notice->key = key ? *key : (struct pccl__key){0};
    notice->stamp = stamp ? *stamp : (struct pccl__stamp){0};
    notice->bytes = bytes;
    if (bytes) memcpy(notice->data, data, bytes);
    return notice;
}

void pccl__notice_free(struct pccl__notice *notice) { free(notice); }

void pccl__done_init(struct pccl__done *done) {
    list_init(&done->transfers);
    list_init(&done->notices);
}
