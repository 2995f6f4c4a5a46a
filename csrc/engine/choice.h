/* SPDX-License-Identifier: MIT
 *
 * choice.h - which algorithm runs a call in its team, and in words why, and whether quantizing it would pay.
 *
 * Must not know: operations, channels. Only what all members know alike enters the choice: sizes, the shape, the prices
 * of the view, and what the call says.
 */
#ifndef PCCL_ENGINE_CHOICE_H
#define PCCL_ENGINE_CHOICE_H

#include "engine/layout.h"
#include "engine/team.h"
#include "plan/plan.h"

/* Of a call with data. NULL: the links that are left do not serve it. */
const struct pccl__planner *pccl__choice_make(const struct pccl__team *team, const pccl_call *call,
                                              const struct pccl__layout *layout);
/* Why there is none. */
const char *pccl__choice_missing(const struct pccl__team *team);

struct pccl__choice_costs {
    const pccl_prices *prices;
    double coding; /* bytes of float32 that are encoded and decoded again in a nanosecond; 0: not known */
};
/* In words; cut where `text_bytes` end. Errors: UNSUPPORTED (there is none). */
pccl_status pccl__choice_explain(const struct pccl__team *team, const pccl_call *call,
                                 const struct pccl__layout *layout, struct pccl__choice_costs costs, char *text,
                                 size_t text_bytes, pccl_error *error);

#endif
