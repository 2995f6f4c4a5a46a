/* SPDX-License-Identifier: MIT
 *
 * tcp_pace.h - how quickly a stripe gets rid of bytes while it always has more of them.
 *
 * Must not know: sockets, frames, clocks. The idea: between two moments at which the socket is full, as many bytes left
 * it as were put in. The median of such *strides* says what the path carries: a pause of the other side, or a burst
 * that some buffer on the way swallowed, is one stride among many.
 */
#ifndef PCCL_CHANNEL_TCP_PACE_H
#define PCCL_CHANNEL_TCP_PACE_H

#include <stdbool.h>
#include <stdint.h>

enum { TCP_PACE_STRIDES = 32, TCP_PACE_ENOUGH = 8, TCP_PACE_STRIDE_BYTES = 128 * 1024 };

/* All zero: nothing has gone yet. */
struct tcp_pace {
    bool striding;
    uint64_t since_ns, bytes; /* of the stride under way */
    uint64_t count;           /* of strides so far; the last ones are kept */
    uint64_t bytes_per_s[TCP_PACE_STRIDES];
};

/* The socket took `bytes`. */
static inline void pccl__tcp_pace_took(struct tcp_pace *pace, uint64_t bytes) { pace->bytes += bytes; }
/* It would have taken more: there was none. */
static inline void pccl__tcp_pace_dry(struct tcp_pace *pace) { pace->striding = false; }
/* It took no more. */
void pccl__tcp_pace_full(struct tcp_pace *pace, uint64_t now_ns);
/* 0: too few strides to tell. */
uint64_t pccl__tcp_pace_bytes_per_s(const struct tcp_pace *pace);

#endif
