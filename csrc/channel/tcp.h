/* SPDX-License-Identifier: MIT
 *
 * tcp.h - the TCP transport: one listening port, striped channels.
 */
#ifndef PCCL_CHANNEL_TCP_H
#define PCCL_CHANNEL_TCP_H

#include "base/arena.h"
#include "channel/channel.h"
#include "channel/poll.h"

struct pccl__tcp_options {
    pccl_peer_id id;
    uint8_t run_secret[16];
    const char *listen_address; /* numeric */
    uint16_t listen_port;       /* 0: any */
    uint32_t stripes;           /* 0: by round trip */
    uint32_t connect_timeout_ms;
    uint8_t checksum;          /* as in pccl_options */
    uint64_t host_id;          /* frames to a peer with the same one do not leave the host */
    bool no_sharing;           /* go through the kernel within a host, too */
    struct pccl__arena *arena; /* what others of the host may map; outlives the transport; NULL: nothing */
    uint8_t rdma;              /* TCP_RDMA_*; auto: where both sides can */
    const char *rdma_device;   /* NULL or empty: by the link's address */
    const char *rdma_library;  /* a file in the place of libibverbs, borrowed; NULL */
    uint32_t ring_bytes;       /* of shared memory per link and direction, a power of two; 0 chooses */
};

/* Errors: INVALID (address), SYSTEM (bind), NO_MEMORY, UNSUPPORTED (RDMA is required and something is missing).
 * Registers its descriptors with `poll`, which must outlive it. */
pccl_status pccl__tcp_transport_new(const struct pccl__tcp_options *options, struct pccl__poll *poll,
                                    struct pccl__transport **transport, pccl_error *error);
uint16_t pccl__tcp_transport_port(const struct pccl__transport *transport);

#endif
