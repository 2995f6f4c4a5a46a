/* SPDX-License-Identifier: MIT
 *
 * engine_test.c - engines over real links, through pccl.h (what a call leaves behind is looked at inside): several
 * peers in one process, a thread each. What the single-threaded core cannot show: locks, hand-over between callers and
 * the background thread, events, descriptors.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "engine/engine.h"
#include "pccl.h"

enum { PEERS = 4, ROUNDS = 300 };

struct world {
    pccl_engine *engine[PEERS];
    pccl_member members[PEERS];
    uint32_t size;
    uint64_t epoch;
};

struct worker {
    struct world *world;
    uint32_t rank, thread;
};

static int open_descriptors(void) {
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (readdir(directory)) count++;
    closedir(directory);
    return count;
}

static void install(struct world *w, uint32_t size, const pccl_operation_name *commits, uint32_t commits_count) {
    w->epoch++;
    w->size = size;
    for (uint32_t rank = 0; rank < size; rank++) {
        pccl_view view = {.epoch = w->epoch,
                          .size = size,
                          .rank = rank,
                          .members = w->members,
                          .commits = commits,
                          .commits_count = commits_count,
                          .cause = PCCL_PEER_LOST,
                          .cause_text = "rank 3 was lost"};
        pccl_error error;
        EXPECT(pccl_engine_install(w->engine[rank], &view, &error) == PCCL_OK, "%s", error.message);
    }
}

/* Links of one stripe go through shared memory, those of several through TCP. */
static void make(struct world *w, uint32_t size, uint32_t stripes) {
    *w = (struct world){.size = size};
    for (uint32_t rank = 0; rank < size; rank++) {
        pccl_options options = {
            .stripes = stripes, .shared_memory = stripes > 1, .host_id = 7, .run_secret = {1, 2, 3}};
        options.id.bytes[0] = (uint8_t)(rank + 1);
        pccl_error error;
        EXPECT(pccl_engine_new(&options, &w->engine[rank], &error) == PCCL_OK, "%s", error.message);
        w->members[rank] = (pccl_member){.id = options.id,
                                         .address = "127.0.0.1",
                                         .host_id = 7,
                                         .cores = 2,
                                         .port = pccl_engine_port(w->engine[rank])};
    }
    install(w, size, NULL, 0);
}

static void destroy(struct world *w, uint32_t size) {
    for (uint32_t rank = 0; rank < size; rank++) pccl_engine_free(w->engine[rank]);
}

static void together(struct world *w, uint32_t workers, void *(*body)(void *)) {
    pthread_t threads[2 * PEERS];
    struct worker worker[2 * PEERS];
    for (uint32_t i = 0; i < workers; i++) {
        worker[i] = (struct worker){w, i % w->size, i / w->size};
        EXPECT(pthread_create(&threads[i], NULL, body, &worker[i]) == 0, "thread");
    }
    for (uint32_t i = 0; i < workers; i++) pthread_join(threads[i], NULL);
}

/* ---------------------------------------------------------------- exact results */

static float part(uint32_t rank, uint32_t round, size_t i) { return (float)((rank * 5 + round + i * 3) % 17); }

static void reduce_once(struct worker *me, uint32_t round, uint64_t count, bool async) {
    struct world *w = me->world;
    float *data = malloc(count * sizeof *data + 1);
    for (size_t i = 0; i < count; i++) data[i] = part(me->rank, round, i);
    pccl_call call = {.collective = PCCL_ALL_REDUCE,
                      .dtype = PCCL_FLOAT32,
                      .count = count,
                      .tag = me->thread,
                      .input = data,
                      .output = data};
    pccl_operation *op = NULL;
    pccl_info info;
    pccl_error error;
    pccl_status status = async ? pccl_start(w->engine[me->rank], &call, &op, &error)
                               : pccl_run(w->engine[me->rank], &call, -1, &op, &info, &error);
    if (async && status == PCCL_OK) status = pccl_wait(op, -1, &info, &error);
    EXPECT(status == PCCL_OK, "%s", error.message);
    EXPECT(async || op == NULL, "pccl_run keeps no handle");
    pccl_operation_free(op);
    EXPECT(info.world_size == w->size && info.rank == me->rank, "info");
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (uint32_t rank = 0; rank < w->size; rank++) sum += part(rank, round, i);
        EXPECT(data[i] == sum, "rank %u round %u element %zu of %zu: %g, not %g", me->rank, round, i, (size_t)count,
               (double)data[i], (double)sum);
    }
    free(data);
}

