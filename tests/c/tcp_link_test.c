/* SPDX-License-Identifier: MIT
 *
 * tcp_link_test.c - connections under stress: stripes that break, damaged bytes, both sides dialling, walls, strangers
 * at the port, a peer that starts anew, a killed process, no descriptors left. What was posted arrives exactly once or
 * ends as PEER_LOST.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/prng.h"
#include "check.h"
#include "shared_tcp.h"

enum { KIND = PCCL__NOTICE_OWNER + 1 };

/* A few transfers of many sizes each way, and notices numbered from `first`. */
static void post_traffic(struct pair *pair, uint32_t first, uint32_t count) {
    static const uint32_t sizes[] = {0, 300, PCCL__EAGER_BYTES, 200000, 3000000};
    for (uint32_t i = 0; i < count; i++) {
        for (int end = 0; end < 2; end++) {
            struct pccl__key key = pair_key(pair, 1);
            uint32_t bytes = sizes[i % 5];
            pair_recv(pair, end, key, bytes);
            pair_send(pair, !end, key, bytes);
            pair_notice(pair, end, KIND, &key, first + i);
        }
    }
}

static void expect_notices_in_order(struct pair *pair, uint32_t count) {
    for (int end = 0; end < 2; end++) {
        pair_await_notices(pair, end, KIND, count);
        uint32_t next = 0;
        for (uint32_t i = 0; i < pair->ends[end].notices_count; i++) {
            const struct pccl__notice *notice = pair->ends[end].notices[i];
            if (notice->kind == KIND) EXPECT(get_u32(notice->data) == next++);
        }
        EXPECT(next == count);
    }
}

static void await_stripes(struct pair *pair, uint32_t count) {
    for (int end = 0; end < 2; end++)
        while (pccl__tcp_test_stripes_up(pair->ends[end].channel) != count)
            EXPECT(pair_step(pair), "%u stripes never come up", count);
}

static bool is_up(struct pair *pair, int end, uint32_t index, uint32_t generation) {
    const struct tcp_stripe *stripe = tcp_end(pair, end)->stripes[index];
    return stripe && stripe->state == TCP_STRIPE_UP && stripe->generation == generation;
}

/* As many up at each end may be other ones, while one end has heard less. */
static uint32_t up_at_both(struct pair *pair) {
    const struct tcp_channel *channel = tcp_end(pair, 0);
    uint32_t both = 0;
    for (uint32_t i = 0; i < channel->stripes_count; i++) {
        const struct tcp_stripe *stripe = channel->stripes[i];
        both += stripe && is_up(pair, 0, i, stripe->generation) && is_up(pair, 1, i, stripe->generation);
    }
    return both;
}

/* Runs until everything posted has arrived, cutting stripes at random, each when both ends have noticed the one before;
 * two are always left. How many were cut. */
static uint32_t await_all_cutting(struct pair *pair, uint64_t *random) {
    uint32_t cut = 0, index = 0, generation = UINT32_MAX;
    for (struct parcel *parcel = pair->parcels; parcel; parcel = parcel->next) {
        while (!parcel->completions) {
            EXPECT(pair_step(pair), "never completes");
            if (is_up(pair, 0, index, generation) || is_up(pair, 1, index, generation)) continue;
            if (up_at_both(pair) < 3 || prng_below(random, 4)) continue;
            uint32_t next = (uint32_t)prng_below(random, 4);
            if (!pccl__tcp_test_break_stripe(pair->ends[prng_below(random, 2)].channel, next)) continue;
            index = next;
            generation = tcp_end(pair, 0)->stripes[index]->generation;
            cut++;
        }
        EXPECT(parcel->transfer.status == PCCL_OK, "%s%s", pair->ends[0].channel->error.message,
               pair->ends[1].channel->error.message);
    }
    return cut;
}

static void test_broken_stripes(uint64_t seed) {
    enum { ROUND = 10 };
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 4, .checksum = 1};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pair_new(&pair, &driver, seed, true);
    uint32_t posted = 0;
    for (uint32_t cut = 0; cut < 5; posted += ROUND) {
        post_traffic(&pair, posted, ROUND);
        cut += await_all_cutting(&pair, &seed);
        await_stripes(&pair, 4);
    }
    expect_notices_in_order(&pair, posted);
    pair_free(&pair);
}

