/* SPDX-License-Identifier: MIT
 *
 * core_test.c - many cores in one thread over the simulated network, with a small master that collects frozen reports
 * and issues verdicts. A seed draws everything: sizes, programs, faults, who dies when, in which order the
 * next view arrives, which allocations are refused.
 *
 * Each peer runs the same program of operations, one in flight per tag, and repeats what was aborted. Checked: every
 * value exact for the members of the epoch that committed; all survivors saw the same outcome of each operation (G2);
 * inputs as before after an abort (G3); retries meet (G4); everything ends; nothing is sent over a link that the view's
 * shape leaves out, and some of those are dead; nothing leaks (run under ASan).
 *
 *     core_test [first-seed [seeds]]
 */
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/prng.h"
#include "channel/sim.h"
#include "check.h"
#include "engine/core.h"
#include "shared_memory.h"
#include "shared_shape.h"
#include "shared_verdict.h"

enum {
    PEERS_MAX = 7,
    PROGRAM_MAX = 24,
    TAGS_MAX = 4,
    COUNT_MAX = 200000,
    EPOCHS_MAX = 32,
    COMMITS_MAX = TAGS_MAX,
    REFUSALS_MAX = 6 /* allocations refused in one world; each may cost an epoch */
};

struct op_plan {
    pccl_call call; /* buffers and tag filled per peer */
    bool in_place;
    bool deferred;
};

struct running {
    pccl_operation *handle;
    uint8_t *input, *output, *before;
    size_t input_bytes, output_bytes;
};

struct peer {
    pccl_peer_id id;
    struct pccl__transport *transport;
    struct pccl__core *core;
    bool alive, view_due;
    uint32_t next[TAGS_MAX]; /* position in the tag's part of the program */
    struct running running[PROGRAM_MAX];
    uint64_t outcome[PROGRAM_MAX]; /* epoch that committed it; 0: not yet */
    uint32_t done;
};

struct world {
    uint64_t seed, random;
    struct pccl__sim_network *network;
    struct peer peer[PEERS_MAX];
    uint32_t peers, tags, length;
    struct op_plan program[PROGRAM_MAX];
    uint64_t epoch, now_ns, kill_at_ns[PEERS_MAX], cut_at_ns;
    uint32_t members[EPOCHS_MAX][PEERS_MAX], sizes[EPOCHS_MAX];
    bool dead[PEERS_MAX][PEERS_MAX]; /* links */
    struct shape_draw shape;
    pccl_operation_name commits[COMMITS_MAX];
    uint32_t commits_count;
    bool remake; /* somebody froze or died */
    uint32_t refuse_ppm;
    uint64_t refused_before;
};

static uint32_t draw(struct world *w, uint32_t bound) { return prng_below(&w->random, bound); }

/* What the cores do between these two may find no memory. */
static void hungry(struct world *w) {
    if (w->refuse_ppm && memory_refused() - w->refused_before < REFUSALS_MAX)
        memory_refuse_some(prng_next(&w->random), w->refuse_ppm);
}

static void fed(void) { memory_refuse(0, 0); }

/* ---------------------------------------------------------------- values */

/* Small integers: sums are exact in every dtype used, and every element, peer and operation differs. */
static int64_t value(uint32_t peer, uint32_t op, uint64_t i) { return (int64_t)((peer * 7 + op * 3 + i * 5) % 11) - 4; }

static void put_value(pccl_dtype dtype, uint8_t *at, uint64_t i, int64_t v) {
    if (dtype == PCCL_INT32)
        ((int32_t *)at)[i] = (int32_t)v;
    else if (dtype == PCCL_FLOAT32)
        ((float *)at)[i] = (float)v;
    else if (dtype == PCCL_FLOAT64)
        ((double *)at)[i] = (double)v;
    else
        ((int8_t *)at)[i] = (int8_t)v;
}

static double get_value(pccl_dtype dtype, const uint8_t *at, uint64_t i) {
    if (dtype == PCCL_INT32) return ((const int32_t *)at)[i];
    if (dtype == PCCL_FLOAT32) return ((const float *)at)[i];
    if (dtype == PCCL_FLOAT64) return ((const double *)at)[i];
    return ((const int8_t *)at)[i];
}

static double reduced(const struct world *w, uint64_t epoch, uint32_t op, pccl_reduce_op how, uint64_t i) {
    double total = how == PCCL_MIN ? 1e9 : how == PCCL_MAX ? -1e9 : 0;
    for (uint32_t m = 0; m < w->sizes[epoch]; m++) {
        double v = (double)value(w->members[epoch][m], op, i);
        if (how == PCCL_SUM)
            total += v;
        else if (how == PCCL_MIN)
            total = v < total ? v : total;
        else
            total = v > total ? v : total;
    }
    return total;
}

