/* SPDX-License-Identifier: MIT
 *
 * outbox.h - the sending half of one channel's flow control: which sends may go, which wait for the other side.
 *
 * Must not know: sockets, frame formats, how a payload is cut into frames. The protocol is in inbox.h's head. The idea:
 * a send goes in one of three ways, decided once when it is posted. Eager while the window has room; granted when the
 * other side has already asked (GO); else it is offered and waits for GO, however much room the window gets later.
 * That is enough: whoever receives it answers the offer. So a transfer that nobody receives delays no other, unless
 * there are PCCL__AHEAD_MAX such offers: then further ones are held back, in order, until some are answered.
 *
 * Sends outside epochs (key.epoch 0) are never eager: the other side may have given up on them, and no later epoch
 * would sweep them out of its inbox.
 */
#ifndef PCCL_CHANNEL_OUTBOX_H
#define PCCL_CHANNEL_OUTBOX_H

#include "channel/inbox.h"

struct pccl__outbox {
    struct list waiting[PCCL__BOX_BUCKETS]; /* transfer.hash_link of offered sends */
    struct list grants[PCCL__BOX_BUCKETS];  /* GOs that came before their send */
    struct list all_grants;
    struct list held;     /* transfer.link: sends that will be offered, oldest first; they are in `waiting` too */
    struct list *notices; /* the channel's: PCCL__NOTICE_WANTED goes here */
    uint64_t epoch;
    uint64_t charged_bytes, released_bytes; /* of the eager window, since the channel began */
    uint32_t grants_count;
    uint32_t offers; /* of `epoch`: made and not answered, those of cancelled sends too */
};

enum pccl__way {
    PCCL__WAY_EAGER,   /* send it in one DATA frame, marked eager; already charged */
    PCCL__WAY_GRANTED, /* send it in any number of DATA frames */
    PCCL__WAY_OFFER,   /* send an OFFER, keep the transfer; pccl__outbox_go gives it back */
    PCCL__WAY_HOLD     /* not yet: transfer.link is in outbox.held; pccl__outbox_next_offer or _go gives it back */
};

void pccl__outbox_init(struct pccl__outbox *outbox, struct list *notices);
/* Initialises transfer.hash_link; owns it while the transfer waits. */
enum pccl__way pccl__outbox_post(struct pccl__outbox *outbox, struct pccl__transfer *transfer);
/* A held send whose turn it is: send its OFFER, keep it as with PCCL__WAY_OFFER. NULL: none. To be asked after GOs and
 * after expect. */
struct pccl__transfer *pccl__outbox_next_offer(struct pccl__outbox *outbox);
/* A GO came: `*transfer` is the send that may now go (as PCCL__WAY_GRANTED, its data marked as offered unless it is
 * PCCL__TRANSFER_HELD), NULL if none waits; then the grant is kept for it. Errors: NO_MEMORY, PROTOCOL: break the
 * channel. */
pccl_status pccl__outbox_go(struct pccl__outbox *outbox, const struct pccl__key *key, uint32_t bytes,
                            struct pccl__transfer **transfer);
/* The owner will post no send for this key: its grant goes. Harmless without one. */
void pccl__outbox_decline(struct pccl__outbox *outbox, const struct pccl__key *key);
/* A WINDOW came. Errors: PROTOCOL (released what was never sent). */
pccl_status pccl__outbox_release(struct pccl__outbox *outbox, uint64_t released_bytes);
/* The send no longer waits (cancel, break, close); the caller unlinks transfer.link. Harmless for one that does not. */
void pccl__outbox_remove(struct pccl__outbox *outbox, struct pccl__transfer *transfer);
/* Sets the epoch, forgets the grants of older ones. */
void pccl__outbox_expect(struct pccl__outbox *outbox, uint64_t epoch);
/* Frees the grants; waiting sends are unlinked, those held back must be gone. */
void pccl__outbox_clear(struct pccl__outbox *outbox);

#endif
