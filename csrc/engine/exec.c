/* SPDX-License-Identifier: MIT */
#include "engine/exec.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/check.h"
#include "engine/coding.h"
#include "engine/operands.h"
#include "engine/piece.h"

/* ---------------------------------------------------------------- the window */

/* What a segment holds while it is under way; of quantized inputs as many as are sent. */
static uint64_t slot_bytes(const struct pccl_operation *op) {
    return op->scratch_bytes + (op->coding.on ? op->schedule->inputs_sent * op->coding.wire_bytes : 0);
}

/* How many segments may be under way at a time; at least one. Within a host they wait for no wire, and should not drive
 * each other out of the caches before they are read. While lengths are on their way nobody knows how many there will
 * be. */
static void open_window(struct pccl__exec *exec, struct pccl_operation *op) {
    uint64_t left = PCCL__WINDOWS_BYTES - min_u64(exec->windows_bytes, PCCL__WINDOWS_BYTES);
    uint64_t window = min_u64(left / slot_bytes(op), PCCL__WINDOW_SEGMENTS);
    uint64_t steps = max_u64(op->schedule->plan.steps_count, 1);
    uint64_t cached = max_u64(PCCL__WINDOW_CACHED / (steps * op->scratch_bytes), PCCL__WINDOW_LEAST);
    window = min_u64(window, op->team->one_host ? cached : window);
    window = min_u64(window, PCCL__WINDOW_TASKS / steps);
    uint64_t segments = op->lengths_first && op->segments ? UINT32_MAX : op->segments;
    op->slots = (uint32_t)min_u64(segments, max_u64(window, 1));
    exec->windows_bytes += op->slots * slot_bytes(op);
}

/* ---------------------------------------------------------------- tasks */

/* The last write of a chunk that belongs to our result. */
static bool lands_in_result(const struct pccl_operation *op, const struct pccl__task *task, struct pccl__piece piece) {
    return op->schedule->last[task->step] && piece.place.result != PCCL__NOWHERE;
}

static void fill_transfer(struct pccl_operation *op, struct pccl__transfer *transfer, uint32_t step, uint32_t segment,
                          const void *data, size_t bytes) {
    *transfer = (struct pccl__transfer){
        .key = {.epoch = op->info.epoch,
                .tag = op->name.tag,
                .scope = op->name.scope,
                .sequence = op->name.sequence,
                .step = step,
                .segment = segment},
        .stamp = op->stamp,
        .data = (void *)(uintptr_t)data,
        .bytes = (uint32_t)bytes,
        .owner = op,
        .priority = (int8_t)op->call.priority,
    };
}

static void fill(struct pccl_operation *op, struct pccl__task *task, const void *data, struct pccl__piece piece) {
    const struct pccl__plan *plan = &op->schedule->plan;
    const struct pccl__step *step = pccl__step_of(op, task);
    uint32_t name = plan->once ? step->chunk : step->round * plan->chunks + step->chunk;
    fill_transfer(op, &task->transfer, name, op->slot[task->slot].segment, data, piece.bytes);
    if (pccl__pieces_are_private(op) && !op->lengths_first) /* only the two of them know, so the two must agree */
        pccl__stamp_part(&task->transfer.stamp, pccl__layout_place(&op->layout, step->chunk).elements);
}

static struct pccl__channel *channel_to(const struct pccl__exec *exec, const struct pccl_operation *op,
                                        uint32_t position) {
    return exec->group->channels[op->links[position]];
}

static pccl_status post(struct pccl__channel *channel, struct pccl_operation *op, struct pccl__transfer *transfer,
                        bool send) {
    pccl_status status = send ? channel->ops->post_send(channel, transfer) : channel->ops->post_recv(channel, transfer);
    if (status == PCCL_OK) op->borrowed++;
    return status;
}

static struct pccl__piece piece_for(const struct pccl_operation *op, const struct pccl__task *task) {
    return pccl__piece_of(op, pccl__step_of(op, task)->chunk, op->slot[task->slot].segment);
}

static void drop_scratch(struct pccl__exec *exec, struct pccl_operation *op, struct pccl__task *task) {
    if (task->scratch && pccl__step_is_send(pccl__step_of(op, task))) exec->lent_bytes -= op->scratch_bytes;
    pccl__pool_put(exec->pool, task->scratch, op->scratch_bytes);
    task->scratch = NULL;
}

