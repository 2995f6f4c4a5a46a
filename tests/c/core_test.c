/* SPDX-License-Identifier: MIT
 *
 * core_test.c - many cores in one thread over the simulated network, with a small master that collects frozen reports
 * and issues verdicts. A seed draws everything: sizes, programs, faults, who dies when, in which order the
 * next view arrives, which allocations are refused.
 *
 * Each peer runs the same program of operations, one in flight per tag, and repeats what was aborted; what was between
 * it and a peer that is gone, and what others do among themselves, it leaves out. Checked: every value exact for the
 * members of the epoch that committed (of what is quantized, within its error), and where results are equal their bits
 * (G1); all survivors saw the same outcome of each operation (G2); inputs as before
 * after an abort (G3); retries meet (G4); everything ends; nothing is sent over a link that the view's shape leaves
 * out, and some of those are dead; nothing leaks (run under ASan).
 *
 * Without arguments, all that there is was tried.
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
#include "shared_program.h"
#include "shared_shape.h"
#include "shared_verdict.h"

enum {
    PEERS_MAX = 7,
    PROGRAM_MAX = 24,
    TAGS_MAX = 4,
    EPOCHS_MAX = 32,
    COMMITS_MAX = PROGRAM_MAX,
    TAG_OF_ANY = 1000,
    REFUSALS_MAX = 6 /* allocations refused in one world; each may cost an epoch */
};

struct running {
    pccl_operation *handle;
    struct program_buffers buffers;
};

struct peer {
    pccl_peer_id id;
    struct pccl__transport *transport;
    struct pccl__core *core;
    struct pccl__arena arena; /* of half of the worlds */
    bool alive, view_due;
    uint32_t next[TAGS_MAX]; /* position in the tag's part of the program */
    struct running running[PROGRAM_MAX];
    uint64_t outcome[PROGRAM_MAX]; /* epoch that committed it; 0: not yet */
    uint64_t result[PROGRAM_MAX];  /* hash of its output */
    uint32_t done;
};

struct world {
    uint64_t seed, random;
    struct pccl__sim_network *network;
    struct peer peer[PEERS_MAX];
    uint32_t peers, tags, length;
    struct program_step program[PROGRAM_MAX];
    bool any_source[PROGRAM_MAX];
    uint32_t team[PROGRAM_MAX]; /* one bit per peer that makes it; 0: all */
    bool all_links;             /* no link is dead, and every view is of all links */
    uint64_t epoch, now_ns, kill_at_ns[PEERS_MAX], cut_at_ns;
    uint32_t members[EPOCHS_MAX][PEERS_MAX], sizes[EPOCHS_MAX];
    bool dead[PEERS_MAX][PEERS_MAX]; /* links */
    struct shape_draw shape;
    uint32_t hosts; /* on which peers are spread, whatever the ring; 0 as 1 */
    pccl_operation_name commits[COMMITS_MAX];
    uint32_t commits_count;
    bool remake; /* somebody froze or died */
    uint32_t refuse_ppm;
    uint64_t refused_before;
};

/* How many operations of each form succeeded among several members. */
static uint32_t succeeded[PCCL_COLLECTIVE_COUNT][PCCL_ALGORITHM_COUNT][2][2];
/* ... among some members of a larger group, and those that a verdict committed. */
static uint32_t succeeded_in_teams, settled_in_teams;
/* ... whose payload was quantized, by form. */
static uint32_t succeeded_coded[PCCL_COLLECTIVE_COUNT][PCCL_FORMAT_COUNT];

static void count(const struct program_step *step, const pccl_operation *op) {
    if (op->info.world_size < 2 || !op->started || op->status != PCCL_OK) return;
    succeeded[step->call.collective][op->info.algorithm][step->in_place][step->uneven]++;
    succeeded_coded[step->call.collective][step->call.quantization.format]++;
    succeeded_in_teams += op->call.scope != 0;
    settled_in_teams += op->call.scope != 0 && op->info.epoch < op->core->group.epoch;
}

static uint32_t draw(struct world *w, uint32_t bound) { return prng_below(&w->random, bound); }

/* What the cores do between these two may find no memory. */
static void hungry(struct world *w) {
    if (w->refuse_ppm && memory_refused() - w->refused_before < REFUSALS_MAX)
        memory_refuse_some(prng_next(&w->random), w->refuse_ppm);
}

static void fed(void) { memory_refuse(0, 0); }

static struct program_group group_of(const struct world *w, uint64_t epoch, uint32_t rank) {
    return (struct program_group){.size = w->sizes[epoch], .rank = rank, .members = w->members[epoch]};
}

