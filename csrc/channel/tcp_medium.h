/* SPDX-License-Identifier: MIT
 *
 * tcp_medium.h - what the bytes of one stripe go through: its socket, two rings in memory shared with a peer of the
 * same host, or two rings that RDMA devices write (tcp_fabric.h).
 *
 * Must not know: frames, what the bytes mean, when a stripe is given up. The idea: sharing memory is no transport of
 * its own but a shorter way for the same stream of bytes. Everything above (frames, acknowledgements, resuming) stays
 * as it is, and a link for which memory cannot be shared is an ordinary TCP link. The socket stays open: the kernel
 * closes it when the other process dies, and one byte in it is the *bell* that wakes a side that sleeps in its poll
 * set.
 *
 * Agreeing. HELLO says that the dialler would share; the answering side makes a segment and tells where it is in
 * ANSWER; the dialler attaches before it sends its first byte, or does not. With that byte both know.
 *
 * The end. When the socket says that the other side is gone, what it had written to the ring before is still read.
 */
#ifndef PCCL_CHANNEL_TCP_MEDIUM_H
#define PCCL_CHANNEL_TCP_MEDIUM_H

#include <sys/types.h>

#include "base/list.h"
#include "channel/shm_segment.h"
#include "channel/tcp_fabric.h"

/* Per link and direction, divided between the stripes that were asked for. Measured in docs/performance.md. HURRY: how
 * much of a ring is used while something urgent may have to get through. */
enum { TCP_RING_BYTES = 1024 * 1024, TCP_RING_LEAST = 64 * 1024, TCP_RING_HURRY = 128 * 1024 };

struct tcp_stripe;

struct tcp_medium {
    struct shm_segment segment;
    struct shm_ring out, in;
    struct shm_pull pull;
    struct rdma_stream *stream; /* NULL: none, or not agreed on */
    int waker;                  /* its descriptor in the poll set; -1 */
    bool rings;                 /* bytes go through those, or through `stream` */
    bool bell;                  /* the socket has something */
    bool hung_up;               /* the other side is gone */
    int hung_up_errno;          /* 0: it closed in peace */
    int refused_errno; /* why an offer could not be taken, until it is clear that whoever made it is still there; 0 */
    struct list link;  /* tcp_transport.rings or .sockets */
};

void pccl__tcp_medium_init(struct tcp_medium *medium);
/* The answering side makes a segment, if both may share: sets `process` and `descriptor`, else 0. */
void pccl__tcp_medium_offer(struct tcp_stripe *stripe, uint64_t caller_instance, uint32_t *process,
                            uint32_t *descriptor);
/* The dialling side takes the offer, if it can. Nothing has been sent on the connection since its greeting. */
void pccl__tcp_medium_take(struct tcp_stripe *stripe, uint64_t answering_instance, uint32_t process,
                           uint32_t descriptor);
/* As sendmsg and readv without blocking; EPROTO: the shared memory was spoilt. */
ssize_t pccl__tcp_medium_write(struct tcp_stripe *stripe, const struct iovec *parts, int count);
ssize_t pccl__tcp_medium_read(struct tcp_stripe *stripe, const struct iovec *parts, int count);
/* The connection is agreed on. */
void pccl__tcp_medium_up(struct tcp_stripe *stripe);
/* Of each ring of a stripe. */
uint64_t pccl__tcp_medium_ring_bytes(const struct tcp_transport *transport);
/* Back to the bare socket, for a connection that comes or goes. */
void pccl__tcp_medium_reset(struct tcp_stripe *stripe);

#endif
