/* SPDX-License-Identifier: MIT
 *
 * route.c - what has an origin and a target, along the links of a tree: each part takes the one way that there is, and
 * those between pass it on. For groups in which links are dead: `tree` where only a tree is left, `line` where a ring
 * is, which is used as the tree that it is without one of its links.
 *
 * A part is as many rounds on its way as it has crossed links. What is summed up on its way waits for the farthest
 * contribution behind each link, as in tree.c. In scan and exscan chunk c is a whole vector on its way to position c,
 * to which only the ranks contribute that belong to its prefix; a position that adds nothing passes on what it gets.
 *
 * With d the diameter (of the line n-1) and g the most links of one position:
 *                rounds   bytes sent by the busiest (of gather and reduce: received)
 *   gather       d        (n-1)/n of the vector (n parts)
 *   scatter      d        (n-1)/n of the vector (n parts)
 *   reduce       d        g times the vector
 *   all_to_all   d        sum of f (n - f) / n of the vector (n parts), over its links, f positions behind the link
 *   scan         d        at most n-1 times the vector
 *   exscan       d        at most n-1 times the vector
 */
#include "plan/plan.h"

#include <stdlib.h>

#include "plan/side.h"

static pccl_status add(struct pccl__plan *plan, uint32_t round, uint32_t peer, uint32_t chunk,
                       enum pccl__step_kind kind, bool complete) {
    return pccl__plan_add(
        plan,
        (struct pccl__step){.peer = peer, .chunk = chunk, .round = round, .kind = (uint8_t)kind, .complete = complete});
}

/* ---------------------------------------------------------------- what a position knows of the tree */

struct view {
    const struct pccl__shape *shape;
    uint32_t position;
    uint32_t *distance; /* [size] links to each position */
    uint32_t *towards;  /* [size] the neighbour on the way there; ourselves for ourselves */
};

static void close_view(struct view *view) {
    free(view->distance);
    free(view->towards);
}

static pccl_status open_view(struct view *view, const struct pccl__shape *shape, uint32_t position) {
    *view = (struct view){.shape = shape,
                          .position = position,
                          .distance = malloc(shape->size * sizeof *view->distance),
                          .towards = malloc(shape->size * sizeof *view->towards)};
    if (!view->distance || !view->towards) {
        close_view(view);
        return PCCL_NO_MEMORY;
    }
    pccl__side_distances(shape, position, view->distance);
    view->towards[position] = position;
    for (struct pccl__side side = {.peer = position}; pccl__side_next(shape, position, &side);)
        for (uint32_t p = 0; p < shape->size; p++)
            if (pccl__side_holds(&side, p)) view->towards[p] = side.peer;
    return PCCL_OK;
}

/* Are we on the way from `from` to `to`? */
static bool on_the_way(const struct view *view, uint32_t from, uint32_t to) {
    uint32_t us = view->position;
    return from == us || to == us || view->towards[from] != view->towards[to];
}

/* ---------------------------------------------------------------- parts */

/* What goes from whom to whom. */
struct parts {
    uint32_t chunks;
    uint32_t origin, target; /* ANY, or the only one */
};
enum { ANY = UINT32_MAX };

static uint32_t chunk_between(const struct parts *parts, uint32_t size, uint32_t from, uint32_t to) {
    if (parts->origin == ANY && parts->target == ANY) return from * size + to;
    return parts->origin == ANY ? from : to;
}

/* The parts of all origins that are `far` links away: received, or sent on. */
static pccl_status route_from(const struct view *view, uint32_t far, const struct parts *parts, bool send,
                              struct pccl__plan *plan) {
    uint32_t size = view->shape->size, us = view->position;
    uint32_t first = parts->target == ANY ? 0 : parts->target, end = parts->target == ANY ? size : parts->target + 1;
    for (uint32_t from = 0; from < size; from++) {
        if (view->distance[from] != far || (parts->origin != ANY && parts->origin != from)) continue;
        for (uint32_t to = first; to < end; to++) {
            if (from == to || !on_the_way(view, from, to) || (send ? to : from) == us) continue;
            uint32_t peer = view->towards[send ? to : from], round = send ? far : far - 1;
            uint32_t chunk = chunk_between(parts, size, from, to);
            pccl_status status = add(plan, round, peer, chunk, send ? PCCL__SEND : PCCL__COPY, false);
            if (status != PCCL_OK) return status;
        }
    }
    return PCCL_OK;
}

