/* SPDX-License-Identifier: MIT
 *
 * tcp_medium_test.c - links whose stripes go through shared memory: the conformance suite, and what is particular to
 * them. Agreeing or falling back, pulling large pieces and taking them back, stripes that come again, the last words of
 * a peer that closed, one that scribbles, one that is killed, and a side that sleeps without looking.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "check.h"
#include "shared_conform.h"
#include "shared_tcp.h"

enum { RING_BYTES = 64 * 1024, LARGE_BYTES = 1000 * 1000 };

static void test_conformance(uint32_t stripes, uint32_t ring_bytes) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = stripes, .ring_bytes = ring_bytes};
    struct pair_driver driver = tcp_driver(&setup);
    expectations += conform_run(&driver, stripes, CONFORM_QUICK);
}

/* Whether both sides of each stripe say the same, and that is `rings`. */
static void expect_medium(struct pair *pair, bool rings) {
    for (int end = 0; end < 2; end++) {
        struct tcp_channel *channel = tcp_end(pair, end);
        for (uint32_t i = 0; i < channel->stripes_count; i++) {
            if (!channel->stripes[i] || channel->stripes[i]->state != TCP_STRIPE_UP) continue;
            EXPECT(channel->stripes[i]->medium.rings == rings);
            EXPECT((channel->stripes[i]->medium.segment.memory != NULL) == rings);
            EXPECT(channel->stripes[i]->medium.segment.fd == -1, "nobody needs to find it any more");
        }
        EXPECT(channel->transport->base.looks == (rings ? channel->up_count : 0));
        EXPECT(channel->transport->base.sockets == (rings ? 0 : channel->up_count));
    }
}

static void wrong_process(struct tcp_transport *transport, int end) {
    (void)end;
    transport->process = 1;
}

static void one_refuses(struct tcp_transport *transport, int end) { transport->sharing = end == 0; }
static void other_refuses(struct tcp_transport *transport, int end) { transport->sharing = end == 1; }

/* Whoever does not share, for whatever reason, gets a link over sockets. */
static void test_fallback(const char *what, void (*spoil)(struct tcp_transport *, int end)) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 2, .ring_bytes = RING_BYTES};
    struct pair_driver driver = tcp_driver(&setup);
    for (int swapped = 0; swapped < 2; swapped++) {
        pair_context("%s, swapped %d", what, swapped);
        setup.swapped = swapped;
        struct pair pair;
        int descriptors = tcp_count_descriptors();
        pair_new(&pair, &driver, 1, true);
        for (int end = 0; end < 2; end++)
            if (spoil) spoil(tcp_transport_of(((struct tcp_world *)pair.state)->transports[end]), end);
        pair_settle(&pair);
        expect_medium(&pair, !spoil);
        const char *told = NULL;
        for (int end = 0; end < 2; end++) {
            const struct pccl__transport *transport = ((struct tcp_world *)pair.state)->transports[end];
            EXPECT(strcmp(pair.ends[end].channel->medium, spoil ? "tcp" : "shm") == 0);
            if (transport->unshared) told = transport->unshared;
        }
        EXPECT((told != NULL) == (spoil == wrong_process), "whoever could not says so, nobody else");
        pair_free(&pair);
        EXPECT(tcp_count_descriptors() == descriptors);
    }
    pair_context(NULL);
}

/* Whoever dies behind its greeting takes its memory along. That is a loss, and no reason to say that memory cannot be
 * shared. */
static void test_gone_behind_its_greeting(bool gone) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 1, .ring_bytes = RING_BYTES};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pair_new(&pair, &driver, 6, true);
    struct tcp_world *world = pair.state;
    for (int end = 0; end < 2; end++) wrong_process(tcp_transport_of(world->transports[end]), end);
    pair_notice(&pair, 0, PCCL__NOTICE_OWNER, NULL, 1); /* a reason to dial */
    int dialler = -1;
    while (dialler < 0) {
        EXPECT(pair_step(&pair));
        for (int end = 0; end < 2; end++)
            if (tcp_end(&pair, end)->stripes_count && tcp_end(&pair, end)->stripes[0]->medium.refused_errno)
                dialler = end;
    }
    EXPECT(!world->transports[dialler]->unshared, "not before anything came from there");
    if (gone) {
        driver.kill(&pair, !dialler);
        pair.ends[!dialler].dead = true;
        while (tcp_end(&pair, dialler)->stripes[0]->state == TCP_STRIPE_UP) EXPECT(pair_step(&pair));
        EXPECT(!world->transports[dialler]->unshared);
    } else {
        pair_settle(&pair);
        EXPECT(world->transports[dialler]->unshared && world->transports[dialler]->unshared_errno != 0);
    }
    pair_free(&pair);
}

