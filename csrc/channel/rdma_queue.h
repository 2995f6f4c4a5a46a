/* SPDX-License-Identifier: MIT
 *
 * rdma_queue.h - one reliable connection between two ports: made, connected, written and read through, broken, gone.
 *
 * Must not know: streams, frames, what a note means. All requests go out in order. Of those that write only each
 * sixteenth is reported when it is done (each report costs both the device and us), those that read always are. The
 * other side's *notes* come with what it wrote, 32 bits each; each uses up one of the places that are kept ready here,
 * and is given back its place as soon as it is seen. Who sends notes has to know how many places there are.
 *
 * The first failure is the last: nothing goes out afterwards, and the device is told to let go of all it was given.
 * When closing has returned, neither side's device touches memory through this queue any more.
 */
#ifndef PCCL_CHANNEL_RDMA_QUEUE_H
#define PCCL_CHANNEL_RDMA_QUEUE_H

#include "channel/rdma_offer.h"
#include "channel/rdma_port.h"

enum {
    RDMA_REPORT_EACH = 16,
    RDMA_INLINE_BYTES = 256, /* asked for; a frame's header and a small payload */
    RDMA_PIECES = 4,         /* of one request */
    RDMA_READS_MOST = 16
};

struct rdma_queue {
    struct rdma_port *port;
    struct verbs_channel *channel;
    struct verbs_completions *completions;
    struct verbs_pair *pair; /* NULL: none */
    uint32_t start;          /* of this side's numbers */
    uint32_t inline_bytes;
    uint32_t reads_most;        /* that may be under way */
    uint32_t sends_most;        /* requests that may be open */
    uint64_t sends, sends_done; /* requests posted; known to be done. Reads count in both */
    uint32_t unreported;        /* since the last one that will be reported */
    bool armed;                 /* the channel's descriptor tells of the next completion */
    int error;                  /* an errno; 0: sound */
    const char *why;            /* with an error */
};

/* What `poll` found. */
struct rdma_news {
    enum { RDMA_NOTHING, RDMA_NOTE, RDMA_READ_DONE, RDMA_FAILED } kind;
    uint32_t note;
    uint16_t read; /* as given to pccl__rdma_queue_read */
};

struct rdma_queue_options {
    uint32_t sends, notes; /* places: requests of this side, notes of the other */
    uint32_t start;        /* random, 24 bits */
};

/* Makes it, for a port that outlives it. 0 or an errno. */
int pccl__rdma_queue_open(struct rdma_queue *queue, struct rdma_port *port, const struct rdma_queue_options *options);
void pccl__rdma_queue_address(const struct rdma_queue *queue, struct rdma_address *address);
/* From here on notes come, and writing is possible. 0 or an errno. */
int pccl__rdma_queue_connect(struct rdma_queue *queue, const struct rdma_address *other);
/* Stops all transfers of either side and forgets them; then frees. Harmless when there is none. */
void pccl__rdma_queue_close(struct rdma_queue *queue);

static inline bool pccl__rdma_queue_sound(const struct rdma_queue *queue) { return queue->pair && queue->error == 0; }
/* Requests that may be posted now. */
static inline uint32_t pccl__rdma_queue_room(const struct rdma_queue *queue) {
    return queue->sends_most - (uint32_t)(queue->sends - queue->sends_done);
}

/* Where a request's bytes go or come from on the other side. */
struct rdma_place {
    uint64_t at;
    uint32_t key;
};

/* Post one request; there must be room. `inlined`: the pieces are copied and need no key, all together at most
 * `inline_bytes`. False: it failed, and so did the queue. */
bool pccl__rdma_queue_write(struct rdma_queue *queue, struct verbs_piece *pieces, int count, struct rdma_place to,
                            bool inlined);
bool pccl__rdma_queue_write_noted(struct rdma_queue *queue, struct verbs_piece *pieces, int count, struct rdma_place to,
                                  bool inlined, uint32_t note);
bool pccl__rdma_queue_read(struct rdma_queue *queue, struct verbs_piece *to, struct rdma_place from, uint16_t read);

/* The next thing that happened. No system call where the device has none. */
struct rdma_news pccl__rdma_queue_poll(struct rdma_queue *queue);
/* Before a sleep, after which one more look is due: the next completion makes `pccl__rdma_queue_fd` readable. */
void pccl__rdma_queue_arm(struct rdma_queue *queue);
static inline int pccl__rdma_queue_fd(const struct rdma_queue *queue) { return queue->channel->fd; }
/* The descriptor was readable. */
void pccl__rdma_queue_wake(struct rdma_queue *queue);
/* Makes sure that what was posted so far will be reported soon. There must be room. */
void pccl__rdma_queue_report(struct rdma_queue *queue);
/* Breaks it for a reason of our own. */
void pccl__rdma_queue_fail(struct rdma_queue *queue, int error, const char *why);

#endif