static pccl_status route(uint32_t position, const struct pccl__shape *shape, struct parts parts,
                         struct pccl__plan *plan) {
    pccl_status status = pccl__plan_begin(plan, position, shape->size, parts.chunks, shape->diameter);
    plan->once = true;
    struct view view;
    if (status == PCCL_OK) status = open_view(&view, shape, position);
    if (status != PCCL_OK) return status;
    for (uint32_t round = 0; round < shape->diameter && status == PCCL_OK; round++) {
        status = route_from(&view, round, &parts, true, plan);
        if (status == PCCL_OK) status = route_from(&view, round + 1, &parts, false, plan);
    }
    close_view(&view);
    return status;
}

pccl_status pccl__plan_tree_gather(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                   struct pccl__plan *plan) {
    if (shape->kind != PCCL_SHAPE_TREE || root >= shape->size) return PCCL_INVALID;
    return route(position, shape, (struct parts){.chunks = shape->size, .origin = ANY, .target = root}, plan);
}

pccl_status pccl__plan_tree_scatter(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                    struct pccl__plan *plan) {
    if (shape->kind != PCCL_SHAPE_TREE || root >= shape->size) return PCCL_INVALID;
    return route(position, shape, (struct parts){.chunks = shape->size, .origin = root, .target = ANY}, plan);
}

pccl_status pccl__plan_tree_all_to_all(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                       struct pccl__plan *plan) {
    (void)root;
    if (shape->kind != PCCL_SHAPE_TREE) return PCCL_INVALID;
    uint32_t chunks = shape->size * shape->size;
    return route(position, shape, (struct parts){.chunks = chunks, .origin = ANY, .target = ANY}, plan);
}

/* ---------------------------------------------------------------- sums */

/* Who adds to the sum that goes to `target`? */
typedef bool adds_to(const struct pccl__shape *shape, uint32_t position, uint32_t target);

static uint32_t rank_of(const struct pccl__shape *shape, uint32_t position) {
    return shape->ranks ? shape->ranks[position] : position;
}

static bool everyone(const struct pccl__shape *shape, uint32_t position, uint32_t target) {
    (void)shape, (void)position, (void)target;
    return true;
}

static bool up_to(const struct pccl__shape *shape, uint32_t position, uint32_t target) {
    return rank_of(shape, position) <= rank_of(shape, target);
}

static bool before(const struct pccl__shape *shape, uint32_t position, uint32_t target) {
    return rank_of(shape, position) < rank_of(shape, target);
}

/* Does anybody in `side` (or, with `outside`, anybody else) add to it? */
static bool any_adds(const struct pccl__shape *shape, const struct pccl__side *side, bool outside, uint32_t target,
                     adds_to *adds) {
    for (uint32_t p = 0; p < shape->size; p++)
        if (pccl__side_holds(side, p) != outside && adds(shape, p, target)) return true;
    return false;
}

/* The round in which the last contribution to `target` comes to us, and from whom; ourselves: none comes. */
static uint32_t last_to_come(const struct pccl__shape *shape, uint32_t position, uint32_t target, adds_to *adds) {
    uint32_t last = position, round = 0;
    for (struct pccl__side side = {.peer = position}; pccl__side_next(shape, position, &side);) {
        if (pccl__side_holds(&side, target) || (last != position && side.far < round)) continue;
        if (!any_adds(shape, &side, false, target, adds)) continue;
        last = side.peer;
        round = side.far;
    }
    return last;
}

struct sum {
    uint32_t target, chunk;
    bool whole; /* everyone adds to it: it is complete at the target */
    bool holds; /* we have a part of it */
    uint32_t last;
};

static pccl_status sum_round(const struct pccl__shape *shape, uint32_t round, struct sum *sum, adds_to *adds, bool send,
                             struct pccl__plan *plan) {
    uint32_t us = plan->position;
    pccl_status status = PCCL_OK;
    for (struct pccl__side side = {.peer = us}; pccl__side_next(shape, us, &side) && status == PCCL_OK;) {
        bool leads = pccl__side_holds(&side, sum->target);
        if (leads != send || (send ? side.near : side.far) != round) continue;
        if (!any_adds(shape, &side, send, sum->target, adds)) continue;
        enum pccl__step_kind receive = sum->holds ? PCCL__REDUCE_RIGHT : PCCL__COPY;
        bool complete = !send && sum->whole && us == sum->target && side.peer == sum->last;
        status = add(plan, round, side.peer, sum->chunk, send ? PCCL__SEND : receive, complete);
        sum->holds = true;
    }
    return status;
}

