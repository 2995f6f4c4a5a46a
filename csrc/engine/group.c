/* SPDX-License-Identifier: MIT */
#include "engine/group.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/check.h"
#include "base/status.h"

static bool same_id(const pccl_peer_id *a, const pccl_peer_id *b) { return memcmp(a, b, sizeof *a) == 0; }

static pccl_status check_ring(const uint32_t *ring, uint32_t size, pccl_error *error) {
    uint8_t *seen = calloc(size, 1);
    if (!seen) return pccl__fail(error, PCCL_NO_MEMORY, "no memory for a view of %u members", size);
    bool good = true;
    for (uint32_t i = 0; i < size && good; i++) {
        good = ring[i] < size && !seen[ring[i]];
        if (good) seen[ring[i]] = 1;
    }
    free(seen);
    return good ? PCCL_OK : pccl__fail(error, PCCL_INVALID, "the ring is not a permutation of %u ranks", size);
}

pccl_status pccl__view_check(const pccl_view *view, uint64_t newest_epoch, pccl_error *error) {
    if (!view || !view->members || view->size == 0)
        return pccl__fail(error, PCCL_INVALID, "a view needs at least one member");
    if (view->epoch == 0 || view->epoch <= newest_epoch)
        return pccl__fail(error, PCCL_INVALID, "epoch %llu is not newer than %llu", (unsigned long long)view->epoch,
                          (unsigned long long)newest_epoch);
    if (view->rank >= view->size)
        return pccl__fail(error, PCCL_INVALID, "rank %u is outside a view of %u members", view->rank, view->size);
    if (view->commits_count && !view->commits)
        return pccl__fail(error, PCCL_INVALID, "commits is NULL but commits_count is %u", view->commits_count);
    for (uint32_t i = 0; i < view->size; i++)
        for (uint32_t j = i + 1; j < view->size; j++)
            if (same_id(&view->members[i].id, &view->members[j].id))
                return pccl__fail(error, PCCL_INVALID, "members %u and %u have the same id", i, j);
    return view->ring ? check_ring(view->ring, view->size, error) : PCCL_OK;
}

/* Opens what is missing. On failure closes what was opened here. */
static pccl_status open_channels(struct pccl__group *next, const struct pccl__group *old,
                                 struct pccl__transport *transport, pccl_error *error) {
    for (uint32_t rank = 0; rank < next->size; rank++) {
        if (rank == next->rank) continue;
        struct pccl__channel *kept = pccl__group_channel(old, &next->members[rank].id);
        if (kept && !kept->broken) continue;
        pccl_status status = transport->ops->open(transport, &next->members[rank], &next->channels[rank]);
        if (status == PCCL_OK) continue;
        for (uint32_t i = 0; i < rank; i++) {
            if (!next->channels[i]) continue;
            next->channels[i]->ops->close(next->channels[i], PCCL_ABORTED);
            next->channels[i]->ops->free(next->channels[i]);
        }
        return pccl__fail(error, status, "cannot open a link to rank %u at %s port %u", rank,
                          next->members[rank].address, next->members[rank].port);
    }
    return PCCL_OK;
}

static bool same_members(const struct pccl__group *old, const pccl_view *view) {
    bool same = old->size == view->size && old->rank == view->rank;
    for (uint32_t i = 0; same && i < old->size; i++) same = same_id(&old->members[i].id, &view->members[i].id);
    return same;
}

static pccl_status add_team(struct pccl__group *group, uint64_t scope, const uint32_t *ranks, uint32_t count) {
    struct pccl__team *team;
    pccl_status status = pccl__team_new(group, scope, ranks, count, &team);
    if (status != PCCL_OK) return status;
    team->next = group->teams;
    group->teams = team;
    return PCCL_OK;
}

/* Scopes stay what they were as long as ranks mean the same members. */
static pccl_status set_teams(struct pccl__group *next, const struct pccl__group *old) {
    pccl_status status = pccl__team_new(next, 0, NULL, next->size, &next->whole);
    const struct pccl__team *team = next->since < next->epoch ? old->teams : NULL;
    for (; status == PCCL_OK && team; team = team->next)
        status = add_team(next, team->scope, team->members, team->size);
    return status;
}

