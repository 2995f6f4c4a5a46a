/* SPDX-License-Identifier: MIT
 *
 * start.c - from a call to a running operation: judgement, numbering, launch.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/status.h"
#include "engine/call.h"
#include "engine/choice.h"
#include "engine/core.h"
#include "engine/match.h"
#include "engine/piece.h"

/* The team of a call, which is judged by it. Errors: INVALID. */
static pccl_status team_of(const struct pccl__core *core, const pccl_call *call, struct pccl__team **team,
                           pccl_error *error) {
    *team = pccl__team_find(&core->group, call->scope);
    if (*team) return PCCL_OK;
    return pccl__fail(error, PCCL_INVALID, "epoch %llu has no scope %llx: pccl_scope_of makes them",
                      (unsigned long long)core->group.epoch, (unsigned long long)call->scope);
}

pccl_status pccl__core_explain(struct pccl__core *core, const pccl_call *call, double coding, char *text,
                               size_t text_bytes, pccl_error *error) {
    pccl_status status = pccl__call_check(call, error);
    if (status != PCCL_OK) return status;
    if (core->group.epoch == 0) return pccl__fail(error, PCCL_INVALID, "no view is installed yet");
    struct pccl__team *team;
    struct pccl__layout layout;
    uint64_t *begins;
    status = team_of(core, call, &team, error);
    if (status == PCCL_OK) status = pccl__call_layout(call, team->size, team->rank, &layout, &begins, error);
    if (status != PCCL_OK) return status;
    const struct pccl__choice_costs costs = {&core->group.prices, coding};
    status = pccl__choice_explain(team, call, &layout, costs, text, text_bytes, error);
    free(begins);
    return status;
}

/* ---------------------------------------------------------------- launch */

/* Buffers and root were judged by the group at the call; one that was queued may meet another, in which ranks and the
 * number of parts mean something else, unless the call was made for that one. */
static bool still_fits(const struct pccl__core *core, struct pccl_operation *op) {
    const struct pccl__group *group = &core->group;
    const struct pccl__team *team = op->team;
    if (op->layout.size == team->size && op->layout.rank == team->rank) return true;
    bool names_peer = pccl__is_pair(op->call.collective) && op->call.root != PCCL_ANY_SOURCE;
    bool bound = pccl__in_parts(op->call.collective) || pccl__has_root(op->call.collective) || names_peer;
    if (bound && op->call.expected_epoch != group->epoch) return false;
    op->layout.size = team->size;
    op->layout.rank = team->rank;
    return pccl__call_check_buffers(&op->call, &op->layout, NULL) == PCCL_OK;
}

static bool lost_behind_unseen(struct pccl__core *core, struct pccl_operation *op) {
    uint64_t epoch;
    if (!pccl__unseen_blocks(&core->unseen, op->call.tag, pccl__is_stepwise(op), &epoch)) return false;
    pccl__operation_lost(op, epoch, PCCL_PEER_LOST, "called behind a failure that was not looked at yet: %.400s",
                         core->cause_text);
    return true;
}

static bool refused_peer(const struct pccl__core *core, struct pccl_operation *op) {
    uint32_t peer = op->call.root, size = core->group.size;
    const char *name = pccl_collective_name(op->call.collective);
    if (peer == PCCL_ANY_SOURCE && size > 1) return false;
    if (peer == PCCL_ANY_SOURCE)
        pccl__operation_end(op, PCCL_TOO_FEW_PEERS, "%s: the group has no other member that could send", name);
    else if (peer >= size)
        pccl__operation_end(op, PCCL_INVALID, "%s: rank %u is outside a group of %u", name, peer, size);
    else if (peer == core->group.rank)
        pccl__operation_end(op, PCCL_INVALID, "%s: rank %u is this peer itself", name, peer);
    else
        return false;
    return true;
}

/* Ranks mean the same as long as members do. */
static bool is_for_another(const struct pccl__group *group, const pccl_call *call) {
    if (call->flags & PCCL_SAME_MEMBERS)
        return call->expected_epoch < group->since || call->expected_epoch > group->epoch;
    return call->expected_epoch && call->expected_epoch != group->epoch;
}

/* NULL: it goes on, or that was long ago. */
static const char *why_ended(const struct pccl__core *core, uint64_t epoch) {
    for (uint32_t i = 0; i < PCCL__CAUSES_MAX && epoch > 0; i++)
        if (core->causes[i].epoch == epoch) return core->causes[i].text;
    return NULL;
}

