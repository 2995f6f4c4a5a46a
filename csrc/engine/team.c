/* SPDX-License-Identifier: MIT */
#include "engine/team.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "engine/group.h"
#include "engine/prices.h"

/* ---------------------------------------------------------------- schedules */

struct cached {
    struct list link;
    pccl_collective collective;
    pccl_algorithm algorithm;
    uint32_t position, root;
    struct pccl__schedule *schedule;
};

pccl_status pccl__team_schedule(struct pccl__team *team, pccl_collective collective, const struct pccl__shape *shape,
                                const struct pccl__planner *planner, uint32_t position, uint32_t root_position,
                                const struct pccl__schedule **schedule) {
    pccl_algorithm algorithm = planner ? planner->algorithm : PCCL_AUTO;
    for (struct list *node = team->schedules.next; node != &team->schedules; node = node->next) {
        struct cached *cached = LIST_ENTRY(node, struct cached, link);
        if (cached->collective == collective && cached->algorithm == algorithm && cached->position == position &&
            cached->root == root_position) {
            *schedule = cached->schedule;
            return PCCL_OK;
        }
    }
    struct cached *cached = malloc(sizeof *cached);
    if (!cached) return PCCL_NO_MEMORY;
    *cached =
        (struct cached){.collective = collective, .algorithm = algorithm, .position = position, .root = root_position};
    pccl_status status = pccl__schedule_new(planner, position, shape, root_position, &cached->schedule);
    if (status != PCCL_OK) {
        free(cached);
        return status;
    }
    list_init(&cached->link);
    list_push_front(&team->schedules, &cached->link);
    *schedule = cached->schedule;
    return PCCL_OK;
}

static void drop_schedules(struct pccl__team *team) {
    struct list *node;
    while ((node = list_pop_front(&team->schedules))) {
        struct cached *cached = LIST_ENTRY(node, struct cached, link);
        pccl__schedule_free(cached->schedule);
        free(cached);
    }
}

/* ---------------------------------------------------------------- who stands where */

/* Members who share a host come to the same answer, for they have the same view. */
static void look_around(struct pccl__team *team, const pccl_member *members) {
    uint32_t cores = UINT32_MAX;
    for (uint32_t i = 0; i < team->size; i++) {
        const pccl_member *member = &members[team->members[i]];
        if (member->host_id != members[team->members[team->rank]].host_id) continue;
        team->host_members++;
        if (member->cores) cores = (uint32_t)min_u64(cores, member->cores);
    }
    team->one_host = team->host_members == team->size;
    team->crowded = team->host_members > cores;
}

static uint32_t rank_in(const struct pccl__team *team, uint32_t member) {
    uint32_t rank = 0;
    while (rank < team->size && team->members[rank] != member) rank++;
    return rank;
}

/* Positions in the group of those in the team, in the order of its ring, which keeps hosts together. */
static void line_up(const struct pccl__group *group, const struct pccl__team *team, uint32_t *places) {
    uint32_t count = 0;
    for (uint32_t p = 0; p < group->size && count < team->size; p++)
        if (team->size == group->size || rank_in(team, group->ring[p]) < team->size) places[count++] = p;
}

/* Walks from the first place along the links that are used, and orders `places` as it comes to them: in preorder.
 * Returns how many it reaches. */
static uint32_t walk(const struct pccl__shape *shape, uint32_t *places, uint32_t size, uint32_t *parents) {
    uint32_t reached = 1, at = 0;
    parents[0] = 0;
    for (;;) {
        uint32_t next = reached;
        while (next < size && !pccl__shape_joins(shape, places[at], places[next])) next++;
        if (next < size) {
            uint32_t place = places[next];
            places[next] = places[reached];
            places[reached] = place;
            parents[reached] = at;
            at = reached++;
        } else if (at == 0) {
            return reached;
        } else {
            at = parents[at];
        }
    }
}

/* The group's own shape where all are in the team; where any pair has a link, so have those of the team; else what is
 * left between them, as a tree. Not connected: there is no shape. */
