/* SPDX-License-Identifier: MIT
 *
 * plan_test.c - proves every plan for every size from 1 to 64, for trees of many forms, and for many ways to spread
 * members over hosts, with the interpreter of shared_machine.h.
 */
#include "plan/plan.h"

#include <string.h>

#include "base/prng.h"
#include "check.h"
#include "shared_machine.h"

enum { SIZES = MACHINE_SIZES };

/* ---------------------------------------------------------------- what must hold at the end */

/* All contributions, neighbours on the ring next to each other: the order does not depend on who computed it. A tree
 * adds up in the order of its links. */
static void expect_whole_expression(uint32_t node, uint32_t first) {
    uint32_t order[SIZES], count = 0;
    machine_flatten(node, order, &count);
    EXPECT(count == machine.size, "%u of %u contributions", count, machine.size);
    EXPECT(machine.nodes[node].positions == machine.everyone);
    if (machine.planner->algorithm == PCCL_TREE) return;
    for (uint32_t i = 0; i < count; i++) EXPECT(order[i] == (first + i) % machine.size, "not in ring order");
}

/* The expression that all with PCCL__FIXED_ORDER compute at this size: operators as 0, in front of their operands. */
static struct { uint32_t size, count, symbols[2 * SIZES]; } fixed;

static void write_symbols(uint32_t node, uint32_t *symbols, uint32_t *count) {
    EXPECT(*count < 2 * SIZES);
    symbols[(*count)++] = machine.nodes[node].left ? 0 : node;
    if (!machine.nodes[node].left) return;
    write_symbols(machine.nodes[node].left, symbols, count);
    write_symbols(machine.nodes[node].right, symbols, count);
}

static void expect_fixed_order(uint32_t node) {
    if (!(machine.planner->traits & PCCL__FIXED_ORDER)) return;
    uint32_t symbols[2 * SIZES], count = 0;
    write_symbols(node, symbols, &count);
    if (fixed.size != machine.size) {
        fixed.size = machine.size;
        fixed.count = count;
        memcpy(fixed.symbols, symbols, count * sizeof *symbols);
    }
    EXPECT(count == fixed.count && memcmp(symbols, fixed.symbols, count * sizeof *symbols) == 0,
           "%s by %s among %u: another order", pccl_collective_name(machine.planner->collective),
           pccl_algorithm_name(machine.planner->algorithm), machine.size);
}

static uint32_t host_of(uint32_t position) {
    uint32_t host = 0;
    while (pccl__shape_host_begin(machine.shape, host + 1) <= position) host++;
    return host;
}

/* Between hosts it goes around from the host behind the one at which a chunk's sum ends. */
static uint32_t first_behind_host(uint32_t chunk) {
    uint32_t hosts = pccl__shape_hosts(machine.shape), last = chunk % hosts;
    if (machine.planner->collective == PCCL_REDUCE_SCATTER) last = host_of(chunk);
    if (machine.planner->collective == PCCL_REDUCE) last = host_of(machine.root);
    return pccl__shape_host_begin(machine.shape, (last + 1) % hosts);
}

/* The position at which the expression of a chunk begins. */
static uint32_t first_of_sum(uint32_t chunk) {
    switch (machine.planner->algorithm) {
    case PCCL_RING:
    case PCCL_DIRECT:
        return (chunk + 1) % machine.size;
    case PCCL_HIERARCHICAL:
        return first_behind_host(chunk);
    case PCCL_CHAIN:
        return (machine.root + 1) % machine.size;
    case PCCL_STAR:
        return machine.root;
    default:
        return 0;
    }
}

static void expect_sum(uint32_t node, uint32_t chunk) {
    expect_whole_expression(node, first_of_sum(chunk));
    expect_fixed_order(node);
}

/* Those of some ranks, each once; on the chain and by doubling in rank order. */
static void expect_prefix(uint32_t node, uint32_t ranks) {
    if (ranks == 0) return;
    uint32_t order[SIZES], count = 0;
    machine_flatten(node, order, &count);
    EXPECT(count == ranks, "%u contributions, not %u", count, ranks);
    EXPECT(machine.nodes[node].positions == (ranks == 64 ? UINT64_MAX : (UINT64_C(1) << ranks) - 1));
    for (uint32_t i = 0; i < count && machine.planner->traits & PCCL__BY_RANK; i++) EXPECT(order[i] == i);
}

