/* SPDX-License-Identifier: MIT
 *
 * tcp_test.c - the TCP channel passes the conformance suite, with one stripe and several, over IPv4 and IPv6.
 */
#include "channel/tcp.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "channel/tcp_channel.h"
#include "check.h"
#include "shared_conform.h"

#define PATIENCE_NS (20000 * NS_PER_MS)

struct setup {
    const char *address;
    uint32_t stripes;
    uint8_t checksum;
};

struct world {
    struct pccl__poll *poll;
    struct pccl__transport *transports[2];
    pccl_member members[2];
};

static pccl_peer_id id_of(int end) { return (pccl_peer_id){{(uint8_t)(end + 1)}}; }

static void make(struct pair *pair, uint64_t seed) {
    const struct setup *setup = pair->driver->owner;
    struct world *world = calloc(1, sizeof *world);
    EXPECT(world && pccl__poll_new(&world->poll) == PCCL_OK);
    for (int end = 0; end < 2; end++) {
        struct pccl__tcp_options options = {.id = id_of(end),
                                            .run_secret = {(uint8_t)seed, 7},
                                            .listen_address = setup->address,
                                            .stripes = setup->stripes,
                                            .connect_timeout_ms = 2000, /* a case waits for it */
                                            .checksum = setup->checksum,
                                            .host_id = 5};
        pccl_error error;
        EXPECT(pccl__tcp_transport_new(&options, world->poll, &world->transports[end], &error) == PCCL_OK, "%s",
               error.message);
        world->members[end] = (pccl_member){.id = id_of(end), .host_id = 5};
        world->members[end].port = pccl__tcp_transport_port(world->transports[end]);
        snprintf(world->members[end].address, PCCL_ADDRESS_BYTES, "%s", setup->address);
    }
    pair->state = world;
}

static void open_end(struct pair *pair, int end) {
    struct world *world = pair->state;
    struct pccl__transport *transport = world->transports[end];
    EXPECT(transport->ops->open(transport, &world->members[!end], &pair->ends[end].channel) == PCCL_OK);
}

static uint64_t now(struct pair *pair) {
    (void)pair;
    return clock_now_ns();
}

/* Fixed socket buffers, so that a transfer of bulk_bytes fills them; large enough for the 64 KiB segments of loopback. */
static void narrow(struct pccl__channel *base) {
    struct tcp_channel *channel = tcp_channel_of(base);
    for (uint32_t i = 0; i < channel->stripes_count; i++) {
        if (!channel->stripes[i] || channel->stripes[i]->fd < 0) continue;
        int bytes = 256 * 1024;
        EXPECT(setsockopt(channel->stripes[i]->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) == 0);
        EXPECT(setsockopt(channel->stripes[i]->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) == 0);
    }
}

/* Sleeps, if it may, until a descriptor or a deadline of either end has something. */
static bool step(struct pair *pair, bool wait) {
    struct world *world = pair->state;
    uint64_t start_ns = clock_now_ns(), deadline_ns = start_ns + (wait ? PATIENCE_NS : 0);
    for (int end = 0; end < 2; end++) {
        if (pair->ends[end].dead) continue;
        deadline_ns = min_u64(deadline_ns, world->transports[end]->deadline_ns);
        if (!pair->ends[end].channel) continue;
        narrow(pair->ends[end].channel);
        deadline_ns = min_u64(deadline_ns, pair->ends[end].channel->deadline_ns);
    }
    struct pccl__ready ready[PCCL__POLL_BATCH];
    int count = pccl__poll_wait(world->poll, deadline_ns > start_ns ? deadline_ns - start_ns : 0, ready);
    pccl__poll_dispatch(world->poll, ready, count);
    uint64_t now_ns = clock_now_ns();
    for (int end = 0; end < 2; end++) {
        struct pccl__transport *transport = world->transports[end];
        if (pair->ends[end].dead) continue;
        if (transport->ready || transport->deadline_ns <= now_ns) transport->ops->progress(transport, now_ns);
    }
    return now_ns - start_ns < PATIENCE_NS;
}

/* What the kernel does for a process that ends. */
static void kill_end(struct pair *pair, int end) {
    struct tcp_channel *channel = tcp_channel_of(pair->ends[end].channel);
    for (uint32_t i = 0; i < channel->stripes_count; i++) pccl__tcp_stripe_close(channel->stripes[i]);
}

static void free_world(struct pair *pair) {
    struct world *world = pair->state;
    for (int end = 0; end < 2; end++) world->transports[end]->ops->free(world->transports[end]);
    pccl__poll_free(world->poll);
    free(world);
}

static struct pair_driver driver_of(struct setup *setup) {
    return (struct pair_driver){.name = "tcp",
                                .bulk_bytes = 2 * 1024 * 1024,
                                .make = make,
                                .open = open_end,
                                .step = step,
                                .now_ns = now,
                                .kill = kill_end,
                                .free = free_world,
                                .owner = setup};
}

static void test_conformance(const char *address, uint32_t stripes, uint8_t checksum) {
    struct setup setup = {address, stripes, checksum};
    struct pair_driver driver = driver_of(&setup);
    expectations += conform_run(&driver, stripes, CONFORM_QUICK);
}

static bool has_ipv6(void) {
    struct tcp_address address;
    EXPECT(pccl__tcp_address_parse(&address, "::1", 0));
    int fd = pccl__tcp_socket_listen(&address);
    if (fd < 0) return false;
    close(fd);
    return true;
}

int main(void) {
    test_conformance("127.0.0.1", 1, 0);
    test_conformance("127.0.0.1", 4, 1);
    if (has_ipv6()) test_conformance("::1", 2, 2);
    FINISH();
}
