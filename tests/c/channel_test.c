/* SPDX-License-Identifier: MIT
 *
 * channel_test.c - what all transports share: keys are compared and hashed whole, notices are copied whole.
 */
#include "channel/channel.h"

#include <string.h>

#include "check.h"

static void every_field_counts(void) {
    const struct pccl__key key = {.epoch = 5, .tag = 5, .sequence = 5, .step = 5, .segment = 5};
    EXPECT(pccl__key_equal(&key, &key) && pccl__key_hash(&key) == pccl__key_hash(&key));
    for (int field = 0; field < 5; field++) {
        for (int bit = 0; bit < (field < 2 ? 64 : 32); bit++) {
            struct pccl__key other = key;
            if (field == 0) other.epoch ^= UINT64_C(1) << bit;
            if (field == 1) other.tag ^= UINT64_C(1) << bit;
            if (field == 2) other.sequence ^= 1u << bit;
            if (field == 3) other.step ^= 1u << bit;
            if (field == 4) other.segment ^= 1u << bit;
            EXPECT(!pccl__key_equal(&key, &other) && !pccl__key_equal(&other, &key), "field %d, bit %d", field, bit);
            EXPECT(pccl__key_hash(&key) != pccl__key_hash(&other), "field %d, bit %d", field, bit);
        }
    }
}

/* Buckets are taken from the low bits. 64 operations of 8 steps and 8 segments into 256 buckets: 16 each on average. */
static void hashes_spread(void) {
    uint32_t chains[256] = {0}, longest = 0;
    for (uint32_t i = 0; i < 4096; i++) {
        struct pccl__key key = {.epoch = 1, .sequence = i / 64, .step = i / 8 % 8, .segment = i % 8};
        uint32_t length = ++chains[pccl__key_hash(&key) % 256];
        longest = length > longest ? length : longest;
    }
    EXPECT(longest <= 40, "a chain of %u", longest);
}

static void notices_are_copies(void) {
    uint8_t data[PCCL__NOTICE_BYTES];
    memset(data, 7, sizeof data);
    struct pccl__key key = {.tag = 9};
    struct pccl__stamp stamp = {{8}};
    struct pccl__notice *full = pccl__notice_new(20, &key, &stamp, data, sizeof data);
    struct pccl__notice *bare = pccl__notice_new(21, NULL, NULL, NULL, 0);
    EXPECT(full && bare);
    memset(data, 0, sizeof data);
    key.tag = stamp.bytes[0] = 0;
    EXPECT(full->kind == 20 && full->key.tag == 9 && full->stamp.bytes[0] == 8 && full->bytes == sizeof data);
    EXPECT(full->data[0] == 7 && full->data[sizeof data - 1] == 7);
    EXPECT(bare->kind == 21 && bare->key.tag == 0 && bare->stamp.bytes[0] == 0 && bare->bytes == 0);

    struct pccl__done done;
    pccl__done_init(&done);
    EXPECT(list_empty(&done.transfers) && list_empty(&done.notices));
    list_push_back(&done.notices, &full->link); /* a fresh notice is linked nowhere */
    list_remove(&bare->link);
    EXPECT(list_pop_front(&done.notices) == &full->link);
    pccl__notice_free(full);
    pccl__notice_free(bare);
    pccl__notice_free(NULL);
}

int main(void) {
    every_field_counts();
    hashes_spread();
    notices_are_copies();
    FINISH();
}