/* A stripe that is lost comes again with new rings, and what was in the old ones is sent again. */
static void test_lost_stripe(uint64_t seed) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 2, .ring_bytes = RING_BYTES};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pair_new(&pair, &driver, seed, true);
    pair_settle(&pair);
    for (int end = 0; end < 2; end++)
        while (pccl__tcp_test_stripes_up(pair.ends[end].channel) < 2) EXPECT(pair_step(&pair));
    struct tcp_stripe *stripe = tcp_end(&pair, 0)->stripes[seed % 2];
    uint32_t generation = stripe->generation;
    for (int i = 0; i < 6; i++) {
        struct pccl__key key = pair_key(&pair, 1);
        pair_recv(&pair, i % 2, key, 700000);
        pair_send(&pair, !(i % 2), key, 700000);
    }
    pair_nudge(&pair, 5);
    EXPECT(pccl__tcp_test_break_stripe(pair.ends[0].channel, seed % 2));
    pair_await_all(&pair);
    while (stripe->generation == generation || stripe->state != TCP_STRIPE_UP) EXPECT(pair_step(&pair));
    pair_settle(&pair);
    expect_medium(&pair, true);
    for (struct parcel *parcel = pair.parcels; parcel; parcel = parcel->next)
        EXPECT(parcel->transfer.status == PCCL_OK);
    pair_free(&pair);
}

/* What a peer sent before it closed is read, also after its socket is closed. */
static void test_last_words(void) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 1, .ring_bytes = RING_BYTES};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pair_new(&pair, &driver, 2, true);
    pair_settle(&pair);
    struct parcel *words[4];
    for (int i = 0; i < 4; i++) {
        struct pccl__key key = pair_key(&pair, 1);
        words[i] = pair_recv(&pair, 1, key, 10000);
        EXPECT(pair_send(&pair, 0, key, 10000)->transfer.state == PCCL__COMPLETED);
    }
    struct parcel *never = pair_recv(&pair, 1, pair_key(&pair, 1), 10);
    pair_close(&pair, 0, PCCL_CLOSED);
    for (int i = 0; i < 4; i++) pair_await(&pair, words[i], PCCL_OK);
    pair_await(&pair, never, PCCL_PEER_LOST);
    pair_free(&pair);
}

/* Positions that cannot be break the link; they harm nobody. */
static void test_scribbler(int end, bool out) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 1, .ring_bytes = RING_BYTES};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pair_new(&pair, &driver, 3, true);
    pair_settle(&pair);
    struct tcp_medium *medium = &tcp_end(&pair, end)->stripes[0]->medium;
    struct parcel *recv = pair_recv(&pair, !end, pair_key(&pair, 1), 10);
    atomic_store(out ? &medium->out.shared->written : &medium->in.shared->read, UINT64_MAX / 2);
    struct parcel *send = pair_send(&pair, !end, pair_key(&pair, 1), 300000);
    pair_notice(&pair, !end, PCCL__NOTICE_OWNER, NULL, 1);
    pair_await(&pair, recv, PCCL_PEER_LOST);
    pair_await(&pair, send, PCCL_PEER_LOST);
    EXPECT(strstr(pair.ends[!end].channel->error.message, strerror(EPROTO)), "%s",
           pair.ends[!end].channel->error.message);
    pair_free(&pair);
}

static void come_to_rest(struct pair *pair) {
    while (pair->ends[0].channel->ready || pair->ends[1].channel->ready ||
           pair->ends[0].channel->deadline_ns != NEVER_NS || pair->ends[1].channel->deadline_ns != NEVER_NS)
        EXPECT(pair_step(pair), "never comes to rest");
    pair_nudge(pair, 10); /* takes what still hangs in sockets */
}

static void refuse_pulling(struct tcp_transport *transport, int end) { transport->pulling = end == 0; }

