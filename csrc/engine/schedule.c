/* SPDX-License-Identifier: MIT */
#include "engine/schedule.h"

#include <stdlib.h>

/* For each chunk, `latest` walks along the plan. A send needs the value from before its round; a receive follows the
 * receive before it, also within a round. */
static pccl_status derive(struct pccl__schedule *schedule) {
    const struct pccl__plan *plan = &schedule->plan;
    uint32_t *latest = malloc(plan->chunks * sizeof *latest);
    uint32_t *before_round = malloc(plan->chunks * sizeof *before_round);
    if (!latest || !before_round) {
        free(latest);
        free(before_round);
        return PCCL_NO_MEMORY;
    }
    for (uint32_t chunk = 0; chunk < plan->chunks; chunk++) latest[chunk] = before_round[chunk] = PCCL__NO_STEP;
    uint32_t round_start = 0;
    for (uint32_t i = 0; i < plan->steps_count; i++) {
        const struct pccl__step *step = &plan->steps[i];
        if (i > 0 && step->round != plan->steps[i - 1].round) {
            for (uint32_t j = round_start; j < i; j++)
                before_round[plan->steps[j].chunk] = latest[plan->steps[j].chunk];
            round_start = i;
        }
        schedule->first_dependent[i] = schedule->next_dependent[i] = PCCL__NO_STEP;
        schedule->previous[i] = pccl__step_is_send(step) ? before_round[step->chunk] : latest[step->chunk];
        if (schedule->previous[i] != PCCL__NO_STEP) {
            schedule->next_dependent[i] = schedule->first_dependent[schedule->previous[i]];
            schedule->first_dependent[schedule->previous[i]] = i;
        }
        if (pccl__step_is_send(step)) continue;
        latest[step->chunk] = i;
        schedule->received[step->chunk] = 1;
        schedule->receives[schedule->receives_count++] = i;
    }
    for (uint32_t chunk = 0; chunk < plan->chunks; chunk++)
        if (latest[chunk] != PCCL__NO_STEP) schedule->last[latest[chunk]] = 1;
    free(latest);
    free(before_round);
    return PCCL_OK;
}

/* Can nothing be written into a chunk while send `index`, which reads the chunk's input, may still be under way? */
static bool outlives(const struct pccl__schedule *schedule, uint32_t index) {
    const struct pccl__step *steps = schedule->plan.steps;
    for (uint32_t i = index + 1; i < schedule->plan.steps_count; i++) {
        if (steps[i].chunk != steps[index].chunk) continue;
        if (pccl__step_is_send(&steps[i]) && schedule->previous[i] == PCCL__NO_STEP) return false;
        if (schedule->last[i] && steps[i].kind != PCCL__COPY) return false;
    }
    return true;
}

static bool works_in_place(const struct pccl__schedule *schedule) {
    for (uint32_t i = 0; i < schedule->plan.steps_count; i++)
        if (pccl__step_is_send(&schedule->plan.steps[i]) && schedule->previous[i] == PCCL__NO_STEP &&
            !outlives(schedule, i))
            return false;
    return true;
}

/* A copy does not read what was there before. */
static bool reads_input(const struct pccl__schedule *schedule, uint32_t index) {
    return schedule->previous[index] == PCCL__NO_STEP && schedule->plan.steps[index].kind != PCCL__COPY;
}

static void count_inputs(struct pccl__schedule *schedule) {
    const struct pccl__plan *plan = &schedule->plan;
    for (uint32_t chunk = 0; chunk < plan->chunks; chunk++) schedule->input_index[chunk] = PCCL__NO_STEP;
    for (uint32_t i = 0; i < plan->steps_count; i++) {
        uint32_t *index = &schedule->input_index[plan->steps[i].chunk];
        bool sent = pccl__step_is_send(&plan->steps[i]) && reads_input(schedule, i);
        if (sent && *index == PCCL__NO_STEP) *index = schedule->inputs_sent++;
    }
    for (uint32_t i = 0; i < plan->steps_count; i++) {
        uint32_t index = schedule->input_index[plan->steps[i].chunk];
        if (index != PCCL__NO_STEP) schedule->input_readers[index] += reads_input(schedule, i);
    }
}

pccl_status pccl__schedule_new(const struct pccl__planner *planner, uint32_t position, const struct pccl__shape *shape,
                               uint32_t root, struct pccl__schedule **out) {
    struct pccl__schedule *schedule = calloc(1, sizeof *schedule);
    if (!schedule) return PCCL_NO_MEMORY;
    pccl_status status = planner ? planner->build(position, shape, root, &schedule->plan) : PCCL_OK;
    if (status == PCCL_OK && planner) status = pccl__plan_check(&schedule->plan);
    if (status != PCCL_OK) goto done;
    if (schedule->plan.chunks == 0) schedule->plan.chunks = 1;
    size_t steps = schedule->plan.steps_count + 1; /* never zero */
    schedule->previous = malloc(steps * sizeof *schedule->previous);
    schedule->first_dependent = malloc(steps * sizeof *schedule->first_dependent);
    schedule->next_dependent = malloc(steps * sizeof *schedule->next_dependent);
    schedule->receives = malloc(steps * sizeof *schedule->receives);
    schedule->last = calloc(steps, 1);
    schedule->received = calloc(schedule->plan.chunks, 1);
    schedule->input_index = malloc(schedule->plan.chunks * sizeof *schedule->input_index);
    schedule->input_readers = calloc(steps, sizeof *schedule->input_readers);
    bool complete = schedule->previous && schedule->first_dependent && schedule->next_dependent && schedule->receives &&
                    schedule->last && schedule->received && schedule->input_index && schedule->input_readers;
    status = complete ? derive(schedule) : PCCL_NO_MEMORY;
    if (status == PCCL_OK) count_inputs(schedule);
    schedule->in_place = status == PCCL_OK && works_in_place(schedule);
done:
    if (status != PCCL_OK) {
        pccl__schedule_free(schedule);
        return status;
    }
    *out = schedule;
    return PCCL_OK;
}

void pccl__schedule_free(struct pccl__schedule *schedule) {
    if (!schedule) return;
    pccl__plan_free(&schedule->plan);
    free(schedule->previous);
    free(schedule->first_dependent);
    free(schedule->next_dependent);
    free(schedule->receives);
    free(schedule->last);
    free(schedule->received);
    free(schedule->input_index);
    free(schedule->input_readers);
    free(schedule);
}
