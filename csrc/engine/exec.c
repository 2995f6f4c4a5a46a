/* SPDX-License-Identifier: MIT */
#include "engine/exec.h"

#include <string.h>

#include "base/bits.h"
#include "base/check.h"

enum { SMALLEST_SEGMENT = 64 * 1024, LARGEST_SEGMENT = 256 * 1024, SEGMENTS_PER_CHUNK = 4 };

/* Backups of this size leave the caches before anyone could want them back. */
enum { STREAM_BYTES = 4 << 20 };

/* ---------------------------------------------------------------- layout */

static bool by_blocks(pccl_collective collective) {
    return collective == PCCL_ALL_GATHER || collective == PCCL_REDUCE_SCATTER;
}

/* Elements of chunk `chunk` and where it begins in the whole vector. Blocks belong to ranks, so the ring maps them. */
static uint64_t chunk_range(const struct pccl__exec *exec, const struct pccl_operation *op, uint32_t chunk,
                            uint64_t *begin) {
    uint64_t count = op->call.count;
    if (by_blocks(op->call.collective)) {
        *begin = exec->group->ring[chunk] * count;
        return count;
    }
    uint64_t base = count / op->schedule->plan.chunks, extra = count % op->schedule->plan.chunks;
    *begin = chunk * base + min_u64(chunk, extra);
    return base + (chunk < extra);
}

struct piece {
    uint64_t offset, elements; /* within the whole vector */
};

static struct piece piece_of(const struct pccl__exec *exec, const struct pccl_operation *op, uint32_t chunk,
                             uint32_t segment) {
    uint64_t begin, elements = chunk_range(exec, op, chunk, &begin);
    uint64_t first = segment * op->segment_elements;
    if (first >= elements) return (struct piece){begin, 0};
    return (struct piece){begin + first, min_u64(op->segment_elements, elements - first)};
}

/* The input holds the whole vector, except that of an all_gather, which is our block alone. */
static const uint8_t *input_at(const struct pccl__exec *exec, const struct pccl_operation *op, struct piece piece) {
    uint64_t base = op->call.collective == PCCL_ALL_GATHER ? exec->group->rank * op->call.count : 0;
    return op->input + (piece.offset - base) * op->element_bytes;
}

/* The result holds the whole vector, except that of a reduce_scatter. */
static uint8_t *result_at(const struct pccl__exec *exec, const struct pccl_operation *op, struct piece piece) {
    uint64_t base = op->call.collective == PCCL_REDUCE_SCATTER ? exec->group->rank * op->call.count : 0;
    return op->result + (piece.offset - base) * op->element_bytes;
}

static uint64_t largest_chunk(const struct pccl__exec *exec, const struct pccl_operation *op) {
    uint64_t begin;
    return chunk_range(exec, op, 0, &begin); /* extras go to the first chunks */
}

static void cut_segments(const struct pccl__exec *exec, struct pccl_operation *op) {
    uint64_t elements = largest_chunk(exec, op), bytes = elements * op->element_bytes;
    uint64_t segment = exec->segment_bytes;
    if (!segment) segment = min_u64(max_u64(bytes / SEGMENTS_PER_CHUNK, SMALLEST_SEGMENT), LARGEST_SEGMENT);
    op->segment_elements = max_u64(segment / op->element_bytes, 1);
    op->segments = (uint32_t)div_ceil(elements, op->segment_elements);
    if (op->schedule->plan.steps_count == 0) op->segments = 0;
    uint64_t window = PCCL__WINDOW_TASKS / max_u64(op->schedule->plan.steps_count, 1);
    op->slots = (uint32_t)min_u64(op->segments, min_u64(max_u64(window, 1), PCCL__WINDOW_SEGMENTS));
}

static size_t scratch_bytes(const struct pccl_operation *op) { return op->segment_elements * op->element_bytes; }

/* ---------------------------------------------------------------- tasks */

static struct pccl__task *task_at(const struct pccl_operation *op, uint32_t slot, uint32_t step) {
    return &op->task[(size_t)slot * op->schedule->plan.steps_count + step];
}

static const struct pccl__step *step_of(const struct pccl_operation *op, const struct pccl__task *task) {
    return &op->schedule->plan.steps[task->step];
}