/* The only stripe breaks: that is a lost peer, and the error says which. */
static void test_last_stripe(void) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 1};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pair_new(&pair, &driver, 1, true);
    pair_settle(&pair);
    struct parcel *recv = pair_recv(&pair, 0, pair_key(&pair, 1), 100);
    EXPECT(pccl__tcp_test_break_stripe(pair.ends[1].channel, 0));
    pair_await(&pair, recv, PCCL_PEER_LOST);
    EXPECT(pair.ends[0].channel->broken);
    EXPECT(strstr(pair.ends[0].channel->error.message, "127.0.0.1:"), "%s", pair.ends[0].channel->error.message);
    pair_free(&pair);
}

/* `bytes` of garbage within a stripe's stream, towards its dialler or away from it: that stripe is given up, what it
 * carried comes on the others. The connection that takes its place knows nothing of the garbage. Less than a header is
 * never looked at: then the connection ends behind it. */
static void test_damaged_header(bool to_dialler, size_t bytes) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 3};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pair_new(&pair, &driver, 2, true);
    pair_settle(&pair);
    await_stripes(&pair, 3);
    struct tcp_channel *from = tcp_end(&pair, tcp_end(&pair, 0)->dialler == to_dialler);
    struct tcp_stripe *stripe = from->stripes[1];
    EXPECT(list_empty(&stripe->writing) && from->dialler != to_dialler);
    uint32_t generation = stripe->generation;
    char junk[200];
    memset(junk, 'x', sizeof junk);
    EXPECT(send(stripe->fd, junk, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
    if (bytes < TCP_HEADER_BYTES) EXPECT(pccl__tcp_test_break_stripe(&from->base, 1));
    post_traffic(&pair, 0, 10);
    pair_await_all(&pair);
    while (stripe->generation == generation) EXPECT(pair_step(&pair));
    await_stripes(&pair, 3);
    post_traffic(&pair, 10, 10);
    pair_settle(&pair);
    expect_notices_in_order(&pair, 20);
    EXPECT(stripe->generation == generation + 1 && from->up_count == 3, "lost again");
    pair_free(&pair);
}

/* A stripe that is in the middle of a transfer's payload, or NULL. */
static struct tcp_stripe *half_way(struct tcp_channel *channel) {
    for (uint32_t i = 0; i < channel->stripes_count; i++) {
        struct tcp_stripe *stripe = channel->stripes[i];
        if (!stripe || list_empty(&stripe->writing) || stripe->written <= TCP_HEADER_BYTES) continue;
        if (LIST_ENTRY(stripe->writing.next, struct tcp_frame, link)->transfer) return stripe;
    }
    return NULL;
}

/* A bit of a payload flips on its way: the checksum finds it, the frame comes again. */
static void test_damaged_payload(void) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 2, .checksum = 1};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pair_new(&pair, &driver, 3, true);
    pair_settle(&pair);
    await_stripes(&pair, 2);
    for (int i = 0; i < 8; i++) {
        struct pccl__key key = pair_key(&pair, 1);
        pair_recv(&pair, 1, key, PCCL__TRANSFER_BYTES);
        pair_send(&pair, 0, key, PCCL__TRANSFER_BYTES);
    }
    struct tcp_stripe *stripe;
    while (!(stripe = half_way(tcp_end(&pair, 0)))) EXPECT(pair_step(&pair), "no frame is ever cut");
    struct tcp_frame *frame = LIST_ENTRY(stripe->writing.next, struct tcp_frame, link);
    uint8_t *last = (uint8_t *)frame->payload + frame->header.payload_bytes - 1;
    *last ^= 1;
    while (stripe->writing.next == &frame->link) EXPECT(pair_step(&pair), "never written");
    *last ^= 1; /* it is out: the frame must not be sent again with the damage in it */
    while (pccl__tcp_test_stripes_up(pair.ends[1].channel) == 2) EXPECT(pair_step(&pair), "damage went unnoticed");
    pair_await_all(&pair);
    for (struct parcel *parcel = pair.parcels; parcel; parcel = parcel->next)
        EXPECT(parcel->transfer.status == PCCL_OK);
    pair_free(&pair);
}

enum age { UNBORN, FRESH, OLD };

/* A stripe that did not last is dialled again with more patience each time, one that did without. The clock is read
 * anew for a connection's start: what breaks at once may be younger than the progress that finds it broken. */
