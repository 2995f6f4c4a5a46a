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

/* Members who share a host come to the same answer, for they have the same view. */
static void look_around(struct pccl__group *next) {
    uint32_t cores = UINT32_MAX;
    for (uint32_t i = 0; i < next->size; i++) {
        const pccl_member *member = &next->members[i];
        if (member->host_id != next->members[next->rank].host_id) continue;
        next->host_members++;
        if (member->cores) cores = (uint32_t)min_u64(cores, member->cores);
    }
    next->one_host = next->host_members == next->size;
    next->crowded = next->host_members > cores;
}

/* The master's rings keep hosts together unless a dead link has to be avoided. */
static pccl_status set_hosts(struct pccl__group *next) {
    uint64_t *ids = malloc(next->size * sizeof *ids);
    if (!ids) return PCCL_NO_MEMORY;
    for (uint32_t p = 0; p < next->size; p++) ids[p] = next->members[next->ring[p]].host_id;
    pccl_status status = pccl__shape_set_hosts(&next->shape, ids);
    free(ids);
    return status;
}

pccl_status pccl__group_next(struct pccl__group *next, const struct pccl__group *old, const pccl_view *view,
                             struct pccl__transport *transport, pccl_error *error) {
    next->epoch = view->epoch;
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
    look_around(next);
    status = set_hosts(next);
    if (status != PCCL_OK) {
        pccl__fail(error, status, "no memory for a view of %u members", view->size);
        goto failed;
    }
    next->shape.ranks = next->ring;
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

bool pccl__group_tells(const struct pccl__group *group, uint32_t rank) {
    const struct pccl__channel *channel = group->channels[rank];
    if (!channel || channel->broken || !group->used[rank]) return false;
    if (group->shape.kind != PCCL_SHAPE_FULL || channel->heard_ns) return true;
    uint32_t next = group->ring[(group->position + 1) % group->size];
    return rank == next || rank == group->ring[(group->position + group->size - 1) % group->size];
}
