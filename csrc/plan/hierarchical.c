/* SPDX-License-Identifier: MIT
 *
 * hierarchical.c - collectives in two levels: within each host over its quick links, between hosts over as few of the
 * others as possible. Between hosts any plan serves that serves one position per host.
 *
 * Source: J. L. Traff, S. Hunold, "Decomposing MPI Collectives for Exploiting Multi-lane Communication", IEEE Cluster
 * 2020: as many members of each host as can lead, so that none stands idle while one speaks for all.
 *
 * Members of a host stand together on the ring. Of H hosts the smallest has L members, the largest M. There are two
 * forms. HIERARCHICAL is for large vectors: K = L members of each host lead, each for a slice, and the leaders of a
 * slice, one on each host, run the plan with fewest bytes among themselves (ring.c; the chain of broadcast.c and
 * reduce.c). LEADERS is for small ones: K = 1, and the leaders run the plan with fewest rounds (doubling.c, bruck.c,
 * halving.c, the binomial trees, barrier.c).
 *
 * Of a whole vector, slice l is the l-th of K, and the l-th member of a host leads it; where there is a root, it leads
 * slice 0 of its host, and those behind it the others. Of parts, slice l has the parts of the members l, l + K, ... of
 * each host, and the parts of one host are the block that its leader has in the plan between hosts.
 *
 *                    first, inside                between hosts          last, inside
 *   all_reduce       each slice to its leader     all_reduce             each slice from its leader
 *   reduce           each slice to its leader     reduce to the root's   the root's leaders to the root (K > 1)
 *   reduce_scatter   each slice to its leader     reduce_scatter         to each its own part (M > K)
 *   all_gather       own part to its leader       all_gather             each slice from its leader
 *                    (M > K)
 *   broadcast        each slice from the root     broadcast from the     each slice from its leader
 *                    to its leader (K > 1)        root's
 *   barrier          to the leader                barrier                from the leader
 * The rounds inside are there only if M > 1. With R, S, V the rounds, sends and volume (as a multiple of what it moves)
 * of the plan between hosts, B = sum of ceil(members of a host / K) the parts of the largest slice, and b that summand
 * for a host of M:
 *                    sends inside of the busiest: first, last   bytes that leave (enter) each host
 *   all_reduce       (M-1)/K (received), (M-1)/K vectors        V vectors
 *   reduce           (M-1)/K (received), (K-1)/K (received)     V vectors
 *   reduce_scatter   (M-1) B parts (received), b-1 parts        (n-L)/n of the vector; of n of all for LEADERS where H
 *                                                               is no power of two
 *   all_gather       b-1 parts (received), (M-1) B - b+1 parts  (n-L)/n of the vector
 *   broadcast        (K-1)/K, (M-1)/K vectors                   V vectors
 *   barrier          M-1 (received), M-1 frames                 S frames of the leader
 * In HIERARCHICAL V is 2(H-1)/H for all_reduce, 1 for reduce and broadcast: the lower bounds for what a host of any
 * number of members must send, as (n-L)/n is. work.c has the sums, plan_test compares them.
 *
 * A leader adds up its host's members in ring order, from itself outwards: to the right first, then to the left. The
 * plans between hosts keep the order of hosts. So every sum is one expression, in ring order.
 *
 * There is no such plan of gather, scatter, all_to_all: what leaves a host must leave it, whoever sends it, so a
 * leader would only add a copy (bruck.c has few rounds for small parts). Nor of scan and exscan: they go by ranks, and
 * those of a host need not be neighbours.
 *
 * Measured with two hosts of three members and a wire of 200 Mbit/s each way between them, all_reduce of 8 MiB: 0.37 s;
 * by ring 0.64 s, by halving 1.16 s.
 */
#include "plan/plan.h"

enum { NOBODY = UINT32_MAX };