static void test_redialled_stripe(enum age age, bool patient) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 2};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pair_new(&pair, &driver, 8, true);
    pair_settle(&pair);
    await_stripes(&pair, 2);
    struct tcp_channel *dialler = tcp_end(&pair, !tcp_end(&pair, 0)->dialler);
    struct tcp_stripe *stripe = dialler->stripes[1];
    uint32_t generation = stripe->generation;
    uint64_t backoff_ns = 100 * NS_PER_MS;
    stripe->backoff_ns = backoff_ns;
    stripe->since_ns = age == OLD ? 0 : clock_now_ns() + (age == UNBORN) * 3600 * UINT64_C(1000) * NS_PER_MS;
    EXPECT(pccl__tcp_test_break_stripe(&dialler->base, 1));
    while (stripe->state != TCP_STRIPE_IDLE) EXPECT(pair_step(&pair), "never given up");
    EXPECT(patient ? stripe->backoff_ns == 2 * backoff_ns : stripe->backoff_ns < backoff_ns, "%" PRIu64 " ns",
           stripe->backoff_ns);
    await_stripes(&pair, 2);
    EXPECT(stripe->generation == generation + 1);
    pair_free(&pair);
}

/* Both sides dial in the same instant, or one cannot be dialled at all: one link comes up, and all arrives. */
static void test_dialling(bool swapped, int walled, uint64_t seed) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 2, .connect_timeout_ms = 10000, .swapped = swapped};
    if (walled >= 0) setup.walled[walled] = true;
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pair_new(&pair, &driver, seed, true);
    post_traffic(&pair, 0, 5);
    pair_await_all(&pair);
    for (struct parcel *parcel = pair.parcels; parcel; parcel = parcel->next)
        EXPECT(parcel->transfer.status == PCCL_OK, "%s%s", pair.ends[0].channel->error.message,
               pair.ends[1].channel->error.message);
    await_stripes(&pair, 2);
    EXPECT(tcp_end(&pair, 0)->dialler != tcp_end(&pair, 1)->dialler);
    pair_free(&pair);
}

/* Left to itself a link has one stripe within a host and more between hosts. */
static void test_chosen_stripes(bool apart) {
    struct tcp_setup setup = {.address = "127.0.0.1", .apart = apart};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pair_new(&pair, &driver, 10, true);
    pair_settle(&pair);
    struct tcp_channel *dialler = tcp_end(&pair, !tcp_end(&pair, 0)->dialler);
    EXPECT(dialler->base.rtt_ns > 0);
    EXPECT(apart ? dialler->stripes_count >= 2 : dialler->stripes_count == 1, "%u", dialler->stripes_count);
    await_stripes(&pair, dialler->stripes_count);
    pair_free(&pair);
}

#ifdef TCP_USER_TIMEOUT
/* The kernel does not give up a connection before its owner would. */
static void test_patience(uint32_t limit_ms, int expected_ms) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 2, .connect_timeout_ms = limit_ms};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pair_new(&pair, &driver, 10, true);
    pair_settle(&pair);
    await_stripes(&pair, 2);
    for (int end = 0; end < 2; end++) {
        for (int i = 0; i < 2; i++) {
            int ms = 0;
            socklen_t bytes = sizeof ms;
            int fd = tcp_end(&pair, end)->stripes[i]->fd;
            EXPECT(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, &bytes) == 0);
            EXPECT(ms == expected_ms, "%d ms", ms);
        }
    }
    pair_free(&pair);
}
#endif

/* Nobody is there, or no way leads there: lost after the timeout, with the reason. */
static void test_no_way(void) {
    struct tcp_setup setup = {.address = "127.0.0.1", .connect_timeout_ms = 200, .walled = {true, true}};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pair_new(&pair, &driver, 4, true);
    pair_await(&pair, pair_send(&pair, 0, pair_key(&pair, 1), PCCL__EAGER_BYTES + 1), PCCL_PEER_LOST);
    EXPECT(strstr(pair.ends[0].channel->error.message, "no link within 200 ms"), "%s",
           pair.ends[0].channel->error.message);
    EXPECT(pair.ends[0].channel->error.system_errno == ECONNREFUSED);
    pair_free(&pair);
}