static pccl_status add_sums(const struct pccl__shape *shape, struct sum *sums, uint32_t count, adds_to *adds,
                            struct pccl__plan *plan) {
    pccl_status status = PCCL_OK;
    for (uint32_t i = 0; i < count; i++) {
        sums[i].holds = adds(shape, plan->position, sums[i].target);
        sums[i].last = last_to_come(shape, plan->position, sums[i].target, adds);
    }
    for (uint32_t round = 0; round < shape->diameter; round++)
        for (uint32_t pass = 0; pass < 2; pass++)
            for (uint32_t i = 0; i < count && status == PCCL_OK; i++)
                status = sum_round(shape, round, &sums[i], adds, pass == 0, plan);
    return status;
}

pccl_status pccl__plan_tree_reduce(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                   struct pccl__plan *plan) {
    if (shape->kind != PCCL_SHAPE_TREE || root >= shape->size) return PCCL_INVALID;
    pccl_status status = pccl__plan_begin(plan, position, shape->size, 1, shape->diameter);
    struct sum sum = {.target = root, .whole = true};
    return status == PCCL_OK ? add_sums(shape, &sum, 1, everyone, plan) : status;
}

/* One sum for each position. */
static pccl_status scan(uint32_t position, const struct pccl__shape *shape, adds_to *adds, struct pccl__plan *plan) {
    if (shape->kind != PCCL_SHAPE_TREE) return PCCL_INVALID;
    pccl_status status = pccl__plan_begin(plan, position, shape->size, shape->size, shape->diameter);
    if (status != PCCL_OK) return status;
    plan->once = true;
    struct sum *sums = calloc(shape->size, sizeof *sums);
    if (!sums) return PCCL_NO_MEMORY;
    for (uint32_t p = 0; p < shape->size; p++) sums[p] = (struct sum){.target = p, .chunk = p};
    status = add_sums(shape, sums, shape->size, adds, plan);
    free(sums);
    return status;
}

pccl_status pccl__plan_tree_scan(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                 struct pccl__plan *plan) {
    (void)root;
    return scan(position, shape, up_to, plan);
}

pccl_status pccl__plan_tree_exscan(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                   struct pccl__plan *plan) {
    (void)root;
    return scan(position, shape, before, plan);
}

/* ---------------------------------------------------------------- the line */

static pccl_status on_line(uint32_t position, const struct pccl__shape *shape, uint32_t root, pccl__plan_build *build,
                           struct pccl__plan *plan) {
    uint32_t *parents = malloc(shape->size * sizeof *parents);
    if (!parents) return PCCL_NO_MEMORY;
    for (uint32_t p = 0; p < shape->size; p++) parents[p] = p ? p - 1 : 0;
    struct pccl__shape line = {0};
    pccl_status status = pccl__shape_init(&line, PCCL_SHAPE_TREE, shape->size, parents);
    free(parents);
    if (status != PCCL_OK) return status;
    line.ranks = shape->ranks;
    status = build(position, &line, root, plan);
    pccl__shape_free(&line);
    return status;
}

pccl_status pccl__plan_line_gather(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                   struct pccl__plan *plan) {
    return on_line(position, shape, root, pccl__plan_tree_gather, plan);
}

pccl_status pccl__plan_line_scatter(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                    struct pccl__plan *plan) {
    return on_line(position, shape, root, pccl__plan_tree_scatter, plan);
}

pccl_status pccl__plan_line_all_to_all(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                       struct pccl__plan *plan) {
    return on_line(position, shape, root, pccl__plan_tree_all_to_all, plan);
}

pccl_status pccl__plan_line_scan(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                 struct pccl__plan *plan) {
    return on_line(position, shape, root, pccl__plan_tree_scan, plan);
}

pccl_status pccl__plan_line_exscan(uint32_t position, const struct pccl__shape *shape, uint32_t root,
                                   struct pccl__plan *plan) {
    return on_line(position, shape, root, pccl__plan_tree_exscan, plan);
}