struct place {
    const struct pccl__shape *shape;
    uint32_t hosts, slices;
    uint32_t host, first, members, local; /* ours: its number, the first position on it, how many there are, which */
    uint32_t root_host, root_local;       /* NOBODY: there is no root */
    uint32_t groups; /* of a whole vector: the chunks of a slice; of parts: the hosts whose parts it has */
    bool parts;
};

static uint32_t host_of(const struct pccl__shape *shape, uint32_t position) {
    uint32_t host = 0;
    while (pccl__shape_host_begin(shape, host + 1) <= position) host++;
    return host;
}

/* `root` may be NOBODY. Without a place for `position`, which pccl__plan_begin will refuse. */
static struct place place_of(uint32_t position, const struct pccl__shape *shape, uint32_t root, bool striped) {
    struct place at = {.shape = shape,
                       .hosts = pccl__shape_hosts(shape),
                       .slices = striped ? shape->host_least : 1,
                       .root_host = NOBODY,
                       .root_local = NOBODY,
                       .groups = 1};
    if (position >= shape->size) return at;
    at.host = host_of(shape, position);
    at.first = pccl__shape_host_begin(shape, at.host);
    at.members = pccl__shape_host_begin(shape, at.host + 1) - at.first;
    at.local = position - at.first;
    if (root == NOBODY) return at;
    at.root_host = host_of(shape, root);
    at.root_local = root - pccl__shape_host_begin(shape, at.root_host);
    return at;
}

static uint32_t leader(const struct place *at, uint32_t host, uint32_t slice) {
    uint32_t first = pccl__shape_host_begin(at->shape, host),
             members = pccl__shape_host_begin(at->shape, host + 1) - first;
    return first + (host == at->root_host ? (at->root_local + slice) % members : slice);
}

/* Which slice a member of our host leads; beyond the last one: none. */
static uint32_t slice_of(const struct place *at, uint32_t local) {
    return at->host == at->root_host ? (local + at->members - at->root_local) % at->members : local;
}
static uint32_t our_slice(const struct place *at) { return slice_of(at, at->local); }
static bool leads(const struct place *at) { return our_slice(at) < at->slices; }

/* ---------------------------------------------------------------- inside a host */

static pccl_status add(struct pccl__plan *plan, uint32_t round, uint32_t peer, uint32_t chunk, uint8_t kind,
                       bool complete) {
    return pccl__plan_add(
        plan, (struct pccl__step){.peer = peer, .chunk = chunk, .round = round, .kind = kind, .complete = complete});
}

/* The chunks of one group of a slice, but not `except`. */
static pccl_status add_group(struct pccl__plan *plan, const struct place *at, uint32_t slice, uint32_t group,
                             struct pccl__step step, uint32_t except) {
    uint32_t first = slice * at->groups + group, end = first + 1, stride = 1;
    if (at->parts) {
        first = pccl__shape_host_begin(at->shape, group) + slice;
        end = pccl__shape_host_begin(at->shape, group + 1);
        stride = at->slices;
    }
    pccl_status status = PCCL_OK;
    for (uint32_t c = first; c < end && status == PCCL_OK; c += stride)
        if (c != except) status = add(plan, step.round, step.peer, c, step.kind, step.complete);
    return status;
}

/* A slice to or from another member of our host. */
static pccl_status add_slice(struct pccl__plan *plan, const struct place *at, uint32_t round, uint32_t peer,
                             uint32_t slice, enum pccl__step_kind kind, bool complete, uint32_t except) {
    struct pccl__step step = {.peer = peer, .round = round, .kind = (uint8_t)kind, .complete = complete};
    pccl_status status = PCCL_OK;
    for (uint32_t group = 0; group < at->groups && status == PCCL_OK; group++)
        status = add_group(plan, at, slice, group, step, except);
    return status;
}

/* Each slice to its leader, who adds up. Everyone begins with the leader behind it, so that not all begin with the
 * same. */