/* Large pieces are shown where both can read the other's memory, and go through the ring where one cannot. */
static void test_pull(bool refused) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 1, .ring_bytes = RING_BYTES};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pair_new(&pair, &driver, 7, true);
    for (int end = 0; end < 2; end++)
        if (refused) refuse_pulling(tcp_transport_of(((struct tcp_world *)pair.state)->transports[end]), end);
    pair_settle(&pair);
    for (int end = 0; end < 2; end++) {
        struct tcp_stripe *stripe = tcp_end(&pair, end)->stripes[0];
        EXPECT(pccl__shm_pull_possible(&stripe->medium.pull) == !refused);
        uint64_t passed = stripe->medium.out.mine;
        struct pccl__key key = pair_key(&pair, 1);
        struct parcel *recv = pair_recv(&pair, !end, key, LARGE_BYTES);
        struct parcel *send = pair_send(&pair, end, key, LARGE_BYTES);
        pair_await(&pair, recv, PCCL_OK);
        pair_await(&pair, send, PCCL_OK);
        passed = stripe->medium.out.mine - passed;
        EXPECT(refused ? passed > LARGE_BYTES : passed < LARGE_BYTES / 3, "%llu", (unsigned long long)passed);
    }
    pair_free(&pair);
}

static bool any_shown(const struct list *frames) {
    for (const struct list *node = frames->next; node != frames; node = node->next)
        if (LIST_ENTRY(node, struct tcp_frame, link)->header.flags & TCP_FLAG_SHOWN) return true;
    return false;
}

/* A send that is cancelled between showing and pulling: its memory is free at once, what was in it comes nowhere, and
 * the link goes on. */
static void test_taken_back(void) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 1, .ring_bytes = RING_BYTES};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pair_new(&pair, &driver, 8, true);
    pair_settle(&pair);
    come_to_rest(&pair);
    struct tcp_stripe *stripe = tcp_end(&pair, 0)->stripes[0];
    struct pccl__channel *ends[2] = {pair.ends[0].channel, pair.ends[1].channel};
    struct pccl__key key = pair_key(&pair, 1);
    struct parcel *recv = pair_recv(&pair, 1, key, LARGE_BYTES);
    struct parcel *send = pair_send(&pair, 0, key, LARGE_BYTES);
    struct pccl__done done;
    pccl__done_init(&done);
    ends[1]->ops->progress(ends[1], clock_now_ns(), &done); /* its go-ahead */
    EXPECT(((struct tcp_world *)pair.state)
               ->transports[0]
               ->ops->look(((struct tcp_world *)pair.state)->transports[0], false));
    while (!any_shown(&stripe->retained)) ends[0]->ops->progress(ends[0], clock_now_ns(), &done);
    EXPECT(list_empty(&done.transfers));
    pair_cancel(&pair, send, PCCL_ABORTED);
    pair_await(&pair, send, PCCL_ABORTED); /* its memory is scribbled over from here on */
    pair_settle(&pair);
    EXPECT(recv->transfer.state == PCCL__POSTED && !ends[0]->broken && !ends[1]->broken);
    pair_cancel(&pair, recv, PCCL_ABORTED);
    pair_await(&pair, recv, PCCL_ABORTED);
    key = pair_key(&pair, 1);
    recv = pair_recv(&pair, 1, key, LARGE_BYTES);
    pair_send(&pair, 0, key, LARGE_BYTES);
    pair_await(&pair, recv, PCCL_OK);
    pair_free(&pair);
}

/* A bell rings for a sleeper, once, and for nobody who looks by himself. */
static void test_bells(void) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 1, .ring_bytes = RING_BYTES};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pair_new(&pair, &driver, 4, true);
    pair_settle(&pair);
    struct tcp_world *world = pair.state;
    struct pccl__ready ready[PCCL__POLL_BATCH];
    for (int sleeping = 0; sleeping < 2; sleeping++) {
        come_to_rest(&pair);
        atomic_store(&tcp_end(&pair, 1)->stripes[0]->medium.in.shared->reader_sleeps, 0);
        EXPECT(!world->transports[1]->ops->look(world->transports[1], sleeping));
        for (int i = 0; i < 3; i++) {
            struct pccl__done done;
            pccl__done_init(&done);
            pair_notice(&pair, 0, PCCL__NOTICE_OWNER, NULL, 1);
            pair.ends[0].channel->ops->progress(pair.ends[0].channel, clock_now_ns(), &done);
        }
        EXPECT(pccl__poll_wait(world->poll, 0, ready) == sleeping);
        uint8_t bells[8];
        ssize_t heard = recv(tcp_end(&pair, 1)->stripes[0]->fd, bells, sizeof bells, MSG_DONTWAIT);
        EXPECT(heard == (sleeping ? 1 : -1));
        EXPECT(world->transports[1]->ops->look(world->transports[1], false) && pair.ends[1].channel->ready);
    }
    pair_await_notices(&pair, 1, PCCL__NOTICE_OWNER, 6);
    pair_free(&pair);
}