static void *reduce_many(void *argument) {
    struct worker *me = argument;
    for (uint32_t round = 0; round < ROUNDS; round++)
        reduce_once(me, round, round % 10 == 9 ? 100000 + round : round, (round + me->rank) % 3 == 0);
    return NULL;
}

static void *reduce_big(void *argument) {
    reduce_once(argument, 1, 3000001, false);
    return NULL;
}

/* What the end of an operation leaves in a channel, another member waits for. */
static void *say_last_words(void *argument) {
    struct worker *me = argument;
    pccl_engine *engine = me->world->engine[me->rank];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        reduce_once(me, round, 1 + round % 3, false);
        EXPECT(pccl__engine_enter(engine));
        EXPECT(!engine->core->group.channels[1 - me->rank]->ready, "round %u: rank %u left without its last word",
               round, me->rank);
        pccl__engine_leave(engine);
    }
    return NULL;
}

static void test_last_words(uint32_t stripes) {
    struct world w;
    make(&w, 2, stripes);
    together(&w, 2, say_last_words);
    destroy(&w, 2);
}

static void test_results(uint32_t size, uint32_t stripes) {
    struct world w;
    make(&w, size, stripes);
    together(&w, 2 * size, reduce_many); /* two threads per peer, a tag each */
    together(&w, size, reduce_big);
    destroy(&w, size);
}

/* ---------------------------------------------------------------- a peer goes */

static void wait_for_event(pccl_engine *engine, pccl_event_kind kind, pccl_event *event) {
    for (;;) {
        struct pollfd fd = {.fd = pccl_engine_event_fd(engine), .events = POLLIN};
        EXPECT(poll(&fd, 1, 20000) == 1, "no event of kind %d came", (int)kind);
        while (pccl_engine_next_event(engine, event))
            if (event->kind == kind) return;
    }
}

static void test_loss(void) {
    struct world w;
    make(&w, PEERS, 2);
    enum { COUNT = 500000 };
    static float data[PEERS][COUNT];
    pccl_operation *op[PEERS] = {NULL};
    pccl_error error;
    for (uint32_t rank = 0; rank < PEERS - 1; rank++) {
        for (size_t i = 0; i < COUNT; i++) data[rank][i] = part(rank, 0, i);
        pccl_call call = {.collective = PCCL_ALL_REDUCE,
                          .dtype = PCCL_FLOAT32,
                          .count = COUNT,
                          .input = data[rank],
                          .output = data[rank],
                          .flags = PCCL_NOTIFY,
                          .token = 40 + rank};
        EXPECT(pccl_start(w.engine[rank], &call, &op[rank], &error) == PCCL_OK, "%s", error.message);
    }
    EXPECT(pccl_wait(op[0], 50, NULL, &error) == PCCL_PENDING, "nobody can finish without rank 3");
    EXPECT(pccl_engine_pending(w.engine[0]) == 1, "one operation is open");
    pccl_engine_free(w.engine[PEERS - 1]);
    pccl_event event;
    for (uint32_t rank = 0; rank < PEERS - 1; rank++) {
        wait_for_event(w.engine[rank], PCCL_EVENT_FROZEN, &event);
        pccl_report_line line;
        size_t lines;
        EXPECT(pccl_engine_report(w.engine[rank], w.epoch, &line, 1, &lines) == PCCL_OK && lines == 1, "report");
        EXPECT(line.state == PCCL_DATA_PHASE && line.sequence == 0, "state %d", (int)line.state);
        EXPECT(pccl_engine_has_started(w.engine[rank], w.epoch, (pccl_operation_name){.sequence = 0}) == 1, "started");
        EXPECT(pccl_engine_has_started(w.engine[rank], w.epoch, (pccl_operation_name){.sequence = 1}) == 0,
               "not started");
    }
    install(&w, PEERS - 1, NULL, 0);
    for (uint32_t rank = 0; rank < PEERS - 1; rank++) {
        EXPECT(pccl_wait(op[rank], -1, NULL, &error) == PCCL_PEER_LOST, "%s", error.message);
        EXPECT(strstr(error.message, "rank 3 was lost") && strstr(error.message, "all_reduce"), "%s", error.message);
        for (size_t i = 0; i < COUNT; i++) EXPECT(data[rank][i] == part(rank, 0, i), "input changed");
        uint64_t token = 0;
        pccl_prompt(op[rank]);
        struct pollfd told = {.fd = pccl_engine_event_fd(w.engine[rank]), .events = POLLIN};
        EXPECT(poll(&told, 1, 10000) == 1 && pccl_engine_take_ended(w.engine[rank], &token, 1) == 1);
        EXPECT(token == 40 + rank && pccl_engine_take_ended(w.engine[rank], &token, 1) == 0);
        pccl_operation_free(op[rank]);
    }
    together(&w, PEERS - 1, reduce_big);
    destroy(&w, PEERS - 1);
}