static pccl_status add_collect(struct pccl__plan *plan, const struct place *at, enum pccl__step_kind right,
                               enum pccl__step_kind left) {
    pccl_status status = PCCL_OK;
    uint32_t ours = our_slice(at);
    for (uint32_t k = 1; k <= at->slices && status == PCCL_OK; k++) {
        uint32_t slice = (ours + k) % at->slices;
        if (slice != ours)
            status = add_slice(plan, at, 0, leader(at, at->host, slice), slice, PCCL__SEND, false, NOBODY);
    }
    if (!leads(at)) return status;
    bool alone = at->hosts == 1 && right != PCCL__COPY;
    for (uint32_t from = at->local + 1; from < at->members && status == PCCL_OK; from++)
        status = add_slice(plan, at, 0, at->first + from, ours, right,
                           alone && at->local == 0 && from + 1 == at->members, NOBODY);
    for (uint32_t from = at->local; from-- > 0 && status == PCCL_OK;)
        status = add_slice(plan, at, 0, at->first + from, ours, left, alone && from == 0, NOBODY);
    return status;
}

/* Each slice from its leader to all others on the host who lack it: a root lacks nothing, and `owned`, nobody its own
 * part. */
static pccl_status add_spread(struct pccl__plan *plan, const struct place *at, uint32_t round, bool root_has_all,
                              bool owned) {
    pccl_status status = PCCL_OK;
    uint32_t ours = our_slice(at), sated = root_has_all && at->host == at->root_host ? at->root_local : NOBODY;
    for (uint32_t k = 1; leads(at) && k < at->members && status == PCCL_OK; k++) {
        uint32_t to = (at->local + k) % at->members;
        if (to != sated)
            status =
                add_slice(plan, at, round, at->first + to, ours, PCCL__SEND, false, owned ? at->first + to : NOBODY);
    }
    for (uint32_t slice = 0; slice < at->slices && at->local != sated && status == PCCL_OK; slice++)
        if (slice != ours)
            status = add_slice(plan, at, round, leader(at, at->host, slice), slice, PCCL__COPY, false,
                               owned ? plan->position : NOBODY);
    return status;
}

/* Between the root and the leaders of its host, all slices but its own. */
static pccl_status add_root(struct pccl__plan *plan, const struct place *at, uint32_t round,
                            enum pccl__step_kind of_root, enum pccl__step_kind of_leader) {
    if (at->host != at->root_host || !leads(at)) return PCCL_OK;
    uint32_t ours = our_slice(at), root = at->first + at->root_local;
    if (ours > 0) return add_slice(plan, at, round, root, ours, of_leader, false, NOBODY);
    pccl_status status = PCCL_OK;
    for (uint32_t slice = 1; slice < at->slices && status == PCCL_OK; slice++)
        status = add_slice(plan, at, round, leader(at, at->host, slice), slice, of_root, false, NOBODY);
    return status;
}

/* Between the leaders and the other members whose parts they have. */
static pccl_status add_parts(struct pccl__plan *plan, const struct place *at, uint32_t round,
                             enum pccl__step_kind of_leader, enum pccl__step_kind of_owner) {
    if (!leads(at))
        return add(plan, round, at->first + at->local % at->slices, plan->position, (uint8_t)of_owner, false);
    pccl_status status = PCCL_OK;
    for (uint32_t owner = at->local + at->slices; owner < at->members && status == PCCL_OK; owner += at->slices)
        status = add(plan, round, at->first + owner, at->first + owner, (uint8_t)of_leader, false);
    return status;
}

/* ---------------------------------------------------------------- between hosts */

/* The plan of our host among the hosts, by which the leaders of a slice go. */
static pccl_status plan_between(const struct place *at, pccl__plan_build *build, struct pccl__plan *between) {
    const struct pccl__shape hosts = {.kind = PCCL_SHAPE_FULL, .size = at->hosts};
    return build(at->host, &hosts, at->root_host == NOBODY ? 0 : at->root_host, between);
}