/* Who makes operation `op` in an epoch, by rank among them, and their ranks in the view: every other time backwards. */
struct team {
    uint32_t size, members[PEERS_MAX], ranks[PEERS_MAX];
};

static struct team team_of(const struct world *w, uint64_t epoch, uint32_t op) {
    struct team team = {.size = 0};
    for (uint32_t i = 0; i < w->sizes[epoch]; i++) {
        uint32_t rank = op % 2 ? w->sizes[epoch] - 1 - i : i, member = w->members[epoch][rank];
        if (!(w->team[op] >> member & 1)) continue;
        team.ranks[team.size] = rank;
        team.members[team.size++] = member;
    }
    return team;
}

static struct program_group group_in(const struct team *team, uint32_t rank) {
    return (struct program_group){.size = team->size, .rank = rank, .members = team->members};
}

static bool has_part(const struct world *w, uint32_t p, uint32_t op) {
    return program_has(&w->program[op], p) && (!w->team[op] || w->team[op] >> p & 1);
}

static void check_result(struct world *w, uint32_t p, uint32_t op) {
    struct running *r = &w->peer[p].running[op];
    pccl_info info = r->handle->info;
    EXPECT(info.epoch < EPOCHS_MAX, "seed %" PRIu64, w->seed);
    struct team team = team_of(w, info.epoch, op);
    struct program_group group = w->team[op] ? group_in(&team, info.rank) : group_of(w, info.epoch, info.rank);
    EXPECT(info.world_size == group.size, "seed %" PRIu64, w->seed);
    uint64_t wrong = program_first_wrong(&w->program[op], group, &r->buffers);
    EXPECT(wrong == UINT64_MAX, "seed %" PRIu64 ": peer %u operation %u (%s by %s): element %" PRIu64, w->seed, p, op,
           pccl_collective_name(w->program[op].call.collective), pccl_algorithm_name(info.algorithm), wrong);
}

/* ---------------------------------------------------------------- the program */

static void release(struct world *w, uint32_t p, uint32_t op) {
    struct running *r = &w->peer[p].running[op];
    if (r->handle) pccl__core_handle_free(r->handle);
    program_release(&r->buffers);
    r->handle = NULL;
}

/* False: no memory. */
static bool prepare_team(struct world *w, uint32_t p, uint32_t op, pccl_call *call) {
    struct pccl__group *group = &w->peer[p].core->group;
    struct team team = team_of(w, group->epoch, op);
    uint32_t rank = 0;
    while (team.members[rank] != p) rank++;
    uint64_t scope;
    pccl_error error;
    hungry(w);
    pccl_status status = pccl__group_scope(group, team.ranks, team.size, &scope, &error);
    fed();
    EXPECT(status == PCCL_OK || (w->refuse_ppm && status == PCCL_NO_MEMORY), "seed %" PRIu64 ": %s", w->seed,
           error.message);
    if (status != PCCL_OK) return false;
    *call = program_prepare(&w->program[op], group_in(&team, rank), &w->peer[p].running[op].buffers);
    call->scope = scope;
    return true;
}

static void start(struct world *w, uint32_t p, uint32_t op) {
    struct peer *peer = &w->peer[p];
    struct running *r = &peer->running[op];
    const struct pccl__group *group = &peer->core->group;
    pccl_call call;
    if (!w->team[op])
        call = program_prepare(&w->program[op], group_of(w, group->epoch, group->rank), &r->buffers);
    else if (!prepare_team(w, p, op, &call))
        return;
    call.tag = op % w->tags;
    if (w->any_source[op]) {
        call.tag = TAG_OF_ANY + op; /* of its own: others are ahead, and may send with ours */
        if (call.collective == PCCL_RECV) call.root = PCCL_ANY_SOURCE;
    }
    call.expected_epoch = program_is_bound(&w->program[op]) || w->team[op] ? group->epoch : 0;
    pccl_error error;
    hungry(w);
    pccl_status status = pccl__core_start(peer->core, &call, w->now_ns, &r->handle, &error);
    fed();
    EXPECT(status == PCCL_OK || (w->refuse_ppm && status == PCCL_NO_MEMORY), "seed %" PRIu64 ": %s", w->seed,
           error.message);
    if (status != PCCL_OK) release(w, p, op);
}

