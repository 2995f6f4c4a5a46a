/* SPDX-License-Identifier: MIT
 *
 * tcp_channel.h - the inside of the TCP transport: its two structs, and who calls whom.
 *
 *     tcp.c          transport: open, progress, free          tcp_stripe.c   one connection's reads and writes
 *     tcp_channel.c  the channel's table of operations        tcp_listener.c accepting, greetings of strangers
 *     tcp_send.c     which frame goes next; acknowledgements  tcp_link.c     dialling, losing, resuming stripes
 *     tcp_receive.c  what an arrived frame does               tcp_medium.c   what a stripe's bytes go through
 *     tcp_fabric.c   RDMA as that
 *     tcp_silence.c  stripes into which bytes vanish          tcp_pace.c     how quickly a stripe gets rid of bytes
 *     tcp_death.c    processes that have ended                tcp_path.c     what the kernel knows of a path
 *     tcp_wire.c, tcp_frame.c, tcp_socket.c
 *
 * Reliability in one paragraph. DATA frames are counted per stripe and kept until acknowledged. When a stripe is lost,
 * each side stops reading it for good and tells on a living one how many DATA frames it had received (DOWN); what lies
 * beyond that count is sent again on the others. All other frames form one control stream per channel with its own
 * count: it lives on one stripe, and after a loss its unacknowledged rest is sent again on another, where repetitions
 * are told by their number. A channel whose last stripe is lost is broken.
 */
#ifndef PCCL_CHANNEL_TCP_CHANNEL_H
#define PCCL_CHANNEL_TCP_CHANNEL_H

#include "channel/outbox.h"
#include "channel/tcp.h"
#include "channel/tcp_socket.h"
#include "channel/tcp_stripe.h"

enum { TCP_TRANSFER_OFFERED = 1 /* in transfer.flags of a send: its data carry TCP_FLAG_OFFERED */ };

struct tcp_transport {
    struct pccl__transport base;
    struct pccl__poll *poll;
    pccl_peer_id id;
    uint8_t secret[16];
    uint64_t host_id;
    uint32_t stripes;
    uint64_t connect_timeout_ns;
    uint8_t checksum;
    bool sharing, pulling;     /* memory: with rings; of transfers, where they lie */
    struct shm_proof proof;    /* that this is the process whose memory is pulled */
    struct pccl__arena *arena; /* or NULL */
    struct tcp_fabric fabric;
    uint32_t process; /* where others find this one's segments */
    uint32_t ring_bytes;
    struct list rings;    /* tcp_medium.link: those in shared memory */
    struct list sockets;  /* tcp_medium.link: those that are up and are not */
    uint64_t instances;   /* generator state of channel instances */
    struct list channels; /* tcp_channel.link */
    /* The listener's. */
    int listener, listener_handle;
    bool acceptable;       /* connections may wait */
    uint64_t resume_ns;    /* out of descriptors: when to accept again; 0: accepting */
    struct list strangers; /* connections that have not greeted yet, oldest first */
    uint32_t strangers_count;
};

/* Whether the other side's process has ended: bytes last came, how long to wait before the next look, when that is
 * (NEVER_NS: nobody waits). */
struct tcp_watch {
    uint64_t heard_ns, pause_ns, look_ns;
};

struct tcp_channel {
    struct pccl__channel base;
    struct tcp_transport *transport;
    struct list link;
    struct tcp_address address;
    bool closed, checked;         /* checked: payloads carry a CRC */
    struct pccl__arena_view view; /* of the peer's memory, for all stripes that pull */
    uint64_t now_ns;              /* of the progress that runs */

    /* The link. */
    uint64_t instance, peer_instance; /* the latter 0: not linked yet */
    bool wanted;                      /* something was posted: dial */
    bool dialler;                     /* this side dials the stripes */
    uint64_t wanted_ns;               /* since when; 0: not started */
    const char *obstacle;             /* what the last dial failed with */
    int obstacle_errno;
    struct tcp_stripe *stripes[TCP_STRIPES_MAX];
    uint32_t stripes_count, up_count;

    struct pccl__inbox inbox;
    struct pccl__outbox outbox;
    struct list completed, notices; /* for the next progress */

    /* Out. Every posted send that has not completed is in `line` or in one of the two lists of transfers. */
    struct tcp_frame_pool pool;
    struct list offered, unacknowledged;
    struct pccl__line line; /* small: frames of eager sends; large: transfers. Any stripe may take what is next */
    struct list resend;     /* frames that any stripe may take, before those */
    bool unflushed;         /* the last flush stopped at its bound, not for want of frames or room */
    uint32_t turn;          /* the stripe that is asked first */

    /* The control stream. */
    struct list control, control_sent;
    uint64_t control_number;  /* of the last one queued */
    uint64_t control_written; /* the highest that a stripe took */
    uint64_t control_received, control_told, released_told;
    int control_stripe; /* -1: to be chosen */
    uint64_t ack_ns;    /* when to tell what nothing carried; NEVER_NS: nothing to tell */

    uint64_t looked_ns, look_ns; /* whether stripes are silent: last, next; NEVER_NS: none waits */
    struct tcp_watch death;
};

static inline struct tcp_channel *tcp_channel_of(struct pccl__channel *base) { return (struct tcp_channel *)base; }
/* Do payloads carry a CRC on this stripe? RDMA devices check all they move themselves. */
static inline bool tcp_checks(const struct tcp_channel *channel, const struct tcp_stripe *stripe) {
    return channel->checked && !(stripe->medium.rings && stripe->medium.stream && channel->transport->checksum == 0);
}
static inline struct tcp_transport *tcp_transport_of(struct pccl__transport *base) {
    return (struct tcp_transport *)base;
}

