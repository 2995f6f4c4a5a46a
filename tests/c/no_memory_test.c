/* SPDX-License-Identifier: MIT
 *
 * no_memory_test.c - every story is told again and again, with the first allocation refused, then the second, and so
 * on, alone or with those after it, until a run needs no more. Nothing crashes; who is refused gets NO_MEMORY, or the
 * epoch stops and the retry in the next one is right; no caller sees success where another sees failure; inputs
 * survive; and at the end not a block is missing.
 */
#include <poll.h>
#include <string.h>

#include "base/bits.h"
#include "check.h"
#include "shared_cores.h"
#include "shared_memory.h"
#include "shared_verdict.h"

enum { PEERS = 3, BIG = 40000, COMMITS = 16, REFUSED_AT_ONCE = 5 };

static int32_t input[PEERS][BIG], output[PEERS][PEERS * BIG];

static int32_t value(uint32_t peer, uint32_t i) { return (int32_t)(peer * 1000 + i); }

/* `got` holds what `peers` members reduced or one member sent, from element 0 on. */
static void expect_values(const int32_t *got, uint32_t count, uint32_t first_peer, uint32_t peers) {
    uint32_t right = 0;
    for (; right < count; right++) {
        int32_t sum = 0;
        for (uint32_t p = first_peer; p < first_peer + peers; p++) sum += value(p, right);
        if (got[right] != sum) break;
    }
    EXPECT(right == count, "element %u of %u is %d", right, count, got[right]);
}

static bool excused(pccl_status status) { return status == PCCL_NO_MEMORY || status == PCCL_PEER_LOST; }

/* Tells `story` with each allocation refused in turn. */
static void without_each(void (*story)(void), const char *name) {
    for (uint64_t count = 1; count <= REFUSED_AT_ONCE; count += REFUSED_AT_ONCE - 1) {
        uint64_t nth = 0, before;
        do {
            before = memory_refused();
            int64_t blocks = memory_blocks();
            memory_refuse(++nth, count);
            story();
            memory_refuse(0, 0);
            EXPECT(memory_blocks() == blocks, "%s without allocation %" PRIu64 "+%" PRIu64 ": %" PRId64 " blocks leak",
                   name, nth, count, memory_blocks() - blocks);
        } while (memory_refused() != before);
        printf("%s: %" PRIu64 " allocations refused in turn, %" PRIu64 " at a time\n", name, nth - 1, count);
    }
}

/* ---------------------------------------------------------------- cores over the simulated network */

static bool make(struct cores *c) {
    static const struct pccl__core_options options = {
        .min_world_size = 2, .operation_timeout_ms = 5000, .stall_ms = 100, .segment_bytes = 32768};
    *c = (struct cores){.size = PEERS, .network = pccl__sim_network_new(1, (struct pccl__sim_faults){0})};
    if (!c->network) return false;
    for (uint32_t i = 0; i < PEERS; i++) {
        c->id[i].bytes[0] = (uint8_t)(i + 1);
        c->transport[i] = pccl__sim_transport_new(c->network, c->id[i]);
        if (c->transport[i] && pccl__core_new(&options, c->transport[i], &c->core[i]) == PCCL_OK) continue;
        if (c->transport[i]) c->transport[i]->ops->free(c->transport[i]);
        cores_free(c);
        return false;
    }
    return true;
}

static void install(struct cores *c, const pccl_operation_name *commits, uint32_t commits_count) {
    pccl_member members[PEERS];
    for (uint32_t i = 0; i < PEERS; i++) members[i] = (pccl_member){.id = c->id[i], .address = "127.0.0.1", .port = 1};
    pccl_view view = {
        .epoch = ++c->epoch, .size = PEERS, .members = members, .commits = commits, .commits_count = commits_count};
    for (; view.rank < PEERS; view.rank++) {
        pccl_status status;
        do status = pccl__core_install(c->core[view.rank], &view, c->now_ns, NULL);
        while (status == PCCL_NO_MEMORY);
        EXPECT(status == PCCL_OK, "install: %s", pccl_status_string(status));
    }
}

/* What a master does when somebody has stopped. */
static void next_epoch(struct cores *c) {
    struct report reports[PEERS] = {0};
    for (uint32_t i = 0; i < PEERS; i++) {
        pccl__core_freeze(c->core[i], PCCL_ABORTED, NULL, "the master asks");
        EXPECT(pccl__core_report(c->core[i], c->epoch, reports[i].lines, REPORT_LINES, &reports[i].count) == PCCL_OK);
        reports[i].rank = i;
    }
    pccl_operation_name commits[COMMITS];
    install(c, commits, verdict(reports, PEERS, commits, COMMITS));
}