/* One side closes its channel and opens another: the old link is dead for both, the new one works. */
static void test_new_instance(bool swapped) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 2, .swapped = swapped};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pair_new(&pair, &driver, 5, true);
    pair_settle(&pair);
    struct parcel *recv = pair_recv(&pair, 0, pair_key(&pair, 1), 100);
    for (int round = 0; round < 2; round++) { /* first end 1 alone, then end 0, which has noticed */
        int end = !round;
        struct pccl__done done;
        pccl__done_init(&done);
        struct pccl__channel *channel = pair.ends[end].channel;
        if (round == 1) pair_await(&pair, recv, PCCL_PEER_LOST);
        channel->ops->close(channel, PCCL_CLOSED);
        channel->ops->progress(channel, clock_now_ns(), &done);
        EXPECT(list_empty(&done.transfers));
        channel->ops->free(channel);
        driver.open(&pair, end);
        pair.ends[end].channel->ops->expect(pair.ends[end].channel, 1);
        if (round == 0) pair_send(&pair, 1, pair_key(&pair, 1), 100); /* dials a peer that has the old channel */
    }
    post_traffic(&pair, 0, 3);
    pair_await_all(&pair);
    await_stripes(&pair, 2);
    pair_free(&pair);
}

/* ---------------------------------------------------------------- strangers */

static int dial(const pccl_member *member) {
    struct tcp_address address;
    EXPECT(pccl__tcp_address_parse(&address, member->address, member->port));
    int fd = pccl__tcp_socket_dial(&address);
    EXPECT(fd >= 0, "%s", strerror(errno));
    return fd;
}

static void say(int fd, const void *bytes, size_t count) {
    /* The other side may have hung up already: strangers have no right to complain. */
    (void)!send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void hello_with(uint8_t wire[TCP_HELLO_BYTES], struct tcp_world *world, uint8_t secret, uint16_t version) {
    struct tcp_hello hello = {.version = version,
                              .secret = {secret, 7},
                              .from = world->members[0].id,
                              .to = world->members[1].id,
                              .from_instance = 99,
                              .generation = 1};
    pccl__tcp_hello_encode(&hello, wire);
}

/* Reads the answer to a greeting; its code, or 0 when hung up on. */
static int answer_to(struct pair *pair, int fd) {
    uint8_t wire[TCP_ANSWER_BYTES];
    for (size_t got = 0; got < sizeof wire;) {
        ssize_t count = recv(fd, wire + got, sizeof wire - got, MSG_DONTWAIT);
        if (count == 0 || (count < 0 && errno != EAGAIN)) return 0;
        if (count > 0) got += (size_t)count;
        if (count < 0) EXPECT(pair_step(pair));
    }
    struct tcp_answer answer;
    EXPECT(pccl__tcp_answer_decode(&answer, wire));
    return answer.code;
}

/* Everything that knocks at a port on the internet, while transfers run. */
static void test_strangers(void) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 2};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pair_new(&pair, &driver, 6, true);
    pair_settle(&pair);
    await_stripes(&pair, 2);
    struct tcp_world *world = pair.state;
    struct tcp_transport *transport = tcp_transport_of(world->transports[1]);
    int base = tcp_count_descriptors();
    post_traffic(&pair, 0, 10);
    uint64_t random = 6;
    uint8_t wire[TCP_HELLO_BYTES];
    for (int i = 0; i < 1000; i++) {
        int fd = dial(&world->members[1]);
        uint8_t junk[4096];
        for (size_t k = 0; k < sizeof junk; k += 8) put_u64(junk + k, prng_next(&random));
        hello_with(wire, world, 1, TCP_WIRE_VERSION);
        if (i % 4 == 1) say(fd, junk, 1 + prng_below(&random, sizeof junk));
        if (i % 4 == 2) say(fd, "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a scanner of some kind\r\n\r\n", 72);
        if (i % 4 == 3) say(fd, wire, 1 + prng_below(&random, TCP_HELLO_BYTES - 1));
        close(fd);
        if (i % 16 == 0) (void)pair_step(&pair);
    }
    int silent[TCP_STRIPES_MAX + 40];
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) silent[i] = dial(&world->members[1]);
    int fd = dial(&world->members[1]);
    while (pccl__tcp_socket_error(fd) != 0) EXPECT(pair_step(&pair));
    hello_with(wire, world, 77, TCP_WIRE_VERSION);
    say(fd, wire, sizeof wire);
    EXPECT(answer_to(&pair, fd) == TCP_ANSWER_REFUSED);
    close(fd);
    fd = dial(&world->members[1]);
    hello_with(wire, world, 6, TCP_WIRE_VERSION + 1);
    say(fd, wire, sizeof wire);
    EXPECT(answer_to(&pair, fd) == TCP_ANSWER_VERSION);
    close(fd);
    pair_await_all(&pair);
    EXPECT(transport->strangers_count <= 64);
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) close(silent[i]);
    while (transport->strangers_count > 0) EXPECT(pair_step(&pair), "%u strangers stay", transport->strangers_count);
    EXPECT(tcp_count_descriptors() == base, "%d against %d", tcp_count_descriptors(), base);
    EXPECT(transport->base.refused >= 750, "%" PRIu64, transport->base.refused);
    expect_notices_in_order(&pair, 10);
    pair_free(&pair);
}

