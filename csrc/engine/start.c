/* SPDX-License-Identifier: MIT
 *
 * start.c - from a call to a running operation: validation, numbering, choice of the algorithm.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/status.h"
#include "engine/core.h"

/* ---------------------------------------------------------------- validation */

static bool reduces(pccl_collective collective) {
    return collective == PCCL_ALL_REDUCE || collective == PCCL_REDUCE_SCATTER;
}

static bool has_data(pccl_collective collective) { return collective != PCCL_BARRIER && collective != PCCL_COMMIT; }

static bool overlap(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes) {
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_bytes && b_bytes && x < y + b_bytes && y < x + a_bytes;
}

static pccl_status check_buffers(const pccl_call *call, uint32_t size, uint32_t rank, pccl_error *error) {
    uint64_t bytes, all;
    if (mul_overflows(call->count, pccl_dtype_bytes(call->dtype), &bytes) || mul_overflows(bytes, size, &all) ||
        all > INT64_MAX)
        return pccl__fail(error, PCCL_INVALID, "%llu elements of %s for %u ranks are too many bytes",
                          (unsigned long long)call->count, pccl_dtype_name(call->dtype), size);
    if (bytes == 0) return PCCL_OK;
    bool reads = call->collective != PCCL_BROADCAST || call->root == rank;
    if (!call->output || (reads && !call->input))
        return pccl__fail(error, PCCL_INVALID, "%s of %llu elements needs buffers, got a NULL pointer",
                          pccl_collective_name(call->collective), (unsigned long long)call->count);
    if (!reads) return PCCL_OK;
    bool gathers = call->collective == PCCL_ALL_GATHER, scatters = call->collective == PCCL_REDUCE_SCATTER;
    const uint8_t *in = call->input, *out = call->output;
    bool in_place = gathers ? in == out + rank * bytes : scatters ? out == in + rank * bytes : in == out;
    if (!in_place && overlap(in, scatters ? all : bytes, out, gathers ? all : bytes))
        return pccl__fail(error, PCCL_INVALID, "input and output of %s overlap without being in place",
                          pccl_collective_name(call->collective));
    return PCCL_OK;
}

static pccl_status check_call(const pccl_call *call, pccl_error *error) {
    if ((unsigned)call->collective >= PCCL_COLLECTIVE_COUNT)
        return pccl__fail(error, PCCL_INVALID, "unknown collective %d", (int)call->collective);
    if (!has_data(call->collective)) return PCCL_OK;
    if ((unsigned)call->dtype >= PCCL_DTYPE_COUNT)
        return pccl__fail(error, PCCL_INVALID, "unknown dtype %d", (int)call->dtype);
    if (reduces(call->collective) && (unsigned)call->op >= PCCL_REDUCE_OP_COUNT)
        return pccl__fail(error, PCCL_INVALID, "unknown reduce op %d", (int)call->op);
    if (call->algorithm != PCCL_AUTO && !pccl__planner_find(call->collective, call->algorithm))
        return pccl__fail(error, PCCL_INVALID, "no algorithm %s for %s", pccl_algorithm_name(call->algorithm),
                          pccl_collective_name(call->collective));
    return PCCL_OK;
}

/* ---------------------------------------------------------------- schedules */

static const struct pccl__link_model here = {.latency_ns = 15000, .bytes_per_ns = 2.0};
static const struct pccl__link_model apart = {.latency_ns = 250000, .bytes_per_ns = 1.0};

struct cached {
    struct list link;
    pccl_collective collective;
    pccl_algorithm algorithm;
    uint32_t root;
    struct pccl__schedule *schedule;
};

static pccl_status schedule_for(struct pccl__core *core, pccl_collective collective,
                                const struct pccl__planner *planner, uint32_t root_position,
                                const struct pccl__schedule **schedule) {
    pccl_algorithm algorithm = planner ? planner->algorithm : PCCL_AUTO;
    for (struct list *node = core->schedules.next; node != &core->schedules; node = node->next) {
        struct cached *cached = LIST_ENTRY(node, struct cached, link);
        if (cached->collective == collective && cached->algorithm == algorithm && cached->root == root_position) {
            *schedule = cached->schedule;
            return PCCL_OK;
        }
    }
    struct cached *cached = malloc(sizeof *cached);
    if (!cached) return PCCL_NO_MEMORY;
    *cached = (struct cached){.collective = collective, .algorithm = algorithm, .root = root_position};
    pccl_status status =
        pccl__schedule_new(planner, core->group.position, &core->group.shape, root_position, &cached->schedule);
    if (status != PCCL_OK) {
        free(cached);
        return status;
    }
    list_init(&cached->link);
    list_push_front(&core->schedules, &cached->link);
    *schedule = cached->schedule;
    return PCCL_OK;
}

void pccl__core_drop_schedules(struct pccl__core *core) {
    struct list *node;
    while ((node = list_pop_front(&core->schedules))) {
        struct cached *cached = LIST_ENTRY(node, struct cached, link);
        pccl__schedule_free(cached->schedule);
        free(cached);
    }
    core->exec.finish = NULL;
}

