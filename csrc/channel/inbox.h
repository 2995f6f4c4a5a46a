/* SPDX-License-Identifier: MIT
 *
 * inbox.h - the receiving half of one channel: posted receives, what came before them, and where payloads land.
 *
 * Must not know: sockets, frame formats, time. A transport parses a frame and asks where its payload goes; the inbox
 * answers with memory: that of the posted receive, a buffer it keeps (early arrival), or nowhere (stale epoch,
 * cancelled, mismatch, duplicate). The idea: a payload is a *landing*, and the inbox knows all landings that are under
 * way. So cancel, expect and a late post can redirect one in the middle, and the transport needs no case for that: it
 * asks the landing for its memory before every read.
 *
 * The protocol that inbox and outbox speak through any transport (the sender's view is in outbox.h):
 *   DATA    (key, stamp, bytes, offset, payload, eager, offered): eager data is one whole transfer of up to
 *           PCCL__EAGER_BYTES in one frame and counts against the window; other data was asked for by GO and is never
 *           kept, so a large transfer comes in any number of frames, in any order
 *   OFFER   (key, stamp, bytes): a send that must wait. GO may cross it, and its data overtake it on another stripe: so
 *           data says that it was offered, and a receive completes only with its offer, lest a late one find no
 * receive. Outside epochs neither holds: a receive there always sends GO, so an offer without one is forgotten GO (key,
 * bytes): a receive is posted; post and offer below tell when to send one WINDOW  (released): the eager charge that the
 * receiver has let go of, in all
 *
 * How much one side may be ahead of the other is bounded without breaking anything: eager arrivals by the window,
 * offers that nobody answered and go-aheads that nobody used by PCCL__AHEAD_MAX of each per epoch. Who is further ahead
 * keeps its offers to itself until some are answered, and leaves it to the other side to offer. As the other side may
 * be one epoch behind, twice as many may be kept; who sends more than all that together breaks the rules.
 *
 * Each frame must be ended once: a transport that resends frames filters repetitions by a number of its own and drops
 * the landing of the repeated one. Both landings may be under way at once.
 *
 * No allocation where a receive is posted first. Owner thread only; nothing blocks.
 */
#ifndef PCCL_CHANNEL_INBOX_H
#define PCCL_CHANNEL_INBOX_H

#include "channel/channel.h"

enum {
    PCCL__BOX_BUCKETS = 1024,
    PCCL__AHEAD_MAX = 16 * 1024,
    PCCL__EAGER_OVERHEAD = 64, /* charged per eager frame, so that empty ones are bounded too */
    /* Kept arrivals and offers, or grants, of one channel; more is PROTOCOL. */
    PCCL__BOX_ENTRIES = PCCL__EAGER_WINDOW / PCCL__EAGER_OVERHEAD + 2 * PCCL__AHEAD_MAX,
    /* In transfer.flags; lower bits are the transport's. Of a receive: */
    PCCL__TRANSFER_GO = 1u << 30,         /* GO was sent */
    PCCL__TRANSFER_OFFER_SEEN = 1u << 29, /* its OFFER came */
    PCCL__TRANSFER_OFFERED = 1u << 28,    /* its data says that there is one */
    PCCL__TRANSFER_GO_AHEAD = 1u << 27,   /* GO was sent before any sign of the send */
    /* Of a send: */
    PCCL__TRANSFER_HELD = 1u << 26 /* it waits for its turn to be offered */
};

static inline uint32_t pccl__eager_charge(uint32_t payload_bytes) { return payload_bytes + PCCL__EAGER_OVERHEAD; }

