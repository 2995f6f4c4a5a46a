/* SPDX-License-Identifier: MIT
 *
 * plan.c - the container of a plan's steps, and the rules that every plan obeys.
 */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

pccl_status pccl__plan_begin(struct pccl__plan *plan, uint32_t position, uint32_t size, uint32_t chunks,
                             uint32_t rounds) {
    if (position >= size || chunks == 0) return PCCL_INVALID;
    plan->position = position;
    plan->size = size;
    plan->chunks = chunks;
    plan->rounds = rounds;
    plan->once = false;
    plan->steps_count = 0;
    return PCCL_OK;
}

static bool in_bounds(const struct pccl__plan *plan, const struct pccl__step *step) {
    return step->peer < plan->size && step->peer != plan->position && step->chunk < plan->chunks &&
           step->round < plan->rounds && step->kind <= PCCL__REDUCE_RIGHT &&
           (!step->complete || step->kind >= PCCL__REDUCE_LEFT);
}

/* Within a round sends come first: they mean the values of the rounds before. */
static bool in_order(const struct pccl__step *before, const struct pccl__step *step) {
    return before->round < step->round ||
           (before->round == step->round && (before->kind == PCCL__SEND || step->kind != PCCL__SEND));
}

pccl_status pccl__plan_add(struct pccl__plan *plan, struct pccl__step step) {
    if (!in_bounds(plan, &step)) return PCCL_INVALID;
    if (plan->steps_count && !in_order(&plan->steps[plan->steps_count - 1], &step)) return PCCL_INVALID;
    if (plan->steps_count == plan->steps_capacity) {
        uint32_t capacity = plan->steps_capacity ? 2 * plan->steps_capacity : 16;
        struct pccl__step *steps = realloc(plan->steps, capacity * sizeof *steps);
        if (!steps) return PCCL_NO_MEMORY;
        plan->steps = steps;
        plan->steps_capacity = capacity;
    }
    plan->steps[plan->steps_count++] = step;
    return PCCL_OK;
}

void pccl__plan_free(struct pccl__plan *plan) {
    free(plan->steps);
    *plan = (struct pccl__plan){0};
}

static int by_chunk(const void *left, const void *right) {
    const struct pccl__step *a = left, *b = right;
    if (a->peer != b->peer) return a->peer < b->peer ? -1 : 1;
    if (a->chunk != b->chunk) return a->chunk < b->chunk ? -1 : 1;
    return (a->kind == PCCL__SEND) - (b->kind == PCCL__SEND);
}

static int by_transfer(const void *left, const void *right) {
    const struct pccl__step *a = left, *b = right;
    if (a->round != b->round) return a->round < b->round ? -1 : 1;
    return by_chunk(left, right);
}

/* Is each transfer named once? */
static pccl_status check_names(const struct pccl__plan *plan) {
    uint64_t names = plan->once ? plan->chunks : (uint64_t)plan->chunks * plan->rounds;
    if (names > PCCL__PLAN_NAMES) return PCCL_INVALID;
    int (*by_name)(const void *, const void *) = plan->once ? by_chunk : by_transfer;
    struct pccl__step *sorted = malloc((plan->steps_count + 1) * sizeof *sorted);
    if (!sorted) return PCCL_NO_MEMORY;
    if (plan->steps_count) memcpy(sorted, plan->steps, plan->steps_count * sizeof *sorted);
    qsort(sorted, plan->steps_count, sizeof *sorted, by_name);
    pccl_status status = PCCL_OK;
    for (uint32_t i = 1; i < plan->steps_count; i++)
        if (by_name(&sorted[i - 1], &sorted[i]) == 0) status = PCCL_INVALID;
    free(sorted);
    return status;
}

pccl_status pccl__plan_check(const struct pccl__plan *plan) {
    if (plan->position >= plan->size || plan->chunks == 0) return PCCL_INVALID;
    for (uint32_t i = 0; i < plan->steps_count; i++) {
        const struct pccl__step *step = &plan->steps[i];
        if (!in_bounds(plan, step)) return PCCL_INVALID;
        if (i && !in_order(step - 1, step)) return PCCL_INVALID;
    }
    return check_names(plan);
}