static double expected(const struct world *w, uint64_t epoch, uint32_t rank, uint32_t op, uint64_t i) {
    const pccl_call *call = &w->program[op].call;
    switch (call->collective) {
    case PCCL_ALL_REDUCE:
        return reduced(w, epoch, op, call->op, i);
    case PCCL_REDUCE_SCATTER:
        return reduced(w, epoch, op, call->op, rank * call->count + i);
    case PCCL_ALL_GATHER:
        return (double)value(w->members[epoch][i / call->count], op, i % call->count);
    default:
        return (double)value(w->members[epoch][0], op, i); /* broadcast from rank 0 */
    }
}

static void check_result(struct world *w, uint32_t p, uint32_t op) {
    struct running *r = &w->peer[p].running[op];
    const pccl_call *call = &w->program[op].call;
    pccl_info info = r->handle->info;
    EXPECT(info.epoch < EPOCHS_MAX && info.world_size == w->sizes[info.epoch], "seed %" PRIu64, w->seed);
    uint64_t elements = call->count * (call->collective == PCCL_ALL_GATHER ? info.world_size : 1);
    if (call->collective == PCCL_BARRIER || call->collective == PCCL_COMMIT) elements = 0;
    uint64_t stride = elements > 300 ? 37 : 1;
    for (uint64_t i = 0; i < elements; i += i + stride < elements ? stride : 1) {
        double got = get_value(call->dtype, r->output, i), want = expected(w, info.epoch, info.rank, op, i);
        EXPECT(got == want, "seed %" PRIu64 ": peer %u operation %u (%s) element %" PRIu64 ": %g, not %g", w->seed, p,
               op, pccl_collective_name(call->collective), i, got, want);
    }
}

/* ---------------------------------------------------------------- the program */

static void draw_program(struct world *w) {
    static const pccl_dtype dtypes[] = {PCCL_INT8, PCCL_INT32, PCCL_FLOAT32, PCCL_FLOAT64};
    static const pccl_reduce_op ops[] = {PCCL_SUM, PCCL_MIN, PCCL_MAX};
    w->length = 1 + draw(w, PROGRAM_MAX);
    for (uint32_t k = 0; k < w->length; k++) {
        struct op_plan *plan = &w->program[k];
        uint32_t magnitude = draw(w, 4), bound = magnitude == 0   ? 3
                                                 : magnitude == 1 ? 100
                                                 : magnitude == 2 ? 5000
                                                                  : COUNT_MAX;
        *plan = (struct op_plan){.in_place = draw(w, 2)};
        plan->call = (pccl_call){.collective = (pccl_collective)draw(w, PCCL_COMMIT),
                                 .dtype = dtypes[draw(w, 4)],
                                 .op = ops[draw(w, 3)],
                                 .count = draw(w, bound),
                                 .tag = k % w->tags};
        if (plan->call.collective == PCCL_ALL_REDUCE && draw(w, 2))
            plan->call.algorithm = draw(w, 3) ? PCCL_RING : draw(w, 2) ? PCCL_DOUBLING : PCCL_TREE;
        if (plan->call.collective == PCCL_BROADCAST && draw(w, 2))
            plan->call.algorithm = draw(w, 2) ? PCCL_CHAIN : PCCL_BINOMIAL;
    }
}

static void release(struct world *w, uint32_t p, uint32_t op) {
    struct running *r = &w->peer[p].running[op];
    if (r->handle) pccl__core_handle_free(r->handle);
    uint8_t *base = r->input < r->output ? r->input : r->output;
    if (w->program[op].in_place) {
        free(base);
    } else {
        free(r->input);
        free(r->output);
    }
    free(r->before);
    *r = (struct running){0};
}

