/* SPDX-License-Identifier: MIT
 *
 * plan.h - what an algorithm says must move: rounds of sends and receives of chunks.
 *
 * Must not know: bytes, dtypes, sockets, time. A plan speaks of *positions* 0..size-1 (the executor maps them to
 * ranks through the ring order) and of *chunks* 0..chunks-1. One executor (engine/exec.c) runs every plan; it cuts
 * chunks into segments, and a send of a segment starts as soon as the earlier steps of this plan that
 * write that chunk are done for that segment. So pipelining needs nothing here.
 *
 * A plan sends only between positions that the group's *shape* joins (shape.h), whatever collective it serves.
 *
 * To add an algorithm: one file with a build function, one line in the table of choose.c.
 */
#ifndef PCCL_PLAN_PLAN_H
#define PCCL_PLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pccl.h"
#include "plan/shape.h"
#include "plan/work.h"

enum pccl__step_kind {
    PCCL__SEND = 0,        /* send this chunk's current value to `peer` */
    PCCL__COPY = 1,        /* receive: the received value becomes the chunk's value */
    PCCL__REDUCE_LEFT = 2, /* receive: value = received op value */
    PCCL__REDUCE_RIGHT = 3 /* receive: value = value op received */
};

struct pccl__step {
    uint32_t peer; /* position of the other side, never our own */
    uint32_t chunk;
    uint32_t round;   /* non-decreasing along the plan; the same number on both sides of a transfer */
    uint8_t kind;     /* enum pccl__step_kind */
    uint8_t complete; /* after this reduce the value holds every contribution (AVG divides here) */
};

enum { PCCL__PLAN_NAMES = 1 << 30 };

/* Between one pair and direction there is at most one transfer per (round, chunk): that pair names it on the wire. All
 * names of a plan are below PCCL__PLAN_NAMES. */
struct pccl__plan {
    uint32_t position, size;
    uint32_t chunks;
    uint32_t rounds;
    bool once; /* no chunk crosses a link twice in one direction, so that its number alone names it on the wire */
    uint32_t steps_count, steps_capacity;
    struct pccl__step *steps; /* owned; by round, sends before receives within a round */
};

/* Where values live before and after, per collective; the plan's builder and the interpreter agree on it:
 *   all_reduce      chunks is the builder's choice; every position starts with its own contribution to every chunk
 *                   and ends with every chunk complete
 *   reduce_scatter  chunks == size; starts with a contribution to every chunk, ends with chunk `position` complete
 *   all_gather      chunks == size; starts with chunk `position`, ends with all chunks
 *   broadcast       chunks is the builder's choice; `root` starts with all, everyone ends with all
 *   reduce          as all_reduce, but only `root` ends with every chunk complete
 *   gather          chunks == size; starts with chunk `position`; `root` ends with all
 *   scatter         chunks == size; `root` starts with all, everyone ends with chunk `position`
 *   all_to_all      chunks == size * size, chunk s * size + d goes from s to d: starts with a row, ends with a column
 *   scan, exscan    chunks is the builder's choice; everyone ends with the reduction of positions 0..position, or of
 *                   0..position-1 (position 0 with nothing that counts), in that order
 *   barrier         chunks == 1 (of zero bytes); COPY only; ends when everyone is known to have begun */
typedef pccl_status pccl__plan_build(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                     struct pccl__plan *plan);

enum pccl__trait {
    /* Every chunk goes straight from where it starts to where it ends, so nobody else must know how long it is. */
    PCCL__STRAIGHT = 1,
    /* Positions stand for ranks, not for places on the ring. */
    PCCL__BY_RANK = 2,
    /* scan, exscan: there are `size` chunks; chunk c is a whole vector on its way to position c, to which those give
     * whose ranks belong to its prefix (shape.ranks), in any order. */
    PCCL__TO_EACH = 4,
    /* It works inside hosts first, then between them, where the shape knows hosts. */
    PCCL__BY_HOST = 8,
    /* All planners of a collective that have it compute one and the same expression of positions, which depends on
     * nothing but `size`; those of all_reduce, reduce and reduce_scatter the same for all three. */
    PCCL__FIXED_ORDER = 16,
    /* Everyone sends to everyone at once: only chosen where all are known to share a host. */
    PCCL__AT_ONCE = 32,
    /* No two positions compute the same sum (of those that are sent, or hold all contributions). */
    PCCL__ONE_EACH = 64,
};

struct pccl__planner {
    pccl_collective collective;
    pccl_algorithm algorithm;
    pccl__plan_build *build;
    pccl_shape links; /* what its steps keep to: FULL is any pair. TREE plans need a tree */
    uint8_t traits;   /* enum pccl__trait */
    pccl__plan_work *work;
    pccl__plan_work *inside; /* of those BY_HOST, whose `work` is that between hosts; else NULL */
};

/* For builders; `plan` must be zeroed or built before. A plan for size 1 stays empty. Errors of both: NO_MEMORY,
 * INVALID. */
pccl_status pccl__plan_begin(struct pccl__plan *plan, uint32_t position, uint32_t size, uint32_t chunks,
                             uint32_t rounds);
pccl_status pccl__plan_add(struct pccl__plan *plan, struct pccl__step step);
void pccl__plan_free(struct pccl__plan *plan);
/* Sanity of one plan against its bounds (peers, chunks, rounds, kinds); INVALID names a broken builder. Or NO_MEMORY.
 */
