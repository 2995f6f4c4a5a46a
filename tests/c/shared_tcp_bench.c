/* SPDX-License-Identifier: MIT
 *
 * shared_tcp_bench.c - `tcp_test --bench [stripes]`: a channel between two processes against plain sockets that move
 * the same bytes the same way.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "check.h"
#include "shared_tcp.h"

enum { PING_BYTES = 64, PINGS = 1000, STREAM_MAX = 16, PONG_BYTES = 8, REPEATS = 7 };

struct party {
    struct pccl__poll *poll;
    struct pccl__transport *transport;
    struct pccl__channel *channel;
    uint32_t step; /* numbers the transfers, the same on both sides */
    uint32_t ended;
    bool spins; /* does not sleep in poll */
};

static void run_once(struct party *party) {
    struct pccl__ready ready[PCCL__POLL_BATCH];
    uint64_t now_ns = clock_now_ns();
    if (!party->channel->ready && !party->transport->ready) {
        uint64_t deadline_ns = min_u64(party->channel->deadline_ns, party->transport->deadline_ns);
        uint64_t wait_ns = party->spins || deadline_ns <= now_ns ? 0 : deadline_ns - now_ns;
        int count = pccl__poll_wait(party->poll, wait_ns, ready);
        pccl__poll_dispatch(party->poll, ready, count);
        if (count == 0 && party->spins) sched_yield(); /* the other side may want this core */
        now_ns = clock_now_ns();
    }
    if (party->transport->ready || party->transport->deadline_ns <= now_ns)
        party->transport->ops->progress(party->transport, now_ns);
    if (!party->channel->ready && party->channel->deadline_ns > now_ns) return;
    struct pccl__done done;
    pccl__done_init(&done);
    party->channel->ops->progress(party->channel, now_ns, &done);
    for (struct list *node; (node = list_pop_front(&done.transfers));) {
        struct pccl__transfer *transfer = LIST_ENTRY(node, struct pccl__transfer, link);
        EXPECT(transfer->status == PCCL_OK, "%s", party->channel->error.message);
        transfer->owner = party; /* handed over */
        party->ended++;
    }
}

static void post(struct party *party, struct pccl__transfer *transfer, bool is_send, void *data, uint32_t bytes) {
    *transfer = (struct pccl__transfer){.key = {.epoch = 1, .step = party->step++}, .data = data, .bytes = bytes};
    EXPECT((is_send ? party->channel->ops->post_send : party->channel->ops->post_recv)(party->channel, transfer) ==
           PCCL_OK);
}

static void move(struct party *party, bool is_send, void *data, uint32_t bytes) {
    struct pccl__transfer transfer;
    uint32_t before = party->ended;
    post(party, &transfer, is_send, data, bytes);
    while (party->ended == before) run_once(party);
}

/* `total` transfers of `bytes`, up to `depth` at once. */
static void stream(struct party *party, bool is_send, uint8_t *memory, uint32_t bytes, uint32_t depth, uint32_t total) {
    struct pccl__transfer transfers[STREAM_MAX] = {0};
    uint32_t before = party->ended, posted = 0;
    while (party->ended - before < total) {
        for (uint32_t slot = 0; slot < depth && posted < total; slot++) {
            if (transfers[slot].state == PCCL__POSTED) continue;
            /* Completed but not handed over yet: still the channel's. */
            if (transfers[slot].state == PCCL__COMPLETED && !transfers[slot].owner) continue;
            post(party, &transfers[slot], is_send, memory + (size_t)slot * bytes, bytes);
            posted++;
        }
        run_once(party);
    }
}

static int compare_u64(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static double median_us(uint64_t times_ns[PINGS]) {
    qsort(times_ns, PINGS, sizeof *times_ns, compare_u64);
    return (double)times_ns[PINGS / 2] / 1e3;
}

/* This process's CPU time: on a shared machine a steadier witness than the clock on the wall. */
static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void report_stream(const char *what, int end, double best, double cpu, double bytes) {
    if (end == 0) printf("  %-34s %9.2f GB/s, sender %6.1f ms CPU per GB\n", what, best, cpu / (bytes / 1e9));
    if (end == 1) printf("  %-34s %14s receiver %4.1f ms CPU per GB\n", "", "", cpu / (bytes / 1e9));
}

static void report(const char *what, double value, const char *unit) {
    printf("  %-34s %9.2f %s\n", what, value, unit);
}

static void bench_party(struct party *party, int end, uint8_t *memory) {
    static const struct {
        const char *name;
        uint32_t bytes, depth, total;
    } streams[] = {{"1 MiB transfers, one at a time", 1 << 20, 1, 64},
                   {"1 MiB transfers, 8 in flight", 1 << 20, 8, 128},
                   {"16 MiB transfers, 4 in flight", 16 << 20, 4, 8},
                   {"64 KiB transfers, 16 in flight", 64 << 10, 16, 1000}};
    static uint64_t times_ns[PINGS];
    party->spins = true;
    for (int i = 0; i < PINGS; i++) {
        uint64_t start_ns = clock_now_ns();
        move(party, end == 0, memory, PING_BYTES);
        move(party, end == 1, memory, PING_BYTES);
        times_ns[i] = clock_now_ns() - start_ns;
    }
    if (end == 0) report("64 B round trip", median_us(times_ns), "us");
    party->spins = false;
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        double best = 0, cpu = cpu_ms();
        for (int repeat = 0; repeat < REPEATS; repeat++) {
            uint64_t start_ns = clock_now_ns();
            stream(party, end == 0, memory, streams[i].bytes, streams[i].depth, streams[i].total);
            move(party, end == 1, memory, PONG_BYTES);
            double rate = (double)streams[i].bytes * streams[i].total / (double)(clock_now_ns() - start_ns);
            if (rate > best) best = rate;
        }
        report_stream(streams[i].name, end, best, cpu_ms() - cpu,
                      (double)REPEATS * streams[i].bytes * streams[i].total);
    }
    /* The other side must have all before this one goes. */
    if (end == 0) move(party, true, memory, PING_BYTES);
    if (end == 1) move(party, false, memory, PING_BYTES);
    party->spins = true;
    for (int i = 0; i < 100; i++) run_once(party);
}