static pccl_status post_task(struct pccl__exec *exec, struct pccl_operation *op, struct pccl__task *task, bool send) {
    pccl_status status = post(channel_to(exec, op, pccl__step_of(op, task)->peer), op, &task->transfer, send);
    if (status != PCCL_OK) { /* what else completes before the epoch stops may try again */
        drop_scratch(exec, op, task);
        return status;
    }
    task->state = PCCL__TASK_POSTED;
    if (send) op->info.tx_bytes += task->transfer.bytes; /* who receives may have all before we hear of it */
    return PCCL_OK;
}

/* Is a value better sent from where its receiver has mapped it? That is read several times as fast as what the system
 * must fetch, which is worth a copy. */
static bool should_lend(const struct pccl__exec *exec, const struct pccl_operation *op, uint32_t send,
                        struct pccl__piece piece, const void *value) {
    return op->lends && piece.bytes >= exec->lend_least && !piece.is_length && !pccl__pool_shares(exec->pool, value) &&
           channel_to(exec, op, op->schedule->plan.steps[send].peer)->maps;
}

/* A copy to send: of an input that is going to be overwritten, its backup. `value` NULL: it lies in several tensors.
 * NULL: no memory, or enough is lent. */
static const void *copy_for_sending(struct pccl__exec *exec, struct pccl_operation *op, struct pccl__task *task,
                                    struct pccl__piece piece, const void *value) {
    bool is_input = op->schedule->previous[task->step] == PCCL__NO_STEP;
    const void *backup = is_input ? pccl__operands_back(op, piece, op->slot[task->slot].segment) : NULL;
    if (backup) return backup;
    if (value && exec->lent_bytes >= PCCL__LENT_BYTES) return NULL;
    task->scratch = pccl__pool_take(exec->pool, op->scratch_bytes);
    if (!task->scratch) return NULL;
    exec->lent_bytes += op->scratch_bytes;
    if (value) return memcpy(task->scratch, value, piece.bytes);
    pccl__operands_gather(op, piece, task->scratch);
    return task->scratch;
}

static pccl_status post_coded(struct pccl__exec *exec, struct pccl_operation *op, struct pccl__task *task,
                              struct pccl__piece piece) {
    const uint8_t *wire;
    pccl_status status = pccl__coding_wire(exec, op, task, &wire);
    if (status != PCCL_OK) return status;
    fill(op, task, wire, piece);
    return post_task(exec, op, task, true);
}

static pccl_status post_send(struct pccl__exec *exec, struct pccl_operation *op, struct pccl__task *task) {
    uint32_t previous = op->schedule->previous[task->step];
    struct pccl__piece piece = piece_for(op, task);
    if (op->coding.on && !piece.is_length) return post_coded(exec, op, task, piece);
    const void *value =
        previous == PCCL__NO_STEP ? pccl__piece_input(op, piece) : pccl__task_at(op, task->slot, previous)->value;
    bool apart = !value && piece.bytes > 0;
    const void *copy = apart || should_lend(exec, op, task->step, piece, value)
                           ? copy_for_sending(exec, op, task, piece, value)
                           : NULL;
    if (apart && !copy) return PCCL_NO_MEMORY;
    fill(op, task, copy ? copy : value, piece);
    return post_task(exec, op, task, true);
}

/* Copies land in the result when they are the last write and it lies together, lengths where they are kept; all else
 * lands in scratch, as does what is decoded from there. */
static pccl_status post_receive(struct pccl__exec *exec, struct pccl_operation *op, struct pccl__task *task) {
    struct pccl__piece piece = piece_for(op, task);
    bool copies = !piece.is_length && !op->coding.on && pccl__step_of(op, task)->kind == PCCL__COPY;
    bool lands = copies && lands_in_result(op, task, piece);
    void *target = lands ? pccl__piece_result(op, piece) : NULL;
    if (piece.is_length)
        target = pccl__length_at(op, piece.chunk);
    else if (target)
        pccl__operands_save(op, piece, op->slot[task->slot].segment);
    else
        target = task->scratch = pccl__pool_take(exec->pool, op->scratch_bytes);
    if (!target) return PCCL_NO_MEMORY;
    fill(op, task, target, piece);
    return post_task(exec, op, task, false);
}

static void read_done(struct pccl__exec *exec, struct pccl_operation *op, struct pccl__task *task) {
    uint32_t previous = op->schedule->previous[task->step];
    if (previous == PCCL__NO_STEP) {
        if (op->coding.on) pccl__coding_input_read(exec, op, task);
        return;
    }
    struct pccl__task *source = pccl__task_at(op, task->slot, previous);
    if (--source->readers == 0) drop_scratch(exec, op, source);
}

