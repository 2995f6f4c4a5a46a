/* SPDX-License-Identifier: MIT
 *
 * sim_test.c - the simulated channel passes the conformance suite under every mix of faults, and keeps the promises
 * of sim.h: the same run from the same seed, breaks and deaths that every transfer survives as a completion.
 */
#include "channel/sim.h"

#include <string.h>

#include "base/clock.h"
#include "base/prng.h"
#include "check.h"
#include "shared_conform.h"

struct world {
    struct pccl__sim_network *network;
    struct pccl__transport *transports[2];
};

static pccl_peer_id id_of(int end) { return (pccl_peer_id){{(uint8_t)(end + 1)}}; }

static void sim_make(struct pair *pair, uint64_t seed) {
    struct world *world = calloc(1, sizeof *world);
    EXPECT(world);
    world->network = pccl__sim_network_new(seed, *(struct pccl__sim_faults *)pair->driver->owner);
    EXPECT(world->network);
    for (int end = 0; end < 2; end++) {
        world->transports[end] = pccl__sim_transport_new(world->network, id_of(end));
        EXPECT(world->transports[end]);
    }
    pair->state = world;
}

static void sim_open_end(struct pair *pair, int end) {
    struct world *world = pair->state;
    pccl_member member = {.id = id_of(!end)};
    struct pccl__transport *transport = world->transports[end];
    EXPECT(transport->ops->open(transport, &member, &pair->ends[end].channel) == PCCL_OK);
}

static bool sim_step(struct pair *pair, bool wait) {
    (void)wait; /* virtual time passes at once */
    struct world *world = pair->state;
    uint64_t next_ns = pccl__sim_next_ns(world->network);
    if (next_ns == NEVER_NS) return false;
    pccl__sim_advance(world->network, next_ns);
    return true;
}

static uint64_t sim_now(struct pair *pair) { return pccl__sim_now_ns(((struct world *)pair->state)->network); }

static void sim_kill_end(struct pair *pair, int end) {
    pccl__sim_kill(((struct world *)pair->state)->network, id_of(end));
}

static void sim_free_pair(struct pair *pair) {
    struct world *world = pair->state;
    for (int end = 0; end < 2; end++) world->transports[end]->ops->free(world->transports[end]);
    pccl__sim_network_free(world->network);
    free(world);
}

static struct pair_driver driver_of(struct pccl__sim_faults *faults) {
    return (struct pair_driver){.name = "sim",
                                .bulk_bytes = 300000,
                                .make = sim_make,
                                .open = sim_open_end,
                                .step = sim_step,
                                .now_ns = sim_now,
                                .kill = sim_kill_end,
                                .free = sim_free_pair,
                                .owner = faults};
}

/* Each fault is off in half of the seeds, so that none hides behind another. */
static struct pccl__sim_faults faults_of(uint64_t seed) {
    uint64_t random = seed;
    struct pccl__sim_faults faults = {0};
    if (prng_below(&random, 2)) faults.delay_us_max = 1 + prng_below(&random, 1000);
    if (prng_below(&random, 2)) faults.piece_bytes_max = 1000 + prng_below(&random, 100000);
    if (prng_below(&random, 2)) faults.reorder_percent = prng_below(&random, 101);
    if (prng_below(&random, 2)) faults.no_memory_ppm = prng_below(&random, 300000);
    return faults;
}

/* Random traffic, cancels and epochs over a link that breaks, is cut or loses a peer at a random moment: the pair holds
 * every completion to the contract, and everything completes. */
static void breaks(uint64_t seed) {
    struct pccl__sim_faults faults = faults_of(seed);
    faults.break_ppm = 20000;
    struct pair_driver driver = driver_of(&faults);
    struct pair pair;
    uint64_t random = seed;
    pair_context("sim, seed %" PRIu64 ", breaks", seed);
    pair_new(&pair, &driver, seed, true);
    for (int i = 0; i < 60; i++) {
        struct pccl__key key = pair_key(&pair, prng_below(&random, 3));
        uint32_t bytes = prng_below(&random, prng_below(&random, 4) ? 3000 : 400000);
        int end = (int)prng_below(&random, 2);
        for (int half = 0; half < 2; half++) {
            if (prng_below(&random, 8) == 0) continue;
            struct parcel *parcel = pair_parcel(&pair, half ? !end : end, !half, key, bytes);
            pccl_status status = pair_post(&pair, parcel);
            EXPECT(status == PCCL_OK || (status == PCCL_PEER_LOST && pair.ends[parcel->end].channel->broken));
            if (status == PCCL_OK && prng_below(&random, 10) == 0) pair_cancel(&pair, parcel, PCCL_ABORTED);
        }
        if (i == 30) pair_expect(&pair, 2);
        if (seed % 3 == 1 && i == 40) pccl__sim_cut(((struct world *)pair.state)->network, id_of(0), id_of(1));
        pair_nudge(&pair, prng_below(&random, 5));
    }
    if (seed % 3 == 2) {
        sim_kill_end(&pair, 1);
        pair.ends[1].dead = true;
    }
    while (pair_step(&pair)) continue;
    EXPECT(seed % 3 == 0 || pair.ends[0].channel->broken);
    pair_free(&pair);
    pair_context(NULL);
}