/* The last write of a chunk that belongs to our result: of a reduce_scatter only our own block does. */
static bool lands_in_result(const struct pccl__exec *exec, const struct pccl_operation *op,
                            const struct pccl__task *task) {
    bool ours = op->call.collective != PCCL_REDUCE_SCATTER || step_of(op, task)->chunk == exec->group->position;
    return op->schedule->last[task->step] && ours;
}

static void fill_transfer(struct pccl_operation *op, struct pccl__transfer *transfer, uint32_t step, uint32_t segment,
                          const void *data, size_t bytes) {
    *transfer = (struct pccl__transfer){
        .key = {.epoch = op->info.epoch,
                .tag = op->name.tag,
                .sequence = op->name.sequence,
                .step = step,
                .segment = segment},
        .stamp = op->stamp,
        .data = (void *)(uintptr_t)data,
        .bytes = (uint32_t)bytes,
        .owner = op,
    };
}

static pccl_status post(struct pccl__exec *exec, struct pccl_operation *op, uint32_t position,
                        struct pccl__transfer *transfer, bool send) {
    struct pccl__channel *channel = pccl__group_at_position(exec->group, position);
    pccl_status status = send ? channel->ops->post_send(channel, transfer) : channel->ops->post_recv(channel, transfer);
    if (status == PCCL_OK) op->borrowed++;
    return status;
}

static uint32_t wire_step(const struct pccl_operation *op, const struct pccl__step *step) {
    return step->round * op->schedule->plan.chunks + step->chunk;
}

static pccl_status post_send(struct pccl__exec *exec, struct pccl_operation *op, struct pccl__task *task) {
    const struct pccl__step *step = step_of(op, task);
    uint32_t segment = op->slot[task->slot].segment, previous = op->schedule->previous[task->step];
    struct piece piece = piece_of(exec, op, step->chunk, segment);
    const void *source =
        previous == PCCL__NO_STEP ? input_at(exec, op, piece) : task_at(op, task->slot, previous)->value;
    fill_transfer(op, &task->transfer, wire_step(op, step), segment, source, piece.elements * op->element_bytes);
    pccl_status status = post(exec, op, step->peer, &task->transfer, true);
    if (status == PCCL_OK) task->state = PCCL__TASK_POSTED;
    return status;
}

/* Before the result's piece that this receive writes is overwritten for the first and only time. */
static void save_input(const struct pccl__exec *exec, struct pccl_operation *op, const struct pccl__task *task) {
    if (op->shadow_use != PCCL__SHADOW_BACKUP) return;
    uint32_t segment = op->slot[task->slot].segment, chunk = step_of(op, task)->chunk;
    struct piece piece = piece_of(exec, op, chunk, segment);
    uint8_t *at = result_at(exec, op, piece);
    size_t bytes = piece.elements * op->element_bytes;
    if (op->shadow_bytes >= STREAM_BYTES)
        pccl__copy_stream(op->shadow + (at - op->result), at, bytes);
    else
        memcpy(op->shadow + (at - op->result), at, bytes);
    op->saved[chunk * op->segments + segment] = 1;
}

static void drop_scratch(struct pccl__exec *exec, struct pccl_operation *op, struct pccl__task *task) {
    pccl__pool_put(exec->pool, task->scratch, scratch_bytes(op));
    task->scratch = NULL;
}

/* Copies land in the result when they are the last write; all else lands in scratch. */
static pccl_status post_receive(struct pccl__exec *exec, struct pccl_operation *op, struct pccl__task *task) {
    const struct pccl__step *step = step_of(op, task);
    uint32_t segment = op->slot[task->slot].segment;
    struct piece piece = piece_of(exec, op, step->chunk, segment);
    bool direct = step->kind == PCCL__COPY && lands_in_result(exec, op, task);
    uint8_t *target = direct ? result_at(exec, op, piece) : NULL;
    if (target) save_input(exec, op, task);
    if (!target) {
        target = task->scratch = pccl__pool_take(exec->pool, scratch_bytes(op));
        if (!target) return PCCL_NO_MEMORY;
    }
    fill_transfer(op, &task->transfer, wire_step(op, step), segment, target, piece.elements * op->element_bytes);
    pccl_status status = post(exec, op, step->peer, &task->transfer, false);
    if (status == PCCL_OK)
        task->state = PCCL__TASK_POSTED;
    else /* what else completes before the epoch stops may try again */
        drop_scratch(exec, op, task);
    return status;
}

