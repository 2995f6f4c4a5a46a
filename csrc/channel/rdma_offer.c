/* SPDX-License-Identifier: MIT
 *
 * rdma_offer.c - see rdma_offer.h.
 */
#include "channel/rdma_offer.h"

#include <string.h>

#include "base/bits.h"

enum {
    AT_GID = 0,
    AT_NUMBER = 16,
    AT_START = 20,
    AT_RING = 24,
    AT_KEY = 32,
    AT_BYTES = 36,
    AT_LID = 40,
    AT_MTU = 42,
    AT_LAYER = 43,
    AT_READS = 44
};

void pccl__rdma_offer_encode(const struct rdma_offer *offer, uint8_t *wire) {
    memset(wire, 0, RDMA_OFFER_BYTES);
    memcpy(wire + AT_GID, offer->queue.gid, VERBS_GID_BYTES);
    put_u32(wire + AT_NUMBER, offer->queue.number);
    put_u32(wire + AT_START, offer->queue.start);
    put_u64(wire + AT_RING, offer->ring_at);
    put_u32(wire + AT_KEY, offer->ring_key);
    put_u32(wire + AT_BYTES, offer->ring_bytes);
    put_u16(wire + AT_LID, offer->queue.lid);
    wire[AT_MTU] = offer->queue.mtu;
    wire[AT_LAYER] = offer->queue.layer;
    wire[AT_READS] = offer->queue.reads;
}

bool pccl__rdma_offer_decode(struct rdma_offer *offer, const uint8_t *wire) {
    *offer = (struct rdma_offer){.queue = {.number = get_u32(wire + AT_NUMBER),
                                           .start = get_u32(wire + AT_START),
                                           .lid = get_u16(wire + AT_LID),
                                           .mtu = wire[AT_MTU],
                                           .layer = wire[AT_LAYER],
                                           .reads = wire[AT_READS]},
                                 .ring_at = get_u64(wire + AT_RING),
                                 .ring_key = get_u32(wire + AT_KEY),
                                 .ring_bytes = get_u32(wire + AT_BYTES)};
    memcpy(offer->queue.gid, wire + AT_GID, VERBS_GID_BYTES);
    const struct rdma_address *queue = &offer->queue;
    uint32_t bytes = offer->ring_bytes;
    if (queue->number == 0) {
        static const uint8_t nothing[RDMA_OFFER_BYTES];
        return memcmp(wire, nothing, sizeof nothing) == 0;
    }
    bool ring = bytes >= RDMA_RING_LEAST && bytes <= RDMA_RING_MOST && (bytes & (bytes - 1)) == 0;
    bool layer = queue->layer == VERBS_INFINIBAND || queue->layer == VERBS_ETHERNET;
    return ring && layer && queue->number >> 24 == 0 && queue->start >> 24 == 0 && queue->mtu >= 1 && queue->mtu <= 5;
}