/* Who asks for the next epoch freezes members himself, which they tell of after that one has begun: old news. */
static bool stops(const pccl_event *event, uint64_t epoch) {
    return event->epoch == epoch && (event->kind == PCCL_EVENT_FROZEN || event->kind == PCCL_EVENT_SUSPECT);
}

static bool stopped(struct cores *c) {
    bool any = false;
    pccl_event event;
    for (uint32_t i = 0; i < PEERS; i++) {
        while (pccl__events_take(&c->core[i]->events, &event)) any = any || stops(&event, c->epoch);
        any = any || c->core[i]->frozen;
    }
    return any;
}

/* One call of each member, called again by whom it was refused or failed for, until all have succeeded. */
static void collectively(struct cores *c, const pccl_call *calls) {
    pccl_operation *op[PEERS] = {NULL};
    uint64_t epoch[PEERS] = {0}, give_up_ns = c->now_ns + UINT64_C(30000000000);
    uint32_t good = 0;
    while (good < PEERS) {
        EXPECT(c->now_ns < give_up_ns, "%s never ends", pccl_collective_name(calls->collective));
        for (uint32_t i = 0; i < PEERS; i++) {
            if (op[i] || epoch[i]) continue;
            pccl_status status = pccl__core_start(c->core[i], &calls[i], c->now_ns, &op[i], NULL);
            EXPECT(status == PCCL_OK || status == PCCL_NO_MEMORY, "start: %s", pccl_status_string(status));
        }
        cores_run(c, 1000);
        if (stopped(c)) next_epoch(c);
        for (uint32_t i = 0; i < PEERS; i++) {
            if (!op[i] || !op[i]->ended) continue;
            EXPECT(op[i]->status == PCCL_OK || excused(op[i]->status), "%s", op[i]->text);
            if (op[i]->status == PCCL_OK) {
                epoch[i] = op[i]->info.epoch;
                good++;
            }
            pccl__core_handle_free(op[i]);
            op[i] = NULL;
        }
    }
    for (uint32_t i = 1; i < PEERS; i++) EXPECT(epoch[i] == epoch[0], "success in two epochs");
}

static void sum(struct cores *c, uint32_t count, pccl_algorithm algorithm, bool in_place, uint32_t flags) {
    pccl_call calls[PEERS];
    for (uint32_t p = 0; p < PEERS; p++) {
        for (uint32_t i = 0; i < count; i++) input[p][i] = value(p, i);
        calls[p] = (pccl_call){.collective = PCCL_ALL_REDUCE,
                               .dtype = PCCL_INT32,
                               .count = count,
                               .algorithm = algorithm,
                               .flags = flags,
                               .input = input[p],
                               .output = in_place ? input[p] : output[p]};
    }
    collectively(c, calls);
    for (uint32_t p = 0; p < PEERS; p++) expect_values(calls[p].output, count, 0, PEERS);
}

enum { TENSORS = 8 };

/* The last one first, so that pieces of the vector lie in several. */
static void sum_tensors(struct cores *c, pccl_algorithm algorithm) {
    pccl_call calls[PEERS];
    pccl_tensor tensors[PEERS][TENSORS];
    const uint64_t length = BIG / TENSORS;
    for (uint32_t p = 0; p < PEERS; p++) {
        for (uint32_t i = 0; i < BIG; i++) input[p][i] = value(p, i);
        for (uint32_t i = 0; i < TENSORS; i++) {
            int32_t *at = input[p] + (TENSORS - 1 - i) * length;
            tensors[p][i] = (pccl_tensor){.input = at, .output = at, .count = length};
        }
        calls[p] = (pccl_call){.collective = PCCL_ALL_REDUCE,
                               .dtype = PCCL_INT32,
                               .algorithm = algorithm,
                               .tensors = tensors[p],
                               .tensors_count = TENSORS};
    }
    collectively(c, calls);
    for (uint32_t p = 0; p < PEERS; p++) expect_values(input[p], BIG, 0, PEERS);
}

static void story_of_tensors(void) {
    struct cores c;
    if (!make(&c)) return;
    install(&c, NULL, 0);
    sum_tensors(&c, PCCL_RING);
    sum_tensors(&c, PCCL_HALVING);
    cores_free(&c);
}

static void story_of_sums(void) {
    struct cores c;
    if (!make(&c)) return;
    install(&c, NULL, 0);
    sum(&c, BIG, PCCL_RING, true, PCCL_NOTIFY);
    sum(&c, 10, PCCL_DOUBLING, true, 0);
    sum(&c, BIG, PCCL_DOUBLING, false, 0);
    next_epoch(&c);
    sum(&c, 100, PCCL_RING, false, 0);
    cores_free(&c);
}

