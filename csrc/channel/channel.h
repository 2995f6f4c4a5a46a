/* SPDX-License-Identifier: MIT
 *
 * channel.h - the contract between the executor and a transport. Read this first.
 *
 * A channel is the link to one other peer. It moves *transfers*: pieces of memory with a name (`pccl__key`) that the
 * sender and the receiver both know in advance. A send meets the receive of the same key. It also carries small
 * *notices* (aborts, announcements). A channel knows no dtypes, collectives, ranks or groups; epoch and stamp are only
 * numbers to it.
 *
 * Rules that hold for every transport:
 *   - One owner thread at a time (the engine's lock). No function blocks. No transport contains a mutex.
 *   - A posted transfer completes exactly once, by being appended to `done` in some later `progress` (never inside
 *     post, cancel or close). Until then the channel borrows the transfer and its memory.
 *   - A send completes when the memory may be reused (small ones are copied, so at once; large ones when the other
 *     side's transport has acknowledged all of it). It does not say that the receiver posted a receive.
 *   - A receive completes when all bytes are in place.
 *   - Transfers arrive in any order; each pair (key, direction) is used once per epoch. Both sides of a key must agree
 *     on `bytes` and `stamp`: if not, the receive completes with PCCL_MISMATCH and `peer_stamp` set.
 *   - Flow control: data may arrive before its receive is posted. Transfers of up to PCCL__EAGER_BYTES are then kept by
 *     the receiving channel, within a window of PCCL__EAGER_WINDOW bytes per channel that the sender respects; beyond
 *     it, and for every larger transfer, the sender waits for the receiver's go-ahead, which post_recv gives. So a
 *     receiver never holds more than the window, and a transfer that nobody receives delays no other.
 *   - Order: what may go goes by line.h: the urgent first, and operations of one priority in turns, segment by segment.
 *     What is on its way already is not overtaken, so no more is put on its way than is needed.
 *   - Epochs: `expect` sets the current one. Frames of older epochs are dropped and may not touch memory (G9). Frames
 * of newer epochs (the other side was faster) are kept within the window.
 *   - When the link is beyond repair the channel becomes broken: every transfer completes with PCCL_PEER_LOST, `broken`
 *     is set and `error` says why. It stays so until close and free; a fresh one is opened in its place.
 */
#ifndef PCCL_CHANNEL_CHANNEL_H
#define PCCL_CHANNEL_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "pccl.h"

enum {
    PCCL__EAGER_BYTES = 64 * 1024,
    PCCL__EAGER_WINDOW = 4 * 1024 * 1024,
    PCCL__TRANSFER_BYTES = 16 * 1024 * 1024, /* the largest transfer */
    PCCL__STAMP_BYTES = 32,
    PCCL__NOTICE_BYTES = 512,
    PCCL__DISCARD_MAX = 64
};

/* Names a transfer within a link and direction. The executor fills it; transports only compare and hash. */
struct pccl__key {
    uint64_t epoch; /* 0: outside epochs (state transfer); never stale */
    uint64_t tag;
    uint64_t scope; /* pccl_operation_name.scope */
    uint32_t sequence;
    uint32_t step;
    uint32_t segment;
};

/* What the sender is doing, so that the receiver can compare it with its own: the packed descriptor of the operation.
 */
struct pccl__stamp {
    uint8_t bytes[PCCL__STAMP_BYTES];
};

/* Of what stands in a line (line.h), whose it is. */
struct pccl__ticket {
    struct list link, hash_link, followers;
    uint64_t operation;
    uint8_t level;
    bool small;
};

enum pccl__transfer_state { PCCL__IDLE = 0, PCCL__POSTED = 1, PCCL__COMPLETED = 2 };

