/* SPDX-License-Identifier: MIT
 *
 * shared_tcp.c - see shared_tcp.h.
 */
#include "shared_tcp.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "check.h"

#define PATIENCE_NS (20000 * NS_PER_MS)

static pccl_peer_id id_of(const struct tcp_setup *setup, int end) {
    return (pccl_peer_id){{(uint8_t)(setup->swapped ? 2 - end : 1 + end)}};
}

/* A port that nobody listens on: bound, so that nobody else takes it, and never listened on. */
static uint16_t closed_port(const char *numeric, int *fd_of_wall) {
    struct tcp_address address;
    EXPECT(pccl__tcp_address_parse(&address, numeric, 0));
    int fd = socket(address.storage.ss_family, SOCK_STREAM, 0);
    EXPECT(fd >= 0 && bind(fd, (struct sockaddr *)&address.storage, address.bytes) == 0);
    *fd_of_wall = fd;
    return pccl__tcp_socket_port(fd);
}

static void make(struct pair *pair, uint64_t seed) {
    const struct tcp_setup *setup = pair->driver->owner;
    struct tcp_world *world = calloc(1, sizeof *world);
    bool rdma = setup->rdma || setup->devices[0];
    EXPECT(world && pccl__poll_new(&world->poll) == PCCL_OK);
    for (int end = 0; end < 2; end++) {
        struct pccl__tcp_options options = {.id = id_of(setup, end),
                                            .run_secret = {(uint8_t)seed, 7},
                                            .listen_address = setup->address,
                                            .stripes = setup->stripes,
                                            .connect_timeout_ms =
                                                setup->connect_timeout_ms ? setup->connect_timeout_ms : 2000,
                                            .checksum = setup->checksum,
                                            .no_sharing = setup->ring_bytes == 0 || rdma,
                                            .rdma = rdma ? TCP_RDMA_AUTO : TCP_RDMA_OFF,
                                            .rdma_device = setup->devices[end],
                                            .rdma_library = setup->rdma ? FAKE_VERBS : NULL,
                                            .ring_bytes = setup->ring_bytes,
                                            .host_id = setup->apart ? 5 + (uint64_t)end : 5};
        pccl_error error;
        EXPECT(pccl__tcp_transport_new(&options, world->poll, &world->transports[end], &error) == PCCL_OK, "%s",
               error.message);
        world->members[end] = (pccl_member){.id = id_of(setup, end), .host_id = setup->apart ? 5 + (uint64_t)end : 5};
        world->members[end].port = pccl__tcp_transport_port(world->transports[end]);
        world->walls[end] = -1;
        if (setup->walled[end]) world->members[end].port = closed_port(setup->address, &world->walls[end]);
        snprintf(world->members[end].address, PCCL_ADDRESS_BYTES, "%s", setup->address);
    }
    pair->state = world;
}

static void open_end(struct pair *pair, int end) {
    struct tcp_world *world = pair->state;
    struct pccl__transport *transport = world->transports[end];
    EXPECT(transport->ops->open(transport, &world->members[!end], &pair->ends[end].channel) == PCCL_OK);
}

static uint64_t now(struct pair *pair) {
    (void)pair;
    return clock_now_ns();
}

/* Fixed socket buffers, so that a transfer of bulk_bytes fills them; large enough for the 64 KiB segments of loopback.
 */
static void narrow(struct pccl__channel *base) {
    struct tcp_channel *channel = tcp_channel_of(base);
    for (uint32_t i = 0; i < channel->stripes_count; i++) {
        if (!channel->stripes[i] || channel->stripes[i]->fd < 0) continue;
        int bytes = 256 * 1024;
        EXPECT(setsockopt(channel->stripes[i]->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) == 0);
        EXPECT(setsockopt(channel->stripes[i]->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) == 0);
    }
}

