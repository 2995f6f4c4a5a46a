/* SPDX-License-Identifier: MIT
 *
 * hierarchical.c - all-reduce in two levels: within each host over its quick links, between hosts over as few of the
 * others as possible.
 *
 * Source: J. L. Traff, S. Hunold, "Decomposing MPI Collectives for Exploiting Multi-lane Communication", IEEE Cluster
 * 2020: as many members of each host as can lead, so that none stands idle while one speaks for all.
 *
 * Members of a host stand together on the ring. With H hosts, L members on the smallest and M on the largest, the
 * vector is cut in L slices of H chunks each; on every host the l-th member leads slice l. Round 0: all give their part
 * of each slice to the host's leader for it. Then the leaders of a slice, one on each host, run a ring all-reduce
 * (ring.c) among themselves. Last, each leader gives its slice to its host.
 *
 * A leader adds up its host's members in ring order, from itself outwards: to the right first, then to the left. Chunk
 * h of a slice starts at host h+1 and walks around to host h. So every chunk is one expression, in ring order.
 *
 * Rounds: 2(H-1), and 2 more if M > 1. Sends of the busiest position: (L-1) H + 2(H-1) + (M-1) H; bytes: (L-1)/L +
 * 2(H-1)/(HL) + (M-1)/L of the vector. Between hosts each host sends 2(H-1)/H of it, whatever L is.
 *
 * Measured with two hosts of three members and a wire of 200 Mbit/s each way between them, 8 MiB: 0.37 s; by ring 0.64
 * s, by halving 1.16 s.
 */
#include "plan/plan.h"

struct place {
    uint32_t hosts, slices;
    uint32_t host, first, members; /* ours: its number, the first position on it, how many there are */
    uint32_t local;                /* our number on it */
    const struct pccl__shape *shape;
};

static struct place place_of(uint32_t position, const struct pccl__shape *shape) {
    struct place at = {.hosts = pccl__shape_hosts(shape), .slices = shape->host_least, .shape = shape};
    while (pccl__shape_host_begin(shape, at.host + 1) <= position) at.host++;
    at.first = pccl__shape_host_begin(shape, at.host);
    at.members = pccl__shape_host_begin(shape, at.host + 1) - at.first;
    at.local = position - at.first;
    return at;
}

/* All chunks of a slice to or from one member of our host. */
static pccl_status add_slice(struct pccl__plan *plan, const struct place *at, uint32_t round, uint32_t member,
                             uint32_t slice, enum pccl__step_kind kind, bool complete) {
    pccl_status status = PCCL_OK;
    for (uint32_t c = 0; c < at->hosts && status == PCCL_OK; c++)
        status = pccl__plan_add(plan, (struct pccl__step){.peer = at->first + member,
                                                          .chunk = slice * at->hosts + c,
                                                          .round = round,
                                                          .kind = (uint8_t)kind,
                                                          .complete = complete});
    return status;
}

/* Each slice to its leader. Everyone begins with the leader behind it, so that not all begin with the same. */
static pccl_status add_collect(struct pccl__plan *plan, const struct place *at) {
    pccl_status status = PCCL_OK;
    for (uint32_t k = 1; k <= at->slices && status == PCCL_OK; k++) {
        uint32_t leader = (at->local + k) % at->slices;
        if (leader != at->local) status = add_slice(plan, at, 0, leader, leader, PCCL__SEND, false);
    }
    if (at->local >= at->slices) return status;
    bool alone = at->hosts == 1;
    for (uint32_t from = at->local + 1; from < at->members && status == PCCL_OK; from++)
        status = add_slice(plan, at, 0, from, at->local, PCCL__REDUCE_RIGHT,
                           alone && at->local == 0 && from + 1 == at->members);
    for (uint32_t from = at->local; from-- > 0 && status == PCCL_OK;)
        status = add_slice(plan, at, 0, from, at->local, PCCL__REDUCE_LEFT, alone && from == 0);
    return status;
}

/* Each slice from its leader to all others. */
static pccl_status add_spread(struct pccl__plan *plan, const struct place *at, uint32_t round) {
    pccl_status status = PCCL_OK;
    for (uint32_t k = 1; at->local < at->slices && k < at->members && status == PCCL_OK; k++)
        status = add_slice(plan, at, round, (at->local + k) % at->members, at->local, PCCL__SEND, false);
    for (uint32_t leader = 0; leader < at->slices && status == PCCL_OK; leader++)
        if (leader != at->local) status = add_slice(plan, at, round, leader, leader, PCCL__COPY, false);
    return status;
}

/* A ring all-reduce of our slice among its leaders. */
static pccl_status add_between(struct pccl__plan *plan, const struct place *at, uint32_t round) {
    uint32_t hosts = at->hosts, chunk = at->local * hosts;
    uint32_t next = pccl__shape_host_begin(at->shape, (at->host + 1) % hosts) + at->local;
    uint32_t previous = pccl__shape_host_begin(at->shape, (at->host + hosts - 1) % hosts) + at->local;
    pccl_status status = PCCL_OK;
    for (uint32_t k = 0; k < 2 * (hosts - 1) && status == PCCL_OK; k++, round++) {
        bool reduces = k < hosts - 1;
        uint32_t back = reduces ? k + 1 : k + 1 - hosts; /* of the chunk that is passed on */
        uint32_t sent = (at->host + hosts - back) % hosts, taken = (at->host + 2 * hosts - back - 1) % hosts;
        status = pccl__plan_add(
            plan, (struct pccl__step){.peer = next, .chunk = chunk + sent, .round = round, .kind = PCCL__SEND});
        if (status == PCCL_OK)
            status = pccl__plan_add(plan, (struct pccl__step){.peer = previous,
                                                              .chunk = chunk + taken,
                                                              .round = round,
                                                              .kind = reduces ? PCCL__REDUCE_LEFT : PCCL__COPY,
                                                              .complete = k + 2 == hosts});
    }
    return status;
}

pccl_status pccl__plan_hierarchical_all_reduce(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                               struct pccl__plan *plan) {
    (void)root;
    uint32_t hosts = pccl__shape_hosts(shape), inside = shape->host_most > 1;
    uint32_t rounds = 2 * (hosts - 1) + 2 * inside;
    pccl_status status = pccl__plan_begin(plan, position, shape->size, shape->host_least * hosts, rounds);
    if (status != PCCL_OK) return status;
    struct place at = place_of(position, shape);
    status = add_collect(plan, &at);
    if (status == PCCL_OK && at.local < at.slices) status = add_between(plan, &at, inside);
    return status == PCCL_OK ? add_spread(plan, &at, rounds - 1) : status;
}