/* ---- tcp_channel.c */
pccl_status pccl__tcp_channel_new(struct tcp_transport *transport, const pccl_member *peer,
                                  struct pccl__channel **channel);
/* A transfer of this channel ends, from whatever list it is in. */
void pccl__tcp_complete(struct tcp_channel *channel, struct pccl__transfer *transfer, pccl_status status);
/* Beyond repair. `format` explains; " (errno text)" is appended for a system_errno. */
void pccl__tcp_break(struct tcp_channel *channel, int system_errno, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- tcp_send.c */
/* The frame that `stripe` shall write next, encoded; NULL: none. */
struct tcp_frame *pccl__tcp_next_frame(struct tcp_channel *channel, struct tcp_stripe *stripe);
/* The last byte of a frame left the stripe: it now waits for its acknowledgement. */
void pccl__tcp_frame_written(struct tcp_channel *channel, struct tcp_stripe *stripe, struct tcp_frame *frame);
/* A frame without payload of its own goes to the control stream. */
void pccl__tcp_queue_control(struct tcp_channel *channel, struct tcp_frame *frame);
/* What any frame header acknowledges. False: it claims what cannot be. */
bool pccl__tcp_acknowledge(struct tcp_channel *channel, struct tcp_stripe *stripe, const struct tcp_header *header);
/* DATA frames up to the stripe's number `count` have arrived. False: they were never written. */
bool pccl__tcp_acknowledge_data(struct tcp_channel *channel, struct tcp_stripe *stripe, uint64_t count);
/* Lets go of a cancelled send's memory, wherever frames still refer to it. May lose stripes. */
void pccl__tcp_forsake(struct tcp_channel *channel, struct pccl__transfer *transfer);
/* Writes what the sockets take. */
void pccl__tcp_flush(struct tcp_channel *channel);

/* ---- tcp_receive.c */
/* `stripe->header` was read: begins its landing if it is DATA. False: the stripe is gone. */
bool pccl__tcp_arriving(struct tcp_channel *channel, struct tcp_stripe *stripe);
/* The whole frame was read; `payload` is that of a control frame. False: the stripe is gone. */
bool pccl__tcp_arrived(struct tcp_channel *channel, struct tcp_stripe *stripe, const uint8_t *payload);

/* ---- tcp_link.c */
struct tcp_stripe *pccl__tcp_stripe_at(struct tcp_channel *channel, uint32_t index); /* makes it; NULL: no memory */
/* Timers: dials what should be up. Handshakes of dialled stripes. */
void pccl__tcp_link_progress(struct tcp_channel *channel, uint64_t now_ns);
uint64_t pccl__tcp_link_deadline(const struct tcp_channel *channel);
/* A greeting that is meant for this channel. OK: the channel owns `fd` and has answered; else the caller answers. */
enum tcp_answer_code pccl__tcp_link_accept(struct tcp_channel *channel, const struct tcp_hello *hello, int fd);
/* An ACCEPTED stripe's first frame came. False: the stripe is gone. */
bool pccl__tcp_link_confirmed(struct tcp_channel *channel, struct tcp_stripe *stripe);
/* The connection failed (system_errno may be 0). Its frames go to the other stripes; without any the channel breaks. */
void pccl__tcp_stripe_lost(struct tcp_stripe *stripe, int system_errno, const char *why);
/* The other side's DOWN. */
void pccl__tcp_link_down(struct tcp_channel *channel, uint32_t index, uint32_t generation, uint64_t received);
/* Closes the socket if there is one, ends a landing under way. */
void pccl__tcp_stripe_close(struct tcp_stripe *stripe);
void pccl__tcp_stripe_free(struct tcp_stripe *stripe);
/* For tests: shuts one connection down under the channel's feet. False: that stripe is not up. */
bool pccl__tcp_test_break_stripe(struct pccl__channel *channel, uint32_t index);
uint32_t pccl__tcp_test_stripes_up(const struct pccl__channel *channel);

/* ---- tcp_silence.c */
/* A connection is agreed on. */
void pccl__tcp_silence_begin(struct tcp_stripe *stripe);
/* The other side has so much payload of the first frame that it has not acknowledged. False: it cannot. */
bool pccl__tcp_silence_partly(struct tcp_stripe *stripe, uint32_t bytes);
/* Tells what has come of a long frame, if that is due. */
void pccl__tcp_silence_tell(struct tcp_stripe *stripe, uint64_t now_ns);
/* At the end of each progress: gives up silent stripes, sets look_ns. May break the channel. True: to be flushed. */
bool pccl__tcp_silence_look(struct tcp_channel *channel);

/* ---- tcp_death.c */
/* Has the process at the other end of this connection ended? Then base.ended is set, and what has come is the last. */
bool pccl__tcp_death_found(struct tcp_stripe *stripe);
/* At the end of each progress: looks for a death where bytes are awaited, sets death.look_ns. */
void pccl__tcp_death_look(struct tcp_channel *channel);

/* ---- tcp_medium.c */
bool pccl__tcp_medium_look(struct pccl__transport *transport, bool sleeping);
void pccl__tcp_medium_guess(struct pccl__transport *transport);

/* ---- tcp_listener.c */
pccl_status pccl__tcp_listener_open(struct tcp_transport *transport, const struct tcp_address *address);
void pccl__tcp_listener_close(struct tcp_transport *transport);
void pccl__tcp_listener_progress(struct tcp_transport *transport, uint64_t now_ns);

/* ---- tcp.c */
struct tcp_channel *pccl__tcp_find(struct tcp_transport *transport, const pccl_peer_id *peer);

#endif