/* Reasons to end before anything is sent. */
static bool refused(struct pccl__core *core, struct pccl_operation *op) {
    const struct pccl__group *group = &core->group;
    op->team = pccl__team_find(group, op->call.scope); /* NULL: of an epoch before */
    bool fits = op->team && still_fits(core, op);
    op->info = (pccl_info){.epoch = group->epoch, .world_size = group->size, .rank = group->rank};
    if (op->team) op->info.world_size = op->team->size, op->info.rank = op->team->rank;
    if (group->size < core->options.min_world_size) {
        /* The step ends here too, or who is alone could never ask for others: joint calls want it settled. */
        if (pccl__is_stepwise(op)) core->deferred.open = core->deferred.broken = false;
        pccl__operation_end(op, PCCL_TOO_FEW_PEERS, "the group has %u member%s, at least %u are needed", group->size,
                            group->size == 1 ? "" : "s", core->options.min_world_size);
    } else if (is_for_another(group, &op->call)) {
        const char *why = why_ended(core, op->call.expected_epoch);
        pccl__operation_lost(op, pccl__core_past_epoch(core), PCCL_PEER_LOST,
                             "the group changed from epoch %llu to %llu (%u members): call again%s%s",
                             (unsigned long long)op->call.expected_epoch, (unsigned long long)group->epoch, group->size,
                             why ? "; what happened: " : "", why ? why : "");
    } else if (!fits) {
        pccl__operation_lost(
            op, pccl__core_past_epoch(core), PCCL_PEER_LOST,
            "the group changed to %u members before it began: call again with buffers for rank %u of those",
            group->size, group->rank);
    } else if (lost_behind_unseen(core, op)) {
        return true;
    } else if (pccl__is_stepwise(op) && core->deferred.broken) {
        pccl__operation_lost(op, pccl__core_past_epoch(core), PCCL_PEER_LOST, "the step must be repeated: %.400s",
                             core->cause_text);
    } else if (pccl__has_root(op->call.collective) && op->call.root >= op->team->size) {
        pccl__operation_end(op, PCCL_INVALID, "root %u is outside a %s of %u", op->call.root,
                            op->call.scope ? "subgroup" : "group", op->team->size);
    } else if (pccl__is_pair(op->call.collective)) {
        return refused_peer(core, op);
    } else {
        return pccl__core_owed_mismatch(core, op);
    }
    return true;
}

static pccl_status prepare(struct pccl_operation *op) {
    struct pccl__team *team = op->team;
    bool has_data = pccl__has_data(op->call.collective);
    const struct pccl__planner *planner = has_data ? pccl__choice_make(team, &op->call, &op->layout) : NULL;
    if (!team->barrier || (has_data && !planner)) return PCCL_UNSUPPORTED;
    bool by_rank = planner && (planner->traits & PCCL__BY_RANK || op->call.flags & PCCL_DETERMINISTIC);
    op->algorithm = planner ? planner->algorithm : team->barrier->algorithm;
    op->layout.to_each = planner && planner->traits & PCCL__TO_EACH;
    op->lengths_first = planner && pccl__pieces_are_private(op) && !(planner->traits & PCCL__STRAIGHT);
    op->layout.ring = by_rank ? NULL : team->ring;
    op->layout.position = by_rank ? team->rank : team->position;
    op->links = by_rank ? team->members : team->links;
    uint32_t root = 0;
    if (pccl__has_root(op->call.collective)) root = by_rank ? op->call.root : pccl__team_position(team, op->call.root);
    op->finish.schedule = team->finish;
    op->finish.ranks = team->links;
    /* That all have begun is a barrier's data, and its finish phase tells them that all know: after a loss the
     * survivors could not know either if it had the latter alone. */
    op->schedule = team->finish;
    if (op->call.collective == PCCL_BARRIER) return PCCL_OK;
    return pccl__team_schedule(team, planner ? op->call.collective : PCCL_COMMIT, &team->shape, planner,
                               op->layout.position, root, &op->schedule);
}

/* A send is a broadcast between two, the source at position 0. The last byte that comes says that the source has all of
 * it done; so the finish phase is but one word in return, on which the source waits. */