/* Posts receives of a slot until enough are ahead. Pieces that do not move are DONE from the start. */
static pccl_status post_ahead(struct pccl__exec *exec, struct pccl_operation *op, uint32_t slot_index) {
    struct pccl__slot *slot = &op->slot[slot_index];
    while (slot->posted < PCCL__RECEIVES_AHEAD && slot->next_receive < op->schedule->receives_count) {
        struct pccl__task *task = pccl__task_at(op, slot_index, op->schedule->receives[slot->next_receive]);
        if (task->state == PCCL__TASK_WAITING) {
            pccl_status status = post_receive(exec, op, task);
            if (status != PCCL_OK) return status;
            slot->posted++;
        }
        slot->next_receive++;
    }
    return PCCL_OK;
}

/* Gives a slot the next segment. False: nothing of it moves. */
static bool take_segment(struct pccl_operation *op, uint32_t slot_index) {
    const struct pccl__schedule *schedule = op->schedule;
    struct pccl__slot *slot = &op->slot[slot_index];
    *slot = (struct pccl__slot){.segment = op->admitted++};
    for (uint32_t i = 0; i < schedule->plan.steps_count; i++) {
        struct pccl__task *task = pccl__task_at(op, slot_index, i);
        *task = (struct pccl__task){.step = i, .slot = slot_index};
        bool moves = pccl__piece_of(op, schedule->plan.steps[i].chunk, slot->segment).moves;
        task->state = moves ? PCCL__TASK_WAITING : PCCL__TASK_DONE;
        slot->open += moves;
        for (uint32_t d = schedule->first_dependent[i]; d != PCCL__NO_STEP; d = schedule->next_dependent[d])
            task->readers++;
    }
    if (op->coding.on) pccl__coding_admit(op, slot_index);
    return slot->open > 0;
}

static pccl_status post_first(struct pccl__exec *exec, struct pccl_operation *op, uint32_t slot_index) {
    const struct pccl__schedule *schedule = op->schedule;
    pccl_status status = post_ahead(exec, op, slot_index); /* first, so that data find their place */
    for (uint32_t i = 0; i < schedule->plan.steps_count && status == PCCL_OK; i++) {
        struct pccl__task *task = pccl__task_at(op, slot_index, i);
        if (!pccl__step_is_send(&schedule->plan.steps[i]) || schedule->previous[i] != PCCL__NO_STEP) continue;
        if (task->state == PCCL__TASK_WAITING) status = post_send(exec, op, task);
    }
    return status;
}

/* The next segment of which anything moves: the longest part may be the one that stays with us. */
static pccl_status admit(struct pccl__exec *exec, struct pccl_operation *op, uint32_t slot_index) {
    while (op->admitted < op->segments) {
        if (take_segment(op, slot_index)) return post_first(exec, op, slot_index);
        op->finished_segments++;
    }
    return PCCL_OK;
}

/* A task ended; when it was the slot's last, the slot takes the next segment. */
static pccl_status close_task(struct pccl__exec *exec, struct pccl_operation *op, struct pccl__task *task) {
    task->state = PCCL__TASK_DONE;
    if (--op->slot[task->slot].open > 0) return PCCL_OK;
    op->finished_segments++;
    return admit(exec, op, task->slot);
}

/* ---------------------------------------------------------------- arithmetic */

/* What has come with what the chunk held before. */
static void reduce(struct pccl__exec *exec, struct pccl_operation *op, struct pccl__task *task,
                   struct pccl__piece piece, uint8_t *target) {
    uint32_t previous = op->schedule->previous[task->step];
    const uint8_t *ours =
        previous == PCCL__NO_STEP ? pccl__piece_input(op, piece) : pccl__task_at(op, task->slot, previous)->value;
    const uint8_t *theirs = task->transfer.data;
    bool received_first = pccl__step_of(op, task)->kind == PCCL__REDUCE_LEFT;
    pccl__reduce_fn *kernel = exec->kernels->reduce[op->call.op][op->call.dtype];
    if (ours) {
        kernel(target, received_first ? theirs : ours, received_first ? ours : theirs, piece.place.elements);
        return;
    }
    for (struct pccl__stretch it = {0}; pccl__piece_next(op, piece, &it);) {
        ours = it.input;
        kernel(target + it.offset, received_first ? theirs + it.offset : ours,
               received_first ? ours : theirs + it.offset, it.elements);
    }
}

