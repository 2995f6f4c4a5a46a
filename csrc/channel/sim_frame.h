/* SPDX-License-Identifier: MIT
 *
 * sim_frame.h - the inside of the simulated network, shared by its three sources: sim.c has peers and their meeting,
 * sim_channel.c what a channel does, sim_frame.c frames on their way.
 *
 * The idea: a frame is an event in one queue of the network, ordered by the virtual time at which it is due. When it is
 * due it moves to its channel's `arrived` list, and the channel's own progress reads it, perhaps in pieces. A large
 * transfer's payload is read from the sender's memory at that moment and not before: whoever changes or frees memory
 * that is still borrowed is found out.
 */
#ifndef PCCL_CHANNEL_SIM_FRAME_H
#define PCCL_CHANNEL_SIM_FRAME_H

#include "base/heap.h"
#include "base/prng.h"
#include "channel/outbox.h"
#include "channel/sim.h"

enum frame_kind { FRAME_DATA, FRAME_OFFER, FRAME_GO, FRAME_WINDOW, FRAME_ACK, FRAME_NOTICE, FRAME_BREAK };

struct sim_channel;

struct frame {
    struct list link;       /* in `unlinked` of the sender, or in `in_flight` or `arrived*` of `to` */
    struct heap_node timer; /* in the network's queue while in flight */
    struct sim_channel *to;
    enum frame_kind kind;
    struct pccl__arrival head;
    uint64_t released_bytes;
    struct pccl__notice *notice;
    struct pccl__transfer *transfer; /* DATA: the sender's, while its memory is read; ACK: the one acknowledged */
    const uint8_t *payload;          /* in the transfer's memory or in `copy` */
    bool landing_begun;
    uint32_t landed_bytes;
    struct pccl__landing landing;
    uint8_t copy[];
};

struct peer {
    struct pccl__transport base;
    struct pccl__sim_network *network;
    struct list link;
    pccl_peer_id id;
    bool dead;
};

struct block {
    struct list link;
    pccl_peer_id a, b;
};

struct sim_channel {
    struct pccl__channel base;
    struct peer *peer;
    struct list network_link;
    struct sim_channel *other; /* the far end, from meeting until one side closes */
    bool met, down, closed;    /* down: nothing that is sent from now on arrives */
    struct frame *break_frame; /* made beforehand, so that a link can always break; NULL: used */
    bool blocked;              /* it will not meet */
    struct list unlinked;      /* frames posted before the ends met */
    struct list in_flight, arrived_control, arrived_data;
    uint64_t control_due_ns, data_due_ns; /* of the last frame towards us, for order */
    struct list sends;                    /* posted ones */
    struct list completed, notices;       /* for the next progress */
    struct pccl__inbox inbox;
    struct pccl__outbox outbox;
    uint64_t announced_bytes; /* inbox.released_bytes as the far end knows it */
};

struct pccl__sim_network {
    uint64_t random, now_ns;
    struct pccl__sim_faults faults;
    struct heap queue; /* frame.timer */
    struct list peers, channels, blocks;
    uint64_t blocked_frames;
};

static inline struct pccl__sim_network *network_of(const struct sim_channel *channel) { return channel->peer->network; }

static inline bool chance_ppm(struct pccl__sim_network *network, uint32_t ppm) {
    return ppm && prng_below(&network->random, 1000000) < ppm;
}

extern const struct pccl__channel_ops pccl__sim_channel_ops;

/* NULL: no memory. `copy` has room for copy_bytes. */
struct frame *pccl__sim_frame_new(enum frame_kind kind, uint32_t copy_bytes);
void pccl__sim_frame_free(struct frame *frame);
/* It arrives nowhere. */
void pccl__sim_frame_lose(struct frame *frame);
void pccl__sim_lose_all(struct list *frames);
/* It will reach `to` after a random delay. */
void pccl__sim_schedule(struct sim_channel *to, struct frame *frame);
/* Sends it to the far end, or keeps it until there is one; the link may break under it. Owns the frame. A blocked
 * channel begins to fail. */
void pccl__sim_emit(struct sim_channel *from, struct frame *frame);
/* The link fails, as seen by both ends, each after a delay of its own. */
void pccl__sim_link_break(struct sim_channel *channel);
/* The same, and a random tail of what `channel` has sent is lost: it was killed, closed or cut off. */
void pccl__sim_part(struct sim_channel *channel);

#endif