static void read_done(struct pccl__exec *exec, struct pccl_operation *op, struct pccl__task *task) {
    uint32_t previous = op->schedule->previous[task->step];
    if (previous == PCCL__NO_STEP) return;
    struct pccl__task *source = task_at(op, task->slot, previous);
    if (--source->readers == 0) drop_scratch(exec, op, source);
}

/* Posts receives of a slot until enough are ahead. Empty pieces are DONE from the start. */
static pccl_status post_ahead(struct pccl__exec *exec, struct pccl_operation *op, uint32_t slot_index) {
    struct pccl__slot *slot = &op->slot[slot_index];
    while (slot->posted < PCCL__RECEIVES_AHEAD && slot->next_receive < op->schedule->receives_count) {
        struct pccl__task *task = task_at(op, slot_index, op->schedule->receives[slot->next_receive]);
        if (task->state == PCCL__TASK_WAITING) {
            pccl_status status = post_receive(exec, op, task);
            if (status != PCCL_OK) return status;
            slot->posted++;
        }
        slot->next_receive++;
    }
    return PCCL_OK;
}

static pccl_status admit(struct pccl__exec *exec, struct pccl_operation *op, uint32_t slot_index) {
    const struct pccl__schedule *schedule = op->schedule;
    struct pccl__slot *slot = &op->slot[slot_index];
    *slot = (struct pccl__slot){.segment = op->admitted++};
    for (uint32_t i = 0; i < schedule->plan.steps_count; i++) {
        struct pccl__task *task = task_at(op, slot_index, i);
        *task = (struct pccl__task){.step = i, .slot = slot_index};
        bool empty = piece_of(exec, op, schedule->plan.steps[i].chunk, slot->segment).elements == 0;
        task->state = empty ? PCCL__TASK_DONE : PCCL__TASK_WAITING;
        slot->open += !empty;
        for (uint32_t d = schedule->first_dependent[i]; d != PCCL__NO_STEP; d = schedule->next_dependent[d])
            task->readers++;
    }
    pccl_status status = post_ahead(exec, op, slot_index); /* first, so that data finds its place */
    for (uint32_t i = 0; i < schedule->plan.steps_count && status == PCCL_OK; i++) {
        struct pccl__task *task = task_at(op, slot_index, i);
        if (!pccl__step_is_send(&schedule->plan.steps[i]) || schedule->previous[i] != PCCL__NO_STEP) continue;
        if (task->state == PCCL__TASK_WAITING) status = post_send(exec, op, task);
    }
    return status;
}

/* A task ended; when it was the slot's last, the slot takes the next segment. */
static pccl_status close_task(struct pccl__exec *exec, struct pccl_operation *op, struct pccl__task *task) {
    task->state = PCCL__TASK_DONE;
    if (--op->slot[task->slot].open > 0) return PCCL_OK;
    op->finished_segments++;
    return op->admitted < op->segments ? admit(exec, op, task->slot) : PCCL_OK;
}

/* ---------------------------------------------------------------- arithmetic */

static void combine(struct pccl__exec *exec, struct pccl_operation *op, struct pccl__task *task) {
    const struct pccl__step *step = step_of(op, task);
    struct piece piece = piece_of(exec, op, step->chunk, op->slot[task->slot].segment);
    uint32_t previous = op->schedule->previous[task->step];
    const void *ours = previous == PCCL__NO_STEP ? input_at(exec, op, piece) : task_at(op, task->slot, previous)->value;
    const void *theirs = task->transfer.data;
    void *target = task->scratch;
    if (lands_in_result(exec, op, task)) {
        save_input(exec, op, task);
        target = result_at(exec, op, piece);
    }
    bool received_first = step->kind == PCCL__REDUCE_LEFT;
    exec->kernels->reduce[op->call.op][op->call.dtype](target, received_first ? theirs : ours,
                                                       received_first ? ours : theirs, piece.elements);
    if (step->complete && op->call.op == PCCL_AVG)
        exec->kernels->divide[op->call.dtype](target, exec->group->size, piece.elements);
    task->value = target;
}

