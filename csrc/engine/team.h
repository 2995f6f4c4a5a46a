/* SPDX-License-Identifier: MIT
 *
 * team.h - the members that make an operation together, as plans see them: the whole group, or those of a scope.
 *
 * Must not know: operations, channels, time. Teams live as long as the view that their ranks are of. In a team members
 * are known by their ranks in it; `members` and `links` lead from there to the view's.
 *
 * A scope names its members by a hash of their ranks, so that it is the same number on all of them and nobody has to
 * hand numbers out. Where some links are down a team may use those between its own members that the view uses: if these
 * do not hang together, it has no way (`size` 0 of its shape).
 */
#ifndef PCCL_ENGINE_TEAM_H
#define PCCL_ENGINE_TEAM_H

#include "base/list.h"
#include "engine/schedule.h"
#include "engine/scope.h"
#include "plan/plan.h"

struct pccl__group;

struct pccl__team {
    struct pccl__team *next; /* in group->teams */
    uint64_t scope;          /* 0: the whole group */
    uint32_t size, rank, position;
    uint32_t *members; /* [size] by rank: ranks in the view */
    uint32_t *ring;    /* [size] by position: ranks in the team */
    uint32_t *links;   /* [size] by position: ranks in the view */
    struct pccl__shape shape;
    bool one_host;                       /* all share our host */
    uint32_t host_members;               /* on our host, us included */
    bool crowded;                        /* ... more than the fewest cores that one of them told */
    struct pccl__offers offers;          /* what planners ask */
    const struct pccl__planner *barrier; /* NULL: no way */
    const struct pccl__schedule *finish; /* our part in its plan */
    struct list schedules;
};

/* Of `ranks` in the view, in the order in which buffers have their parts; ours is among them. Errors: NO_MEMORY. */
pccl_status pccl__team_new(const struct pccl__group *group, uint64_t scope, const uint32_t *ranks, uint32_t size,
                           struct pccl__team **team);
/* NULL is allowed. */
void pccl__team_free(struct pccl__team *team);
/* Our part in a plan of `planner`, NULL for a barrier's of none, made once. `shape` is the team's, or that of a pair.
 * Errors: NO_MEMORY. */
pccl_status pccl__team_schedule(struct pccl__team *team, pccl_collective collective, const struct pccl__shape *shape,
                                const struct pccl__planner *planner, uint32_t position, uint32_t root_position,
                                const struct pccl__schedule **schedule);
uint32_t pccl__team_position(const struct pccl__team *team, uint32_t rank);

/* Of ranks in the view, in this order. Those of the whole group, in theirs, are 0. */
uint64_t pccl__team_scope(const struct pccl__group *group, const uint32_t *ranks, uint32_t size);
/* NULL: nobody asked for it in this epoch, or it is that of a pair. */
struct pccl__team *pccl__team_find(const struct pccl__group *group, uint64_t scope);
/* Does the rank of the view take part? Nobody is known to in a scope that nobody asked for here. */
bool pccl__team_has(const struct pccl__group *group, uint64_t scope, uint32_t rank);

#endif