/* ---------------------------------------------------------------- mismatch, state, refusals */

static void test_mismatch(void) {
    struct world w;
    make(&w, 3, 1);
    static float data[3][100000];
    pccl_operation *op[3];
    pccl_error error;
    for (uint32_t rank = 0; rank < 3; rank++) {
        pccl_call call = {.collective = rank == 2 ? PCCL_BROADCAST : PCCL_ALL_REDUCE,
                          .dtype = PCCL_FLOAT32,
                          .count = rank == 1 ? 100000 : 99999,
                          .input = data[rank],
                          .output = data[rank],
                          .root = 2};
        EXPECT(pccl_start(w.engine[rank], &call, &op[rank], &error) == PCCL_OK, "%s", error.message);
    }
    for (uint32_t rank = 0; rank < 3; rank++) {
        EXPECT(pccl_wait(op[rank], 20000, NULL, &error) == PCCL_MISMATCH, "rank %u: %s", rank, error.message);
        EXPECT(strstr(error.message, "rank ") && strstr(error.message, "float32["), "%s", error.message);
        pccl_operation_free(op[rank]);
    }
    together(&w, 3, reduce_big); /* the next one works */
    destroy(&w, 3);
}

static void test_state(void) {
    struct world w;
    make(&w, 2, 1);
    static uint8_t served[3000000], fetched[3000000];
    for (size_t i = 0; i < sizeof served; i++) served[i] = (uint8_t)(i * 7 + i / 1000);
    pccl_operation *early, *late, *outside;
    pccl_error error;
    pccl_region region = {served, sizeof served};
    EXPECT(pccl_state_fetch(w.engine[0], 9, w.members[1].id, 0, 1000, 10, fetched, 0, &early, &error) == PCCL_OK,
           "fetch");
    EXPECT(pccl_wait(early, 20, NULL, &error) == PCCL_PENDING, "nobody serves it yet");
    EXPECT(pccl_state_serve(w.engine[1], 9, &region, 1, &error) == PCCL_OK, "serve");
    EXPECT(pccl_state_serve(w.engine[1], 9, &region, 1, &error) == PCCL_INVALID, "served twice");
    EXPECT(pccl_wait(early, 20000, NULL, &error) == PCCL_OK && !memcmp(fetched, served + 1000, 10), "%s",
           error.message);
    EXPECT(pccl_state_fetch(w.engine[0], 9, w.members[1].id, 0, 0, sizeof served, fetched, 0, &late, &error) == PCCL_OK,
           "fetch");
    EXPECT(pccl_wait(late, 20000, NULL, &error) == PCCL_OK && !memcmp(fetched, served, sizeof served), "%s",
           error.message);
    EXPECT(pccl_state_fetch(w.engine[0], 9, w.members[1].id, 0, sizeof served, 1, fetched, 0, &outside, &error) ==
               PCCL_OK,
           "fetch");
    EXPECT(pccl_wait(outside, 20000, NULL, &error) == PCCL_INVALID, "%s", error.message);
    pccl_state_stop(w.engine[1], 9);
    pccl_operation_free(early);
    pccl_operation_free(late);
    destroy(&w, 2);
    pccl_operation_free(outside); /* may outlive the engine */
}