/* Applies an arrived receive whose predecessor is done, wakes its dependents, goes on with a receive that was waiting
 * for it. */
static pccl_status apply(struct pccl__exec *exec, struct pccl_operation *op, struct pccl__task *task) {
    const struct pccl__schedule *schedule = op->schedule;
    while (task) {
        uint32_t previous = schedule->previous[task->step], slot = task->slot, step = task->step;
        if (previous != PCCL__NO_STEP && task_at(op, slot, previous)->state != PCCL__TASK_DONE) return PCCL_OK;
        if (step_of(op, task)->kind == PCCL__COPY)
            task->value = task->transfer.data;
        else
            combine(exec, op, task);
        read_done(exec, op, task);
        if (task->scratch && (task->value != task->scratch || task->readers == 0)) drop_scratch(exec, op, task);
        op->open_receives--;
        op->slot[slot].posted--;
        task->state = PCCL__TASK_DONE;
        struct pccl__task *next = NULL;
        for (uint32_t d = schedule->first_dependent[step]; d != PCCL__NO_STEP; d = schedule->next_dependent[d]) {
            struct pccl__task *dependent = task_at(op, slot, d);
            if (pccl__step_is_send(&schedule->plan.steps[d])) {
                pccl_status status = post_send(exec, op, dependent);
                if (status != PCCL_OK) return status;
            } else if (dependent->state == PCCL__TASK_ARRIVED) {
                next = dependent;
            }
        }
        pccl_status status = post_ahead(exec, op, slot);
        if (status == PCCL_OK) status = close_task(exec, op, task);
        if (status != PCCL_OK) return status;
        task = next; /* its slot is still open, so it was not re-used */
    }
    return PCCL_OK;
}

/* ---------------------------------------------------------------- begin and end */

static uint32_t count_receives(const struct pccl__exec *exec, const struct pccl_operation *op) {
    uint32_t open = 0;
    for (uint32_t i = 0; i < op->schedule->receives_count; i++) {
        uint64_t begin;
        uint32_t chunk = op->schedule->plan.steps[op->schedule->receives[i]].chunk;
        open += (uint32_t)div_ceil(chunk_range(exec, op, chunk, &begin), op->segment_elements);
    }
    return open;
}

/* What no receive writes comes from our own input: our block of an all_gather, a broadcast's root. */
static void copy_unreceived(struct pccl__exec *exec, struct pccl_operation *op) {
    if (!op->input || !op->result || op->input == op->result) return;
    for (uint32_t chunk = 0; chunk < op->schedule->plan.chunks; chunk++) {
        uint64_t begin, elements = chunk_range(exec, op, chunk, &begin);
        bool ours = op->call.collective == PCCL_BROADCAST || op->call.collective == PCCL_ALL_REDUCE ||
                    exec->group->ring[chunk] == exec->group->rank;
        if (op->schedule->received[chunk] || !ours || elements == 0) continue;
        struct piece piece = {begin, elements};
        const uint8_t *source = input_at(exec, op, piece);
        uint8_t *target = result_at(exec, op, piece);
        if (source != target) memcpy(target, source, elements * op->element_bytes);
    }
}

/* Where the result grows. Out of place: in the output. In place an abort must find the input again, unless the caller
 * gave it up, and no send may still read what is overwritten. Where the schedule sees to that (those of ring and tree
 * do), the result grows in the output itself, and each piece is saved just before, while it is in the cache anyway.
 * Other algorithms (small sizes) build the result in the shadow, which is published at the end. */
static pccl_status place_result(struct pccl__exec *exec, struct pccl_operation *op) {
    bool reduces = op->call.collective == PCCL_ALL_REDUCE || op->call.collective == PCCL_REDUCE_SCATTER;
    const uint8_t *own = op->call.collective == PCCL_REDUCE_SCATTER
                             ? op->input + exec->group->rank * op->call.count * op->element_bytes
                             : op->input;
    bool in_place = op->schedule->in_place, discard = op->call.flags & PCCL_DISCARD_INPUT;
    op->result = op->call.output;
    if (!reduces || op->call.output != own || op->call.count == 0 || (in_place && discard)) return PCCL_OK;
    op->shadow_bytes = op->call.count * op->element_bytes;
    op->shadow = pccl__pool_take(exec->pool, op->shadow_bytes);
    if (!op->shadow) return PCCL_NO_MEMORY;
    op->shadow_use = in_place ? PCCL__SHADOW_BACKUP : PCCL__SHADOW_RESULT;
    if (!in_place) op->result = op->shadow;
    return PCCL_OK;
}

