/* SPDX-License-Identifier: MIT
 *
 * rdma_offer.h - what one side tells the other in greetings so that they can go on over RDMA. Encode, decode, validate;
 * no I/O.
 *
 * Must not know: devices, connections.
 */
#ifndef PCCL_CHANNEL_RDMA_OFFER_H
#define PCCL_CHANNEL_RDMA_OFFER_H

#include "channel/verbs.h"

enum { RDMA_OFFER_BYTES = 48, RDMA_RING_LEAST = 4096, RDMA_RING_MOST = 2 * 1024 * 1024 };

/* Where a queue is found, for the other side. */
struct rdma_address {
    uint8_t gid[VERBS_GID_BYTES];
    uint32_t number; /* 24 bits, as the next; 0: there is no queue */
    uint32_t start;
    uint16_t lid;
    uint8_t mtu, layer;
    uint8_t reads; /* that the device answers at a time */
};

/* What the other side has to know. */
struct rdma_offer {
    struct rdma_address queue; /* number 0: there is no offer */
    uint64_t ring_at;
    uint32_t ring_key, ring_bytes;
};

/* `wire` has RDMA_OFFER_BYTES. */
void pccl__rdma_offer_encode(const struct rdma_offer *offer, uint8_t *wire);
/* False: it makes no sense. */
bool pccl__rdma_offer_decode(struct rdma_offer *offer, const uint8_t *wire);

#endif