/* Fetches that are stopped end at once, are pending no more, and let go of their memory. */
static void test_state_stop(void) {
    struct world w;
    make(&w, 2, 1);
    static uint8_t served[3000000], stopped[sizeof served], before[sizeof served], other[sizeof served];
    for (size_t i = 0; i < sizeof served; i++) served[i] = (uint8_t)(i * 7 + i / 1000 + 1);
    pccl_region region = {served, sizeof served};
    pccl_peer_id donor = w.members[1].id;
    pccl_error error;
    pccl_operation *op[3];
    EXPECT(pccl_state_fetch(w.engine[0], 8, donor, 0, 0, 10, stopped, 0, &op[0], &error) == PCCL_OK, "fetch");
    EXPECT(pccl_engine_pending(w.engine[0]) == 0, "a fetch is no collective");
    pccl_state_stop(w.engine[0], 8);
    EXPECT(pccl_wait(op[0], 0, NULL, &error) == PCCL_ABORTED, "%s", error.message);
    EXPECT(pccl_engine_pending(w.engine[0]) == 0, "nothing is pending");
    EXPECT(pccl_state_serve(w.engine[1], 7, &region, 1, &error) == PCCL_OK, "serve");
    EXPECT(pccl_state_serve(w.engine[1], 6, &region, 1, &error) == PCCL_OK, "serve");
    EXPECT(pccl_state_fetch(w.engine[0], 7, donor, 0, 0, sizeof served, stopped, 0, &op[1], &error) == PCCL_OK,
           "fetch");
    pccl_state_stop(w.engine[0], 7);
    memcpy(before, stopped, sizeof served);
    EXPECT(pccl_state_fetch(w.engine[0], 6, donor, 0, 0, sizeof served, other, 0, &op[2], &error) == PCCL_OK, "fetch");
    EXPECT(pccl_wait(op[2], 20000, NULL, &error) == PCCL_OK, "%s", error.message);
    EXPECT(!memcmp(other, served, sizeof served), "the next fetch under another id");
    EXPECT(pccl_done(op[1]) && !memcmp(before, stopped, sizeof served), "a stopped fetch wrote to its memory");
    for (int i = 0; i < 3; i++) pccl_operation_free(op[i]);
    destroy(&w, 2);
}

static void test_refusals(void) {
    struct world w;
    make(&w, 1, 1);
    float x[4] = {0}, y[8];
    pccl_operation *op;
    pccl_error error;
    pccl_call call = {.collective = PCCL_ALL_REDUCE, .dtype = PCCL_FLOAT32, .count = 4, .input = x, .output = y};
    EXPECT(pccl_run(w.engine[0], &call, -1, &op, NULL, &error) == PCCL_TOO_FEW_PEERS, "%s", error.message);
    call.output = x + 1;
    EXPECT(pccl_start(w.engine[0], &call, &op, &error) == PCCL_INVALID && strstr(error.message, "overlap"), "%s",
           error.message);
    call.output = NULL;
    EXPECT(pccl_start(w.engine[0], &call, &op, &error) == PCCL_INVALID, "NULL output");
    call.output = y;
    call.dtype = (pccl_dtype)99;
    EXPECT(pccl_start(w.engine[0], &call, &op, &error) == PCCL_INVALID, "dtype");
    call.dtype = PCCL_FLOAT32;
    call.algorithm = PCCL_CHAIN;
    EXPECT(pccl_start(w.engine[0], &call, &op, &error) == PCCL_INVALID, "algorithm");
    call.algorithm = PCCL_AUTO;
    call.count = UINT64_MAX / 2;
    EXPECT(pccl_start(w.engine[0], &call, &op, &error) == PCCL_INVALID, "count");
    call.count = 4;
    pccl_options large = {.segment_bytes = 16 * 1024 * 1024 + 1};
    pccl_engine *none = NULL;
    EXPECT(pccl_engine_new(&large, &none, &error) == PCCL_INVALID && strstr(error.message, "segments"), "segments");
    pccl_engine_halt(w.engine[0], PCCL_EXPELLED, "expelled for a test");
    EXPECT(pccl_start(w.engine[0], &call, &op, &error) == PCCL_EXPELLED && strstr(error.message, "for a test"), "%s",
           error.message);
    pccl_view stale = {.epoch = 1, .size = 1, .members = w.members};
    EXPECT(pccl_engine_install(w.engine[0], &stale, &error) == PCCL_INVALID, "stale view");
    destroy(&w, 1);
}

/* A member that died before anyone had a link to it is suspected at the first refused dial, not after a timeout. */
static void test_doubt(void) {
    struct world w;
    make(&w, 2, 1);
    pccl_engine_free(w.engine[1]);
    float x = 1;
    pccl_call call = {.collective = PCCL_ALL_REDUCE, .dtype = PCCL_FLOAT32, .count = 1, .input = &x, .output = &x};
    pccl_operation *op;
    pccl_error error;
    pccl_event event;
    EXPECT(pccl_start(w.engine[0], &call, &op, &error) == PCCL_OK, "%s", error.message);
    wait_for_event(w.engine[0], PCCL_EVENT_SUSPECT, &event);
    EXPECT(event.reason == PCCL_TIMEOUT && event.peer.bytes[0] == 2, "%s", event.text);
    EXPECT(strstr(event.text, "refused"), "%s", event.text);
    EXPECT(!pccl_done(op), "the operation goes on: the member may be alive and dial us");
    install(&w, 1, NULL, 0);
    EXPECT(pccl_wait(op, -1, NULL, &error) == PCCL_PEER_LOST, "%s", error.message);
    pccl_operation_free(op);
    destroy(&w, 1);
}