/* A guess finds out without the poll set what has come through a socket, and does no harm where nothing has. */
static void test_guess(void) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 1};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pair_new(&pair, &driver, 6, true);
    pair_settle(&pair);
    come_to_rest(&pair);
    struct pccl__transport *transport = ((struct tcp_world *)pair.state)->transports[1];
    struct pccl__done done;
    pccl__done_init(&done);
    for (int sent = 0; sent < 2; sent++) {
        uint64_t before = transport->arrived_bytes;
        if (sent) {
            pair_notice(&pair, 0, PCCL__NOTICE_OWNER, NULL, 1);
            pair.ends[0].channel->ops->progress(pair.ends[0].channel, clock_now_ns(), &done);
        }
        transport->ops->guess(transport);
        EXPECT(pair.ends[1].channel->ready);
        pair.ends[1].channel->ops->progress(pair.ends[1].channel, clock_now_ns(), &done);
        EXPECT((transport->arrived_bytes > before) == sent && !pair.ends[1].channel->broken);
    }
    struct list *node = list_pop_front(&done.notices);
    EXPECT(node && list_empty(&done.notices));
    pccl__notice_free(LIST_ENTRY(node, struct pccl__notice, link));
    pair_free(&pair);
}

/* SIGKILL in the middle of everything, of single-copy reads too: nothing of it stays. */
static void test_killed_process(uint64_t seed) {
    struct tcp_setup setup = {
        .address = "127.0.0.1", .stripes = 1, .ring_bytes = RING_BYTES, .connect_timeout_ms = 10000};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pid_t child = tcp_fork_peer(&pair, &driver, false);
    struct tcp_world *world = pair.state;
    EXPECT(tcp_end(&pair, 0)->stripes[0]->medium.rings, "across processes, too");
    struct parcel *send = pair_send(&pair, 0, pair_key(&pair, 1), PCCL__TRANSFER_BYTES);
    struct parcel *recv = pair_recv(&pair, 0, pair_key(&pair, 1), 100);
    pair_nudge(&pair, (uint32_t)seed);
    EXPECT(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    pair_await(&pair, send, PCCL_PEER_LOST);
    pair_await(&pair, recv, PCCL_PEER_LOST);
    EXPECT(world->transports[0]->looks == 0 && list_empty(&tcp_transport_of(world->transports[0])->rings));
    pair_free(&pair);
}

/* Many stripes take no more memory than one, down to a size that is of use. */
static void test_sizes(uint32_t stripes, uint32_t ring_bytes, uint64_t expected) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = stripes, .ring_bytes = ring_bytes};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pair_new(&pair, &driver, 5, true);
    pair_settle(&pair);
    for (int end = 0; end < 2; end++) EXPECT(tcp_end(&pair, end)->stripes[0]->medium.segment.ring_bytes == expected);
    pair_free(&pair);
}

int main(void) {
    test_conformance(1, SHM_RING_LEAST);
    test_conformance(1, RING_BYTES);
    test_conformance(3, RING_BYTES);
    test_fallback("both share", NULL);
    test_fallback("a process that is not there", wrong_process);
    test_fallback("one does not share", one_refuses);
    test_fallback("the other does not share", other_refuses);
    test_gone_behind_its_greeting(true);
    test_gone_behind_its_greeting(false);
    for (uint64_t seed = 1; seed <= 8; seed++) test_lost_stripe(seed);
    test_last_words();
    for (int end = 0; end < 2; end++) {
        test_scribbler(end, false);
        test_scribbler(end, true);
    }
    test_pull(false);
    test_pull(true);
    test_taken_back();
    test_bells();
    test_guess();
    test_sizes(0, TCP_RING_BYTES, TCP_RING_BYTES);
    test_sizes(5, TCP_RING_BYTES, TCP_RING_BYTES / 8);
    test_sizes(64, TCP_RING_BYTES, TCP_RING_LEAST);
    test_sizes(64, SHM_RING_LEAST, SHM_RING_LEAST);
    for (uint64_t seed = 0; seed < 8; seed++) test_killed_process(seed);
    FINISH();
}
