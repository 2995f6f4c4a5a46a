/* SPDX-License-Identifier: MIT
 *
 * tcp_silence.c - a connection into which bytes vanish: told from one that is merely slow, and given up.
 *
 * Every frame but an ACK is answered on the connection that it came by, within 20 ms of its last byte; until then a
 * DATA frame that takes long is answered every second with how much of it has come. So a side that *waits* for such an
 * answer hears something whatever the rate, and if it hears nothing at all for the limit, its connection is lost like
 * one that was reset.
 *
 * An answer may stand behind what the other side sends itself, on a slow path for minutes; so bytes of its DATA and
 * control frames count as heard, too. If only this direction is dead, they do not hide it: then the other side waits
 * for answers to those frames, hears nothing, and gives the connection up. ACK frames, which nobody answers, prove
 * nothing but what they acknowledge.
 *
 * Silence is counted only while somebody listens: who was stopped, or had no turn, begins anew. Nothing is counted, and
 * no timer runs, where nobody waits.
 */
#include <stdio.h>

#include "base/bits.h"
#include "base/clock.h"
#include "channel/tcp_channel.h"

/* How often the progress of a long frame is told; the limit is never below a few times that. */
#define TELL_NS  (1000 * NS_PER_MS)
#define LEAST_NS (3 * TELL_NS)
/* How often a side that waits looks, at least; so much later than that it was not there to listen. */
#define LOOK_NS (500 * NS_PER_MS)
#define LATE_NS (1000 * NS_PER_MS)

/* ---------------------------------------------------------------- the receiving side */

/* True: bytes of the DATA frame under way came that the other side was not told of. */
static bool has_untold(struct tcp_stripe *stripe) {
    if (stripe->partly_frame != stripe->received) {
        stripe->partly_frame = stripe->received;
        stripe->partly_told = 0;
        stripe->partly_ns = NEVER_NS;
    }
    return stripe->in_payload && stripe->payload_got != stripe->partly_told;
}

static void mind_telling(struct tcp_stripe *stripe, uint64_t now_ns) {
    if (!has_untold(stripe))
        stripe->partly_ns = NEVER_NS;
    else if (stripe->partly_ns == NEVER_NS && !stripe->partly_now)
        stripe->partly_ns = now_ns + TELL_NS;
}

void pccl__tcp_silence_tell(struct tcp_stripe *stripe, uint64_t now_ns) {
    if (now_ns < stripe->partly_ns) return;
    stripe->partly_ns = NEVER_NS;
    stripe->partly_now = true;
}

/* ---------------------------------------------------------------- the sending side */

bool pccl__tcp_silence_partly(struct tcp_stripe *stripe, uint32_t bytes) {
    bool whole = !list_empty(&stripe->retained);
    const struct list *first = whole ? stripe->retained.next : stripe->writing.next;
    if (first == &stripe->writing) return false;
    const struct tcp_frame *frame = LIST_ENTRY(first, struct tcp_frame, link);
    if (frame->header.kind != TCP_DATA || bytes > frame->header.payload_bytes) return false;
    if (!whole && bytes + TCP_HEADER_BYTES > stripe->written) return false;
    if (bytes <= stripe->partly_acknowledged) return true;
    stripe->partly_acknowledged = bytes;
    stripe->signs++;
    stripe->channel->base.moved_ns = stripe->channel->now_ns;
    return true;
}

static bool waits(const struct tcp_stripe *stripe) {
    return stripe->asked || stripe->control_answered < stripe->control_taken || !list_empty(&stripe->retained) ||
           !list_empty(&stripe->writing);
}

/* Since when it waits in silence. */
static uint64_t silent_since(struct tcp_stripe *stripe, uint64_t now_ns, bool late) {
    bool heard = stripe->signs != stripe->signs_seen;
    if (heard) stripe->asked = false;
    stripe->signs_seen = stripe->signs;
    bool waiting = waits(stripe);
    if (waiting && !heard && !late && stripe->silent_ns != NEVER_NS) return stripe->silent_ns;
    stripe->others_asked = false;
    return stripe->silent_ns = waiting ? now_ns : NEVER_NS;
}

/* Of control frames, which may have a payload: at least so many. */
static void lose(struct tcp_stripe *stripe, uint64_t limit_ns) {
    uint64_t bytes = stripe->written;
    if (stripe->control_answered < stripe->control_taken) bytes += TCP_HEADER_BYTES;
    for (const struct list *node = stripe->retained.next; node != &stripe->retained; node = node->next)
        bytes += TCP_HEADER_BYTES + LIST_ENTRY(node, struct tcp_frame, link)->header.payload_bytes;
    char why[100];
    snprintf(why, sizeof why, "silent: %llu bytes or more not received for %llu ms",
             (unsigned long long)(bytes - min_u64(bytes, stripe->partly_acknowledged)),
             (unsigned long long)(limit_ns / NS_PER_MS));
    pccl__tcp_stripe_lost(stripe, 0, why);
}

/* What was sent on one is to be sent again on the others: they shall show by then that they are better. Once in each
 * silence: those that are have answered at once. */
static bool ask_others(struct tcp_channel *channel, struct tcp_stripe *silent) {
    if (silent->others_asked) return false;
    silent->others_asked = true;
    bool asking = false;
    for (uint32_t i = 0; i < channel->stripes_count; i++) {
        struct tcp_stripe *stripe = channel->stripes[i];
        if (!stripe || stripe == silent || stripe->state != TCP_STRIPE_UP || waits(stripe)) continue;
        stripe->asked = stripe->ask_now = asking = true;
        stripe->silent_ns = channel->now_ns;
    }
    return asking;
}

bool pccl__tcp_silence_look(struct tcp_channel *channel) {
    uint64_t now_ns = channel->now_ns, limit_ns = max_u64(channel->transport->connect_timeout_ns, LEAST_NS);
    bool late = now_ns - channel->looked_ns >= LOOK_NS + LATE_NS, more = false;
    channel->looked_ns = now_ns;
    channel->look_ns = NEVER_NS;
    for (uint32_t i = 0; i < channel->stripes_count && !channel->base.broken; i++) {
        struct tcp_stripe *stripe = channel->stripes[i];
        if (!stripe || stripe->state != TCP_STRIPE_UP) continue;
        mind_telling(stripe, now_ns);
        uint64_t since_ns = silent_since(stripe, now_ns, late);
        if (since_ns != NEVER_NS && now_ns - since_ns >= limit_ns) {
            lose(stripe, limit_ns);
            more = true;
            continue;
        }
        if (since_ns != NEVER_NS && now_ns - since_ns >= limit_ns / 2 && ask_others(channel, stripe)) more = true;
        if (since_ns != NEVER_NS) channel->look_ns = min_u64(channel->look_ns, now_ns + LOOK_NS);
        channel->look_ns = min_u64(channel->look_ns, stripe->partly_ns);
    }
    return more && !channel->base.broken;
}

void pccl__tcp_silence_begin(struct tcp_stripe *stripe) {
    stripe->partly_frame = 0;
    stripe->partly_told = stripe->partly_acknowledged = 0;
    stripe->partly_ns = stripe->silent_ns = NEVER_NS;
    stripe->partly_now = stripe->asked = stripe->ask_now = stripe->unanswered = false;
    stripe->control_taken = stripe->control_answered = 0;
}