pccl_status pccl__plan_check(const struct pccl__plan *plan);

/* choose.c: all known planners; NULL when none matches. `find` does not ask whether a shape allows it. */
const struct pccl__planner *pccl__planner_find(pccl_collective collective, pccl_algorithm algorithm);
const struct pccl__planner *pccl__planner_at(size_t index); /* for tests and `explain`; NULL past the end */

/* Do its plans keep to the links of this shape, and has it the traits that are needed? */
bool pccl__planner_fits(const struct pccl__planner *planner, const struct pccl__shape *shape, uint8_t needed);

struct pccl__link_model {
    double latency_ns;   /* one way, small frame */
    double overhead_ns;  /* what a transfer costs the one who handles it, however small */
    double bytes_per_ns; /* of one link inside a host, and of the wire that the members of a host share */
};
struct pccl__link_models {
    struct pccl__link_model inside, between; /* links inside a host, and those that leave it; of one host: alike */
};

/* What each planner asks for its work in a group: `start_ns`, and `byte_ns` for each byte of the vector that its volume
 * speaks of. Those that do not fit, or are not worth a look there, are not in it. */
struct pccl__offer {
    const struct pccl__planner *planner;
    double start_ns, byte_ns;
};
enum { PCCL__OFFERS_MAX = 64 };
struct pccl__offers {
    uint32_t size, count; /* members; offers */
    struct pccl__link_models links;
    struct pccl__offer offer[PCCL__OFFERS_MAX]; /* in the order of the table */
};
void pccl__offers_make(struct pccl__offers *offers, const struct pccl__shape *shape, struct pccl__link_models links);

/* AUTO: of the offers for a collective whose planners have the traits that are needed the cheapest, where `bytes` are
 * those of the vector that `volume` speaks of. NULL when there is none. Takes some tens of nanoseconds. */
const struct pccl__planner *pccl__planner_choose(const struct pccl__offers *offers, pccl_collective collective,
                                                 uint64_t bytes, uint8_t needed);
/* What a planner takes, on offer or not. */
double pccl__planner_cost_ns(const struct pccl__offers *offers, const struct pccl__planner *planner,
                             const struct pccl__shape *shape, uint64_t bytes);
/* What `chosen` and its rivals would take, in words: "ring: 13.2 ms (6 rounds, 1.50 times 67108864 bytes); doubling:
 * 27 ms". Cut where `text_bytes` end. */
void pccl__planner_explain(const struct pccl__offers *offers, const struct pccl__planner *chosen,
                           const struct pccl__shape *shape, uint64_t bytes, uint8_t needed, char *text,
                           size_t text_bytes);

/* "13.2 ms"; returns as snprintf does. */
int pccl__duration_text(double ns, char *text, size_t text_bytes);

/* The builders. */
pccl__plan_build pccl__plan_ring_all_reduce, pccl__plan_ring_reduce_scatter, pccl__plan_ring_all_gather;
pccl__plan_build pccl__plan_doubling_all_reduce, pccl__plan_direct_all_reduce, pccl__plan_direct_reduce_scatter;
pccl__plan_build pccl__plan_chain_broadcast, pccl__plan_binomial_broadcast;
pccl__plan_build pccl__plan_dissemination_barrier, pccl__plan_ring_barrier;
pccl__plan_build pccl__plan_tree_all_reduce, pccl__plan_tree_reduce_scatter, pccl__plan_tree_all_gather;
pccl__plan_build pccl__plan_tree_broadcast, pccl__plan_tree_barrier;
pccl__plan_build pccl__plan_halving_all_reduce, pccl__plan_halving_reduce_scatter;
pccl__plan_build pccl__plan_hierarchical_all_reduce, pccl__plan_leaders_all_reduce;
pccl__plan_build pccl__plan_hierarchical_reduce_scatter, pccl__plan_leaders_reduce_scatter;
pccl__plan_build pccl__plan_hierarchical_all_gather, pccl__plan_leaders_all_gather;
pccl__plan_build pccl__plan_hierarchical_broadcast, pccl__plan_leaders_broadcast;
pccl__plan_build pccl__plan_hierarchical_reduce, pccl__plan_leaders_reduce;
pccl__plan_build pccl__plan_leaders_barrier;
pccl__plan_build pccl__plan_star_all_reduce, pccl__plan_star_reduce, pccl__plan_star_broadcast;
pccl__plan_build pccl__plan_star_gather, pccl__plan_star_scatter;
pccl__plan_build pccl__plan_chain_reduce, pccl__plan_binomial_reduce;
pccl__plan_build pccl__plan_pairwise_all_to_all, pccl__plan_bruck_all_to_all, pccl__plan_bruck_all_gather;
pccl__plan_build pccl__plan_chain_scan, pccl__plan_doubling_scan, pccl__plan_chain_exscan, pccl__plan_doubling_exscan;
pccl__plan_build pccl__plan_tree_reduce, pccl__plan_tree_gather, pccl__plan_tree_scatter, pccl__plan_tree_all_to_all;
pccl__plan_build pccl__plan_tree_scan, pccl__plan_tree_exscan;
pccl__plan_build pccl__plan_line_gather, pccl__plan_line_scatter, pccl__plan_line_all_to_all;
pccl__plan_build pccl__plan_line_scan, pccl__plan_line_exscan;

#endif