/* What must be at position `p` in a collective whose results differ. */
static void expect_own_result(uint32_t p) {
    const uint32_t *values = machine.values[p];
    bool to_each = machine.planner->traits & PCCL__TO_EACH;
    switch (machine.planner->collective) {
    case PCCL_REDUCE:
        if (p == machine.root) expect_sum(values[0], 0);
        break;
    case PCCL_GATHER:
        for (uint32_t c = 0; c < machine.size && p == machine.root; c++) EXPECT(values[c] == 1 + c);
        break;
    case PCCL_SCATTER:
        EXPECT(values[p] == 1 + machine.root);
        break;
    case PCCL_ALL_TO_ALL:
        for (uint32_t from = 0; from < machine.size; from++) EXPECT(values[from * machine.size + p] == 1 + from);
        break;
    case PCCL_SCAN:
        expect_prefix(values[to_each ? p : 0], p + 1);
        break;
    case PCCL_EXSCAN:
        expect_prefix(values[to_each ? p : 0], p);
        break;
    default:
        EXPECT(false, "collective %d", machine.planner->collective);
    }
}

static bool same_for_all(pccl_collective collective) { return collective <= PCCL_COMMIT; }

static void expect_result(void) {
    for (uint32_t p = 0; p < machine.size; p++) {
        if (!same_for_all(machine.planner->collective)) {
            expect_own_result(p);
            continue;
        }
        for (uint32_t c = 0; c < machine.plans[p].chunks; c++) {
            uint32_t value = machine.values[p][c];
            switch (machine.planner->collective) {
            case PCCL_ALL_REDUCE:
                EXPECT(value == machine.values[0][c], "positions 0 and %u computed different expressions", p);
                expect_sum(value, c);
                break;
            case PCCL_REDUCE_SCATTER:
                if (c == p) expect_sum(value, c);
                break;
            case PCCL_ALL_GATHER:
                EXPECT(value == 1 + c);
                break;
            case PCCL_BROADCAST:
                EXPECT(value == 1 + machine.root);
                break;
            default:
                EXPECT(machine.nodes[value].positions == machine.everyone, "%u did not hear of everyone", p);
            }
        }
    }
}

/* ---------------------------------------------------------------- what quantized values become */

static bool is_quantized(pccl_collective collective) {
    return collective == PCCL_ALL_REDUCE || collective == PCCL_REDUCE_SCATTER || collective == PCCL_ALL_GATHER ||
           collective == PCCL_BROADCAST || collective == PCCL_REDUCE || collective == PCCL_ALL_TO_ALL;
}

/* Where results are equal, all hold the bits of one computation, in which encoding is a step. What only moves is
 * encoded once, whoever passes it on. */
static void expect_coded_result(void) {
    pccl_collective collective = machine.planner->collective;
    for (uint32_t p = 0; p < machine.size && machine.size > 1; p++) {
        for (uint32_t c = 0; c < machine.plans[p].chunks && collective <= PCCL_BROADCAST; c++) {
            uint32_t value = machine.values[p][c], limit = collective < PCCL_ALL_GATHER ? 2 * machine.size : 1;
            if (collective == PCCL_REDUCE_SCATTER && c != p) continue;
            EXPECT(machine.nodes[value].encodings <= limit);
            if (collective == PCCL_REDUCE_SCATTER) continue;
            EXPECT(value == machine.values[0][c], "%s by %s among %u: positions 0 and %u decode different things",
                   pccl_collective_name(collective), pccl_algorithm_name(machine.planner->algorithm), machine.size, p);
            EXPECT(machine.nodes[value].left && !machine.nodes[value].right, "a result that nobody encoded");
            if (machine.planner->algorithm == PCCL_DIRECT) EXPECT(machine.nodes[value].encodings == 2);
        }
    }
    if (machine.planner->traits & PCCL__ONE_EACH)
        EXPECT(!machine.repeated, "%s by %s among %u: a sum is encoded twice", pccl_collective_name(collective),
               pccl_algorithm_name(machine.planner->algorithm), machine.size);
}