struct pccl__transfer {
    struct pccl__key key;
    struct pccl__stamp stamp;
    void *data;
    uint32_t bytes;                /* at most PCCL__TRANSFER_BYTES; 0 is fine (a signal) */
    pccl_status status;            /* set on completion */
    struct pccl__stamp peer_stamp; /* set with PCCL_MISMATCH */
    void *owner;                   /* the poster's, untouched */
    int8_t priority;               /* as in pccl_call: of a send, which of those of this link goes first */
    /* The transport's; zero before post. */
    struct list link; /* in the channel's queues, then in `done` */
    struct list hash_link;
    struct pccl__ticket ticket;
    enum pccl__transfer_state state;
    bool is_send;
    uint32_t moved, acknowledged; /* bytes */
    uint32_t flags;
};

/* A small message outside transfers. Kinds are the owner's. Delivered in order per link, ahead of queued data, and
 * also when the epoch is older or newer than the current one (the owner decides). */
struct pccl__notice {
    struct list link;
    uint32_t kind;
    struct pccl__key key;
    struct pccl__stamp stamp;
    uint32_t bytes;
    uint8_t data[PCCL__NOTICE_BYTES];
};

/* Kinds that channels make themselves. The owner's own kinds start at PCCL__NOTICE_OWNER. */
enum {
    PCCL__NOTICE_ARRIVED = 1, /* the first frame of a transfer came that no receive is posted for: key, stamp */
    PCCL__NOTICE_WANTED = 2,  /* the other side posted a receive outside epochs (key.epoch 0) for which no send is
                                 posted: key; data holds its `bytes` as u32 */
    PCCL__NOTICE_OWNER = 16
};

struct pccl__channel;

/* What `progress` hands over; the owner empties both lists. */
struct pccl__done {
    struct list transfers; /* pccl__transfer.link */
    struct list notices;   /* pccl__notice.link; give each back with pccl__notice_free */
};

struct pccl__channel_ops {
    const char *name; /* "tcp", "sim", ... */
    /* Queue a transfer. Errors: INVALID (too large), NO_MEMORY, PEER_LOST when broken; then it is not borrowed. */
    pccl_status (*post_send)(struct pccl__channel *, struct pccl__transfer *);
    pccl_status (*post_recv)(struct pccl__channel *, struct pccl__transfer *);
    /* Copies and queues. Errors: NO_MEMORY, PEER_LOST. */
    pccl_status (*post_notice)(struct pccl__channel *, uint32_t kind, const struct pccl__key *,
                               const struct pccl__stamp *, const void *data, uint32_t bytes);
    /* The owner no longer needs a posted transfer: it completes with `why` in the next progress, or OK if it already
     * was. A half-sent frame is finished from a copy; a half-received one goes to nowhere. */
    void (*cancel)(struct pccl__channel *, struct pccl__transfer *, pccl_status why);
    /* No receive of this operation (epoch, tag, scope, sequence of the key) will be posted any more: what arrived early
     * for it is dropped and its window given back, what comes later goes to nowhere. Lasts until `expect` leaves the
     * epoch, or PCCL__DISCARD_MAX others have been discarded: then PCCL__NOTICE_ARRIVED tells of what comes, and it may
     * be discarded again. Always OK. */
    pccl_status (*discard)(struct pccl__channel *, const struct pccl__key *);
    /* No send will be posted for a key that came with PCCL__NOTICE_WANTED: forgets that the other side waits for it. */
    void (*decline)(struct pccl__channel *, const struct pccl__key *);
    /* Sets the current epoch; kept frames of older ones are dropped. */
    void (*expect)(struct pccl__channel *, uint64_t epoch);
    /* Move what can be moved, hand over what ended. */
    void (*progress)(struct pccl__channel *, uint64_t now_ns, struct pccl__done *);
    /* Brings `rtt_ns` and `bytes_per_s` up to date. NULL: there is nothing to measure. */
    void (*measure)(struct pccl__channel *);
    /* Idempotent. Every posted transfer completes with `why` in the next progress, and not before nothing can touch
     * its memory any more. */
    void (*close)(struct pccl__channel *, pccl_status why);
    /* Only when closed and drained (no posted transfer left). */
    void (*free)(struct pccl__channel *);
};