pccl_status pccl__core_renew_schedules(struct pccl__core *core) {
    pccl__core_drop_schedules(core);
    core->barrier = pccl__planner_choose(PCCL_BARRIER, &core->group.shape, 0, here, NULL, 0);
    return schedule_for(core, PCCL_BARRIER, core->barrier, 0, &core->exec.finish);
}

/* ---------------------------------------------------------------- choice */

/* Only what all members know alike may enter the choice: sizes, the shape, and whether the group spans hosts. */
static const struct pccl__planner *choose(const struct pccl__core *core, const pccl_call *call, char *why,
                                          size_t bytes) {
    const struct pccl__planner *wanted = pccl__planner_find(call->collective, call->algorithm);
    if (wanted && pccl__planner_fits(wanted, &core->group.shape)) {
        if (why) snprintf(why, bytes, "forced by the caller");
        return wanted;
    }
    bool blocks = call->collective == PCCL_ALL_GATHER || call->collective == PCCL_REDUCE_SCATTER;
    uint64_t total = call->count * pccl_dtype_bytes(call->dtype) * (blocks ? core->group.size : 1);
    return pccl__planner_choose(call->collective, &core->group.shape, total, core->group.one_host ? here : apart, why,
                                bytes);
}

static uint32_t position_of_rank(const struct pccl__group *group, uint32_t rank) {
    uint32_t position = 0;
    while (group->ring[position] != rank) position++;
    return position;
}

pccl_status pccl__core_explain(struct pccl__core *core, const pccl_call *call, char *text, size_t text_bytes,
                               pccl_error *error) {
    pccl_status status = check_call(call, error);
    if (status != PCCL_OK) return status;
    if (core->group.epoch == 0) return pccl__fail(error, PCCL_INVALID, "no view is installed yet");
    static const char *const limits[PCCL_SHAPE_COUNT] = {"", "; some links are down, the ring has none of them",
                                                         "; so many links are down that only a tree is left"};
    const char *links = limits[core->group.shape.kind];
    if (!has_data(call->collective)) {
        snprintf(text, text_bytes, "%s: the only algorithm of %s%s", pccl_algorithm_name(core->barrier->algorithm),
                 pccl_collective_name(call->collective), links);
        return PCCL_OK;
    }
    char why[160];
    const struct pccl__planner *planner = choose(core, call, why, sizeof why);
    snprintf(text, text_bytes, "%s: %s%s", pccl_algorithm_name(planner->algorithm), why, links);
    return PCCL_OK;
}

/* ---------------------------------------------------------------- launch */

/* Buffers were judged by the group at the call; one that was queued may meet another, in which ranks and the number of
 * blocks mean something else. `info` still says which group that was. */
static bool still_fits(const struct pccl__core *core, const struct pccl_operation *op) {
    const struct pccl__group *group = &core->group;
    if (op->info.world_size == group->size && op->info.rank == group->rank) return true;
    if (!has_data(op->call.collective)) return true;
    bool blocks = op->call.collective == PCCL_ALL_GATHER || op->call.collective == PCCL_REDUCE_SCATTER;
    return !blocks && check_buffers(&op->call, group->size, group->rank, NULL) == PCCL_OK;
}

static bool lost_behind_unseen(struct pccl__core *core, struct pccl_operation *op) {
    uint64_t epoch;
    if (!pccl__unseen_blocks(&core->unseen, op->call.tag, pccl__is_stepwise(op), &epoch)) return false;
    pccl__operation_lost(op, epoch, PCCL_PEER_LOST, "called behind a failure that was not looked at yet: %.400s",
                         core->cause_text);
    return true;
}

/* Reasons to end before anything is sent. */
static bool refused(struct pccl__core *core, struct pccl_operation *op) {
    const struct pccl__group *group = &core->group;
    bool fits = still_fits(core, op);
    op->info = (pccl_info){.epoch = group->epoch, .world_size = group->size, .rank = group->rank};
    if (group->size < core->options.min_world_size) {
        /* The step ends here too, or who is alone could never ask for others: joint calls want it settled. */
        if (pccl__is_stepwise(op)) core->deferred.open = core->deferred.broken = false;
        pccl__operation_end(op, PCCL_TOO_FEW_PEERS, "the group has %u member%s, at least %u are needed", group->size,
                            group->size == 1 ? "" : "s", core->options.min_world_size);
    } else if (op->call.expected_epoch && op->call.expected_epoch != group->epoch) {
        pccl__operation_lost(op, pccl__core_past_epoch(core), PCCL_PEER_LOST,
                             "the group changed from epoch %llu to %llu (%u members): call again",
                             (unsigned long long)op->call.expected_epoch, (unsigned long long)group->epoch,
                             group->size);
    } else if (!fits) {
        pccl__operation_lost(
            op, pccl__core_past_epoch(core), PCCL_PEER_LOST,
            "the group changed to %u members before it began: call again with buffers for rank %u of those",
            group->size, group->rank);
    } else if (lost_behind_unseen(core, op)) {
        return true;
    } else if (pccl__is_stepwise(op) && core->deferred.broken) {
        core->deferred.broken = core->deferred.open = false;
        pccl__operation_lost(op, pccl__core_past_epoch(core), PCCL_PEER_LOST, "the step must be repeated: %.400s",
                             core->cause_text);
    } else if (pccl__is_stepwise(op) && core->deferred.mismatch[0]) {
        core->deferred.open = false;
        pccl__operation_end(op, PCCL_MISMATCH, "%s", core->deferred.mismatch);
        core->deferred.mismatch[0] = 0;
    } else if (op->call.collective == PCCL_BROADCAST && op->call.root >= group->size) {
        pccl__operation_end(op, PCCL_INVALID, "root %u is outside a group of %u", op->call.root, group->size);
    } else {
        return pccl__core_owed_mismatch(core, op);
    }
    return true;
}