/* ---------------------------------------------------------------- a member that breaks the rules */

/* A frame that decodes, and mostly fits the counts of its stream, but is otherwise at random. */
static uint32_t random_frame(uint8_t *wire, uint64_t *random, uint64_t *data_number, uint64_t *control_number) {
    struct tcp_header header = {.kind = (uint8_t)(1 + prng_below(random, TCP_KIND_END - 1)),
                                .key = {.epoch = prng_below(random, 3), .tag = prng_below(random, 3)}};
    header.stamp.bytes[0] = prng_below(random, 4) ? 42 : 0;
    header.bytes = prng_below(random, 2) ? 100 : prng_below(random, 400);
    header.argument = prng_below(random, 8) ? PCCL__NOTICE_OWNER : prng_below(random, TCP_STRIPES_MAX);
    if (header.kind == TCP_DATA || header.kind == TCP_NOTICE) {
        header.payload_bytes = header.bytes == 100 || prng_below(random, 20) ? header.bytes : prng_below(random, 300);
        if (header.kind == TCP_DATA && prng_below(random, 3)) header.flags = TCP_FLAG_EAGER;
    }
    uint64_t *number = header.kind == TCP_DATA ? data_number : control_number;
    header.number = prng_below(random, 40) ? *number + 1 : prng_next(random);
    if (header.kind != TCP_ACK) *number += 1;
    if (prng_below(random, 40) == 0) header.ack = prng_next(random);
    if (prng_below(random, 40) == 0) header.control_ack = prng_next(random);
    if (prng_below(random, 40) == 0) header.released = prng_next(random);
    pair_content(wire + TCP_HEADER_BYTES, header.payload_bytes, &header.key, 0);
    pccl__tcp_header_encode(&header, wire);
    return TCP_HEADER_BYTES + header.payload_bytes;
}

struct outcome {
    char message[PCCL_MESSAGE_BYTES];
    uint32_t notices, received;
};

/* An authenticated stranger sends `seed`'s frames in pieces of at most `piece` bytes, then hangs up. */
static void suffer(uint64_t seed, size_t piece, struct outcome *outcome) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 1};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair = {.driver = &driver, .random = seed};
    driver.make(&pair, 6);
    driver.open(&pair, 1);
    pair.ends[1].channel->ops->expect(pair.ends[1].channel, 1);
    struct tcp_world *world = pair.state;
    int fd = dial(&world->members[1]);
    uint8_t wire[TCP_HEADER_BYTES + PCCL__NOTICE_BYTES];
    hello_with(wire, world, 6, TCP_WIRE_VERSION);
    say(fd, wire, TCP_HELLO_BYTES);
    EXPECT(answer_to(&pair, fd) == TCP_ANSWER_OK);
    for (uint32_t tag = 0; tag < 3; tag++) {
        struct parcel *parcel = pair_parcel(&pair, 1, false, (struct pccl__key){.epoch = 1, .tag = tag}, 100);
        EXPECT(pair_post(&pair, parcel) == PCCL_OK);
    }
    uint64_t random = seed, data_number = 0, control_number = 0;
    for (int i = 0; i < 30; i++) {
        size_t bytes = random_frame(wire, &random, &data_number, &control_number);
        for (size_t at = 0; at < bytes; at += piece) {
            say(fd, wire + at, min_u64(piece, bytes - at));
            pair_nudge(&pair, 2);
        }
    }
    close(fd);
    while (!pair.ends[1].channel->broken) EXPECT(pair_step(&pair));
    *outcome = (struct outcome){.notices = pair.ends[1].notices_count};
    /* Behind the address: the port differs from run to run. */
    snprintf(outcome->message, sizeof outcome->message, "%s", strstr(pair.ends[1].channel->error.message, ": "));
    pair_await_all(&pair);
    for (struct parcel *parcel = pair.parcels; parcel; parcel = parcel->next)
        outcome->received += parcel->transfer.status == PCCL_OK;
    pair_free(&pair);
}