/* A result that lies in several tensors, or that others wait for who have mapped scratch, is finished in scratch, from
 * where it is sent. */
static void combine(struct pccl__exec *exec, struct pccl_operation *op, struct pccl__task *task) {
    const struct pccl__step *step = pccl__step_of(op, task);
    struct pccl__piece piece = piece_for(op, task);
    bool lands = lands_in_result(op, task, piece);
    if (lands) pccl__operands_save(op, piece, op->slot[task->slot].segment);
    uint8_t *together = lands ? pccl__piece_result(op, piece) : NULL;
    uint32_t reader = op->schedule->first_dependent[task->step];
    bool lends = together && reader != PCCL__NO_STEP && should_lend(exec, op, reader, piece, together);
    uint8_t *target = together && !lends ? together : task->scratch;
    reduce(exec, op, task, piece, target);
    if (step->complete && op->call.op == PCCL_AVG)
        exec->kernels->divide[op->call.dtype](target, op->team->size, piece.place.elements);
    if (lands && target != together) pccl__operands_spread(op, piece, target);
    task->value = target;
}

/* What several tensors share has come to scratch. */
static void take_copy(struct pccl_operation *op, struct pccl__task *task) {
    struct pccl__piece piece = piece_for(op, task);
    task->value = task->transfer.data;
    if (!task->scratch || !lands_in_result(op, task, piece)) return;
    pccl__operands_save(op, piece, op->slot[task->slot].segment);
    pccl__operands_spread(op, piece, task->value);
}

static pccl_status take_in(struct pccl__exec *exec, struct pccl_operation *op, struct pccl__task *task) {
    bool copies = pccl__step_of(op, task)->kind == PCCL__COPY;
    if (op->coding.on && !piece_for(op, task).is_length)
        return copies ? pccl__coding_take(exec, op, task) : pccl__coding_combine(exec, op, task);
    if (copies)
        take_copy(op, task);
    else
        combine(exec, op, task);
    return PCCL_OK;
}

/* Applies an arrived receive whose predecessor is done, wakes its dependents, goes on with a receive that was waiting
 * for it. */
static pccl_status apply(struct pccl__exec *exec, struct pccl_operation *op, struct pccl__task *task) {
    const struct pccl__schedule *schedule = op->schedule;
    while (task) {
        uint32_t previous = schedule->previous[task->step], slot = task->slot, step = task->step;
        if (previous != PCCL__NO_STEP && pccl__task_at(op, slot, previous)->state != PCCL__TASK_DONE) return PCCL_OK;
        pccl_status status = take_in(exec, op, task);
        if (status != PCCL_OK) return status;
        read_done(exec, op, task);
        if (task->scratch && (task->value != task->scratch || task->readers == 0)) drop_scratch(exec, op, task);
        op->open_receives--;
        op->slot[slot].posted--;
        task->state = PCCL__TASK_DONE;
        struct pccl__task *next = NULL;
        for (uint32_t d = schedule->first_dependent[step]; d != PCCL__NO_STEP; d = schedule->next_dependent[d]) {
            struct pccl__task *dependent = pccl__task_at(op, slot, d);
            if (pccl__step_is_send(&schedule->plan.steps[d])) {
                status = post_send(exec, op, dependent);
                if (status != PCCL_OK) return status;
            } else if (dependent->state == PCCL__TASK_ARRIVED) {
                next = dependent;
            }
        }
        status = post_ahead(exec, op, slot);
        if (status == PCCL_OK) status = close_task(exec, op, task);
        if (status != PCCL_OK) return status;
        task = next; /* its slot is still open, so it was not re-used */
    }
    return PCCL_OK;
}

/* ---------------------------------------------------------------- begin and end */

static uint32_t count_receives(const struct pccl_operation *op) {
    uint32_t open = 0;
    for (uint32_t i = 0; i < op->schedule->receives_count; i++)
        open += pccl__pieces_of(op, op->schedule->plan.steps[op->schedule->receives[i]].chunk);
    return open;
}