static pccl_status take_arena(struct pccl__exec *exec, struct pccl_operation *op) {
    uint32_t steps = exec->finish->plan.steps_count;
    size_t slots = op->slots * sizeof *op->slot, finish = steps * sizeof(struct pccl__transfer);
    size_t tasks = (size_t)op->slots * op->schedule->plan.steps_count * sizeof *op->task;
    size_t pieces = (size_t)op->schedule->plan.chunks * op->segments;
    op->arena_bytes = tasks + finish + slots + pieces + steps + 1;
    op->arena = pccl__pool_take(exec->pool, op->arena_bytes);
    if (!op->arena) return PCCL_NO_MEMORY;
    uint8_t *at = op->arena;
    op->task = (struct pccl__task *)at;
    op->finish.transfer = (struct pccl__transfer *)(at += tasks);
    op->slot = (struct pccl__slot *)(at += finish);
    op->saved = at + slots;
    op->finish.heard = op->saved + pieces;
    memset(op->task, 0, tasks);
    memset(op->finish.transfer, 0, finish);
    memset(op->saved, 0, pieces + steps + 1);
    op->finish.steps = steps;
    return PCCL_OK;
}

static pccl_status post_finish(struct pccl__exec *exec, struct pccl_operation *op, uint32_t index) {
    const struct pccl__step *step = &exec->finish->plan.steps[index];
    fill_transfer(op, &op->finish.transfer[index], PCCL__FINISH_STEP + step->round, 0, NULL, 0);
    return post(exec, op, step->peer, &op->finish.transfer[index], pccl__step_is_send(step));
}

static pccl_status post_finish_receives(struct pccl__exec *exec, struct pccl_operation *op) {
    pccl_status status = PCCL_OK;
    for (uint32_t i = 0; i < exec->finish->receives_count && status == PCCL_OK; i++)
        status = post_finish(exec, op, exec->finish->receives[i]);
    return status;
}

pccl_status pccl__exec_begin(struct pccl__exec *exec, struct pccl_operation *op) {
    op->input = op->call.input;
    op->element_bytes = pccl_dtype_bytes(op->call.dtype);
    cut_segments(exec, op);
    op->open_receives = count_receives(exec, op);
    pccl_status status = take_arena(exec, op);
    if (status == PCCL_OK) status = place_result(exec, op);
    if (status == PCCL_OK && !(op->call.flags & PCCL_DEFERRED)) status = post_finish_receives(exec, op);
    for (uint32_t slot = 0; slot < op->slots && status == PCCL_OK; slot++) status = admit(exec, op, slot);
    if (status == PCCL_OK) copy_unreceived(exec, op);
    return status;
}

static bool is_finish(const struct pccl__transfer *transfer) { return transfer->key.step >= PCCL__FINISH_STEP; }

static pccl_status finish_advance(struct pccl__exec *exec, struct pccl_operation *op) {
    struct pccl__finish *finish = &op->finish;
    for (; finish->begun && finish->next < finish->steps; finish->next++) {
        if (!pccl__step_is_send(&exec->finish->plan.steps[finish->next])) {
            if (!finish->heard[finish->next]) break;
            continue;
        }
        pccl_status status = post_finish(exec, op, finish->next);
        if (status != PCCL_OK) return status;
    }
    return PCCL_OK;
}

pccl_status pccl__exec_begin_finish(struct pccl__exec *exec, struct pccl_operation *op) {
    op->finish.begun = true;
    return finish_advance(exec, op);
}