/* Whole frames or crumbs: the same is believed, the same refused, and nothing crashes. */
static void test_rule_breakers(void) {
    uint32_t received = 0, notices = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct outcome whole, crumbs;
        suffer(seed, SIZE_MAX / 2, &whole);
        suffer(seed, 1 + seed % 61, &crumbs);
        EXPECT(strcmp(whole.message, crumbs.message) == 0, "\"%s\" but \"%s\"", whole.message, crumbs.message);
        EXPECT(whole.received == crumbs.received && whole.notices == crumbs.notices, "seed %" PRIu64, seed);
        received += whole.received;
        notices += whole.notices;
    }
    EXPECT(received > 0 && notices > 0, "the frames must not all be refused");
}

/* Without descriptors nobody spins, nobody can be let in or dialled, and when there are some again both are. */
static void test_no_descriptors(void) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 1, .connect_timeout_ms = 10000};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pair_new(&pair, &driver, 7, true);
    struct tcp_world *world = pair.state;
    struct pccl__transport *transport = world->transports[1];
    int fd = dial(&world->members[1]);
    struct rlimit old, none;
    EXPECT(getrlimit(RLIMIT_NOFILE, &old) == 0);
    none = old;
    none.rlim_cur = 0;
    EXPECT(setrlimit(RLIMIT_NOFILE, &none) == 0);
    while (!tcp_transport_of(transport)->resume_ns) EXPECT(pair.driver->step(&pair, true));
    EXPECT(!transport->ready && transport->deadline_ns > clock_now_ns());
    struct pccl__ready ready[PCCL__POLL_BATCH];
    EXPECT(pccl__poll_wait(world->poll, 0, ready) == 0, "the listener still shouts");
    post_traffic(&pair, 0, 2);
    while (!pair.ends[0].channel->doubted) EXPECT(pair_step(&pair));
    EXPECT(tcp_end(&pair, 0)->obstacle_errno == EMFILE && !pair.ends[0].channel->ready);
    EXPECT(setrlimit(RLIMIT_NOFILE, &old) == 0);
    pair_await_all(&pair);
    close(fd);
    pair_free(&pair);
}

/* ---------------------------------------------------------------- processes */

/* SIGKILL in the middle of everything: the survivor knows within milliseconds. */
static void test_killed_process(void) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 2, .connect_timeout_ms = 10000};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pid_t child = tcp_fork_peer(&pair, &driver, false);
    struct parcel *send = pair_send(&pair, 0, pair_key(&pair, 1), PCCL__TRANSFER_BYTES);
    struct parcel *recv = pair_recv(&pair, 0, pair_key(&pair, 1), 100);
    EXPECT(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    uint64_t dead_ns = clock_now_ns();
    pair_await(&pair, send, PCCL_PEER_LOST);
    pair_await(&pair, recv, PCCL_PEER_LOST);
    EXPECT(clock_now_ns() - dead_ns < 2000 * NS_PER_MS, "far beyond what a busy machine explains");
    pair_free(&pair);
}

int main(void) {
    for (uint64_t seed = 1; seed <= 5; seed++) test_broken_stripes(seed);
    test_last_stripe();
    for (int to_dialler = 0; to_dialler < 2; to_dialler++) {
        test_damaged_header(to_dialler, 200);
        test_damaged_header(to_dialler, 50);
    }
    test_damaged_payload();
    test_redialled_stripe(UNBORN, true);
    test_redialled_stripe(FRESH, true);
    test_redialled_stripe(OLD, false); /* as the machine's clock: an hour may be more than it has run for */
    for (uint64_t seed = 1; seed <= 30; seed++) test_dialling(seed % 2, -1, seed);
    for (int swapped = 0; swapped < 2; swapped++)
        for (int walled = 0; walled < 2; walled++) test_dialling(swapped, walled, 9);
    test_chosen_stripes(false);
    test_chosen_stripes(true);
#ifdef TCP_USER_TIMEOUT
    test_patience(2000, 10000);
    test_patience(60000, 60000);
#endif
    test_no_way();
    test_new_instance(false);
    test_new_instance(true);
    test_strangers();
    test_rule_breakers();
    test_no_descriptors();
    test_killed_process();
    FINISH();
}
