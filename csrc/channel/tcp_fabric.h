/* SPDX-License-Identifier: MIT
 *
 * tcp_fabric.h - RDMA as the medium of a stripe: how the two sides agree on it, and what it takes to sleep.
 *
 * Must not know: frames, queues. As with shared memory (tcp_medium.h) only the bytes take another way: the connection
 * stays open, tells of the other side's end, and carries a last word of ours nowhere, so what was written must have
 * arrived before it closes.
 *
 * Agreeing. HELLO has the dialler's offer; the answering side connects to it and puts its own into ANSWER; the dialler
 * connects and says so by a bell, its first byte on the connection, or goes on without. Where both share a host, memory
 * is better. Whoever cannot, for want of a library, a device, locked memory or a path, says once why.
 */
#ifndef PCCL_CHANNEL_TCP_FABRIC_H
#define PCCL_CHANNEL_TCP_FABRIC_H

#include "channel/rdma_stream.h"

enum { TCP_RDMA_OFF = 0, TCP_RDMA_AUTO = 1, TCP_RDMA_REQUIRED = 2 };

struct tcp_stripe;
struct tcp_transport;

/* The transport's part. */
struct tcp_fabric {
    uint8_t mode;
    const char *library, *device; /* as rdma_wish; the latter is in `name`, or NULL */
    char name[RDMA_NAME_BYTES];
    struct sockaddr_storage address; /* that all links leave from; family 0: each its own */
    struct rdma_port port;
    uint8_t refused[VERBS_GID_BYTES]; /* the last address that no port was found for */
    bool tried;
    char why[RDMA_WHY_BYTES]; /* what was missing last */
};

struct pccl__tcp_options;
/* False: RDMA is required, and it is certain that there can be none: `why` says what is missing. `listen` is where the
 * transport listens. */
bool pccl__tcp_fabric_begin(struct tcp_transport *transport, const struct pccl__tcp_options *options,
                            const struct sockaddr_storage *listen);
void pccl__tcp_fabric_end(struct tcp_transport *transport);

/* The dialling side's offer, and the answering side's to it: number 0 where there is none. */
void pccl__tcp_fabric_offer(struct tcp_stripe *stripe, struct rdma_offer *offer);
void pccl__tcp_fabric_answer(struct tcp_stripe *stripe, const struct rdma_offer *other, struct rdma_offer *offer);
/* The dialling side takes the answer, if it can, and rings. */
void pccl__tcp_fabric_take(struct tcp_stripe *stripe, const struct rdma_offer *other);
/* Both sides have agreed: bytes go through it. */
void pccl__tcp_fabric_use(struct tcp_stripe *stripe);
/* There will be none, or no more. With `last_words` what was written arrives first, or time runs out. */
void pccl__tcp_fabric_drop(struct tcp_stripe *stripe, bool last_words);
/* Something may have happened: what, is in the stripe's flags. `sleeping` as in channel.h. */
bool pccl__tcp_fabric_look(struct tcp_stripe *stripe, bool sleeping);
/* As tcp_medium.h, without the end of the connection: 0 bytes read are none. */
ssize_t pccl__tcp_fabric_write(struct tcp_stripe *stripe, const struct iovec *parts, int count);
ssize_t pccl__tcp_fabric_read(struct tcp_stripe *stripe, const struct iovec *parts, int count);

#endif
