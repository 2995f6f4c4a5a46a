/* SPDX-License-Identifier: MIT
 *
 * group.h - the current view: members in rank order, the ring, the shape, one channel per other member.
 *
 * A change of view keeps the channels of members that stay, closes those of members that left or whose link broke, and
 * opens fresh ones. Opening dials nothing.
 */
#ifndef PCCL_ENGINE_GROUP_H
#define PCCL_ENGINE_GROUP_H

#include "channel/channel.h"
#include "engine/team.h"
#include "pccl.h"
#include "plan/shape.h"

struct pccl__group {
    uint64_t epoch;
    uint64_t since; /* the first epoch that had the same members in the same order */
    uint32_t size, rank, position;
    pccl_member *members;            /* [size] */
    uint32_t *ring;                  /* [size] ranks by position */
    struct pccl__shape shape;        /* which links plans use, by position */
    struct pccl__channel **channels; /* [size] by rank; NULL at our own */
    pccl_prices prices;              /* of links, as all members have them */
    uint8_t *used;                   /* [size] by rank: plans may use our link to it */
    uint8_t *doubts_told;            /* [size] by rank: that the link cannot be made has been told */
    uint8_t *awaited;                /* [size] by rank: somebody wants to know when the link is there */
    struct pccl__team *whole;        /* all members */
    struct pccl__team *teams;        /* others that were asked for */
};

/* Errors: INVALID with a text, NO_MEMORY. */
pccl_status pccl__view_check(const pccl_view *view, uint64_t newest_epoch, pccl_error *error);
/* Builds the next group from `view`, with fresh channels where `old` has no sound ones, and with the teams of `old` if
 * it has the same members. `old` is unchanged, so that a failure changes nothing. Errors: INVALID address, NO_MEMORY.
 * `next` must be zeroed. */
pccl_status pccl__group_next(struct pccl__group *next, const struct pccl__group *old, const pccl_view *view,
                             struct pccl__transport *transport, pccl_error *error);
/* Moves the channels that `next` still lacks over from `old`. */
void pccl__group_adopt(struct pccl__group *next, struct pccl__group *old);
/* Frees the arrays; all channels must be gone (NULL). */
void pccl__group_clear(struct pccl__group *group);
/* NULL: not a member, or ourselves. */
struct pccl__channel *pccl__group_channel(const struct pccl__group *group, const pccl_peer_id *id);
/* group->size when not a member. */
uint32_t pccl__group_rank_of(const struct pccl__group *group, const pccl_peer_id *id);

/* Do notices about a scope go to this member? Passed on by each, they reach all who take part over links that are there
 * or that are needed anyhow. */
bool pccl__group_tells(const struct pccl__group *group, uint64_t scope, uint32_t rank);

/* The scope of `ranks` of the view, in the order in which buffers have their parts. Errors: INVALID (no ranks, one
 * twice or outside, ours missing, too many scopes), NO_MEMORY. */
pccl_status pccl__group_scope(struct pccl__group *group, const uint32_t *ranks, uint32_t count, uint64_t *scope,
                              pccl_error *error);

#endif