static pccl_status prepare_pair(struct pccl__core *core, struct pccl_operation *op) {
    static const struct pccl__shape pair = {.kind = PCCL_SHAPE_FULL, .size = 2};
    enum { SOURCE, TARGET };
    uint32_t us = op->call.collective == PCCL_SEND ? SOURCE : TARGET;
    if (!core->group.used[op->call.root]) return PCCL_UNSUPPORTED;
    op->pair[us] = core->group.rank;
    op->pair[1 - us] = op->info.peer = op->call.root;
    op->name.scope = pccl_scope(op->pair[SOURCE], op->pair[TARGET]);
    op->algorithm = PCCL_PAIRWISE;
    op->layout.position = us;
    op->links = op->finish.ranks = op->pair;
    const struct pccl__planner *planner = pccl__planner_find(PCCL_BROADCAST, PCCL_STAR);
    struct pccl__team *team = op->team;
    pccl_status status = pccl__team_schedule(team, PCCL_SEND, &pair, planner, us, SOURCE, &op->schedule);
    if (status != PCCL_OK) return status;
    return pccl__team_schedule(team, PCCL_SEND, &pair, planner, us, TARGET, &op->finish.schedule);
}

static void end_unprepared(struct pccl__core *core, struct pccl_operation *op, pccl_status status) {
    if (status == PCCL_UNSUPPORTED && pccl__is_pair(op->call.collective))
        pccl__operation_end(op, status, "%s: some links are down, and there is none to rank %u that operations use",
                            pccl_collective_name(op->call.collective), op->call.root);
    else if (status == PCCL_UNSUPPORTED)
        pccl__operation_end(op, status, "%s: %s", pccl_collective_name(op->call.collective),
                            pccl__choice_missing(op->team));
    else if (status == PCCL_INVALID)
        pccl__operation_end(op, status, "more than %d distinct tags in one epoch: reuse tags", PCCL__TAGS_MAX);
    else
        pccl__operation_lost(op, pccl__core_past_epoch(core), status, "no memory to start");
}

/* From now on it counts among the operations of this epoch. */
static void enter(struct pccl__core *core, struct pccl_operation *op) {
    list_push_back(&core->open, &op->link);
    op->settles = core->deferred.started;
    if (!(op->call.flags & PCCL_DEFERRED)) return;
    core->deferred.open = true;
    core->deferred.started++;
}

void pccl__core_begin(struct pccl__core *core, struct pccl_operation *op) {
    op->name.tag = op->call.tag;
    op->name.scope = op->call.scope;
    pccl_status status = pccl__is_pair(op->call.collective) ? prepare_pair(core, op) : prepare(op);
    if (status == PCCL_OK) status = pccl__tags_begin(&core->tags, op->name.scope, op->name.tag, &op->entry);
    if (status != PCCL_OK) {
        end_unprepared(core, op, status);
        return;
    }
    if (op->state != PCCL__UNMATCHED) enter(core, op);
    op->name.sequence = op->entry->sequence;
    op->layout.chunks = op->schedule->plan.chunks;
    op->stamp = pccl__stamp_pack(&op->call, &op->layout, op->algorithm);
    if (op->tensors) pccl__stamp_tensors(&op->stamp, op->tensors->begins, op->tensors->count);
    op->entry->operation = op;
    op->entry->fingerprint = pccl__stamp_fingerprint(&op->stamp);
    op->info.algorithm = op->algorithm;
    op->started_ns = op->progressed_ns = core->now_ns;
    op->next_stall_ns = core->now_ns + core->options.stall_ms * UINT64_C(1000000);
    op->state = PCCL__DATA;
    op->started = true;
    pccl__urgency_begin(&core->urgency, op->call.priority);
    pccl__core_watch(op);
    status = pccl__exec_begin(&core->exec, op);
    if (status == PCCL_QUANTIZATION)
        pccl__core_unfit(core, op);
    else if (status != PCCL_OK)
        pccl__operation_failed(op, status);
    else
        pccl__operation_advance(op);
}

void pccl__core_launch(struct pccl__core *core, struct pccl_operation *op) {
    if (refused(core, op)) return;
    if (!pccl__match_delays(core, op)) {
        pccl__core_begin(core, op);
        return;
    }
    enter(core, op);
    op->started_ns = op->progressed_ns = core->now_ns;
    op->state = PCCL__UNMATCHED;
    pccl__core_watch(op);
    pccl__match_add(core, op);
}

/* What a call means in the present group. One for another epoch is judged when it is launched, if ever: its ranks and
 * buffers, and how many counts there are, are of another group. */