pccl_status pccl__group_next(struct pccl__group *next, const struct pccl__group *old, const pccl_view *view,
                             struct pccl__transport *transport, pccl_error *error) {
    next->epoch = view->epoch;
    next->since = same_members(old, view) ? old->since : view->epoch;
    next->size = view->size;
    next->rank = view->rank;
    next->prices = view->prices;
    next->members = malloc(view->size * sizeof *next->members);
    next->ring = malloc(view->size * sizeof *next->ring);
    next->channels = calloc(view->size, sizeof(struct pccl__channel *));
    next->used = calloc(view->size, 3);
    pccl_status status = pccl__shape_init(&next->shape, view->shape, view->size, view->parents);
    if (status == PCCL_INVALID) {
        pccl__fail(error, status, "shape %d of %u members has no such tree", (int)view->shape, view->size);
        goto failed;
    }
    if (status != PCCL_OK || !next->members || !next->ring || !next->channels || !next->used) {
        status = pccl__fail(error, PCCL_NO_MEMORY, "no memory for a view of %u members", view->size);
        goto failed;
    }
    next->doubts_told = next->used + view->size;
    next->awaited = next->doubts_told + view->size;
    memcpy(next->members, view->members, view->size * sizeof *next->members);
    for (uint32_t i = 0; i < view->size; i++) {
        next->members[i].address[PCCL_ADDRESS_BYTES - 1] = 0;
        next->ring[i] = view->ring ? view->ring[i] : i;
        if (next->ring[i] == view->rank) next->position = i;
    }
    status = set_teams(next, old);
    if (status != PCCL_OK) {
        pccl__fail(error, status, "no memory for a view of %u members", view->size);
        goto failed;
    }
    for (uint32_t i = 0; i < view->size; i++)
        next->used[next->ring[i]] = i != next->position && pccl__shape_joins(&next->shape, i, next->position);
    status = open_channels(next, old, transport, error);
    if (status == PCCL_OK) return PCCL_OK;
failed:
    if (next->channels) memset(next->channels, 0, view->size * sizeof *next->channels);
    pccl__group_clear(next);
    return status;
}

void pccl__group_adopt(struct pccl__group *next, struct pccl__group *old) {
    for (uint32_t rank = 0; rank < next->size; rank++) {
        uint32_t before = pccl__group_rank_of(old, &next->members[rank].id);
        if (rank == next->rank || next->channels[rank] || before == old->size) continue;
        next->channels[rank] = old->channels[before];
        old->channels[before] = NULL;
    }
}

void pccl__group_clear(struct pccl__group *group) {
    for (uint32_t i = 0; i < group->size && group->channels; i++) CHECK(!group->channels[i]);
    free(group->members);
    free(group->ring);
    free(group->channels);
    free(group->used);
    pccl__shape_free(&group->shape);
    pccl__team_free(group->whole);
    while (group->teams) {
        struct pccl__team *team = group->teams;
        group->teams = team->next;
        pccl__team_free(team);
    }
    *group = (struct pccl__group){0};
}

uint32_t pccl__group_rank_of(const struct pccl__group *group, const pccl_peer_id *id) {
    uint32_t rank = 0;
    while (rank < group->size && !same_id(&group->members[rank].id, id)) rank++;
    return rank;
}

struct pccl__channel *pccl__group_channel(const struct pccl__group *group, const pccl_peer_id *id) {
    uint32_t rank = pccl__group_rank_of(group, id);
    return rank < group->size ? group->channels[rank] : NULL;
}

/* Is this member the next one of us or the one before, among those of a team? */
static bool is_neighbour(const struct pccl__team *team, uint32_t rank) {
    uint32_t next = (team->position + 1) % team->size, previous = (team->position + team->size - 1) % team->size;
    return rank == team->links[next] || rank == team->links[previous];
}

bool pccl__group_tells(const struct pccl__group *group, uint64_t scope, uint32_t rank) {
    const struct pccl__channel *channel = group->channels[rank];
    if (!channel || channel->broken || !pccl__team_has(group, scope, rank)) return false;
    if (pccl__scope_is_pair(scope)) return true;
    if (!group->used[rank]) return false;
    return group->shape.kind != PCCL_SHAPE_FULL || channel->heard_ns ||
           is_neighbour(pccl__team_find(group, scope), rank);
}

/* ---------------------------------------------------------------- scopes */

enum { TEAMS_MAX = 65536 };

static pccl_status check_ranks(const struct pccl__group *group, const uint32_t *ranks, uint32_t count,
                               pccl_error *error) {
    bool ours = false;
    if (!ranks || count == 0) return pccl__fail(error, PCCL_INVALID, "a scope needs at least one rank");
    for (uint32_t i = 0; i < count; i++) {
        if (ranks[i] >= group->size)
            return pccl__fail(error, PCCL_INVALID, "rank %u is outside a group of %u", ranks[i], group->size);
        for (uint32_t j = 0; j < i; j++)
            if (ranks[i] == ranks[j]) return pccl__fail(error, PCCL_INVALID, "rank %u is named twice", ranks[i]);
        ours = ours || ranks[i] == group->rank;
    }
    return ours ? PCCL_OK
                : pccl__fail(error, PCCL_INVALID, "rank %u, which is this peer, is not among the %u ranks", group->rank,
                             count);
}

pccl_status pccl__group_scope(struct pccl__group *group, const uint32_t *ranks, uint32_t count, uint64_t *scope,
                              pccl_error *error) {
    pccl_status status = check_ranks(group, ranks, count, error);
    if (status != PCCL_OK) return status;
    uint64_t number = pccl__team_scope(group, ranks, count);
    struct pccl__team *team = pccl__team_find(group, number);
    if (!team) {
        uint32_t teams = 0;
        for (team = group->teams; team; team = team->next) teams++;
        if (teams >= TEAMS_MAX)
            return pccl__fail(error, PCCL_INVALID, "more than %d subgroups in one epoch", TEAMS_MAX);
        status = add_team(group, number, ranks, count);
        if (status != PCCL_OK) return pccl__fail(error, status, "no memory for a subgroup of %u members", count);
    }
    *scope = number;
    return PCCL_OK;
}
