/* SPDX-License-Identifier: MIT */
#include "engine/operands.h"

#include <string.h>

#include "base/bits.h"

/* Backups of this size, those of all members on this host together, leave the caches before anyone could want them
 * back. */
enum { STREAM_BYTES = 16 << 20 };

/* Of an all_reduce to an output of its own both inputs and sums are copied to be lent. Of vectors of this size, those
 * of all members again, that takes more of memory than it saves of its way. */
enum { LEND_BYTES = 32 << 20 };

/* PREMUL_SUM goes on from a copy. */
static pccl_status scale_input(struct pccl__exec *exec, struct pccl_operation *op) {
    op->input = op->call.input;
    if (op->call.op != PCCL_PREMUL_SUM || !pccl__reduces(op->call.collective)) return PCCL_OK;
    uint64_t elements = pccl__layout_input(&op->layout);
    if (elements == 0) return PCCL_OK;
    op->scaled_bytes = elements * op->element_bytes;
    op->scaled = pccl__pool_take(exec->pool, op->scaled_bytes);
    if (!op->scaled) return PCCL_NO_MEMORY;
    struct pccl__piece all = {.place = {elements, 0, 0}};
    for (struct pccl__stretch it = {0}; pccl__piece_next(op, all, &it);)
        exec->kernels->scale[op->call.dtype](op->scaled + it.offset, it.input, op->call.factor, it.elements);
    op->input = op->scaled;
    return PCCL_OK;
}

static bool in_place(const struct pccl_operation *op) {
    if (op->tensors) return op->tensors->in_place;
    uintptr_t in = (uintptr_t)op->call.input, out = (uintptr_t)op->call.output; /* NULL, too */
    uintptr_t own = pccl__layout_own(&op->layout) * op->element_bytes;
    return pccl__layout_all_in_output(op->call.collective) ? in == out + own : out == in + own;
}

/* In place there must be no difference between who gives its input up and who does not: for the latter, what is lent is
 * the backup. */
static bool may_lend(const struct pccl_operation *op, bool overwrites) {
    if (overwrites || op->call.collective != PCCL_ALL_REDUCE) return true;
    uint64_t bytes = pccl__layout_output(&op->layout) * op->element_bytes;
    return bytes * max_u64(op->team->host_members, 1) < LEND_BYTES;
}

/* In place, what is decoded overwrites what it was made of; of an all_gather or broadcast that is but our own part. */
static bool decodes_own(const struct pccl_operation *op) { return op->coding.equal && !op->coding.reduces; }

/* Where the result grows. Out of place: in the output. In place an abort must find the input again, unless the caller
 * gave it up, and no send may still read what is overwritten. Where the schedule sees to that (those of ring and tree
 * do), the result grows in the output itself, and each piece is saved just before, while it is in the cache anyway.
 * Others (small sizes, scaled inputs) build the result in the shadow, which is published at the end. */
static pccl_status place_result(struct pccl__exec *exec, struct pccl_operation *op) {
    uint64_t elements = pccl__layout_output(&op->layout);
    bool decodes = decodes_own(op) && pccl__layout_input(&op->layout) > 0;
    bool overwrites = (pccl__layout_overwrites(op->call.collective) || decodes) && in_place(op) && elements > 0;
    bool grows_there = decodes || (op->schedule->in_place && pccl__layout_chunks_stay(&op->layout));
    op->result = op->call.output;
    op->lends = may_lend(op, overwrites);
    if (!overwrites || (grows_there && op->call.flags & PCCL_DISCARD_INPUT)) return PCCL_OK;
    op->shadow_begin = decodes ? pccl__layout_own(&op->layout) : 0;
    op->shadow_bytes = (decodes ? pccl__layout_input(&op->layout) : elements) * op->element_bytes;
    op->shadow = pccl__pool_take(exec->pool, op->shadow_bytes);
    if (!op->shadow) return PCCL_NO_MEMORY;
    /* What is copied without a receive is not saved: a scaled input is, in a scan. */
    op->shadow_streams = op->shadow_bytes * max_u64(op->team->host_members, 1) >= STREAM_BYTES;
    op->shadow_use = grows_there && !op->scaled ? PCCL__SHADOW_BACKUP : PCCL__SHADOW_RESULT;
    if (op->shadow_use == PCCL__SHADOW_RESULT) op->result = op->shadow;
    return PCCL_OK;
}