static void prove_coded(const struct pccl__planner *planner, const struct pccl__shape *shape, uint32_t root) {
    if (!is_quantized(planner->collective)) return;
    machine.codes = true;
    machine_load(planner, shape, root);
    machine_run();
    machine.codes = false;
    expect_coded_result();
}

/* ---------------------------------------------------------------- rounds and bytes */

/* Elements of a chunk, as even as they can be. */
static uint64_t chunk_elements(uint64_t elements, uint32_t chunks, uint32_t chunk) {
    return elements / chunks + (chunk < elements % chunks);
}

struct counts {
    uint64_t sent; /* elements; of reduce and gather, received */
    uint32_t sends, last_round;
};

enum { ELEMENTS = 1000003 };

static bool inward(void) {
    return machine.planner->collective == PCCL_REDUCE || machine.planner->collective == PCCL_GATHER;
}

/* Of the vector that `volume` speaks of. */
static uint64_t elements_of(const struct pccl__plan *plan, uint32_t chunk) {
    switch (machine.planner->collective) {
    case PCCL_BARRIER:
        return 0;
    case PCCL_SCAN:
    case PCCL_EXSCAN:
        return ELEMENTS;
    case PCCL_ALL_TO_ALL:
        return ELEMENTS / machine.size;
    default:
        return chunk_elements(ELEMENTS, plan->chunks, chunk);
    }
}

static struct counts count_of(const struct pccl__plan *plan) {
    struct counts counts = {0};
    for (uint32_t i = 0; i < plan->steps_count; i++) {
        const struct pccl__step *step = &plan->steps[i];
        if (step->round + 1 > counts.last_round) counts.last_round = step->round + 1;
        if ((step->kind == PCCL__SEND) == inward()) continue;
        counts.sends++;
        counts.sent += elements_of(plan, step->chunk);
    }
    return counts;
}

/* What the busiest position must send (or receive) of the vector that `volume` speaks of, whatever the plan. */
static double least_volume(pccl_collective collective, uint32_t size) {
    double most_parts = (size - 1.0) / size;
    switch (collective) {
    case PCCL_BARRIER:
        return 0;
    case PCCL_ALL_REDUCE:
        return 2 * most_parts;
    case PCCL_BROADCAST:
    case PCCL_REDUCE:
    case PCCL_SCAN:
    case PCCL_EXSCAN:
        return size > 1;
    default:
        return most_parts;
    }
}

/* Those that are for large vectors. (A chain of exscan must move two: what a position receives is its result and not
 * what it passes on.) */
static bool is_thrifty(const struct pccl__planner *planner, uint32_t size) {
    bool of_root = planner->collective == PCCL_GATHER || planner->collective == PCCL_SCATTER;
    switch (planner->algorithm) {
    case PCCL_RING:
    case PCCL_PAIRWISE:
    case PCCL_DIRECT:
        return true;
    case PCCL_CHAIN:
        return planner->collective != PCCL_EXSCAN;
    case PCCL_HALVING:
        return (size & (size - 1)) == 0;
    case PCCL_BRUCK:
        return planner->collective == PCCL_ALL_GATHER;
    case PCCL_STAR:
    case PCCL_LINE:
        return of_root;
    case PCCL_TREE:
        return of_root || planner->collective == PCCL_REDUCE_SCATTER;
    default:
        return false;
    }
}

static void expect_thrift(uint64_t sent) {
    if (!is_thrifty(machine.planner, machine.size)) return;
    double least = least_volume(machine.planner->collective, machine.size);
    EXPECT((double)sent <= 1.02 * least * ELEMENTS, "%s by %s among %u: %f vectors, %f would do",
           pccl_collective_name(machine.planner->collective), pccl_algorithm_name(machine.planner->algorithm),
           machine.size, (double)sent / ELEMENTS, least);
}

/* Others are for the data plane a barrier, or a broadcast between two. */
static bool is_planned(pccl_collective collective) {
    return collective != PCCL_COMMIT && collective != PCCL_SEND && collective != PCCL_RECV;
}