static pccl_status judge(const struct pccl__core *core, const pccl_call *call, struct pccl__layout *layout,
                         uint64_t **begins, pccl_error *error) {
    const struct pccl__group *group = &core->group;
    if (is_for_another(group, call)) {
        pccl_call even = *call;
        even.flags &= ~(uint32_t)PCCL_UNEVEN;
        return pccl__call_layout(&even, 0, 0, layout, begins, error);
    }
    struct pccl__team *team;
    pccl_status status = team_of(core, call, &team, error);
    if (status == PCCL_OK) status = pccl__call_layout(call, team->size, team->rank, layout, begins, error);
    if (status != PCCL_OK) return status;
    status = pccl__call_check_buffers(call, layout, error);
    if (status != PCCL_OK) free(*begins);
    return status;
}

static pccl_status admit(struct pccl__core *core, const pccl_call *call, struct pccl_operation **operation,
                         pccl_error *error) {
    struct pccl__layout layout;
    uint64_t *begins;
    struct pccl__tensors *tensors = NULL;
    pccl_status status = judge(core, call, &layout, &begins, error);
    if (status != PCCL_OK) return status;
    if (call->tensors) status = pccl__tensors_new(call, &tensors, error);
    struct pccl_operation *op = status == PCCL_OK ? pccl__operation_new(core, call) : NULL;
    if (status == PCCL_OK && !op) status = pccl__fail(error, PCCL_NO_MEMORY, "no memory for an operation");
    if (status != PCCL_OK) {
        free(begins);
        pccl__tensors_free(tensors);
        return status;
    }
    op->layout = layout;
    op->begins = begins;
    op->tensors = tensors;
    op->call.count = layout.count;
    op->call.input_counts = op->call.output_counts = NULL;
    if (tensors) op->call.tensors = tensors->tensor, op->call.input = op->call.output = NULL;
    *operation = op;
    return PCCL_OK;
}

/* Counts cannot be kept before the group is there that says how many they are. */
static bool lost_before_its_group(struct pccl__core *core, struct pccl_operation *op) {
    if (!(op->call.flags & PCCL_UNEVEN) || op->call.expected_epoch <= core->group.epoch) return false;
    pccl__operation_lost(op, pccl__core_past_epoch(core), PCCL_PEER_LOST,
                         "uneven parts for epoch %llu, which is not installed yet: call again",
                         (unsigned long long)op->call.expected_epoch);
    return true;
}

/* A barrier has nothing but a name. */
static pccl_call without_data(const pccl_call *call) {
    return (pccl_call){.collective = call->collective,
                       .flags = call->flags & (PCCL_NOTIFY | PCCL_HOLD_TAG | PCCL_SAME_MEMBERS),
                       .tag = call->tag,
                       .scope = call->scope,
                       .expected_epoch = call->expected_epoch,
                       .timeout_ms = call->timeout_ms,
                       .priority = call->priority,
                       .token = call->token,
                       .ended = call->ended,
                       .context = call->context};
}

/* Of any scope: who calls it may have others of that tag in mind. */
static bool has_open(const struct pccl__core *core, uint64_t tag) {
    for (struct list *node = core->open.next; node != &core->open; node = node->next) {
        const struct pccl_operation *op = LIST_ENTRY(node, struct pccl_operation, link);
        if (!op->is_fetch && op->call.tag == tag) return true;
    }
    return false;
}

pccl_status pccl__core_start(struct pccl__core *core, const pccl_call *call, uint64_t now_ns,
                             struct pccl_operation **operation, pccl_error *error) {
    core->now_ns = now_ns;
    if (core->halted != PCCL_OK) return pccl__fail(error, core->halted, "%s", core->halt_text);
    if (core->group.epoch == 0) return pccl__fail(error, PCCL_INVALID, "no view is installed yet: connect first");
    pccl_status status = pccl__call_check(call, error);
    pccl_call bare;
    if (status == PCCL_OK && !pccl__has_data(call->collective)) {
        bare = without_data(call);
        call = &bare;
    }
    struct pccl_operation *op = NULL;
    if (status == PCCL_OK) status = admit(core, call, &op, error);
    if (status != PCCL_OK) return status;
    op->called_ns = now_ns;
    op->info.world_size = core->group.size;
    op->info.rank = core->group.rank;
    *operation = op;
    if (!core->frozen) {
        pccl__core_launch(core, op);
        return PCCL_OK;
    }
    op->started_ns = op->progressed_ns = now_ns;
    /* Now: the failure may have been looked at when the next epoch begins. */
    if (lost_behind_unseen(core, op) || lost_before_its_group(core, op)) return PCCL_OK;
    op->fated = has_open(core, call->tag); /* shares the fate of the frozen epoch */
    list_push_back(&core->queued, &op->link);
    pccl__core_watch(op);
    return PCCL_OK;
}
