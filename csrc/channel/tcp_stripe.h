/* SPDX-License-Identifier: MIT
 *
 * tcp_stripe.h - one connection of a channel: writes queued frames, reads arriving ones.
 *
 * Must not know: which frame comes next, what a frame means, why a connection exists; it asks the channel
 * (tcp_channel.h) for that. The idea, for system calls: one sendmsg takes as many frames as are at hand; one readv
 * takes the rest of a payload straight into its final place and what follows it into a small buffer. So a small frame
 * costs exactly one call on each side, and a large one is copied only where it shares a read with its header.
 */
#ifndef PCCL_CHANNEL_TCP_STRIPE_H
#define PCCL_CHANNEL_TCP_STRIPE_H

#include "channel/inbox.h"
#include "channel/tcp_frame.h"
#include "channel/tcp_medium.h"
#include "channel/tcp_pace.h"

enum { TCP_READ_BUFFER = 32 * 1024 };

enum tcp_stripe_state {
    TCP_STRIPE_IDLE,       /* no connection */
    TCP_STRIPE_CONNECTING, /* dialled */
    TCP_STRIPE_GREETING,   /* greeting sent, answer awaited */
    TCP_STRIPE_ACCEPTED,   /* answer sent; the dialler's first frame makes it UP */
    TCP_STRIPE_UP,
    TCP_STRIPE_DOWN /* lost; waits for the other side's count of received frames */
};

struct tcp_channel;

struct tcp_stripe {
    struct tcp_channel *channel;
    uint32_t index, generation;
    enum tcp_stripe_state state;
    int fd, handle; /* -1: none */
    struct tcp_medium medium;
    bool readable, writable, wants_out;

    /* Setting up and losing: tcp_link.c. */
    uint64_t retry_ns, backoff_ns; /* when to dial again */
    uint64_t since_ns;             /* of the state */
    uint64_t caller_instance;      /* ACCEPTED: the dialler's channel */
    uint32_t told_down;            /* the last generation whose loss was told */
    uint8_t greeting[TCP_ANSWER_BYTES];
    uint32_t greeting_bytes;

    /* Out. Numbers of DATA frames: acknowledged <= those in `retained` <= those in `writing` <= sent. */
    struct list writing; /* in order; the first one may be half written */
    uint32_t writing_count, written;
    struct list retained; /* DATA frames that the other side has not acknowledged */
    uint64_t sent, acknowledged;
    uint32_t shown;                           /* DATA frames whose payload the other side fetches, not acknowledged */
    struct tcp_pace pace;                     /* over the socket */
    uint64_t control_taken, control_answered; /* of control frames: the last one written here; acknowledged here */

    /* Whether the other side still receives: tcp_silence.c. */
    uint64_t signs, signs_seen;   /* grows with whatever shows that; as of the last look */
    uint64_t silent_ns;           /* since when an answer is awaited in vain; NEVER_NS: none is awaited */
    uint32_t partly_acknowledged; /* payload received of the first frame in `retained` or `writing` */
    bool asked, ask_now;          /* the other side shall answer whatever there is to say; with the next frame */
    bool others_asked;            /* in this silence */

    /* In. */
    uint64_t received, told; /* DATA frames; told: as of the last frame that was sent */
    uint32_t untold_bytes;
    bool ack_due, ack_now; /* tell after the next progress; in this one */
    bool unanswered;       /* a control frame came since the last frame that was sent */
    /* Of the DATA frame under way: its payload that was told, when to tell more (NEVER_NS: nothing to tell). */
    uint64_t partly_frame, partly_ns;
    uint32_t partly_told;
    bool partly_now;
    bool in_payload;
    uint32_t pulled;          /* bytes in this turn, from where they lay */
    struct tcp_header header; /* of the frame being read */
    struct pccl__landing landing;
    uint32_t payload_got, payload_crc;
    uint8_t *buffer; /* TCP_READ_BUFFER bytes */
    uint32_t begin, end;
};

/* One system call at most, over a socket. True if bytes went out and more may. May lose the stripe. */
bool pccl__tcp_stripe_write(struct tcp_stripe *stripe);
/* Reads what is there, up to a fair share. May lose the stripe, may break the channel. */
void pccl__tcp_stripe_read(struct tcp_stripe *stripe);

#endif
