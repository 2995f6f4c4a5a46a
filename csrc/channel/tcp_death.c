/* SPDX-License-Identifier: MIT
 *
 * tcp_death.c - a process at the other end that has ended, noticed before its sockets close.
 *
 * The kernel closes them last: a killed process gives its memory back first, and that takes tens of milliseconds where
 * there is much. Whoever can read the other side's memory sees at once that there is none any more, and since it is
 * certain, nobody has to ask the peer whether it lives.
 *
 * It is looked for where bytes are awaited and do not come, after pauses that grow with the silence: a death is noticed
 * within half as long again as the silence before it, and a wait of a second costs some fifteen system calls. Nothing
 * is looked for, and no timer runs, where nobody waits.
 */
#include "base/bits.h"
#include "base/clock.h"
#include "channel/tcp_channel.h"

#define FIRST_NS (2 * NS_PER_MS)
#define LAST_NS  (1000 * NS_PER_MS)

/* As if the sockets had said so: what is still in the rings is read, and then each connection is lost. */
static void hang_up(struct tcp_channel *channel) {
    for (uint32_t i = 0; i < channel->stripes_count; i++) {
        struct tcp_stripe *stripe = channel->stripes[i];
        if (stripe && stripe->state == TCP_STRIPE_UP && stripe->medium.rings)
            stripe->medium.hung_up = stripe->readable = channel->base.ready = true;
    }
}

bool pccl__tcp_death_found(struct tcp_stripe *stripe) {
    if (!stripe->medium.rings || !pccl__shm_pull_ended(&stripe->medium.pull)) return false;
    stripe->channel->base.ended = true;
    hang_up(stripe->channel);
    return true;
}

static bool waits(const struct tcp_channel *channel) {
    return channel->inbox.posted_count > 0 || channel->line.waiting || !list_empty(&channel->offered) ||
           !list_empty(&channel->unacknowledged);
}

/* A connection whose other end's memory can be read; they all lead to one process. */
static struct tcp_stripe *readable_end(const struct tcp_channel *channel) {
    for (uint32_t i = 0; i < channel->stripes_count; i++) {
        struct tcp_stripe *stripe = channel->stripes[i];
        if (stripe && stripe->state == TCP_STRIPE_UP && stripe->medium.rings && stripe->medium.pull.process != 0)
            return stripe;
    }
    return NULL;
}

void pccl__tcp_death_look(struct tcp_channel *channel) {
    struct tcp_watch *watch = &channel->death;
    struct tcp_stripe *stripe = waits(channel) && !channel->base.ended ? readable_end(channel) : NULL;
    if (!stripe) {
        watch->look_ns = NEVER_NS;
    } else if (watch->look_ns == NEVER_NS || watch->heard_ns != channel->base.heard_ns) {
        *watch = (struct tcp_watch){channel->base.heard_ns, FIRST_NS, channel->now_ns + FIRST_NS};
    } else if (channel->now_ns >= watch->look_ns) {
        (void)pccl__tcp_death_found(stripe);
        watch->pause_ns = min_u64(watch->pause_ns + watch->pause_ns / 2, LAST_NS);
        watch->look_ns = channel->now_ns + watch->pause_ns;
    }
}
