/* SPDX-License-Identifier: MIT
 *
 * tcp_frame.h - frames on their way out, and the pool they come from.
 *
 * Must not know: sockets, stripes. A frame is its encoded header followed by its payload: either bytes of its own,
 * which then lie right behind the header so that one iovec takes both, or memory of a transfer. Frames are kept until
 * the other side has them. The pool keeps freed ones in a few size classes, so a link in its stride never calls malloc.
 */
#ifndef PCCL_CHANNEL_TCP_FRAME_H
#define PCCL_CHANNEL_TCP_FRAME_H

#include "channel/line.h"
#include "channel/tcp_wire.h"

struct tcp_frame {
    struct list link;
    struct pccl__ticket ticket; /* of an eager one that no stripe has taken yet */
    struct tcp_header header;
    struct pccl__transfer *transfer; /* whose memory `payload` is; NULL: the frame's own, or nobody's any more */
    const uint8_t *payload;
    uint8_t *copy; /* malloc'd: what a cancelled transfer's frame goes on sending; else NULL */
    bool forsaken; /* its transfer was cancelled: not worth resending */
    uint8_t size_class;
    uint8_t wire[]; /* the header, encoded: TCP_HEADER_BYTES; then bytes of its own */
};

static inline uint8_t *pccl__tcp_frame_own(struct tcp_frame *frame) { return frame->wire + TCP_HEADER_BYTES; }

/* How much of its payload goes through the connection. */
static inline uint32_t pccl__tcp_frame_follows(const struct tcp_frame *frame) {
    return frame->header.flags & TCP_FLAG_SHOWN ? 0 : frame->header.payload_bytes;
}

enum { TCP_FRAME_CLASSES = 5 };

struct tcp_frame_pool {
    struct list spare[TCP_FRAME_CLASSES];
    uint32_t spare_count[TCP_FRAME_CLASSES];
};

void pccl__tcp_frame_pool_init(struct tcp_frame_pool *pool);
void pccl__tcp_frame_pool_free(struct tcp_frame_pool *pool);
/* With room for `bytes` (at most PCCL__EAGER_BYTES) of its own; header zero except its kind. NULL: no memory. */
struct tcp_frame *pccl__tcp_frame_new(struct tcp_frame_pool *pool, enum tcp_kind kind, uint32_t bytes);
void pccl__tcp_frame_free(struct tcp_frame_pool *pool, struct tcp_frame *frame);
void pccl__tcp_frame_free_all(struct tcp_frame_pool *pool, struct list *frames);
/* Lets go of the transfer's memory while the frame may still have to be written: copies the payload. False: no memory.
 */
bool pccl__tcp_frame_detach(struct tcp_frame *frame);

#endif