/* A view that another thread installs wakes whoever waits, whether it spins, polls or sleeps. */
static void *wait_for_verdict(void *argument) {
    struct worker *me = argument;
    float x = 1;
    pccl_call call = {
        .collective = PCCL_ALL_REDUCE, .dtype = PCCL_FLOAT32, .count = 1, .tag = me->thread, .input = &x, .output = &x};
    pccl_operation *op;
    pccl_info info;
    pccl_error error;
    EXPECT(pccl_run(me->world->engine[0], &call, -1, &op, &info, &error) == PCCL_PEER_LOST, "%s", error.message);
    return NULL;
}

static void test_install_wakes(void) {
    struct world w;
    make(&w, 2, 1);
    for (int round = 0; round < 400; round++) {
        pthread_t threads[2];
        struct worker worker[2] = {{&w, 0, 0}, {&w, 0, 1}};
        uint32_t waiters = 1 + round % 2; /* one alone spins; of two, one sleeps behind the other */
        for (uint32_t i = 0; i < waiters; i++)
            EXPECT(pthread_create(&threads[i], NULL, wait_for_verdict, &worker[i]) == 0, "thread");
        while (pccl_engine_pending(w.engine[0]) < waiters) sched_yield();
        install(&w, 2, NULL, 0);
        for (uint32_t i = 0; i < waiters; i++) pthread_join(threads[i], NULL);
    }
    destroy(&w, 2);
}

/* A stranger that sends garbage disturbs nobody and is told once. */
static void test_strangers(void) {
    struct world w;
    make(&w, 2, 1);
    for (int i = 0; i < 20; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in address = {
            .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(w.members[0].port)};
        static const char garbage[400] = "GET / HTTP/1.1\r\n";
        EXPECT(connect(fd, (struct sockaddr *)&address, sizeof address) == 0, "connect");
        EXPECT(send(fd, garbage, sizeof garbage, MSG_NOSIGNAL) > 0 || i > 0, "send");
        close(fd);
    }
    pccl_event event;
    wait_for_event(w.engine[0], PCCL_EVENT_REFUSED, &event);
    EXPECT(event.token >= 1, "counted");
    together(&w, 2, reduce_big);
    while (pccl_engine_next_event(w.engine[0], &event)) EXPECT(event.kind != PCCL_EVENT_REFUSED, "told twice");
    destroy(&w, 2);
}

/* ---------------------------------------------------------------- who wakes whom */

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A port whose queue of connections is full: who dials it hears nothing. Its descriptors are fds[0..2]. */
static uint16_t deaf_port(int fds[3]) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    for (int i = 0; i < 3; i++) fds[i] = socket(AF_INET, SOCK_STREAM | (i ? SOCK_NONBLOCK : 0), 0);
    EXPECT(bind(fds[0], (struct sockaddr *)&address, bytes) == 0 && listen(fds[0], 0) == 0, "listen");
    EXPECT(getsockname(fds[0], (struct sockaddr *)&address, &bytes) == 0, "name");
    for (int i = 1; i < 3; i++) (void)connect(fds[i], (struct sockaddr *)&address, bytes);
    return ntohs(address.sin_port);
}

/* pccl_run ends at once and leaves a dial behind that only a timer ends: the background thread, which went to sleep
 * before there was one, must see to it. */
static void test_timer_left_behind(void) {
    int fds[3];
    pccl_options options = {.connect_timeout_ms = 50, .id = {{1}}};
    pccl_engine *engine;
    pccl_error error;
    pccl_event event;
    pccl_operation *op;
    EXPECT(pccl_engine_new(&options, &engine, &error) == PCCL_OK, "%s", error.message);
    pccl_member members[2] = {{.id = {{1}}, .address = "127.0.0.1", .port = pccl_engine_port(engine)},
                              {.id = {{2}}, .address = "127.0.0.1", .port = deaf_port(fds)}};
    pccl_view view = {.epoch = 1, .size = 2, .members = members};
    EXPECT(pccl_engine_install(engine, &view, &error) == PCCL_OK, "%s", error.message);
    struct pollfd idle = {.fd = pccl_engine_event_fd(engine), .events = POLLIN};
    EXPECT(poll(&idle, 1, 20) == 0, "nothing happens in an idle engine");
    char data[4] = {0};
    pccl_call call = {.collective = PCCL_BROADCAST, .count = 4, .input = data, .output = data, .flags = PCCL_DEFERRED};
    EXPECT(pccl_run(engine, &call, -1, &op, NULL, &error) == PCCL_OK, "%s", error.message);
    wait_for_event(engine, PCCL_EVENT_SUSPECT, &event);
    EXPECT(event.peer.bytes[0] == 2, "the peer that does not answer");
    pccl_engine_free(engine);
    for (int i = 0; i < 3; i++) close(fds[i]);
}