static void start(struct world *w, uint32_t p, uint32_t op) {
    struct peer *peer = &w->peer[p];
    struct running *r = &peer->running[op];
    pccl_call call = w->program[op].call;
    uint32_t size = peer->core->group.size, rank = peer->core->group.rank;
    size_t element = pccl_dtype_bytes(call.dtype);
    uint64_t in = call.count * (call.collective == PCCL_REDUCE_SCATTER ? size : 1);
    uint64_t out = call.count * (call.collective == PCCL_ALL_GATHER ? size : 1);
    *r = (struct running){.input_bytes = in * element, .output_bytes = out * element};
    r->before = malloc(r->input_bytes + 1);
    for (uint64_t i = 0; i < in; i++) put_value(call.dtype, r->before, i, value(p, op, i));
    bool gathers = call.collective == PCCL_ALL_GATHER, scatters = call.collective == PCCL_REDUCE_SCATTER;
    uint8_t *big = malloc((r->input_bytes > r->output_bytes ? r->input_bytes : r->output_bytes) + 1);
    if (w->program[op].in_place) {
        r->input = gathers ? big + rank * r->input_bytes : big;
        r->output = scatters ? big + rank * r->output_bytes : big;
    } else {
        r->output = big;
        r->input = malloc(r->input_bytes + 1);
    }
    memcpy(r->input, r->before, r->input_bytes);
    call.input = r->input;
    call.output = r->output;
    call.expected_epoch = gathers || scatters ? peer->core->group.epoch : 0;
    pccl_error error;
    hungry(w);
    pccl_status status = pccl__core_start(peer->core, &call, w->now_ns, &r->handle, &error);
    fed();
    EXPECT(status == PCCL_OK || (w->refuse_ppm && status == PCCL_NO_MEMORY), "seed %" PRIu64 ": %s", w->seed,
           error.message);
    if (status != PCCL_OK) release(w, p, op);
}

/* Looks at what ended, starts what may start. */
static void user(struct world *w, uint32_t p) {
    struct peer *peer = &w->peer[p];
    for (uint32_t tag = 0; tag < w->tags; tag++) {
        uint32_t op = peer->next[tag] * w->tags + tag;
        if (op >= w->length) continue;
        struct running *r = &peer->running[op];
        if (r->handle && r->handle->ended) {
            pccl_status status = r->handle->status;
            if (status == PCCL_OK) {
                check_result(w, p, op);
                peer->outcome[op] = r->handle->info.epoch;
                peer->next[tag]++;
                peer->done++;
            } else {
                EXPECT(status == PCCL_PEER_LOST || (w->refuse_ppm && status == PCCL_NO_MEMORY),
                       "seed %" PRIu64 ": peer %u operation %u ended with %s: %s", w->seed, p, op,
                       pccl_status_string(status), r->handle->text);
                EXPECT(memcmp(r->input, r->before, r->input_bytes) == 0 ||
                           w->program[op].call.collective == PCCL_BROADCAST,
                       "seed %" PRIu64 ": input of operation %u changed by an abort", w->seed, op);
            }
            release(w, p, op);
        } else if (!r->handle && draw(w, 3) == 0) {
            start(w, p, op);
        }
    }
}

/* ---------------------------------------------------------------- the master */

static void install(struct world *w, uint32_t p) {
    struct peer *peer = &w->peer[p];
    pccl_member members[PEERS_MAX] = {{{{0}}, {0}, 0, 0}};
    pccl_view view = {.epoch = w->epoch,
                      .size = w->sizes[w->epoch],
                      .members = members,
                      .ring = w->shape.ring,
                      .shape = w->shape.shape,
                      .parents = w->shape.parents,
                      .commits = w->commits,
                      .commits_count = w->commits_count,
                      .cause = PCCL_PEER_LOST,
                      .cause_text = "a member was lost"};
    for (uint32_t m = 0; m < view.size; m++) {
        uint32_t member = w->members[w->epoch][m];
        members[m] = (pccl_member){.id = w->peer[member].id, .address = "127.0.0.1", .port = 1, .host_id = 1};
        if (member == p) view.rank = m;
    }
    pccl_error error;
    hungry(w);
    pccl_status status = pccl__core_install(peer->core, &view, w->now_ns, &error);
    fed();
    EXPECT(status == PCCL_OK || (w->refuse_ppm && status == PCCL_NO_MEMORY), "seed %" PRIu64 ": %s", w->seed,
           error.message);
    peer->view_due = status != PCCL_OK;
}

static void next_view(struct world *w, const uint32_t *survivors, uint32_t count) {
    static struct report reports[PEERS_MAX];
    for (uint32_t i = 0; i < count; i++)
        EXPECT(pccl__core_report(w->peer[survivors[i]].core, w->epoch, reports[i].lines, REPORT_LINES,
                                 &reports[i].count) == PCCL_OK,
               "report");
    w->commits_count = verdict(reports, count, w->commits, COMMITS_MAX);
    w->epoch++;
    EXPECT(w->epoch < EPOCHS_MAX, "too many epochs");
    w->sizes[w->epoch] = count;
    memcpy(w->members[w->epoch], survivors, count * sizeof *survivors);
    for (uint32_t i = 0; i < count; i++) w->peer[survivors[i]].view_due = true;
    w->remake = false;
}

