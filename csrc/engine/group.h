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
#include "pccl.h"
#include "plan/shape.h"

struct pccl__group {
    uint64_t epoch;
    uint32_t size, rank, position;
    pccl_member *members;            /* [size] */
    uint32_t *ring;                  /* [size] ranks by position */
    struct pccl__shape shape;        /* which links plans use, by position */
    struct pccl__channel **channels; /* [size] by rank; NULL at our own */
    pccl_prices prices;              /* of links, as all members have them */
    uint8_t *used;                   /* [size] by rank: plans may use our link to it */
    uint8_t *doubts_told;            /* [size] by rank: that the link cannot be made has been told */
    uint8_t *awaited;                /* [size] by rank: somebody wants to know when the link is there */
    bool one_host;                   /* all members share our host */
    uint32_t host_members;           /* members on our host, us included */
    bool crowded;                    /* ... more than the fewest cores that one of them told */
};

/* Errors: INVALID with a text, NO_MEMORY. */
pccl_status pccl__view_check(const pccl_view *view, uint64_t newest_epoch, pccl_error *error);
/* Builds the next group from `view`, with fresh channels where `old` has no sound ones. `old` is unchanged, so that a
 * failure changes nothing. Errors: INVALID address, NO_MEMORY. `next` must be zeroed. */
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

/* Do notices for all members go to this one? Passed on by each, they reach everybody over links that are there or that
 * are needed anyhow. */
bool pccl__group_tells(const struct pccl__group *group, uint32_t rank);

#endif