struct pccl__inbox {
    struct list posted[PCCL__BOX_BUCKETS]; /* transfer.hash_link */
    struct list kept[PCCL__BOX_BUCKETS];   /* early arrivals and offers */
    struct list all_kept;
    struct list landings;   /* landing.link */
    struct list *completed; /* the channel's: transfers that wait for its next progress */
    struct list *notices;   /* the channel's: PCCL__NOTICE_ARRIVED goes here */
    uint64_t epoch;
    uint64_t held_bytes;     /* in kept buffers, at most PCCL__EAGER_WINDOW */
    uint64_t released_bytes; /* for WINDOW frames; never falls */
    uint32_t posted_count, kept_count;
    uint32_t gos_ahead;                            /* of `epoch`: sent and not used, as far as we know */
    struct pccl__key discarded[PCCL__DISCARD_MAX]; /* the last operations of `epoch` that are as good as stale */
    uint32_t discarded_count;
};

struct pccl__early;

/* One frame's payload under way. Owned by the transport (one per frame that it reads), linked in the inbox. */
struct pccl__landing {
    struct list link;
    struct pccl__inbox *inbox;
    struct pccl__transfer *transfer; /* at most one of these two is set; */
    struct pccl__early *early;       /* neither: nowhere */
    struct pccl__key key;
    uint32_t offset, payload_bytes;
    bool eager, offered;
};

/* A DATA frame's header. */
struct pccl__arrival {
    struct pccl__key key;
    struct pccl__stamp stamp;
    uint32_t bytes;  /* of the whole transfer */
    uint32_t offset; /* of this payload in it */
    uint32_t payload_bytes;
    bool eager;
    bool offered; /* the sender made an OFFER for it */
};

void pccl__inbox_init(struct pccl__inbox *inbox, struct list *completed, struct list *notices);

/* Takes a receive; it completes at once (into `completed`) when its data is here or does not match. Initialises its
 * hash_link, moved and flags; `link` stays unused until completion. `*go`: send GO for it. Errors: INVALID (larger than
 * PCCL__TRANSFER_BYTES). */
pccl_status pccl__inbox_post(struct pccl__inbox *inbox, struct pccl__transfer *transfer, bool *go);

/* An OFFER came. `*go`: send GO. Errors: NO_MEMORY, PROTOCOL: break the channel. */
pccl_status pccl__inbox_offer(struct pccl__inbox *inbox, const struct pccl__key *key, const struct pccl__stamp *stamp,
                              uint32_t bytes, bool *go);

/* A DATA header came: begins a landing, also for an empty payload. Errors: NO_MEMORY, PROTOCOL: break the channel, the
 * landing is not begun. */
pccl_status pccl__inbox_land(struct pccl__inbox *inbox, const struct pccl__arrival *arrival,
                             struct pccl__landing *landing);
/* Where byte 0 of the payload belongs right now; NULL: nowhere (read it and forget it). Valid until the next call of
 * any function here. */
uint8_t *pccl__landing_memory(const struct pccl__landing *landing);
/* The payload will never come: its sender has given the transfer up. The landing still has to be ended. */
void pccl__landing_void(struct pccl__landing *landing);
/* All payload bytes are in place. The transfer completes with the last of them and its offer. Errors: PROTOCOL: break
 * the channel. */
pccl_status pccl__landing_end(struct pccl__landing *landing);
/* The frame will not be finished or was a repetition. A landing must be ended or dropped before it goes away. */
void pccl__landing_drop(struct pccl__landing *landing);

/* A posted receive completes with `why`, its landings go nowhere. Harmless when it already completed. */
void pccl__inbox_cancel(struct pccl__inbox *inbox, struct pccl__transfer *transfer, pccl_status why);
/* As channel.h: nothing of this operation will be received any more in its epoch. Errors: INVALID (too many). */
pccl_status pccl__inbox_discard(struct pccl__inbox *inbox, const struct pccl__key *key);
/* Sets the epoch, drops what older ones left behind; posted receives of older epochs stay posted but get nothing. */
void pccl__inbox_expect(struct pccl__inbox *inbox, uint64_t epoch);
/* Break, close, free: every posted receive completes with `why`, landings go nowhere, kept memory is freed. */
void pccl__inbox_fail(struct pccl__inbox *inbox, pccl_status why);

#endif