static pccl_status add_between(struct pccl__plan *plan, const struct place *at, uint32_t round,
                               const struct pccl__plan *between) {
    pccl_status status = PCCL_OK;
    for (uint32_t i = 0; leads(at) && i < between->steps_count && status == PCCL_OK; i++) {
        struct pccl__step step = between->steps[i];
        uint32_t group = step.chunk;
        step.peer = leader(at, step.peer, our_slice(at));
        step.round += round;
        status = add_group(plan, at, our_slice(at), group, step, NOBODY);
    }
    return status;
}

/* ---------------------------------------------------------------- the collectives */

/* What there is to do, by collective. */
typedef pccl_status phase(struct pccl__plan *plan, const struct place *at, uint32_t round);

static pccl_status build(uint32_t position, const struct pccl__shape *shape, struct place at, pccl__plan_build *among,
                         phase *first, bool has_first, phase *last, bool has_last, struct pccl__plan *plan) {
    struct pccl__plan between = {0};
    pccl_status status = position < shape->size ? plan_between(&at, among, &between) : PCCL_INVALID;
    if (status != PCCL_OK) return status;
    at.groups = at.parts ? at.hosts : between.chunks;
    uint32_t chunks = at.parts ? shape->size : at.slices * at.groups;
    status = pccl__plan_begin(plan, position, shape->size, chunks, has_first + between.rounds + has_last);
    if (status == PCCL_OK && has_first) status = first(plan, &at, 0);
    if (status == PCCL_OK) status = add_between(plan, &at, has_first, &between);
    if (status == PCCL_OK && has_last) status = last(plan, &at, has_first + between.rounds);
    pccl__plan_free(&between);
    return status;
}

static pccl_status sum_up(struct pccl__plan *plan, const struct place *at, uint32_t round) {
    (void)round;
    return add_collect(plan, at, PCCL__REDUCE_RIGHT, PCCL__REDUCE_LEFT);
}
static pccl_status tell_leader(struct pccl__plan *plan, const struct place *at, uint32_t round) {
    (void)round;
    return add_collect(plan, at, PCCL__COPY, PCCL__COPY);
}
static pccl_status spread(struct pccl__plan *plan, const struct place *at, uint32_t round) {
    return add_spread(plan, at, round, false, false);
}
static pccl_status spread_from_root(struct pccl__plan *plan, const struct place *at, uint32_t round) {
    return add_spread(plan, at, round, true, false);
}
static pccl_status spread_parts(struct pccl__plan *plan, const struct place *at, uint32_t round) {
    return add_spread(plan, at, round, false, true);
}
static pccl_status slices_from_root(struct pccl__plan *plan, const struct place *at, uint32_t round) {
    return add_root(plan, at, round, PCCL__SEND, PCCL__COPY);
}
static pccl_status slices_to_root(struct pccl__plan *plan, const struct place *at, uint32_t round) {
    return add_root(plan, at, round, PCCL__COPY, PCCL__SEND);
}
static pccl_status parts_to_leaders(struct pccl__plan *plan, const struct place *at, uint32_t round) {
    return add_parts(plan, at, round, PCCL__COPY, PCCL__SEND);
}
static pccl_status parts_from_leaders(struct pccl__plan *plan, const struct place *at, uint32_t round) {
    return add_parts(plan, at, round, PCCL__SEND, PCCL__COPY);
}

static pccl_status all_reduce(uint32_t position, const struct pccl__shape *shape, bool striped, pccl__plan_build *among,
                              struct pccl__plan *plan) {
    struct place at = place_of(position, shape, NOBODY, striped);
    bool inside = shape->host_most > 1;
    return build(position, shape, at, among, sum_up, inside, spread, inside, plan);
}