/* Whoever has all links finds a plan for large vectors. */
static void expect_a_thrifty_one(const struct pccl__shape *shape) {
    double best[PCCL_COLLECTIVE_COUNT];
    for (int i = 0; i < PCCL_COLLECTIVE_COUNT; i++) best[i] = shape->size;
    const struct pccl__planner *planner;
    for (size_t i = 0; (planner = pccl__planner_at(i)); i++) {
        if (planner->inside || !pccl__planner_fits(planner, shape, 0)) continue;
        double volume = planner->work(shape).volume;
        if (volume < best[planner->collective]) best[planner->collective] = volume;
    }
    for (int i = 0; i < PCCL_COLLECTIVE_COUNT; i++) {
        double twice = i == PCCL_EXSCAN ? 2 : 1;
        if (is_planned((pccl_collective)i))
            EXPECT(best[i] <= 1.02 * twice * least_volume((pccl_collective)i, shape->size), "%s among %u",
                   pccl_collective_name((pccl_collective)i), shape->size);
    }
}

static bool rooted(pccl_collective collective) {
    return collective == PCCL_BROADCAST || collective == PCCL_REDUCE || collective == PCCL_GATHER ||
           collective == PCCL_SCATTER;
}

static void raise(struct counts *worst, struct counts counts) {
    if (counts.sends > worst->sends) worst->sends = counts.sends;
    if (counts.sent > worst->sent) worst->sent = counts.sent;
    if (counts.last_round > worst->last_round) worst->last_round = counts.last_round;
}

/* What depends on the root has the formula of the worst one, which `worst` collects; the last root is tried last. */
static bool is_decided(void) {
    const struct pccl__planner *planner = machine.planner;
    bool varies = rooted(planner->collective) &&
                  (planner->links != PCCL_SHAPE_FULL || planner->inside || planner->traits & PCCL__FIXED_ORDER);
    return !varies || machine.root + 1 == machine.size;
}

/* `work` is as much as the worst was, and no less than any. */
static void expect_work(const char *where, struct pccl__work work, struct counts most, struct counts worst) {
    const char *name = pccl_algorithm_name(machine.planner->algorithm),
               *collective = pccl_collective_name(machine.planner->collective);
    EXPECT((double)most.sent <= work.volume * ELEMENTS * 1.0002, "%s by %s among %u%s: %f vectors, not %f", collective,
           name, machine.size, where, (double)most.sent / ELEMENTS, work.volume);
    if (work.transfers)
        EXPECT(most.sends <= work.transfers, "%s by %s among %u%s: %u transfers, not %g", collective, name,
               machine.size, where, most.sends, work.transfers);
    if (!is_decided()) return;
    EXPECT((double)worst.sent >= work.volume * ELEMENTS * 0.9998, "%s by %s among %u%s: only %f vectors, not %f",
           collective, name, machine.size, where, (double)worst.sent / ELEMENTS, work.volume);
    if (work.transfers)
        EXPECT(worst.sends == work.transfers, "%s by %s among %u%s: only %u transfers, not %g", collective, name,
               machine.size, where, worst.sends, work.transfers);
}

/* Rounds, bytes and transfers as the planner's formulas say. */
static void expect_counts(struct counts *worst) {
    const struct pccl__planner *planner = machine.planner;
    struct pccl__work work = planner->work(machine.shape);
    struct counts most = {0};
    for (uint32_t p = 0; p < machine.size; p++) {
        struct counts counts = count_of(&machine.plans[p]);
        expect_thrift(counts.sent);
        raise(&most, counts);
    }
    EXPECT(work.rounds == machine.plans[0].rounds && work.rounds >= most.last_round);
    if (planner->algorithm == PCCL_DISSEMINATION) EXPECT(most.sends == most.last_round);
    if (planner->traits & PCCL__STRAIGHT) EXPECT(most.sends + 1 == machine.size, "not straight");
    raise(worst, most);
    expect_work("", work, most, *worst);
    if (is_decided()) EXPECT(work.rounds == worst->last_round, "%u rounds, not %g", worst->last_round, work.rounds);
}

/* ---------------------------------------------------------------- hosts: what is moved inside, and between them */