static pccl_status take_tables(struct pccl__exec *exec, struct pccl_operation *op) {
    uint32_t steps = op->finish.schedule->plan.steps_count;
    size_t slots = op->slots * sizeof *op->slot, finish = steps * sizeof(struct pccl__transfer);
    size_t tasks = (size_t)op->slots * op->schedule->plan.steps_count * sizeof *op->task;
    size_t pieces = op->shadow_use == PCCL__SHADOW_BACKUP ? (size_t)op->schedule->plan.chunks * op->segments : 0;
    size_t lengths = pccl__lengths_bytes(op), inputs = pccl__coding_tables_bytes(op);
    op->tables_bytes = tasks + finish + inputs + slots + pieces + lengths + steps + 1;
    op->tables = pccl__pool_take(exec->pool, op->tables_bytes);
    if (!op->tables) return PCCL_NO_MEMORY;
    uint8_t *at = op->tables;
    op->task = (struct pccl__task *)at;
    op->finish.transfer = (struct pccl__transfer *)(at += tasks);
    op->coding.inputs = (struct pccl__coded_input *)(at += finish);
    op->slot = (struct pccl__slot *)(at += inputs);
    op->saved = at + slots;
    op->lengths = op->saved + pieces;
    op->finish.heard = op->lengths + lengths;
    memset(op->tables, 0, op->tables_bytes);
    op->finish.steps = steps;
    return PCCL_OK;
}

static struct pccl__channel *finish_channel(const struct pccl__exec *exec, const struct pccl_operation *op,
                                            const struct pccl__step *step) {
    return exec->group->channels[op->finish.ranks[step->peer]];
}

static pccl_status post_finish(struct pccl__exec *exec, struct pccl_operation *op, uint32_t index) {
    const struct pccl__step *step = &op->finish.schedule->plan.steps[index];
    fill_transfer(op, &op->finish.transfer[index], PCCL__FINISH_STEP + step->round, 0, NULL, 0);
    return post(finish_channel(exec, op, step), op, &op->finish.transfer[index], pccl__step_is_send(step));
}

static pccl_status post_finish_receives(struct pccl__exec *exec, struct pccl_operation *op) {
    pccl_status status = PCCL_OK;
    for (uint32_t i = 0; i < op->finish.schedule->receives_count && status == PCCL_OK; i++)
        status = post_finish(exec, op, op->finish.schedule->receives[i]);
    return status;
}

static pccl_status fill_slots(struct pccl__exec *exec, struct pccl_operation *op) {
    pccl_status status = PCCL_OK;
    for (uint32_t slot = 0; slot < op->slots && status == PCCL_OK; slot++)
        if (op->slot[slot].open == 0) status = admit(exec, op, slot);
    return status;
}

/* Once all lengths that pass us are here. */
static pccl_status begin_data(struct pccl__exec *exec, struct pccl_operation *op) {
    if (!op->lengths_first || op->lengths_known || op->open_receives > 0 || op->segments == 0) return PCCL_OK;
    op->lengths_known = true;
    pccl__lengths_end(op);
    op->open_receives = count_receives(op);
    return fill_slots(exec, op);
}

pccl_status pccl__exec_begin(struct pccl__exec *exec, struct pccl_operation *op) {
    op->element_bytes = pccl_dtype_bytes(op->call.dtype);
    pccl__coding_begin(op);
    pccl_status status = pccl__pieces_cut(op, exec->segment_bytes, op->team->one_host && op->team->crowded);
    if (status != PCCL_OK) return status;
    pccl__coding_measure(op);
    open_window(exec, op);
    op->open_receives = op->lengths_first ? op->schedule->receives_count : count_receives(op);
    status = pccl__operands_place(exec, op);
    if (status == PCCL_OK) status = take_tables(exec, op);
    if (status == PCCL_OK && !(op->call.flags & PCCL_DEFERRED)) status = post_finish_receives(exec, op);
    if (status == PCCL_OK) pccl__lengths_begin(op);
    if (status == PCCL_OK) status = fill_slots(exec, op);
    if (status == PCCL_OK) status = begin_data(exec, op);
    if (status == PCCL_OK) pccl__operands_keep(op);
    return status;
}

static bool is_finish(const struct pccl__transfer *transfer) { return transfer->key.step >= PCCL__FINISH_STEP; }