/* Sleeps, if it may, until a descriptor, shared memory or a deadline of either end has something. */
static bool step(struct pair *pair, bool wait) {
    struct tcp_world *world = pair->state;
    uint64_t start_ns = clock_now_ns(), deadline_ns = start_ns + (wait ? PATIENCE_NS : 0);
    for (int end = 0; end < 2; end++) {
        if (pair->ends[end].dead) continue;
        deadline_ns = min_u64(deadline_ns, world->transports[end]->deadline_ns);
        if (!pair->ends[end].channel) continue;
        narrow(pair->ends[end].channel);
        deadline_ns = min_u64(deadline_ns, pair->ends[end].channel->deadline_ns);
    }
    bool news = false;
    for (int end = 0; end < 2; end++)
        if (!pair->ends[end].dead) news |= world->transports[end]->ops->look(world->transports[end], wait);
    if (news) deadline_ns = start_ns;
    struct pccl__ready ready[PCCL__POLL_BATCH];
    int count = pccl__poll_wait(world->poll, deadline_ns > start_ns ? deadline_ns - start_ns : 0, ready);
    pccl__poll_dispatch(world->poll, ready, count);
    uint64_t now_ns = clock_now_ns();
    bool guess = world->steps++ % 2; /* as a driver that spins */
    for (int end = 0; end < 2; end++) {
        struct pccl__transport *transport = world->transports[end];
        if (pair->ends[end].dead) continue;
        if (guess) transport->ops->guess(transport);
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
    struct tcp_world *world = pair->state;
    for (int end = 0; end < 2; end++) {
        world->transports[end]->ops->free(world->transports[end]);
        if (world->walls[end] >= 0) close(world->walls[end]);
    }
    pccl__poll_free(world->poll);
    free(world);
}

struct pair_driver tcp_driver(struct tcp_setup *setup) {
    return (struct pair_driver){.name = setup->rdma || setup->devices[0] ? "rdma"
                                        : setup->ring_bytes              ? "shm"
                                                                         : "tcp",
                                .bulk_bytes = 2 * 1024 * 1024,
                                .make = make,
                                .open = open_end,
                                .step = step,
                                .now_ns = now,
                                .kill = kill_end,
                                .free = free_world,
                                .owner = setup};
}

static const struct pccl__key first_key = {.epoch = 1, .tag = 77};
const struct pccl__key tcp_last_key = {.epoch = 1, .tag = 78}, tcp_word_key = {.epoch = 1, .tag = 79};

static void open_and_expect(struct pair *pair, int end) {
    pair->driver->open(pair, end);
    pair->ends[end].channel->ops->expect(pair->ends[end].channel, 1);
}

static void make_pair(struct pair *pair, struct pair_driver *driver) {
    memset(pair, 0, sizeof *pair);
    pair->driver = driver;
    pair->random = 1;
    driver->make(pair, 8);
}

static void run_peer(struct pair_driver *driver, const pccl_member *parent, int port_fd) {
    struct pair pair;
    make_pair(&pair, driver);
    struct tcp_world *world = pair.state;
    world->members[0] = *parent;
    open_and_expect(&pair, 1);
    EXPECT(write(port_fd, &world->members[1].port, sizeof world->members[1].port) == sizeof world->members[1].port);
    pair_send(&pair, 1, first_key, 100);
    struct parcel *asked = pair_recv(&pair, 1, tcp_last_key, 100);
    while (asked->completions == 0 && pair_step(&pair)) continue;
    pair_send(&pair, 1, tcp_word_key, 100);
    pair_nudge(&pair, 10);
}

pid_t tcp_fork_peer(struct pair *pair, struct pair_driver *driver, bool together) {
    make_pair(pair, driver);
    struct tcp_world *world = pair->state;
    int pipe_fds[2];
    EXPECT(pipe(pipe_fds) == 0);
    fflush(stdout);
    pid_t child = together ? (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL) : fork();
    EXPECT(child >= 0);
    if (child == 0) {
        run_peer(driver, &world->members[0], pipe_fds[1]);
        _exit(0);
    }
    EXPECT(read(pipe_fds[0], &world->members[1].port, sizeof world->members[1].port) == sizeof world->members[1].port);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    open_and_expect(pair, 0);
    struct parcel *first = pair_parcel(pair, 0, false, first_key, 100);
    EXPECT(pair_post(pair, first) == PCCL_OK);
    pair_await(pair, first, PCCL_OK);
    return child;
}

struct tcp_channel *tcp_end(struct pair *pair, int end) {
    return tcp_channel_of(pair->ends[end].channel);
}

bool tcp_has_ipv6(void) {
    struct tcp_address address;
    EXPECT(pccl__tcp_address_parse(&address, "::1", 0));
    int fd = pccl__tcp_socket_listen(&address);
    if (fd < 0) return false;
    close(fd);
    return true;
}

int tcp_count_descriptors(void) {
    DIR *directory = opendir("/proc/self/fd");
    EXPECT(directory);
    int count = 0;
    while (readdir(directory)) count++;
    closedir(directory);
    return count;
}