/* Per round what each position sends and receives within its host; the most that one moves, over all rounds. */
static struct counts count_inside(void) {
    struct counts inside = {0};
    for (uint32_t round = 0; round < machine.plans[0].rounds; round++) {
        struct counts most = {0};
        for (uint32_t p = 0; p < machine.size; p++) {
            struct counts moved[2] = {{0}, {0}};
            const struct pccl__plan *plan = &machine.plans[p];
            for (uint32_t i = 0; i < plan->steps_count; i++) {
                const struct pccl__step *step = &plan->steps[i];
                if (step->round != round || host_of(step->peer) != host_of(p)) continue;
                moved[step->kind == PCCL__SEND].sends++;
                moved[step->kind == PCCL__SEND].sent += elements_of(plan, step->chunk);
            }
            raise(&most, moved[0]);
            raise(&most, moved[1]);
        }
        inside.sends += most.sends;
        inside.sent += most.sent;
        inside.last_round += most.sends > 0;
    }
    return inside;
}

/* What leaves the busiest host (of reduce: enters), by no more of its members than lead; transfers of one of them. */
static struct counts count_between(void) {
    const struct pccl__shape *shape = machine.shape;
    struct counts between = {0};
    for (uint32_t host = 0; host < pccl__shape_hosts(shape); host++) {
        uint64_t sent = 0;
        uint32_t speak = 0, lead = machine.planner->algorithm == PCCL_LEADERS ? 1 : shape->host_least;
        for (uint32_t p = pccl__shape_host_begin(shape, host); p < pccl__shape_host_begin(shape, host + 1); p++) {
            struct counts counts = {0};
            const struct pccl__plan *plan = &machine.plans[p];
            bool speaks = false;
            for (uint32_t i = 0; i < plan->steps_count; i++) {
                const struct pccl__step *step = &plan->steps[i];
                if (host_of(step->peer) == host) continue;
                speaks = true;
                if ((step->kind == PCCL__SEND) == inward()) continue;
                counts.sends++;
                sent += elements_of(plan, step->chunk);
            }
            speak += speaks;
            raise(&between, counts);
        }
        EXPECT(speak <= lead, "%u members of host %u speak for it", speak, host);
        raise(&between, (struct counts){.sent = sent});
    }
    return between;
}

struct worst {
    struct counts inside, between;
};

static void expect_levels(struct worst *worst) {
    const struct pccl__planner *planner = machine.planner;
    struct pccl__work inside = planner->inside(machine.shape), between = planner->work(machine.shape);
    struct counts within = count_inside(), wire = count_between();
    EXPECT(inside.rounds + between.rounds == machine.plans[0].rounds);
    raise(&worst->inside, within);
    raise(&worst->between, wire);
    expect_work(" inside hosts", inside, within, worst->inside);
    expect_work(" between hosts", between, wire, worst->between);
    if (is_decided()) EXPECT(inside.rounds == worst->inside.last_round, "%g rounds inside", inside.rounds);
    if (planner->algorithm != PCCL_HIERARCHICAL) return;
    /* The others of a host need what its smallest rival has; of a whole vector a host is like one position. */
    double least = least_volume(planner->collective, pccl__shape_hosts(machine.shape));
    if (planner->collective == PCCL_REDUCE_SCATTER || planner->collective == PCCL_ALL_GATHER)
        least = ((double)machine.size - machine.shape->host_least) / machine.size;
    EXPECT((double)wire.sent <= 1.02 * least * ELEMENTS, "%f vectors leave a host", (double)wire.sent / ELEMENTS);
}

static uint32_t links_of(const struct pccl__shape *shape, uint32_t position) {
    uint32_t links = 0;
    for (uint32_t p = 0; p < shape->size; p++) links += p != position && pccl__shape_joins(shape, position, p);
    return links;
}

/* Small groups are proven for all roots; large ones for some, with those that cost most: the ends of the longest ways
 * and those with most links. */
static bool worth_a_proof(const struct pccl__shape *shape, uint32_t root) {
    if (shape->size <= 16 || root % 7 == 0 || root + 1 == shape->size) return true;
    if (shape->kind != PCCL_SHAPE_TREE) return false;
    uint32_t above = shape->beyond[root] + (root > 0), below = shape->below[root];
    return above == shape->diameter || below == shape->diameter || links_of(shape, root) == shape->degree;
}