static void story_of_moves(void) {
    struct cores c;
    if (!make(&c)) return;
    install(&c, NULL, 0);
    pccl_call gathers[PEERS], casts[PEERS], barriers[PEERS];
    for (uint32_t p = 0; p < PEERS; p++) {
        for (uint32_t i = 0; i < BIG; i++) input[p][i] = value(p, i);
        gathers[p] = (pccl_call){
            .collective = PCCL_ALL_GATHER, .dtype = PCCL_INT32, .count = BIG, .input = input[p], .output = output[p]};
        casts[p] = gathers[p];
        casts[p].collective = PCCL_BROADCAST;
        barriers[p] = (pccl_call){.collective = PCCL_BARRIER, .tag = 1};
    }
    collectively(&c, gathers);
    for (uint32_t p = 0; p < PEERS; p++)
        for (uint32_t from = 0; from < PEERS; from++) expect_values(output[p] + from * BIG, BIG, from, 1);
    collectively(&c, barriers);
    collectively(&c, casts);
    for (uint32_t p = 0; p < PEERS; p++) expect_values(output[p], BIG, 0, 1);
    cores_free(&c);
}

static void fold(struct cores *c, pccl_collective collective, pccl_algorithm algorithm, uint32_t count) {
    pccl_call calls[PEERS];
    for (uint32_t p = 0; p < PEERS; p++) {
        for (uint32_t i = 0; i < count; i++) input[p][i] = value(p, i);
        calls[p] = (pccl_call){.collective = collective,
                               .dtype = PCCL_INT32,
                               .count = count,
                               .algorithm = algorithm,
                               .root = 1,
                               .input = input[p],
                               .output = input[p]};
    }
    collectively(c, calls);
}

/* Reductions of which each member gets another part, or nothing, and keeps its input then; in place. */
static void story_of_folds(void) {
    struct cores c;
    if (!make(&c)) return;
    install(&c, NULL, 0);
    fold(&c, PCCL_SCAN, PCCL_CHAIN, BIG);
    for (uint32_t p = 0; p < PEERS; p++) expect_values(input[p], BIG, 0, p + 1);
    fold(&c, PCCL_EXSCAN, PCCL_DOUBLING, BIG);
    for (uint32_t p = 0; p < PEERS; p++) expect_values(input[p], BIG, 0, p > 0 ? p : 1);
    fold(&c, PCCL_REDUCE, PCCL_STAR, BIG);
    for (uint32_t p = 0; p < PEERS; p++) expect_values(input[p], BIG, p == 1 ? 0 : p, p == 1 ? PEERS : 1);
    cores_free(&c);
}

static uint64_t passing(uint32_t from, uint32_t to) { return (from + 2 * to) % PEERS * (BIG / 2 / PEERS); }

static void expect_passed(uint32_t to) {
    const int32_t *got = output[to];
    for (uint32_t from = 0; from < PEERS; from++) {
        uint64_t begin = 0;
        for (uint32_t other = 0; other < to; other++) begin += passing(from, other);
        for (uint64_t i = 0; i < passing(from, to); i++)
            EXPECT(*got++ == value(from, (uint32_t)(begin + i)), "from %u to %u: element %u", from, to, (unsigned)i);
    }
}

/* All parts through one member and back; then parts of any length, some empty, between all. */
static void story_of_parts(void) {
    struct cores c;
    if (!make(&c)) return;
    install(&c, NULL, 0);
    pccl_call gathers[PEERS], scatters[PEERS], exchanges[PEERS];
    uint64_t sent[PEERS][PEERS], expected[PEERS][PEERS];
    for (uint32_t p = 0; p < PEERS; p++) {
        for (uint32_t i = 0; i < BIG; i++) input[p][i] = value(p, i);
        for (uint32_t other = 0; other < PEERS; other++) {
            sent[p][other] = passing(p, other);
            expected[p][other] = passing(other, p);
        }
        gathers[p] = (pccl_call){.collective = PCCL_GATHER,
                                 .dtype = PCCL_INT32,
                                 .count = BIG,
                                 .root = 2,
                                 .input = input[p],
                                 .output = output[p]};
        scatters[p] = gathers[p];
        scatters[p].collective = PCCL_SCATTER;
        scatters[p].input = output[p];
        scatters[p].output = input[p];
        exchanges[p] = gathers[p];
        exchanges[p].collective = PCCL_ALL_TO_ALL;
        exchanges[p].flags = PCCL_UNEVEN;
        exchanges[p].input_counts = sent[p];
        exchanges[p].output_counts = expected[p];
    }
    collectively(&c, gathers);
    for (uint32_t from = 0; from < PEERS; from++) expect_values(output[2] + from * BIG, BIG, from, 1);
    memset(input, 0, sizeof input);
    collectively(&c, scatters);
    for (uint32_t p = 0; p < PEERS; p++) expect_values(input[p], BIG, p, 1);
    collectively(&c, exchanges);
    for (uint32_t p = 0; p < PEERS; p++) expect_passed(p);
    cores_free(&c);
}