static pccl_status prepare(struct pccl__core *core, struct pccl_operation *op) {
    const struct pccl__planner *planner = NULL;
    uint32_t root = 0;
    op->algorithm = core->barrier->algorithm;
    if (has_data(op->call.collective)) {
        planner = choose(core, &op->call, NULL, 0);
        op->algorithm = planner->algorithm;
        if (op->call.collective == PCCL_BROADCAST) root = position_of_rank(&core->group, op->call.root);
    }
    pccl_status status = schedule_for(core, has_data(op->call.collective) ? op->call.collective : PCCL_COMMIT, planner,
                                      root, &op->schedule);
    if (status != PCCL_OK) return status;
    return pccl__tags_begin(&core->tags, op->call.tag, &op->entry);
}

void pccl__core_launch(struct pccl__core *core, struct pccl_operation *op) {
    if (refused(core, op)) return;
    pccl_status status = prepare(core, op);
    if (status == PCCL_INVALID) {
        pccl__operation_end(op, status, "more than %d distinct tags in one epoch: reuse tags", PCCL__TAGS_MAX);
        return;
    }
    if (status != PCCL_OK) {
        pccl__operation_lost(op, pccl__core_past_epoch(core), status, "no memory to start");
        return;
    }
    op->name = (pccl_operation_name){op->call.tag, op->entry->sequence};
    op->stamp = pccl__stamp_pack(&op->call, op->algorithm, core->group.size);
    op->entry->operation = op;
    op->entry->fingerprint = pccl__stamp_fingerprint(&op->stamp);
    op->info.algorithm = op->algorithm;
    op->started_ns = op->progressed_ns = core->now_ns;
    op->next_stall_ns = core->now_ns + core->options.stall_ms * UINT64_C(1000000);
    op->state = PCCL__DATA;
    op->started = true;
    list_push_back(&core->open, &op->link);
    pccl__core_watch(op);
    op->settles = core->deferred.started;
    if (op->call.flags & PCCL_DEFERRED) {
        core->deferred.open = true;
        core->deferred.started++;
    }
    status = pccl__exec_begin(&core->exec, op);
    if (status != PCCL_OK)
        pccl__operation_failed(op, status);
    else
        pccl__operation_advance(op);
}

pccl_status pccl__core_start(struct pccl__core *core, const pccl_call *call, uint64_t now_ns,
                             struct pccl_operation **operation, pccl_error *error) {
    core->now_ns = now_ns;
    if (core->halted != PCCL_OK) return pccl__fail(error, core->halted, "%s", core->halt_text);
    if (core->group.epoch == 0) return pccl__fail(error, PCCL_INVALID, "no view is installed yet: connect first");
    pccl_status status = check_call(call, error);
    if (status == PCCL_OK && has_data(call->collective))
        status = check_buffers(call, core->group.size, core->group.rank, error);
    if (status != PCCL_OK) return status;
    struct pccl_operation *op = pccl__operation_new(core, call);
    if (!op) return pccl__fail(error, PCCL_NO_MEMORY, "no memory for an operation");
    op->called_ns = now_ns;
    op->info.world_size = core->group.size;
    op->info.rank = core->group.rank;
    if (!has_data(call->collective)) {
        op->call = (pccl_call){.collective = call->collective,
                               .flags = call->flags & (PCCL_NOTIFY | PCCL_HOLD_TAG),
                               .tag = call->tag,
                               .expected_epoch = call->expected_epoch,
                               .timeout_ms = call->timeout_ms,
                               .token = call->token};
    }
    *operation = op;
    if (!core->frozen) {
        pccl__core_launch(core, op);
        return PCCL_OK;
    }
    op->started_ns = op->progressed_ns = now_ns;
    /* Now: the failure may have been looked at when the next epoch begins. */
    if (lost_behind_unseen(core, op)) return PCCL_OK;
    op->fated = pccl__tags_has_open(&core->tags, call->tag); /* shares the fate of the frozen epoch */
    list_push_back(&core->queued, &op->link);
    pccl__core_watch(op);
    return PCCL_OK;
}