static void kill(struct world *w, uint32_t p) {
    pccl__sim_kill(w->network, w->peer[p].id);
    w->peer[p].alive = w->peer[p].view_due = false;
    w->remake = true;
}

/* A shape for these members; those that no living link joins to the others have to go. False: some had. */
static bool shape_for(struct world *w, const uint32_t *members, uint32_t count) {
    w->shape.size = count;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < count; j++) w->shape.dead[i][j] = w->dead[members[i]][members[j]];
    uint32_t joined = shape_draw(&w->shape, &w->random);
    if (joined == count) return true;
    bool stays[PEERS_MAX] = {false};
    for (uint32_t i = 0; i < joined; i++) stays[w->shape.ring[i]] = true;
    for (uint32_t i = 0; i < count; i++)
        if (!stays[i]) kill(w, members[i]);
    return false;
}

static void master(struct world *w) {
    uint32_t survivors[PEERS_MAX], count = 0;
    bool all_frozen = true;
    for (uint32_t p = 0; p < w->peers; p++) {
        if (!w->peer[p].alive) continue;
        if (w->peer[p].view_due && draw(w, 3) == 0) install(w, p);
        if (w->peer[p].view_due) return; /* one transition at a time */
        survivors[count++] = p;
        if (w->remake && w->peer[p].core->group.epoch == w->epoch && draw(w, 3) == 0)
            pccl__core_freeze(w->peer[p].core, PCCL_ABORTED, NULL, "the master asks");
        all_frozen = all_frozen && w->peer[p].core->frozen;
    }
    if (w->remake && all_frozen && shape_for(w, survivors, count)) next_view(w, survivors, count);
}

static void draw_dead_links(struct world *w) {
    uint32_t links = draw(w, 2) ? draw(w, 2 * w->peers) : 0;
    for (uint32_t i = 0; i < links; i++) {
        uint32_t a = draw(w, w->peers), b = draw(w, w->peers);
        if (a == b) continue;
        w->dead[a][b] = w->dead[b][a] = true;
        pccl__sim_block(w->network, w->peer[a].id, w->peer[b].id);
    }
}

static void take_events(struct world *w, uint32_t p) {
    pccl_event event;
    while (pccl__events_take(&w->peer[p].core->events, &event))
        if (event.kind != PCCL_EVENT_DONE && event.kind != PCCL_EVENT_STALLED && event.epoch == w->epoch)
            w->remake = true;
}

/* ---------------------------------------------------------------- one world */

static void make(struct world *w, uint64_t seed) {
    *w = (struct world){.seed = seed, .random = seed * 2 + 1, .epoch = 1, .cut_at_ns = NEVER_NS};
    w->peers = 2 + draw(w, PEERS_MAX - 1);
    w->tags = 1 + draw(w, TAGS_MAX);
    struct pccl__sim_faults faults = {.delay_us_max = draw(w, 2) ? draw(w, 2000) : 0,
                                      .piece_bytes_max = draw(w, 2) ? 1 + draw(w, 70000) : 0,
                                      .reorder_percent = draw(w, 2) ? draw(w, 60) : 0};
    w->network = pccl__sim_network_new(seed, faults);
    draw_program(w);
    struct pccl__core_options options = {.min_world_size = 1,
                                         .operation_timeout_ms = 60000,
                                         .stall_ms = 100,
                                         .segment_bytes = draw(w, 2) ? 0 : 1000 + draw(w, 100000)};
    for (uint32_t p = 0; p < w->peers; p++) {
        struct peer *peer = &w->peer[p];
        peer->id.bytes[0] = (uint8_t)(p + 1);
        peer->transport = pccl__sim_transport_new(w->network, peer->id);
        EXPECT(pccl__core_new(&options, peer->transport, &peer->core) == PCCL_OK, "core");
        peer->alive = peer->view_due = true;
        w->kill_at_ns[p] = NEVER_NS;
    }
    draw_dead_links(w);
    uint32_t all[PEERS_MAX];
    for (uint32_t p = 0; p < w->peers; p++) all[p] = p;
    (void)shape_for(w, all, w->peers);
    w->sizes[1] = 0;
    for (uint32_t p = 0; p < w->peers; p++)
        if (w->peer[p].alive) w->members[1][w->sizes[1]++] = p;
    if (w->sizes[1] < w->peers) (void)shape_for(w, w->members[1], w->sizes[1]);
    w->remake = false;
    uint32_t kills = draw(w, 3) ? draw(w, w->peers) : 0;
    for (uint32_t i = 0; i < kills; i++) w->kill_at_ns[draw(w, w->peers)] = (uint64_t)draw(w, 30000) * 1000;
    w->refuse_ppm = memory_supported() && draw(w, 3) == 0 ? 1 + draw(w, 20000) : 0;
    w->refused_before = memory_refused();
    if (draw(w, 3) == 0) w->cut_at_ns = (uint64_t)draw(w, 20000) * 1000;
}