static void *wait_for_abort(void *op) {
    pccl_error error;
    EXPECT(pccl_wait(op, INT64_MAX, NULL, &error) == PCCL_ABORTED, "%s", error.message); /* a limit, if a far one */
    return NULL;
}

/* A call that ends an operation wakes the thread that drives for it, though no descriptor and no timer does. */
static void test_driver_is_told(void) {
    pccl_options options[2] = {{.stall_ms = 80 * 1000, .id = {{1}}}, {.id = {{2}}}};
    pccl_engine *engine[2];
    pccl_member members[2];
    pccl_error error;
    for (int i = 0; i < 2; i++) {
        EXPECT(pccl_engine_new(&options[i], &engine[i], &error) == PCCL_OK, "%s", error.message);
        members[i] = (pccl_member){.id = options[i].id, .address = "127.0.0.1", .port = pccl_engine_port(engine[i])};
    }
    for (uint32_t i = 0; i < 2; i++) {
        pccl_view view = {.epoch = 1, .size = 2, .rank = i, .members = members};
        EXPECT(pccl_engine_install(engine[i], &view, &error) == PCCL_OK, "%s", error.message);
    }
    char target[10];
    pccl_operation *op;
    EXPECT(pccl_state_fetch(engine[0], 8, members[1].id, 0, 0, 10, target, 0, &op, &error) == PCCL_OK, "fetch");
    EXPECT(pccl_wait(op, 100, NULL, &error) == PCCL_PENDING, "nobody serves it");
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, wait_for_abort, op) == 0, "thread");
    struct pollfd quiet = {.fd = pccl_engine_event_fd(engine[0]), .events = POLLIN};
    EXPECT(poll(&quiet, 1, 100) == 0, "no event while it waits");
    double before = now_s();
    pccl_state_stop(engine[0], 8);
    pthread_join(thread, NULL);
    EXPECT(now_s() - before < 10, "the driver slept on for %g s", now_s() - before);
    pccl_operation_free(op);
    for (int i = 0; i < 2; i++) pccl_engine_free(engine[i]);
}

enum { HANDLES = 64 };

static void *give_back(void *operations) {
    for (int i = 0; i < HANDLES; i++) {
        sched_yield(); /* all the time that the other thread takes */
        pccl_operation_free(((pccl_operation **)operations)[i]);
    }
    return NULL;
}

/* Operations may be given back by one thread while another frees the engine. */
static void test_given_back_meanwhile(void) {
    for (int round = 0; round < 30; round++) {
        struct world w;
        make(&w, 2, 1);
        float data[HANDLES] = {0};
        pccl_operation *operations[HANDLES];
        for (uint64_t i = 0; i < HANDLES; i++) {
            pccl_call call = {.count = 1, .dtype = PCCL_FLOAT32, .tag = i, .input = &data[i], .output = &data[i]};
            pccl_error error;
            EXPECT(pccl_start(w.engine[0], &call, &operations[i], &error) == PCCL_OK, "%s", error.message);
        }
        pthread_t thread;
        EXPECT(pthread_create(&thread, NULL, give_back, operations) == 0, "thread");
        destroy(&w, 2);
        pthread_join(thread, NULL);
    }
}

int main(void) {
    int descriptors = open_descriptors();
    test_results(2, 1);
    test_results(4, 1);
    test_results(4, 3);
    test_last_words(1);
    test_last_words(3);
    test_loss();
    test_mismatch();
    test_state();
    test_state_stop();
    test_refusals();
    test_strangers();
    test_install_wakes();
    test_timer_left_behind();
    test_driver_is_told();
    test_doubt();
    test_given_back_meanwhile();
    EXPECT(open_descriptors() == descriptors, "%d descriptors, %d before", open_descriptors(), descriptors);
    FINISH();
}