pccl_status pccl__exec_completed(struct pccl__exec *exec, struct pccl_operation *op, struct pccl__transfer *transfer) {
    if (is_finish(transfer)) {
        if (transfer->is_send) return PCCL_OK;
        op->finish.heard[transfer - op->finish.transfer] = 1;
        return finish_advance(exec, op);
    }
    struct pccl__task *task = LIST_ENTRY(transfer, struct pccl__task, transfer);
    if (!transfer->is_send) {
        op->info.rx_bytes += transfer->bytes;
        task->state = PCCL__TASK_ARRIVED;
        return apply(exec, op, task);
    }
    op->info.tx_bytes += transfer->bytes;
    read_done(exec, op, task);
    return close_task(exec, op, task);
}

bool pccl__exec_data_done(const struct pccl_operation *op, bool sent) {
    if (sent) return op->finished_segments == op->segments;
    return op->open_receives == 0 && op->admitted == op->segments;
}

bool pccl__exec_finished(const struct pccl_operation *op) {
    return op->finish.begun && op->finish.next == op->finish.steps;
}

void pccl__exec_publish(struct pccl_operation *op) {
    if (op->shadow_use == PCCL__SHADOW_RESULT) memcpy(op->call.output, op->shadow, op->shadow_bytes);
}

void pccl__exec_restore(struct pccl__exec *exec, struct pccl_operation *op) {
    if (op->shadow_use != PCCL__SHADOW_BACKUP || !op->arena) return;
    for (uint32_t chunk = 0; chunk < op->schedule->plan.chunks; chunk++) {
        for (uint32_t segment = 0; segment < op->segments; segment++) {
            if (!op->saved[chunk * op->segments + segment]) continue;
            struct piece piece = piece_of(exec, op, chunk, segment);
            uint8_t *at = result_at(exec, op, piece);
            memcpy(at, op->shadow + (at - op->result), piece.elements * op->element_bytes);
        }
    }
}

static void cancel_one(struct pccl__exec *exec, uint32_t position, struct pccl__transfer *transfer, pccl_status why) {
    struct pccl__channel *channel = pccl__group_at_position(exec->group, position);
    if (transfer->state == PCCL__POSTED) channel->ops->cancel(channel, transfer, why);
}

void pccl__exec_cancel(struct pccl__exec *exec, struct pccl_operation *op, pccl_status why) {
    if (!op->arena || op->borrowed == 0) return;
    const struct pccl__plan *plan = &op->schedule->plan;
    for (uint32_t slot = 0; slot < op->slots; slot++)
        for (uint32_t i = 0; i < plan->steps_count; i++)
            cancel_one(exec, plan->steps[i].peer, &task_at(op, slot, i)->transfer, why);
    for (uint32_t i = 0; i < op->finish.steps; i++)
        cancel_one(exec, exec->finish->plan.steps[i].peer, &op->finish.transfer[i], why);
}

void pccl__exec_release(struct pccl__exec *exec, struct pccl_operation *op) {
    CHECK(op->borrowed == 0);
    if (op->arena) {
        for (uint32_t i = 0; i < op->slots * op->schedule->plan.steps_count; i++)
            if (op->task[i].scratch) drop_scratch(exec, op, &op->task[i]);
    }
    pccl__pool_put(exec->pool, op->arena, op->arena_bytes);
    pccl__pool_put(exec->pool, op->shadow, op->shadow_bytes);
    op->arena = op->shadow = NULL;
}

uint32_t pccl__exec_waits_for(const struct pccl__exec *exec, const struct pccl_operation *op, uint8_t *waits) {
    const struct pccl__group *group = exec->group;
    memset(waits, 0, group->size);
    if (!op->arena) return 0;
    const struct pccl__plan *plan = &op->schedule->plan;
    for (uint32_t slot = 0; slot < op->slots; slot++)
        for (uint32_t i = 0; i < plan->steps_count; i++)
            if (task_at(op, slot, i)->transfer.state == PCCL__POSTED) waits[group->ring[plan->steps[i].peer]] = 1;
    for (uint32_t i = op->finish.next; op->finish.begun && i < op->finish.steps; i++) {
        const struct pccl__step *step = &exec->finish->plan.steps[i];
        if (!pccl__step_is_send(step) && !op->finish.heard[i]) waits[group->ring[step->peer]] = 1;
    }
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < group->size; rank++) count += waits[rank];
    return count;
}
