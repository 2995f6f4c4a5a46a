/* SPDX-License-Identifier: MIT
 *
 * rdma_offer_test.c - what is encoded comes back; what no side would say is refused.
 */
#include "channel/rdma_offer.h"

#include <string.h>

#include "check.h"

static const struct rdma_offer sample = {
    .queue = {.gid = {1, 2, 3, [15] = 4}, .number = 0xabcdef, .start = 7, .lid = 9, .mtu = 5, .layer = 2, .reads = 16},
    .ring_at = UINT64_MAX - 3,
    .ring_key = 11,
    .ring_bytes = RDMA_RING_LEAST};

static bool is_sound(struct rdma_offer offer) {
    uint8_t wire[RDMA_OFFER_BYTES];
    struct rdma_offer back;
    pccl__rdma_offer_encode(&offer, wire);
    return pccl__rdma_offer_decode(&back, wire);
}

#define WITH(change)                                                                                                   \
    ({                                                                                                                 \
        struct rdma_offer o = sample;                                                                                  \
        change;                                                                                                        \
        o;                                                                                                             \
    })

int main(void) {
    uint8_t wire[RDMA_OFFER_BYTES];
    struct rdma_offer back;
    pccl__rdma_offer_encode(&sample, wire);
    EXPECT(pccl__rdma_offer_decode(&back, wire));
    EXPECT(memcmp(back.queue.gid, sample.queue.gid, VERBS_GID_BYTES) == 0 && back.queue.number == 0xabcdef);
    EXPECT(back.queue.start == 7 && back.queue.lid == 9 && back.queue.mtu == 5 && back.queue.layer == 2);
    EXPECT(back.queue.reads == 16 && back.ring_at == sample.ring_at && back.ring_key == 11);
    EXPECT(back.ring_bytes == RDMA_RING_LEAST);
    EXPECT(is_sound((struct rdma_offer){0}), "none");
    EXPECT(!is_sound(WITH(o.queue.number = 0)), "none, but with something");
    EXPECT(!is_sound(WITH(o.queue.number = 1 << 24)) && !is_sound(WITH(o.queue.start = 1 << 24)));
    EXPECT(!is_sound(WITH(o.queue.mtu = 0)) && !is_sound(WITH(o.queue.mtu = 6)) && !is_sound(WITH(o.queue.layer = 3)));
    EXPECT(!is_sound(WITH(o.ring_bytes = 0)) && !is_sound(WITH(o.ring_bytes = RDMA_RING_LEAST + 1)));
    EXPECT(!is_sound(WITH(o.ring_bytes = RDMA_RING_LEAST / 2)) && !is_sound(WITH(o.ring_bytes = RDMA_RING_MOST * 2)));
    EXPECT(is_sound(WITH(o.ring_bytes = RDMA_RING_MOST)));
    FINISH();
}