static pccl_status reduce(uint32_t position, const struct pccl__shape *shape, uint32_t root, bool striped,
                          pccl__plan_build *among, struct pccl__plan *plan) {
    if (root >= shape->size) return PCCL_INVALID;
    struct place at = place_of(position, shape, root, striped);
    return build(position, shape, at, among, sum_up, shape->host_most > 1, slices_to_root, at.slices > 1, plan);
}

static pccl_status broadcast(uint32_t position, const struct pccl__shape *shape, uint32_t root, bool striped,
                             pccl__plan_build *among, struct pccl__plan *plan) {
    if (root >= shape->size) return PCCL_INVALID;
    struct place at = place_of(position, shape, root, striped);
    return build(position, shape, at, among, slices_from_root, at.slices > 1, spread_from_root, shape->host_most > 1,
                 plan);
}

static pccl_status reduce_scatter(uint32_t position, const struct pccl__shape *shape, bool striped,
                                  pccl__plan_build *among, struct pccl__plan *plan) {
    struct place at = place_of(position, shape, NOBODY, striped);
    at.parts = true;
    return build(position, shape, at, among, sum_up, shape->host_most > 1, parts_from_leaders,
                 shape->host_most > at.slices, plan);
}

static pccl_status all_gather(uint32_t position, const struct pccl__shape *shape, bool striped, pccl__plan_build *among,
                              struct pccl__plan *plan) {
    struct place at = place_of(position, shape, NOBODY, striped);
    at.parts = true;
    return build(position, shape, at, among, parts_to_leaders, shape->host_most > at.slices, spread_parts,
                 shape->host_most > 1, plan);
}

pccl_status pccl__plan_hierarchical_all_reduce(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                               struct pccl__plan *plan) {
    (void)root;
    return all_reduce(position, shape, true, pccl__plan_ring_all_reduce, plan);
}
pccl_status pccl__plan_leaders_all_reduce(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                          struct pccl__plan *plan) {
    (void)root;
    return all_reduce(position, shape, false, pccl__plan_doubling_all_reduce, plan);
}
pccl_status pccl__plan_hierarchical_reduce(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                           struct pccl__plan *plan) {
    return reduce(position, shape, root, true, pccl__plan_chain_reduce, plan);
}
pccl_status pccl__plan_leaders_reduce(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                      struct pccl__plan *plan) {
    return reduce(position, shape, root, false, pccl__plan_binomial_reduce, plan);
}
pccl_status pccl__plan_hierarchical_broadcast(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                              struct pccl__plan *plan) {
    return broadcast(position, shape, root, true, pccl__plan_chain_broadcast, plan);
}
pccl_status pccl__plan_leaders_broadcast(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                         struct pccl__plan *plan) {
    return broadcast(position, shape, root, false, pccl__plan_binomial_broadcast, plan);
}
pccl_status pccl__plan_hierarchical_reduce_scatter(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                                   struct pccl__plan *plan) {
    (void)root;
    return reduce_scatter(position, shape, true, pccl__plan_ring_reduce_scatter, plan);
}
pccl_status pccl__plan_leaders_reduce_scatter(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                              struct pccl__plan *plan) {
    (void)root;
    return reduce_scatter(position, shape, false, pccl__plan_halving_reduce_scatter, plan);
}
pccl_status pccl__plan_hierarchical_all_gather(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                               struct pccl__plan *plan) {
    (void)root;
    return all_gather(position, shape, true, pccl__plan_ring_all_gather, plan);
}
pccl_status pccl__plan_leaders_all_gather(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                          struct pccl__plan *plan) {
    (void)root;
    return all_gather(position, shape, false, pccl__plan_bruck_all_gather, plan);
}
pccl_status pccl__plan_leaders_barrier(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                       struct pccl__plan *plan) {
    (void)root;
    struct place at = place_of(position, shape, NOBODY, false);
    bool inside = shape->host_most > 1;
    return build(position, shape, at, pccl__plan_dissemination_barrier, tell_leader, inside, spread, inside, plan);
}