static void bury(struct world *w, uint32_t p) {
    pccl__core_free(w->peer[p].core);
    for (uint32_t op = 0; op < w->length; op++)
        if (w->peer[p].running[op].handle) release(w, p, op);
    w->peer[p].transport->ops->free(w->peer[p].transport);
}

static void strike(struct world *w) {
    uint32_t alive = 0;
    for (uint32_t p = 0; p < w->peers; p++) alive += w->peer[p].alive;
    for (uint32_t p = 0; p < w->peers && alive > 1; p++) {
        if (!w->peer[p].alive || w->kill_at_ns[p] > w->now_ns) continue;
        kill(w, p);
        alive--;
    }
    if (w->cut_at_ns <= w->now_ns) {
        w->cut_at_ns = NEVER_NS;
        uint32_t a = draw(w, w->peers), b = draw(w, w->peers);
        if (a != b && w->peer[a].alive && w->peer[b].alive) pccl__sim_cut(w->network, w->peer[a].id, w->peer[b].id);
    }
}

static bool finished(const struct world *w) {
    for (uint32_t p = 0; p < w->peers; p++)
        if (w->peer[p].alive && (w->peer[p].done < w->length || w->peer[p].view_due)) return false;
    return true;
}

static void check_outcomes(const struct world *w) {
    for (uint32_t op = 0; op < w->length; op++) {
        uint64_t outcome = 0;
        for (uint32_t p = 0; p < w->peers; p++) {
            if (!w->peer[p].alive) continue;
            if (!outcome) outcome = w->peer[p].outcome[op];
            EXPECT(w->peer[p].outcome[op] == outcome,
                   "seed %" PRIu64 ": operation %u committed in epoch %" PRIu64 " for one survivor and %" PRIu64
                   " for another",
                   w->seed, op, outcome, w->peer[p].outcome[op]);
        }
        for (uint32_t p = 0; p < w->peers; p++) /* what a victim returned before it died holds for the others */
            EXPECT(w->peer[p].alive || !w->peer[p].outcome[op] || w->peer[p].outcome[op] == outcome,
                   "seed %" PRIu64 ": operation %u returned success to a lost peer only", w->seed, op);
    }
}

static void run(uint64_t seed) {
    static struct world w;
    make(&w, seed);
    uint32_t rounds = 0; /* of the loop below */
    while (!finished(&w)) {
        EXPECT(++rounds < 200000, "seed %" PRIu64 ": no end in sight at %" PRIu64 " us", seed, w.now_ns / 1000);
        strike(&w);
        master(&w);
        uint64_t next = pccl__sim_next_ns(w.network);
        for (uint32_t i = 0, first = draw(&w, w.peers); i < w.peers; i++) {
            uint32_t p = (first + i) % w.peers;
            if (!w.peer[p].alive || w.peer[p].core->group.epoch == 0) continue;
            user(&w, p);
            hungry(&w);
            pccl__core_progress(w.peer[p].core, w.now_ns);
            fed();
            take_events(&w, p);
            next = min_u64(next, pccl__core_deadline(w.peer[p].core));
        }
        next = min_u64(next, pccl__sim_next_ns(w.network));
        w.now_ns = next > w.now_ns && next != NEVER_NS ? min_u64(next, w.now_ns + 500000) : w.now_ns + 10000;
        pccl__sim_advance(w.network, w.now_ns);
    }
    check_outcomes(&w);
    EXPECT(pccl__sim_blocked_frames(w.network) == 0, "seed %" PRIu64 ": a dead link was used", seed);
    for (uint32_t p = 0; p < w.peers; p++) bury(&w, p);
    pccl__sim_network_free(w.network);
}

int main(int argc, char **argv) {
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, seeds = argc > 2 ? strtoull(argv[2], NULL, 10) : 400;
    for (uint64_t seed = first; seed < first + seeds; seed++) run(seed);
    FINISH();
}