static void bench_channel(uint32_t stripes, uint8_t *memory) {
    struct party parties[2] = {{0}};
    pccl_member members[2] = {{.id = {{1}}, .address = "127.0.0.1", .host_id = 1},
                              {.id = {{2}}, .address = "127.0.0.1", .host_id = 1}};
    for (int end = 0; end < 2; end++) {
        struct pccl__tcp_options options = {
            .id = members[end].id, .stripes = stripes, .host_id = 1, .no_sharing = true};
        pccl_error error;
        EXPECT(pccl__poll_new(&parties[end].poll) == PCCL_OK);
        EXPECT(pccl__tcp_transport_new(&options, parties[end].poll, &parties[end].transport, &error) == PCCL_OK);
        members[end].port = pccl__tcp_transport_port(parties[end].transport);
    }
    fflush(stdout);
    pid_t child = fork();
    EXPECT(child >= 0);
    int end = child == 0;
    struct party *party = &parties[end];
    EXPECT(party->transport->ops->open(party->transport, &members[!end], &party->channel) == PCCL_OK);
    party->channel->ops->expect(party->channel, 1);
    bench_party(party, end, memory);
    fflush(stdout);
    if (child == 0) _exit(0);
    EXPECT(waitpid(child, NULL, 0) == child);
}

static void plain_send(int fd, const uint8_t *memory, size_t bytes) {
    while (bytes > 0) {
        ssize_t count = send(fd, memory, bytes, 0);
        EXPECT(count > 0);
        memory += count;
        bytes -= (size_t)count;
    }
}

static void plain_recv(int fd, uint8_t *memory, size_t bytes, int flags) {
    while (bytes > 0) {
        ssize_t count = recv(fd, memory, bytes, flags);
        EXPECT(count > 0 || (count < 0 && errno == EAGAIN));
        if (count < 0) sched_yield();
        if (count < 0) continue;
        memory += count;
        bytes -= (size_t)count;
    }
}

static void bench_plain(uint8_t *memory) {
    struct tcp_address address;
    EXPECT(pccl__tcp_address_parse(&address, "127.0.0.1", 0));
    int listener = pccl__tcp_socket_listen(&address);
    EXPECT(listener >= 0 && pccl__tcp_address_parse(&address, "127.0.0.1", pccl__tcp_socket_port(listener)));
    fflush(stdout);
    pid_t child = fork();
    int fd = child ? pccl__tcp_socket_dial(&address) : -1;
    while (!child && fd < 0) fd = pccl__tcp_socket_accept(listener);
    static uint64_t times_ns[PINGS];
    for (int i = 0; i < PINGS; i++) {
        uint64_t start_ns = clock_now_ns();
        if (child) plain_send(fd, memory, PING_BYTES);
        plain_recv(fd, memory, PING_BYTES, MSG_DONTWAIT);
        if (!child) plain_send(fd, memory, PING_BYTES);
        times_ns[i] = clock_now_ns() - start_ns;
    }
    if (child) report("64 B round trip", median_us(times_ns), "us");
    int blocking = 0;
    EXPECT(ioctl(fd, FIONBIO, &blocking) == 0);
    double best = 0, cpu = cpu_ms();
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        uint64_t start_ns = clock_now_ns();
        for (int i = 0; i < 128; i++) {
            if (child) plain_send(fd, memory, 1 << 20);
            if (!child) plain_recv(fd, memory, 1 << 20, 0);
        }
        if (!child) plain_send(fd, memory, 1);
        if (child) plain_recv(fd, memory, 1, 0);
        double rate = 128.0 * (1 << 20) / (double)(clock_now_ns() - start_ns);
        if (rate > best) best = rate;
    }
    report_stream("1 MiB writes in a row", !child, best, cpu_ms() - cpu, REPEATS * 128.0 * (1 << 20));
    fflush(stdout);
    if (!child) _exit(0);
    EXPECT(waitpid(child, NULL, 0) == child);
}

void tcp_bench(uint32_t stripes) {
    uint8_t *memory = calloc(64, 1 << 20);
    EXPECT(memory);
    memset(memory, 1, 64 << 20);
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    printf("plain sockets\n");
    bench_plain(memory);
    printf("channel, %u stripes\n", stripes);
    bench_channel(stripes, memory);
    free(memory);
}