/* Members that call different things get MISMATCH, each of them, whatever was refused; and go on together. */
static void story_of_a_mismatch(void) {
    struct cores c;
    if (!make(&c)) return;
    install(&c, NULL, 0);
    bool told[PEERS] = {false};
    pccl_operation *op[PEERS] = {NULL};
    for (uint32_t rounds = 0, done = 0; done < PEERS; rounds++) {
        EXPECT(rounds < 20000, "somebody is never told");
        for (uint32_t i = 0; i < PEERS; i++) {
            pccl_call call = {.collective = PCCL_ALL_REDUCE,
                              .dtype = PCCL_INT32,
                              .count = 10 + (i == 2),
                              .input = input[i],
                              .output = input[i]};
            if (!op[i] && !told[i]) (void)pccl__core_start(c.core[i], &call, c.now_ns, &op[i], NULL);
        }
        cores_run(&c, 1000);
        bool renew = stopped(&c);
        for (uint32_t i = 0; i < PEERS; i++) {
            if (!op[i] || !op[i]->ended) continue;
            EXPECT(op[i]->status == PCCL_MISMATCH || excused(op[i]->status), "%s", op[i]->text);
            if (op[i]->status == PCCL_MISMATCH) told[i] = ++done;
            pccl__core_handle_free(op[i]);
            op[i] = NULL;
        }
        /* A failure to note a mismatch stops the epoch: the others must not wait for who was told before. */
        if (renew) next_epoch(&c);
        if (renew && done < PEERS) memset(told, done = 0, sizeof told);
        if (renew)
            for (uint32_t i = 0; i < PEERS; i++) {
                if (op[i]) pccl__core_handle_free(op[i]);
                op[i] = NULL;
            }
    }
    sum(&c, 10, PCCL_DOUBLING, true, 0);
    cores_free(&c);
}

/* A shared state is served by one and fetched by two, with a wish that comes before it is served. */
static void story_of_a_state(void) {
    struct cores c;
    if (!make(&c)) return;
    install(&c, NULL, 0);
    for (uint32_t i = 0; i < BIG; i++) input[0][i] = value(7, i);
    memset(output, 0, sizeof output);
    pccl_operation *op[PEERS] = {NULL};
    bool served = false, have[PEERS] = {true};
    for (uint32_t rounds = 0; !have[1] || !have[2]; rounds++) {
        EXPECT(rounds < 20000, "the state never comes");
        for (uint32_t i = 1; i < PEERS; i++) {
            if (op[i] || have[i]) continue;
            pccl_status status = pccl__core_fetch(c.core[i], 9, c.id[0], 0, 4, sizeof *input - 4, output[i], 1000,
                                                  c.now_ns, &op[i], NULL);
            EXPECT(status == PCCL_OK || excused(status), "fetch: %s", pccl_status_string(status));
        }
        cores_run(&c, 1000);
        pccl_region region = {input[0], sizeof *input};
        if (!served) served = pccl__core_serve(c.core[0], 9, &region, 1, NULL) == PCCL_OK;
        if (stopped(&c)) next_epoch(&c);
        for (uint32_t i = 1; i < PEERS; i++) {
            if (!op[i] || !op[i]->ended) continue;
            /* INVALID: the donor had no memory for the wish and refused it. TIMEOUT: nor for the refusal. */
            pccl_status status = op[i]->status;
            have[i] = status == PCCL_OK;
            EXPECT(have[i] || excused(status) || status == PCCL_INVALID || status == PCCL_TIMEOUT, "%s", op[i]->text);
            pccl__core_handle_free(op[i]);
            op[i] = NULL;
        }
    }
    for (uint32_t p = 1; p < PEERS; p++)
        EXPECT(memcmp(output[p], input[0] + 1, sizeof *input - 4) == 0, "the bytes of peer %u", p);
    pccl__core_stop_state(c.core[0], 9);
    cores_free(&c);
}

/* ---------------------------------------------------------------- engines over TCP, through pccl.h */