static void prove(const struct pccl__planner *planner, const struct pccl__shape *shape) {
    uint32_t last = rooted(planner->collective) ? shape->size - 1 : 0;
    struct counts worst = {0};
    struct worst levels = {{0}, {0}};
    for (uint32_t root = 0; root <= last; root++) {
        if (!worth_a_proof(shape, root)) continue;
        machine_load(planner, shape, root);
        machine_run();
        expect_result();
        if (planner->inside)
            expect_levels(&levels);
        else
            expect_counts(&worst);
        prove_coded(planner, shape, root);
        EXPECT(shape->size > 1 || machine.plans[0].steps_count == 0, "one position has nothing to send");
    }
}

static void prove_fitting(const struct pccl__shape *shape) {
    const struct pccl__planner *planner;
    bool served[PCCL_COLLECTIVE_COUNT] = {false};
    for (size_t i = 0; (planner = pccl__planner_at(i)); i++) {
        if (!pccl__planner_fits(planner, shape, 0)) continue;
        served[planner->collective] = true;
        prove(planner, shape);
    }
    if (shape->kind == PCCL_SHAPE_FULL) expect_a_thrifty_one(shape);
    for (int i = 0; i < PCCL_COLLECTIVE_COUNT; i++)
        EXPECT(served[i] == is_planned((pccl_collective)i), "no plan for %s in shape %d",
               pccl_collective_name((pccl_collective)i), shape->kind);
}

/* ---------------------------------------------------------------- hosts */

/* How members are spread over hosts: from none shared to all, alike and not. */
enum { APART, PAIRS, TWO_HOSTS, ONE_HOST, ONE_ALONE, LAST_ALONE, GROWING, BY_CHANCE, SPREADS = BY_CHANCE + 3 };

static void draw_hosts(uint32_t spread, uint32_t size, uint64_t *ids) {
    uint64_t random = UINT64_C(0x9e3779b9) * spread + size;
    uint64_t host = 1, members = 0;
    for (uint32_t p = 0; p < size; p++, members++) {
        bool begins = p > 0;
        if (spread == PAIRS) begins = begins && p % 2 == 0;
        if (spread == TWO_HOSTS) begins = begins && p == (size + 1) / 2;
        if (spread == ONE_HOST) begins = false;
        if (spread == ONE_ALONE) begins = p == 1;
        if (spread == LAST_ALONE) begins = begins && p + 1 == size;
        if (spread == GROWING) begins = members == host;
        if (spread >= BY_CHANCE) begins = begins && prng_below(&random, 2 + 4 * (spread - BY_CHANCE)) == 0;
        if (begins) host++;
        if (begins) members = 0;
        ids[p] = host;
    }
}

static void prove_hosts(uint32_t size) {
    for (uint32_t spread = 0; spread < SPREADS; spread++) {
        struct pccl__shape shape = {0};
        uint64_t ids[SIZES];
        draw_hosts(spread, size, ids);
        EXPECT(pccl__shape_init(&shape, PCCL_SHAPE_FULL, size, NULL) == PCCL_OK);
        EXPECT(pccl__shape_set_hosts(&shape, ids) == PCCL_OK && shape.hosts >= 1);
        const struct pccl__planner *planner;
        for (size_t i = 0; (planner = pccl__planner_at(i)); i++) {
            EXPECT(!(planner->traits & PCCL__BY_HOST) == !planner->inside);
            if (planner->inside) prove(planner, &shape);
        }
        pccl__shape_free(&shape);
    }
}

/* ---------------------------------------------------------------- trees */

/* The forms of trees that are proven: from the deepest to the broadest, and some by chance. */
enum { PATH, STAR, PATH_FROM_THE_MIDDLE, STAR_FROM_A_LEAF, BINARY, BROOM, CHANCE, FORMS = CHANCE + 3 };

