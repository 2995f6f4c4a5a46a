/* SPDX-License-Identifier: MIT
 *
 * tcp_death_test.c - a process at the other end that has ended while its connections still stand: noticed when bytes
 * are awaited, by whatever they are awaited for; and nothing is looked for while nobody waits.
 *
 * The other process shares its table of descriptors with this one. So its end closes nothing, and only its memory can
 * tell.
 */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "check.h"
#include "shared_tcp.h"

enum { RING_BYTES = 64 * 1024 };

static struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 1, .connect_timeout_ms = 60000};

static struct pccl__channel *channel_of(struct pair *pair) { return pair->ends[0].channel; }

static void end_it(pid_t child) { EXPECT(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child); }

static void expect_death(struct pair *pair) {
    const struct pccl__channel *channel = channel_of(pair);
    EXPECT(channel->broken && channel->ended);
    EXPECT(channel->error.status == PCCL_PEER_LOST && strstr(channel->error.message, "its process has ended"));
}

/* What is awaited is a transfer that was never sent, or that the other side takes one, which it does not receive. */
static void test_waiting(bool sending) {
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pid_t child = tcp_fork_peer(&pair, &driver, true);
    struct pccl__key key = pair_key(&pair, 1);
    struct parcel *parcel = sending ? pair_send(&pair, 0, key, driver.bulk_bytes) : pair_recv(&pair, 0, key, 100);
    pair_nudge(&pair, 100);
    EXPECT(!channel_of(&pair)->broken, "it lives");
    end_it(child);
    pair_await(&pair, parcel, PCCL_PEER_LOST);
    expect_death(&pair);
    pair_free(&pair);
}

/* Bytes to be fetched from where they lie, and nobody is there any more. */
static void test_pulling(void) {
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pid_t child = tcp_fork_peer(&pair, &driver, true);
    struct tcp_stripe *stripe = tcp_end(&pair, 0)->stripes[0];
    EXPECT(!pccl__tcp_death_found(stripe) && !channel_of(&pair)->ended);
    end_it(child);
    EXPECT(pccl__tcp_death_found(stripe) && channel_of(&pair)->ended);
    pair_await(&pair, pair_recv(&pair, 0, pair_key(&pair, 1), 100), PCCL_PEER_LOST);
    expect_death(&pair);
    pair_free(&pair);
}

/* What it had written before it ended is still read. */
static void test_last_words(void) {
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pid_t child = tcp_fork_peer(&pair, &driver, true);
    struct tcp_channel *channel = tcp_end(&pair, 0);
    struct parcel *waiting = pair_recv(&pair, 0, pair_key(&pair, 1), 100);
    pair_send(&pair, 0, tcp_last_key, 100);
    pair_nudge(&pair, 1);
    EXPECT(waitpid(child, NULL, 0) == child && pccl__shm_ring_filled(&channel->stripes[0]->medium.in) > 0);
    channel->death = (struct tcp_watch){channel->base.heard_ns, NS_PER_MS, 1};
    channel->now_ns = clock_now_ns();
    pccl__tcp_death_look(channel);
    EXPECT(channel->base.ended && !channel->base.broken);
    pair_await(&pair, pair_recv(&pair, 0, tcp_word_key, 100), PCCL_OK);
    pair_await(&pair, waiting, PCCL_PEER_LOST);
    expect_death(&pair);
    pair_free(&pair);
}

/* The pauses grow with the silence, begin anew with every sign of life, and end with the wait. */
static void test_pauses(void) {
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pid_t child = tcp_fork_peer(&pair, &driver, false);
    struct tcp_channel *channel = tcp_end(&pair, 0);
    channel->now_ns = clock_now_ns();
    pccl__tcp_death_look(channel);
    EXPECT(channel->death.look_ns == NEVER_NS, "nobody waits");
    struct parcel *parcel = pair_parcel(&pair, 0, false, pair_key(&pair, 1), 100);
    EXPECT(pair_post(&pair, parcel) == PCCL_OK);
    pccl__tcp_death_look(channel);
    uint64_t begun_ns = channel->now_ns, first_ns = channel->death.look_ns - begun_ns;
    uint32_t looks = 0;
    for (uint64_t pause_ns = 0; channel->death.look_ns - begun_ns < 1000 * NS_PER_MS; looks++) {
        EXPECT(channel->death.look_ns - channel->now_ns >= pause_ns);
        pause_ns = channel->death.look_ns - channel->now_ns;
        channel->now_ns = channel->death.look_ns - 1;
        pccl__tcp_death_look(channel);
        EXPECT(channel->death.look_ns == channel->now_ns + 1, "not before its time");
        channel->now_ns++;
        pccl__tcp_death_look(channel);
    }
    EXPECT(looks >= 10 && looks <= 20 && !channel->base.broken, "%u", looks);
    channel->base.heard_ns = channel->now_ns;
    pccl__tcp_death_look(channel);
    EXPECT(channel->death.look_ns == channel->now_ns + first_ns);
    pair_cancel(&pair, parcel, PCCL_ABORTED);
    pair_await(&pair, parcel, PCCL_ABORTED);
    pccl__tcp_death_look(channel);
    EXPECT(channel->death.look_ns == NEVER_NS);
    end_it(child);
    pair_free(&pair);
}

/* Where no memory is shared nothing is looked for: only the connection tells. */
static void test_sockets(void) {
    setup.ring_bytes = 0;
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pid_t child = tcp_fork_peer(&pair, &driver, false);
    struct parcel *parcel = pair_recv(&pair, 0, pair_key(&pair, 1), 100);
    pair_nudge(&pair, 10);
    EXPECT(tcp_end(&pair, 0)->death.look_ns == NEVER_NS && !pccl__tcp_death_found(tcp_end(&pair, 0)->stripes[0]));
    end_it(child);
    pair_await(&pair, parcel, PCCL_PEER_LOST);
    EXPECT(channel_of(&pair)->broken && !channel_of(&pair)->ended);
    pair_free(&pair);
}

int main(void) {
    setup.ring_bytes = RING_BYTES;
    test_waiting(false);
    test_waiting(true);
    test_pulling();
    test_last_words();
    test_pauses();
    test_sockets();
    FINISH();
}