/* What peer `p` has no part in, or nobody to do it with any more. */
static bool left_out(const struct world *w, uint32_t p, uint32_t op) {
    const struct program_step *step = &w->program[op];
    if (step->call.collective != PCCL_SEND) return !has_part(w, p, op);
    bool here[PEERS_MAX] = {false};
    struct program_group group = group_of(w, w->peer[p].core->group.epoch, 0);
    for (uint32_t rank = 0; rank < group.size; rank++) here[group.members[rank]] = true;
    return !program_has(step, p) || !here[step->source] || !here[step->target];
}

/* Looks at what ended, starts what may start. */
static void user(struct world *w, uint32_t p) {
    struct peer *peer = &w->peer[p];
    for (uint32_t tag = 0; tag < w->tags; tag++) {
        uint32_t op = peer->next[tag] * w->tags + tag;
        if (op >= w->length) continue;
        struct running *r = &peer->running[op];
        if (!r->handle && left_out(w, p, op)) {
            peer->next[tag]++;
            peer->done++;
        } else if (r->handle && r->handle->ended) {
            pccl_status status = r->handle->status;
            count(&w->program[op], r->handle);
            if (status == PCCL_OK) {
                check_result(w, p, op);
                peer->outcome[op] = r->handle->info.epoch;
                peer->result[op] = program_hash(&r->buffers);
                peer->next[tag]++;
                peer->done++;
            } else {
                EXPECT(status == PCCL_PEER_LOST || (w->refuse_ppm && status == PCCL_NO_MEMORY),
                       "seed %" PRIu64 ": peer %u operation %u ended with %s: %s", w->seed, p, op,
                       pccl_status_string(status), r->handle->text);
                EXPECT(program_input_intact(&r->buffers), "seed %" PRIu64 ": input of operation %u changed by an abort",
                       w->seed, op);
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
    pccl_member members[PEERS_MAX] = {{{{0}}, {0}, 0, 0, 0}};
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
        members[m] = (pccl_member){.id = w->peer[member].id,
                                   .address = "127.0.0.1",
                                   .port = 1,
                                   .host_id = w->hosts ? member % w->hosts : 0,
                                   .cores = member % 4};
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
    for (uint32_t i = 0; i < count; i++) {
        reports[i].group = &w->peer[survivors[i]].core->group;
        reports[i].rank = reports[i].group->rank;
        EXPECT(pccl__core_report(w->peer[survivors[i]].core, w->epoch, reports[i].lines, REPORT_LINES,
                                 &reports[i].count) == PCCL_OK,
               "report");
    }
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
    if (w->all_links) w->shape.shape = PCCL_SHAPE_FULL;
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
    uint32_t links = !w->all_links && draw(w, 2) ? draw(w, 2 * w->peers) : 0;
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
        if (event.kind != PCCL_EVENT_STALLED && event.epoch == w->epoch) w->remake = true;
}

/* ---------------------------------------------------------------- one world */

static void make(struct world *w, uint64_t seed) {
    *w = (struct world){.seed = seed, .random = seed * 2 + 1, .epoch = 1, .cut_at_ns = NEVER_NS};
    w->peers = 2 + draw(w, PEERS_MAX - 1);
    w->tags = 1 + draw(w, TAGS_MAX);
    w->hosts = draw(w, 3);
    struct pccl__sim_faults faults = {.delay_us_max = draw(w, 2) ? draw(w, 2000) : 0,
                                      .piece_bytes_max = draw(w, 2) ? 1 + draw(w, 70000) : 0,
                                      .reorder_percent = draw(w, 2) ? draw(w, 60) : 0};
    w->network = pccl__sim_network_new(seed, faults);
    w->all_links = draw(w, 2);
    w->length = 1 + draw(w, PROGRAM_MAX);
    for (uint32_t op = 0; op < w->length; op++) {
        w->program[op] = program_draw(op, w->all_links, &w->random);
        uint32_t source = draw(w, w->peers), target = (source + 1 + draw(w, w->peers - 1)) % w->peers;
        uint32_t kind = w->all_links ? draw(w, 6) : 5;
        if (kind < 2) {
            program_make_pair(&w->program[op], source, target);
            w->any_source[op] = draw(w, 2);
        } else if (kind < 4) {
            w->team[op] = 1 + draw(w, (1U << w->peers) - 1);
        }
    }
    struct pccl__core_options options = {.min_world_size = 1,
                                         .operation_timeout_ms = 60000,
                                         .stall_ms = 100,
                                         .segment_bytes = draw(w, 2) ? 0 : 1000 + draw(w, 100000),
                                         .lend_least = draw(w, 2) ? 0 : 1 + draw(w, 2000)};
    bool arenas = draw(w, 2);
    for (uint32_t p = 0; p < w->peers; p++) {
        struct peer *peer = &w->peer[p];
        peer->id.bytes[0] = (uint8_t)(p + 1);
        peer->transport = pccl__sim_transport_new(w->network, peer->id);
        if (arenas) pccl__arena_open(&peer->arena);
        options.arena = arenas ? &peer->arena : NULL;
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
    pccl__arena_close(&w->peer[p].arena);
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

/* Where results are equal, those of who committed in one epoch are so bit for bit, the lost as well. */
static void check_bits(const struct world *w, uint32_t op) {
    pccl_collective collective = w->program[op].call.collective;
    if (collective != PCCL_ALL_REDUCE && collective != PCCL_ALL_GATHER && collective != PCCL_BROADCAST) return;
    for (uint32_t p = 0; p < w->peers; p++)
        for (uint32_t other = 0; other < p; other++) {
            const struct peer *a = &w->peer[p], *b = &w->peer[other];
            if (!a->outcome[op] || a->outcome[op] != b->outcome[op]) continue;
            EXPECT(a->result[op] == b->result[op], "seed %" PRIu64 ": peers %u and %u have other bits of operation %u",
                   w->seed, other, p, op);
        }
}

static void check_outcomes(const struct world *w) {
    for (uint32_t op = 0; op < w->length; op++) {
        check_bits(w, op);
        uint64_t outcome = 0;
        bool pair = w->program[op].call.collective == PCCL_SEND, somebody = false;
        for (uint32_t p = 0; p < w->peers; p++) {
            if (!w->peer[p].alive || !has_part(w, p, op)) continue;
            somebody = true;
            if (!outcome) outcome = w->peer[p].outcome[op];
            EXPECT(w->peer[p].outcome[op] == outcome,
                   "seed %" PRIu64 ": operation %u committed in epoch %" PRIu64 " for one survivor and %" PRIu64
                   " for another",
                   w->seed, op, outcome, w->peer[p].outcome[op]);
        }
        /* What a victim returned before it died holds for the others, but for what was sent to it. */
        for (uint32_t p = 0; p < w->peers; p++)
            EXPECT(w->peer[p].alive || !somebody || !w->peer[p].outcome[op] || w->peer[p].outcome[op] == outcome ||
                       (pair && (p == w->program[op].target || !w->peer[w->program[op].target].alive)),
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

/* Every form of every collective was tried by each algorithm that serves it (death_test strikes each of them, pair_test
 * sends). */
static void check_coverage(void) {
    const struct pccl__planner *planner;
    for (size_t i = 0; (planner = pccl__planner_at(i)); i++) {
        pccl_collective collective = planner->collective;
        const char *name = pccl_collective_name(collective), *by = pccl_algorithm_name(planner->algorithm);
        bool straight = planner->traits & PCCL__STRAIGHT || planner->links != PCCL_SHAPE_FULL;
        bool uneven = pccl__in_parts(collective) && (straight || !pccl__parts_are_private(collective));
        uint32_t forms = uneven ? 4 : 2;
        for (uint32_t form = 0; form < forms; form++)
            EXPECT(succeeded[collective][planner->algorithm][form & 1][form >> 1], "%s by %s was not tried%s%s", name,
                   by, form & 1 ? " in place" : "", form & 2 ? " with uneven parts" : "");
    }
    static const pccl_collective coded[] = {PCCL_ALL_REDUCE, PCCL_REDUCE,     PCCL_REDUCE_SCATTER,
                                            PCCL_ALL_GATHER, PCCL_ALL_TO_ALL, PCCL_BROADCAST};
    for (size_t i = 0; i < sizeof coded / sizeof *coded; i++)
        EXPECT(succeeded_coded[coded[i]][PCCL_TO_FLOAT16] > 0 && succeeded_coded[coded[i]][PCCL_INT8_BLOCK] > 0,
               "no quantized %s was tried", pccl_collective_name(coded[i]));
    EXPECT(succeeded[PCCL_SEND][PCCL_PAIRWISE][0][0], "no send was tried");
    EXPECT(succeeded_in_teams > 100 && settled_in_teams > 10, "%u, %u", succeeded_in_teams, settled_in_teams);
}

int main(int argc, char **argv) {
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, seeds = argc > 2 ? strtoull(argv[2], NULL, 10) : 600;
    for (uint64_t seed = first; seed < first + seeds; seed++) run(seed);
    if (argc == 1) check_coverage();
    FINISH();
}