static pccl_status finish_advance(struct pccl__exec *exec, struct pccl_operation *op) {
    struct pccl__finish *finish = &op->finish;
    for (; finish->begun && finish->next < finish->steps; finish->next++) {
        if (!pccl__step_is_send(&finish->schedule->plan.steps[finish->next])) {
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

/* A length has come that is not what we expect of its part. Then the transfer's stamps say so. */
static bool contradicts(struct pccl_operation *op, struct pccl__task *task) {
    struct pccl__piece piece = piece_for(op, task);
    if (!piece.is_length || pccl__length_fits(op, piece.chunk)) return false;
    task->transfer.peer_stamp = op->stamp;
    pccl__stamp_part(&task->transfer.stamp, pccl__layout_place(&op->layout, piece.chunk).elements);
    pccl__stamp_part(&task->transfer.peer_stamp, pccl__length_of(op, piece.chunk));
    return true;
}

uint32_t pccl__exec_origin(const struct pccl_operation *op, const struct pccl__transfer *transfer) {
    uint32_t chunk = pccl__step_of(op, LIST_ENTRY(transfer, struct pccl__task, transfer))->chunk;
    return op->team->members[pccl__layout_origin(&op->layout, chunk)];
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
        if (contradicts(op, task)) return PCCL_MISMATCH;
        pccl_status status = apply(exec, op, task);
        return status == PCCL_OK ? begin_data(exec, op) : status;
    }
    read_done(exec, op, task);
    if (task->scratch) drop_scratch(exec, op, task);
    return close_task(exec, op, task);
}

bool pccl__exec_data_done(const struct pccl_operation *op, bool sent) {
    if (sent) return op->finished_segments == op->segments;
    return op->open_receives == 0 && op->admitted == op->segments;
}

bool pccl__exec_finished(const struct pccl_operation *op) {
    return op->finish.begun && op->finish.next == op->finish.steps;
}

static void cancel_one(struct pccl__channel *channel, struct pccl__transfer *transfer, pccl_status why) {
    if (transfer->state == PCCL__POSTED) channel->ops->cancel(channel, transfer, why);
}

void pccl__exec_cancel(struct pccl__exec *exec, struct pccl_operation *op, pccl_status why) {
    if (!op->tables || op->borrowed == 0) return;
    const struct pccl__plan *plan = &op->schedule->plan;
    for (uint32_t slot = 0; slot < op->slots; slot++)
        for (uint32_t i = 0; i < plan->steps_count; i++)
            cancel_one(channel_to(exec, op, plan->steps[i].peer), &pccl__task_at(op, slot, i)->transfer, why);
    for (uint32_t i = 0; i < op->finish.steps; i++) {
        const struct pccl__step *step = &op->finish.schedule->plan.steps[i];
        if (why == PCCL_OK && pccl__step_is_send(step)) continue;
        cancel_one(finish_channel(exec, op, step), &op->finish.transfer[i], why);
    }
}

void pccl__exec_release(struct pccl__exec *exec, struct pccl_operation *op) {
    CHECK(op->borrowed == 0);
    if (op->tables) {
        for (uint32_t i = 0; i < op->slots * op->schedule->plan.steps_count; i++)
            if (op->task[i].scratch) drop_scratch(exec, op, &op->task[i]);
        pccl__coding_release(exec, op);
    }
    if (op->slots) exec->windows_bytes -= op->slots * slot_bytes(op);
    op->slots = 0;
    pccl__pool_put(exec->pool, op->tables, op->tables_bytes);
    pccl__operands_release(exec, op);
    free(op->begins);
    pccl__tensors_free(op->tensors);
    pccl__cuts_free(op->cuts);
    op->begins = NULL;
    op->tensors = NULL;
    op->cuts = NULL;
    op->tables = NULL;
}

uint32_t pccl__exec_waits_for(const struct pccl__exec *exec, const struct pccl_operation *op, uint8_t *waits) {
    const struct pccl__group *group = exec->group;
    memset(waits, 0, group->size);
    if (!op->tables) return 0;
    const struct pccl__plan *plan = &op->schedule->plan;
    for (uint32_t slot = 0; slot < op->slots; slot++)
        for (uint32_t i = 0; i < plan->steps_count; i++)
            if (pccl__task_at(op, slot, i)->transfer.state == PCCL__POSTED) waits[op->links[plan->steps[i].peer]] = 1;
    for (uint32_t i = op->finish.next; op->finish.begun && i < op->finish.steps; i++) {
        const struct pccl__step *step = &op->finish.schedule->plan.steps[i];
        if (!pccl__step_is_send(step) && !op->finish.heard[i]) waits[op->finish.ranks[step->peer]] = 1;
    }
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < group->size; rank++) count += waits[rank];
    return count;
}