struct pccl__channel {
    const struct pccl__channel_ops *ops;
    pccl_peer_id peer;
    bool broken;          /* set by the transport */
    bool ended;           /* set by the transport: the other side's process has ended, for certain. The link breaks when
                             what had come is read */
    bool doubted;         /* set by the transport: dials fail, it goes on trying; perhaps the peer is gone */
    pccl_error error;     /* why broken or doubted */
    uint64_t deadline_ns; /* when progress wants to run even without news; NEVER_NS */
    uint64_t heard_ns;    /* when bytes last came from the other side */
    uint64_t moved_ns;    /* when a transfer last moved, as what came from there shows; notices move nothing */
    uint64_t rtt_ns;      /* measured; 0 unknown, here and below */
    uint64_t bytes_per_s; /* as quick as it was when it last had much to send */
    bool ready;           /* progress has something to do: set by the transport and by posts */
    bool same_host;
    bool maps; /* set by the transport: the other side has mapped this side's arena, where large sends are best */
    const char *medium;        /* what its bytes go through: "tcp", "shm", "rdma"; NULL before the first connection */
    struct list ready_link;    /* the owner's list of channels to run */
    bool noted_up, noted_down; /* the owner's: what it has noted of this link */
};

/* Where channels come from. One per engine and transport. */
struct pccl__transport;
struct pccl__transport_ops {
    const char *name;
    /* Admits a peer and makes its channel; nothing is dialled until the first post (an incoming connection of that peer
     * is accepted from now on). Connections of peers without a channel are told to retry. Errors: INVALID address,
     * NO_MEMORY. */
    pccl_status (*open)(struct pccl__transport *, const pccl_member *peer, struct pccl__channel **);
    /* Accepts, dials, timers that belong to no channel. */
    void (*progress)(struct pccl__transport *, uint64_t now_ns);
    /* Has something come that makes no descriptor ready? Marks those channels and returns true. `sleeping`: the caller,
     * or somebody else by now, sleeps in the poll set unless this returns true, and has to be woken from now on. No
     * system calls. NULL: nothing ever comes that way. */
    bool (*look)(struct pccl__transport *, bool sleeping);
    /* Marks the links that go through sockets as if something had come: the next progress of their channels finds out.
     * For a caller that would rather read in vain than ask the poll set first. NULL where `sockets` is always 0. */
    void (*guess)(struct pccl__transport *);
    /* All channels must have been freed. */
    void (*free)(struct pccl__transport *);
};
struct pccl__transport {
    const struct pccl__transport_ops *ops;
    uint64_t deadline_ns;
    bool ready;       /* transport progress has something to do */
    bool hurry;       /* the owner's: not all that is under way is equally urgent, so queue no more than is needed */
    uint32_t looks;   /* links on which `look` may find something */
    uint32_t sockets; /* connections that `guess` marks */
    uint64_t arrived_bytes; /* so far, over all links */
    const char *unshared;   /* why peers of this host are reached through the kernel though they need not; NULL */
    int unshared_errno;
    const char *detour; /* what RDMA lacks here, so that links go over TCP; NULL: nothing, or nobody asked */
    uint64_t refused; /* connections since the start that did not greet as a peer of this run: garbage, wrong secrets */
};

/* Helpers that all transports share (channel.c). */
uint64_t pccl__key_hash(const struct pccl__key *key);
bool pccl__key_equal(const struct pccl__key *a, const struct pccl__key *b);
struct pccl__notice *pccl__notice_new(uint32_t kind, const struct pccl__key *key, const struct pccl__stamp *stamp,
                                      const void *data, uint32_t bytes); /* NULL: no memory */
void pccl__notice_free(struct pccl__notice *notice);
void pccl__done_init(struct pccl__done *done);

#endif