static pccl_status shape_up(const struct pccl__group *group, struct pccl__team *team, uint32_t *places,
                            uint32_t *parents) {
    const struct pccl__shape *shape = &group->shape;
    if (shape->kind == PCCL_SHAPE_FULL || team->size == group->size)
        return pccl__shape_init(&team->shape, shape->kind, team->size, shape->parents);
    if (walk(shape, places, team->size, parents) < team->size) return PCCL_OK;
    return pccl__shape_init(&team->shape, PCCL_SHAPE_TREE, team->size, parents);
}

/* The master's rings keep hosts together unless a dead link has to be avoided. */
static pccl_status set_hosts(const struct pccl__group *group, struct pccl__team *team, uint64_t *ids) {
    for (uint32_t p = 0; p < team->size; p++) ids[p] = group->members[team->links[p]].host_id;
    return pccl__shape_set_hosts(&team->shape, ids);
}

static pccl_status place_all(const struct pccl__group *group, struct pccl__team *team) {
    uint64_t *scratch = malloc(team->size * sizeof *scratch);
    if (!scratch) return PCCL_NO_MEMORY;
    uint32_t *places = (uint32_t *)scratch, *parents = places + team->size;
    line_up(group, team, places);
    pccl_status status = shape_up(group, team, places, parents);
    for (uint32_t p = 0; p < team->size; p++) {
        team->links[p] = group->ring[places[p]];
        team->ring[p] = rank_in(team, team->links[p]);
        if (team->ring[p] == team->rank) team->position = p;
    }
    if (status == PCCL_OK && team->shape.size) status = set_hosts(group, team, scratch);
    team->shape.ranks = team->ring;
    free(scratch);
    return status;
}

pccl_status pccl__team_new(const struct pccl__group *group, uint64_t scope, const uint32_t *ranks, uint32_t size,
                           struct pccl__team **out) {
    struct pccl__team *team = calloc(1, sizeof *team);
    uint32_t *arrays = malloc(size * 3 * sizeof *arrays);
    if (!team || !arrays) {
        free(team);
        free(arrays);
        return PCCL_NO_MEMORY;
    }
    *team = (struct pccl__team){
        .scope = scope, .size = size, .members = arrays, .ring = arrays + size, .links = arrays + 2 * (size_t)size};
    list_init(&team->schedules);
    for (uint32_t i = 0; i < size; i++) team->members[i] = ranks ? ranks[i] : i;
    team->rank = rank_in(team, group->rank);
    look_around(team, group->members);
    pccl_status status = place_all(group, team);
    if (status == PCCL_OK && team->shape.size) {
        pccl__offers_make(&team->offers, &team->shape, pccl__prices_models(&group->prices, team->one_host));
        team->barrier = pccl__planner_choose(&team->offers, PCCL_BARRIER, 0, 0);
        status = pccl__team_schedule(team, PCCL_BARRIER, &team->shape, team->barrier, team->position, 0, &team->finish);
    }
    if (status == PCCL_OK)
        *out = team;
    else
        pccl__team_free(team);
    return status;
}

void pccl__team_free(struct pccl__team *team) {
    if (!team) return;
    drop_schedules(team);
    pccl__shape_free(&team->shape);
    free(team->members);
    free(team);
}

uint32_t pccl__team_position(const struct pccl__team *team, uint32_t rank) {
    uint32_t position = 0;
    while (team->ring[position] != rank) position++;
    return position;
}

/* ---------------------------------------------------------------- scopes */

uint64_t pccl__team_scope(const struct pccl__group *group, const uint32_t *ranks, uint32_t size) {
    uint32_t in_order = 0;
    while (in_order < size && ranks[in_order] == in_order) in_order++;
    return in_order == group->size ? 0 : pccl__scope_of_ranks(ranks, size);
}

struct pccl__team *pccl__team_find(const struct pccl__group *group, uint64_t scope) {
    if (scope == 0) return group->whole;
    struct pccl__team *team = group->teams;
    while (team && team->scope != scope) team = team->next;
    return team;
}

bool pccl__team_has(const struct pccl__group *group, uint64_t scope, uint32_t rank) {
    if (scope == 0) return true;
    if (pccl__scope_is_pair(scope)) return rank == pccl__scope_source(scope) || rank == pccl__scope_target(scope);
    const struct pccl__team *team = pccl__team_find(group, scope);
    return team && rank_in(team, rank) < team->size;
}
