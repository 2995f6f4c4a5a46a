/* SPDX-License-Identifier: MIT
 *
 * rdma_stream.h - two streams of bytes, one each way, through rings in registered memory that the other side writes.
 *
 * Must not know: frames, sockets, who is there. Each side owns the ring that it reads. The other side writes into it
 * with a note of how many bytes that were, and stops where the ring is full or too many notes are on their way; the
 * reader returns both with a note of its own, which carries no bytes. So a small message is one request without a copy
 * but the device's, and nothing is ever written where there is no place for it, or its note.
 *
 * Costs, per message: one request and one completion on either side; a quarter of the returned places, or of the room
 * that is used in a hurry, costs one more. What is larger than a device takes inline is copied once into memory that it
 * may read (the image of the other side's ring, at the same offset), and on the other side once out of the ring. Large
 * pieces that should not be copied go another way.
 */
#ifndef PCCL_CHANNEL_RDMA_STREAM_H
#define PCCL_CHANNEL_RDMA_STREAM_H

#include <sys/uio.h>

#include "channel/rdma_queue.h"

enum {
    RDMA_NOTES_AHEAD = 128,       /* of messages, that the other side has not returned */
    RDMA_RETURN_BYTES = 32 * 1024 /* at least so much is returned at a time, or a quarter of the ring */
};

struct rdma_stream {
    struct rdma_queue queue;
    uint8_t *ring, *image;       /* one mapping */
    uint64_t own_bytes;          /* of either */
    struct verbs_memory *memory; /* both, registered */
    /* Once connected: */
    uint64_t capacity; /* of both rings, as agreed */
    struct rdma_place out;
    uint64_t limit;                 /* how much of the other side's ring is used */
    uint64_t written, returned;     /* bytes */
    uint32_t notes, notes_returned; /* sent; returned */
    uint64_t arrived, read, told;   /* bytes; told: returned to the other side */
    uint32_t arrivals, arrivals_told;
};

/* Makes what can be offered; `ring_bytes` is a power of two. 0 or an errno; `*why` says what failed. */
int pccl__rdma_stream_open(struct rdma_stream *stream, struct rdma_port *port, uint64_t ring_bytes, uint32_t start,
                           const char **why);
void pccl__rdma_stream_offer(const struct rdma_stream *stream, struct rdma_offer *offer);
/* Takes the other side's. 0 or an errno. */
int pccl__rdma_stream_connect(struct rdma_stream *stream, const struct rdma_offer *other);
/* As rdma_queue.h. Waits, for at most `patience_ns`, until what was written has arrived. */
void pccl__rdma_stream_close(struct rdma_stream *stream, uint64_t patience_ns);

/* Copy as much as there is room for, or is there. Return the number of bytes; 0 where there is none; or -1: the stream
 * has failed (queue.error), and nothing more comes. What had arrived before a failure is read first. */
int64_t pccl__rdma_stream_write(struct rdma_stream *stream, const struct iovec *parts, int count);
int64_t pccl__rdma_stream_read(struct rdma_stream *stream, const struct iovec *parts, int count);

/* Takes what has happened. Would a read, or a write of some size, do something now (a failure counts)? */
void pccl__rdma_stream_look(struct rdma_stream *stream);
bool pccl__rdma_stream_readable(const struct rdma_stream *stream);
bool pccl__rdma_stream_writable(const struct rdma_stream *stream);

#endif
