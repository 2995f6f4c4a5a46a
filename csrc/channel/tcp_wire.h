/* SPDX-License-Identifier: MIT
 *
 * tcp_wire.h - what TCP connections carry: a greeting, its answer, then frames. Encode, decode, validate; no I/O.
 *
 * Must not know: sockets, channels, whose memory a payload goes to. All numbers are little-endian at fixed places. A
 * header has a CRC32C of its own, always: a damaged length or key must never be believed, and 128 bytes cost some
 * 20 ns with SSE 4.2. A decoder answers only for what it proves: the caller still compares counts with its own state.
 */
#ifndef PCCL_CHANNEL_TCP_WIRE_H
#define PCCL_CHANNEL_TCP_WIRE_H

#include "channel/channel.h"
#include "channel/rdma_offer.h"

enum {
    TCP_WIRE_VERSION = 7,
    TCP_HELLO_BYTES = 88 + RDMA_OFFER_BYTES,
    TCP_ANSWER_BYTES = 32 + RDMA_OFFER_BYTES,
    TCP_HEADER_BYTES = 128,
    TCP_FRAME_MAX = 1024 * 1024, /* payload bytes of one frame */
    TCP_STRIPES_MAX = 64
};

/* DATA frames are counted per stripe: `number` is 1 for the first. OFFER, GO, NOTICE and DOWN are the control stream:
 * `number` counts over the whole channel from 1, so they stay in order and repetitions are seen when a stripe is lost.
 * ACK frames carry the first three fields, as all frames do, and how much has come of a DATA frame that takes long. */
enum tcp_kind {
    TCP_DATA = 1,   /* key, stamp, bytes, offset, payload */
    TCP_OFFER = 2,  /* key, stamp, bytes */
    TCP_GO = 3,     /* key, bytes */
    TCP_NOTICE = 4, /* key, stamp, argument: its kind; payload */
    TCP_DOWN = 5,   /* argument: stripe; bytes: generation; key.tag: DATA frames received on it; it was given up */
    TCP_ACK = 6,    /* bytes: payload received of the DATA frame after those in `ack`; 0: not told */
    TCP_KIND_END
};

enum {
    TCP_FLAG_EAGER = 1,
    TCP_FLAG_CHECKED = 2, /* payload_crc holds the payload's CRC32C */
    TCP_FLAG_OFFERED = 4, /* an OFFER of this transfer was sent, and may come later on another stripe */
    TCP_FLAG_ASKS = 8,    /* ACK: to be answered on this stripe */
    TCP_FLAG_SHOWN = 16   /* DATA without payload behind it: it lies at `address` in the sender's memory (shm_pull.h) */
};

struct tcp_header {
    uint64_t ack;         /* DATA frames received on this stripe */
    uint64_t control_ack; /* control frames received */
    uint64_t released;    /* eager window given back (inbox.h: WINDOW) */
    uint64_t number;
    struct pccl__key key;
    struct pccl__stamp stamp;
    uint32_t bytes, offset, payload_bytes, payload_crc, argument;
    uint64_t address; /* with TCP_FLAG_SHOWN, in the place of the two before */
    uint8_t kind, flags;
};

void pccl__tcp_header_encode(const struct tcp_header *header, uint8_t wire[TCP_HEADER_BYTES]);
/* False: damaged or not ours. When true: the kind is known, payload_bytes is what the kind allows (at most
 * TCP_FRAME_MAX), and the payload of DATA lies within its transfer. */
bool pccl__tcp_header_decode(struct tcp_header *header, const uint8_t wire[TCP_HEADER_BYTES]);

/* First bytes of the dialling side. */
struct tcp_hello {
    uint16_t version;
    bool shares; /* it is on the same host as far as it knows, and would map the answering side's memory */
    uint8_t secret[16];
    pccl_peer_id from, to;
    uint64_t from_instance; /* the dialler's channel; random, never 0 */
    uint64_t to_instance;   /* the other side's channel; 0 in the first greeting of a link */
    uint32_t stripe;
    uint32_t generation;     /* grows with each dial of this stripe */
    struct rdma_offer offer; /* where this side could be reached over RDMA */
};

enum tcp_hello_verdict {
    TCP_HELLO_OK,
    TCP_HELLO_FOREIGN, /* not a greeting of ours: drop without a word */
    TCP_HELLO_VERSION  /* ours, of another version: only `version` is set */
};

void pccl__tcp_hello_encode(const struct tcp_hello *hello, uint8_t wire[TCP_HELLO_BYTES]);
enum tcp_hello_verdict pccl__tcp_hello_decode(struct tcp_hello *hello, const uint8_t wire[TCP_HELLO_BYTES]);

enum tcp_answer_code {
    TCP_ANSWER_OK = 1,
    TCP_ANSWER_BUSY = 2,    /* another connection is preferred right now */
    TCP_ANSWER_UNKNOWN = 3, /* no channel for you, or not that one: retry */
    TCP_ANSWER_REFUSED = 4, /* another run, or not for me */
    TCP_ANSWER_VERSION = 5,
    TCP_ANSWER_END
};

struct tcp_answer {
    uint16_t version;
    uint8_t code;
    uint64_t instance; /* the answering side's channel; 0 unless OK */
    /* OK to one that shares: the process that holds the segment for this connection, and its descriptor there. The
     * dialler attaches to it before its first byte, or does not. process 0: none. */
    uint32_t process, descriptor;
    struct rdma_offer offer; /* OK to one that made an offer: taken, and this is the other end. The dialler takes it and
                                begins with a bell, or begins with a frame */
};

void pccl__tcp_answer_encode(const struct tcp_answer *answer, uint8_t wire[TCP_ANSWER_BYTES]);
bool pccl__tcp_answer_decode(struct tcp_answer *answer, const uint8_t wire[TCP_ANSWER_BYTES]);

/* Takes the same time wherever the first difference is. */
bool pccl__tcp_secret_equal(const uint8_t a[16], const uint8_t b[16]);

#endif