/* Positions in preorder; `p - 1` and what is above it can be parents of `p`. */
static void draw_tree(uint32_t form, uint32_t size, uint32_t *parents) {
    uint64_t random = UINT64_C(0x9e3779b9) * form + size;
    for (uint32_t p = 0; p < size; p++) {
        parents[p] = p ? p - 1 : 0;
        if (form == STAR) parents[p] = 0;
        if (form == STAR_FROM_A_LEAF) parents[p] = p > 1;
        if (form == PATH_FROM_THE_MIDDLE && p == size / 2) parents[p] = 0;
        if (form == BROOM && p > size / 2) parents[p] = size / 2;
        for (uint32_t up = form >= CHANCE ? prng_below(&random, form - CHANCE + 2) : 0; up > 0; up--)
            parents[p] = parents[parents[p]];
    }
    if (form != BINARY) return;
    /* As even as can be: position 0 has two halves below it, and so on. */
    uint32_t end[SIZES];
    end[0] = size;
    for (uint32_t p = 0; p < size; p++) {
        uint32_t left = p + 1, below = end[p] - left, half = (below + 1) / 2;
        if (below > 0) {
            parents[left] = p;
            end[left] = left + half;
        }
        if (below > half) {
            parents[left + half] = p;
            end[left + half] = end[p];
        }
    }
}

static void prove_all(void) {
    for (uint32_t size = 1; size <= SIZES; size++) {
        struct pccl__shape shape = {0};
        for (int kind = PCCL_SHAPE_FULL; kind < PCCL_SHAPE_TREE; kind++) {
            EXPECT(pccl__shape_init(&shape, (pccl_shape)kind, size, NULL) == PCCL_OK);
            prove_fitting(&shape);
        }
        prove_hosts(size);
        for (uint32_t form = 0; form < FORMS; form++) {
            uint32_t parents[SIZES];
            draw_tree(form, size, parents);
            EXPECT(pccl__shape_init(&shape, PCCL_SHAPE_TREE, size, parents) == PCCL_OK, "form %u of %u", form, size);
            prove_fitting(&shape);
            pccl__shape_free(&shape);
        }
    }
    machine_free();
}

/* ---------------------------------------------------------------- the rules of plans */

static void bad_arguments(void) {
    const struct pccl__planner *planner;
    struct pccl__plan plan = {0};
    for (size_t i = 0; (planner = pccl__planner_at(i)); i++) {
        struct pccl__shape nobody = {.kind = planner->links}, five = {0};
        const uint32_t parents[] = {0, 0, 0, 0, 0};
        EXPECT(pccl__shape_init(&five, planner->links, 5, parents) == PCCL_OK);
        EXPECT(planner->build(0, &nobody, 0, &plan) == PCCL_INVALID);
        EXPECT(planner->build(5, &five, 0, &plan) == PCCL_INVALID);
        if (rooted(planner->collective)) EXPECT(planner->build(0, &five, 5, &plan) == PCCL_INVALID);
        pccl__shape_free(&five);
    }
    pccl__plan_free(&plan);
    EXPECT(plan.steps == NULL && plan.steps_count == 0);
}

static void broken_steps(void) {
    struct pccl__plan plan = {0};
    EXPECT(pccl__plan_begin(&plan, 1, 4, 2, 3) == PCCL_OK);
    const struct pccl__step good = {.peer = 2, .chunk = 1, .round = 1, .kind = PCCL__COPY};
    EXPECT(pccl__plan_add(&plan, good) == PCCL_OK);
    struct pccl__step bad[7];
    for (int i = 0; i < 7; i++) bad[i] = good;
    bad[0].peer = 1; /* ourselves */
    bad[1].peer = 4; /* nobody */
    bad[2].chunk = 2;
    bad[3].round = 3;
    bad[4].round = 0;         /* back */
    bad[5].kind = PCCL__SEND; /* behind a receive of its round */
    bad[6].complete = 1;      /* of a copy */
    for (int i = 0; i < 7; i++) EXPECT(pccl__plan_add(&plan, bad[i]) == PCCL_INVALID, "bad step %d", i);
    EXPECT(plan.steps_count == 1 && pccl__plan_check(&plan) == PCCL_OK);
    EXPECT(pccl__plan_add(&plan, good) == PCCL_OK);
    EXPECT(pccl__plan_check(&plan) == PCCL_INVALID, "two transfers of one name");
    plan.steps[1].chunk = 0;
    EXPECT(pccl__plan_check(&plan) == PCCL_OK);
    plan.steps[0].peer = 9;
    EXPECT(pccl__plan_check(&plan) == PCCL_INVALID);
    pccl__plan_free(&plan);
}

int main(void) {
    prove_all();
    bad_arguments();
    broken_steps();
    FINISH();
}