pccl_status pccl__operands_place(struct pccl__exec *exec, struct pccl_operation *op) {
    pccl_status status = scale_input(exec, op);
    return status == PCCL_OK ? place_result(exec, op) : status;
}

static uint8_t *backup_of(const struct pccl_operation *op, struct pccl__piece piece) {
    return op->shadow + (piece.place.result - op->shadow_begin) * op->element_bytes;
}

static void save(struct pccl_operation *op, struct pccl__piece piece, uint32_t segment, bool streams) {
    uint8_t *saved = &op->saved[piece.chunk * op->segments + segment], *backup = backup_of(op, piece);
    for (struct pccl__stretch it = {0}; !*saved && pccl__piece_next(op, piece, &it);) {
        if (streams)
            pccl__copy_stream(backup + it.offset, it.result, it.elements * op->element_bytes);
        else
            memcpy(backup + it.offset, it.result, it.elements * op->element_bytes);
    }
    *saved = 1;
}

void pccl__operands_save(struct pccl_operation *op, struct pccl__piece piece, uint32_t segment) {
    if (op->shadow_use == PCCL__SHADOW_BACKUP) save(op, piece, segment, op->shadow_streams);
}

const uint8_t *pccl__operands_back(struct pccl_operation *op, struct pccl__piece piece, uint32_t segment) {
    if (op->shadow_use != PCCL__SHADOW_BACKUP || piece.place.result == PCCL__NOWHERE) return NULL;
    for (struct pccl__stretch it = {0}; pccl__piece_next(op, piece, &it);)
        if (it.input != it.result) return NULL;
    save(op, piece, segment, false); /* it is read soon */
    return backup_of(op, piece);
}

void pccl__operands_gather(const struct pccl_operation *op, struct pccl__piece piece, uint8_t *target) {
    for (struct pccl__stretch it = {0}; pccl__piece_next(op, piece, &it);)
        memcpy(target + it.offset, it.input, it.elements * op->element_bytes);
}

void pccl__operands_spread(const struct pccl_operation *op, struct pccl__piece piece, const uint8_t *source) {
    for (struct pccl__stretch it = {0}; pccl__piece_next(op, piece, &it);)
        memcpy(it.result, source + it.offset, it.elements * op->element_bytes);
}

void pccl__operands_keep(struct pccl_operation *op) {
    if (decodes_own(op) && op->schedule->plan.steps_count > 0) return; /* it comes from what is sent */
    if (!op->tensors && (!op->input || !op->result || op->input == op->result)) return;
    uint32_t first, end;
    pccl__layout_kept(&op->layout, &first, &end);
    for (uint32_t chunk = first; chunk < end; chunk++) {
        struct pccl__piece whole = {.place = pccl__layout_place(&op->layout, chunk)};
        if (op->schedule->received[chunk] || whole.place.input == PCCL__NOWHERE || whole.place.result == PCCL__NOWHERE)
            continue;
        for (struct pccl__stretch it = {0}; pccl__piece_next(op, whole, &it);)
            if (it.input != it.result) memcpy(it.result, it.input, it.elements * op->element_bytes);
    }
}

void pccl__operands_publish(struct pccl_operation *op) {
    if (op->shadow_use != PCCL__SHADOW_RESULT) return;
    if (!op->tensors) memcpy(op->call.output, op->shadow, op->shadow_bytes);
    for (struct pccl__stretch it = {0}; op->tensors && pccl__tensors_next(op->tensors, 0, op->layout.count, &it);)
        memcpy(it.result, op->shadow + it.offset, it.elements * op->element_bytes);
}

size_t pccl__operands_restore(struct pccl_operation *op, size_t most) {
    if (op->shadow_use != PCCL__SHADOW_BACKUP || !op->tables) return 0;
    size_t brought = 0;
    for (; op->restored < op->schedule->plan.chunks * op->segments && brought < most; op->restored++) {
        if (!op->saved[op->restored]) continue;
        struct pccl__piece piece = pccl__piece_of(op, op->restored / op->segments, op->restored % op->segments);
        pccl__operands_spread(op, piece, backup_of(op, piece));
        brought += piece.bytes;
    }
    return brought;
}

void pccl__operands_release(struct pccl__exec *exec, struct pccl_operation *op) {
    pccl__pool_put(exec->pool, op->shadow, op->shadow_bytes);
    pccl__pool_put(exec->pool, op->scaled, op->scaled_bytes);
    op->shadow = op->scaled = NULL;
}