struct engines {
    pccl_engine *engine[2];
    pccl_member members[2];
    uint64_t epoch;
};

static bool start_engines(struct engines *e) {
    *e = (struct engines){0};
    for (uint32_t i = 0; i < 2; i++) {
        pccl_options options = {.stripes = 2, .host_id = 7, .run_secret = {4}};
        options.id.bytes[0] = (uint8_t)(i + 1);
        pccl_error error;
        pccl_status status = pccl_engine_new(&options, &e->engine[i], &error);
        EXPECT(status == PCCL_OK || status == PCCL_NO_MEMORY, "%s", error.message);
        if (status != PCCL_OK) return false;
        e->members[i] = (pccl_member){
            .id = options.id, .address = "127.0.0.1", .host_id = 7, .cores = 2, .port = pccl_engine_port(e->engine[i])};
    }
    return true;
}

static void install_on_engines(struct engines *e, const pccl_operation_name *commits, uint32_t commits_count) {
    pccl_view view = {
        .epoch = ++e->epoch, .size = 2, .members = e->members, .commits = commits, .commits_count = commits_count};
    for (; view.rank < 2; view.rank++) {
        pccl_status status;
        do status = pccl_engine_install(e->engine[view.rank], &view, NULL);
        while (status == PCCL_NO_MEMORY);
        EXPECT(status == PCCL_OK, "install: %s", pccl_status_string(status));
    }
}

static bool engines_stopped(struct engines *e) {
    bool any = false;
    pccl_event event;
    for (uint32_t i = 0; i < 2; i++)
        while (pccl_engine_next_event(e->engine[i], &event)) any = any || stops(&event, e->epoch);
    return any;
}

static void next_epoch_on_engines(struct engines *e) {
    struct report reports[2] = {0};
    for (uint32_t i = 0; i < 2; i++) {
        pccl_engine_freeze(e->engine[i], e->epoch);
        reports[i].rank = i;
        EXPECT(pccl_engine_report(e->engine[i], e->epoch, reports[i].lines, REPORT_LINES, &reports[i].count) ==
               PCCL_OK);
    }
    pccl_operation_name commits[COMMITS];
    install_on_engines(e, commits, verdict(reports, 2, commits, COMMITS));
}

static void sum_on_engines(struct engines *e, uint32_t count) {
    pccl_operation *op[2] = {NULL};
    uint64_t epoch[2] = {0};
    for (uint32_t i = 0; i < 2 * count; i++) input[i / count][i % count] = value(i / count, i % count);
    for (uint32_t rounds = 0; !epoch[0] || !epoch[1]; rounds++) {
        EXPECT(rounds < 30000, "never ends");
        for (uint32_t i = 0; i < 2; i++) {
            pccl_call call = {.collective = PCCL_ALL_REDUCE,
                              .dtype = PCCL_INT32,
                              .count = count,
                              .input = input[i],
                              .output = output[i]};
            if (!op[i] && !epoch[i]) (void)pccl_start(e->engine[i], &call, &op[i], NULL);
        }
        if (engines_stopped(e)) next_epoch_on_engines(e);
        for (uint32_t i = 0; i < 2; i++) {
            pccl_info info;
            pccl_error error;
            pccl_status status = op[i] ? pccl_wait(op[i], 1, &info, &error) : PCCL_PENDING;
            if (status == PCCL_PENDING) continue;
            EXPECT(status == PCCL_OK || excused(status), "%s", error.message);
            if (status == PCCL_OK) epoch[i] = info.epoch;
            pccl_operation_free(op[i]);
            op[i] = NULL;
        }
    }
    EXPECT(epoch[0] == epoch[1], "success in two epochs");
    for (uint32_t i = 0; i < 2; i++) expect_values(output[i], count, 0, 2);
}

static void story_of_engines(void) {
    struct engines e;
    if (start_engines(&e)) {
        install_on_engines(&e, NULL, 0);
        sum_on_engines(&e, 10);
        sum_on_engines(&e, BIG);
        next_epoch_on_engines(&e);
        sum_on_engines(&e, BIG);
    }
    for (uint32_t i = 0; i < 2; i++) pccl_engine_free(e.engine[i]);
}

int main(void) {
    if (!memory_supported()) return 77;
    without_each(story_of_tensors, "tensors");
    without_each(story_of_sums, "sums");
    without_each(story_of_moves, "moves");
    without_each(story_of_folds, "folds");
    without_each(story_of_parts, "parts");
    without_each(story_of_a_mismatch, "mismatch");
    without_each(story_of_a_state, "state");
    without_each(story_of_engines, "engines over tcp");
    FINISH();
}
