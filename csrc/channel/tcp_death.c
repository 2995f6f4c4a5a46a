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

bool pccl__tcp_death_found(struct tcp_stripe *stripe) {
    if (!stripe->medium.rings || !pccl__shm_pull_ended(&stripe->medium.pull)) return false;
    stripe->channel->base.ended = true;
    pccl__tcp_break(stripe->channel, 0, "its process has ended");
    return true;
}

static bool waits(const struct tcp_channel *channel) {
    return channel->inbox.posted_count > 0 || !list_empty(&channel->offered) || !list_empty(&channel->unacknowledged);
}

static void look_at(struct tcp_channel *channel) {
    for (uint32_t i = 0; i < channel->stripes_count; i++) {
        struct tcp_stripe *stripe = channel->stripes[i];
        if (stripe && stripe->state == TCP_STRIPE_UP && pccl__tcp_death_found(stripe)) return;
    }
}

void pccl__tcp_death_look(struct tcp_channel *channel) {
    struct tcp_watch *watch = &channel->death;
    if (channel->transport->base.looks == 0 || !waits(channel)) {
        watch->look_ns = NEVER_NS;
        return;
    }
    if (watch->look_ns == NEVER_NS || watch->heard_ns != channel->base.heard_ns) {
        *watch = (struct tcp_watch){channel->base.heard_ns, FIRST_NS, channel->now_ns + FIRST_NS};
    } else if (channel->now_ns >= watch->look_ns) {
        look_at(channel);
        watch->pause_ns = min_u64(watch->pause_ns + watch->pause_ns / 2, LAST_NS);
        watch->look_ns = channel->now_ns + watch->pause_ns;
    }
}