/* Delays and order come from the seed alone. */
static uint64_t trace(uint64_t seed) {
    struct pccl__sim_faults faults = {.delay_us_max = 500, .piece_bytes_max = 50000, .reorder_percent = 50};
    struct pair_driver driver = driver_of(&faults);
    struct pair pair;
    uint64_t hash = 0;
    pair_new(&pair, &driver, seed, true);
    for (int i = 0; i < 40; i++) {
        struct pccl__key key = pair_key(&pair, 1);
        pair_send(&pair, i % 2, key, (uint32_t)i * 5000);
        pair_recv(&pair, !(i % 2), key, (uint32_t)i * 5000);
    }
    while (pair_step(&pair)) {
        for (struct parcel *parcel = pair.parcels; parcel; parcel = parcel->next)
            hash = hash * 31 + parcel->transfer.moved + (uint64_t)parcel->completions + sim_now(&pair);
    }
    pair_free(&pair);
    return hash;
}

/* ---------------------------------------------------------------- more than two peers */

enum { PEERS = 4 };

struct crowd {
    struct pccl__sim_network *network;
    struct pccl__transport *transports[PEERS];
    struct pccl__channel *channels[PEERS][PEERS];
};

static struct pccl__channel *crowd_open(struct crowd *crowd, int from, int to) {
    pccl_member member = {.id = id_of(to)};
    struct pccl__transport *transport = crowd->transports[from];
    EXPECT(transport->ops->open(transport, &member, &crowd->channels[from][to]) == PCCL_OK);
    return crowd->channels[from][to];
}

static void run_channel(struct crowd *crowd, struct pccl__channel *channel) {
    struct pccl__done done;
    pccl__done_init(&done);
    channel->ops->progress(channel, pccl__sim_now_ns(crowd->network), &done);
    struct list *node;
    while ((node = list_pop_front(&done.transfers))) (*(int *)LIST_ENTRY(node, struct pccl__transfer, link)->owner)++;
    while ((node = list_pop_front(&done.notices))) pccl__notice_free(LIST_ENTRY(node, struct pccl__notice, link));
}

static void crowd_run(struct crowd *crowd) {
    for (bool busy = true; busy;) {
        busy = pccl__sim_next_ns(crowd->network) != NEVER_NS;
        if (busy) pccl__sim_advance(crowd->network, pccl__sim_next_ns(crowd->network));
        for (int i = 0; i < PEERS * PEERS; i++) {
            struct pccl__channel *channel = crowd->channels[i / PEERS][i % PEERS];
            if (!channel || !channel->ready) continue;
            run_channel(crowd, channel);
            busy = true;
        }
    }
}

static void crowd_close(struct crowd *crowd, int from, int to) {
    struct pccl__channel *channel = crowd->channels[from][to];
    channel->ops->close(channel, PCCL_CLOSED);
    run_channel(crowd, channel);
    channel->ops->free(channel);
    crowd->channels[from][to] = NULL;
}

/* A cut ends one link, a death all links of one peer and no other; nobody answers a dead one's name. */
static void crowd(uint64_t seed) {
    struct crowd crowd = {.network = pccl__sim_network_new(seed, faults_of(seed))};
    struct pccl__transfer transfers[PEERS][PEERS];
    uint8_t memory[PEERS][PEERS][1000];
    int completions[PEERS][PEERS] = {{0}};
    for (int i = 0; i < PEERS; i++) crowd.transports[i] = pccl__sim_transport_new(crowd.network, id_of(i));
    for (int i = 0; i < PEERS * PEERS; i++) {
        int from = i / PEERS, to = i % PEERS;
        if (from == to) continue;
        struct pccl__channel *channel = crowd_open(&crowd, from, to);
        struct pccl__transfer *transfer = &transfers[from][to];
        *transfer = (struct pccl__transfer){.key = {.epoch = 1}, .data = memory[from][to], .bytes = 1000};
        transfer->owner = &completions[from][to];
        while (channel->ops->post_recv(channel, transfer) != PCCL_OK) continue;
    }
    pccl__sim_cut(crowd.network, id_of(0), id_of(1));
    pccl__sim_kill(crowd.network, id_of(3));
    crowd_run(&crowd);
    for (int i = 0; i < PEERS * PEERS; i++) {
        int from = i / PEERS, to = i % PEERS;
        if (from == to || from == 3) continue;
        bool ended = to == 3 || from + to == 1;
        EXPECT(crowd.channels[from][to]->broken == ended && completions[from][to] == ended, "%d to %d", from, to);
        if (ended) EXPECT(transfers[from][to].status == PCCL_PEER_LOST);
    }
    crowd_close(&crowd, 0, 3);
    EXPECT(!crowd_open(&crowd, 0, 3)->broken);
    crowd_run(&crowd);
    EXPECT(crowd.channels[0][3]->broken);
    for (int i = 0; i < PEERS * PEERS; i++)
        if (crowd.channels[i / PEERS][i % PEERS]) crowd_close(&crowd, i / PEERS, i % PEERS);
    for (int i = 0; i < PEERS * PEERS; i++) EXPECT(completions[i / PEERS][i % PEERS] == (i / PEERS != i % PEERS));
    for (int i = 0; i < PEERS; i++) crowd.transports[i]->ops->free(crowd.transports[i]);
    pccl__sim_network_free(crowd.network);
}

int main(int count, char **arguments) {
    uint64_t only = count > 1 ? strtoull(arguments[1], NULL, 0) : 0; /* sim_test SEED runs one */
    for (uint64_t seed = only ? only : 1; seed <= (only ? only : 200); seed++) {
        struct pccl__sim_faults faults = faults_of(seed);
        struct pair_driver driver = driver_of(&faults);
        EXPECT(conform_run(&driver, seed, seed % 25 == 1 ? CONFORM_THOROUGH : CONFORM_QUICK) > 0);
        breaks(seed);
        crowd(seed);
    }
    EXPECT(trace(7) == trace(7));
    EXPECT(trace(7) != trace(8));
    FINISH();
}
