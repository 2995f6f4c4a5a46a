/* SPDX-License-Identifier: MIT */
#include "engine/coding.h"

#include <string.h>

#include "base/bits.h"
#include "base/status.h"
#include "engine/operands.h"
#include "plan/plan.h"

/* ---------------------------------------------------------------- what is possible */

/* Others have no quantized form. */
static bool has_form(pccl_collective collective) {
    switch (collective) {
    case PCCL_ALL_REDUCE:
    case PCCL_REDUCE:
    case PCCL_REDUCE_SCATTER:
    case PCCL_ALL_GATHER:
    case PCCL_ALL_TO_ALL:
    case PCCL_BROADCAST:
        return true;
    default:
        return false;
    }
}

/* Do all members end with the same values? */
static bool is_equal(pccl_collective collective) {
    return collective == PCCL_ALL_REDUCE || collective == PCCL_ALL_GATHER || collective == PCCL_BROADCAST;
}

/* Errors of a product grow with its factors, and there is no bound on these. */
static bool adds_up(pccl_reduce_op op) {
    return op == PCCL_SUM || op == PCCL_AVG || op == PCCL_PREMUL_SUM || op == PCCL_MIN || op == PCCL_MAX;
}

pccl_status pccl__coding_check(const pccl_call *call, const struct pccl__planner *planner, pccl_error *error) {
    const char *name = pccl_collective_name(call->collective);
    bool coded = call->quantization.format != PCCL_EXACT;
    if (!coded && call->errors) return pccl__fail(error, PCCL_INVALID, "%s: errors of what? It is not quantized", name);
    if (!coded) return PCCL_OK;
    if (!has_form(call->collective))
        return pccl__fail(error, PCCL_INVALID,
                          "%s cannot be quantized: all_reduce, reduce, reduce_scatter, all_gather, all_to_all and "
                          "broadcast can",
                          name);
    if (pccl__reduces(call->collective) && !adds_up(call->op))
        return pccl__fail(error, PCCL_INVALID, "%s of %s cannot be quantized: sum, avg, premul_sum, min and max can",
                          pccl_reduce_op_name(call->op), name);
    if (call->errors && (call->op == PCCL_MIN || call->op == PCCL_MAX) && pccl__reduces(call->collective))
        return pccl__fail(error, PCCL_INVALID, "%s of %s has no errors that a later one could make good: sums have",
                          pccl_reduce_op_name(call->op), name);
    if (call->flags & PCCL_DETERMINISTIC)
        return pccl__fail(error, PCCL_INVALID,
                          "%s: quantized sums depend on how often they are encoded on their way, so on the algorithm: "
                          "they cannot be deterministic",
                          name);
    if (call->errors && pccl__reduces(call->collective) && planner && !(planner->traits & PCCL__ONE_EACH))
        return pccl__fail(error, PCCL_INVALID,
                          "%s by %s encodes a sum on several members, and none of them could keep its error", name,
                          pccl_algorithm_name(planner->algorithm));
    return pccl_quantization_check(&call->quantization, call->dtype, error);
}

uint64_t pccl__coding_bytes(const pccl_call *call, uint64_t elements) {
    if (call->quantization.format == PCCL_EXACT) return elements * pccl_dtype_bytes(call->dtype);
    return pccl_quantized_bytes(&call->quantization, elements);
}

uint64_t pccl__coding_errors(const pccl_call *call, const struct pccl__layout *layout) {
    if (!call->errors) return 0;
    return call->collective == PCCL_BROADCAST ? layout->count : pccl__layout_input(layout);
}

/* ---------------------------------------------------------------- begin and end */

void pccl__coding_begin(struct pccl_operation *op) {
    struct pccl__coding *coding = &op->coding;
    if (op->call.quantization.format == PCCL_EXACT) return;
    coding->on = true;
    coding->codec = pccl__codec_of(&op->call.quantization);
    coding->equal = is_equal(op->call.collective);
    coding->reduces = pccl__reduces(op->call.collective);
    op->layout.unit = pccl__codec_unit(&coding->codec);
    if (op->call.errors) memset(op->call.errors, 0, pccl__coding_errors(&op->call, &op->layout) * sizeof(float));
}

void pccl__coding_measure(struct pccl_operation *op) {
    op->scratch_bytes = op->segment_elements * op->element_bytes;
    if (!op->coding.on) return;
    op->coding.wire_bytes = pccl__codec_bytes(&op->coding.codec, op->segment_elements);
    size_t values = op->segment_elements * max_u64(op->element_bytes, sizeof(float));
    op->scratch_bytes = max_u64(values, op->coding.wire_bytes);
}

size_t pccl__coding_tables_bytes(const struct pccl_operation *op) {
    return op->coding.on ? (size_t)op->slots * op->schedule->inputs_sent * sizeof *op->coding.inputs : 0;
}

/* Of a chunk whose input is sent; else NULL. */
static struct pccl__coded_input *input_at(const struct pccl_operation *op, uint32_t slot, uint32_t chunk) {
    uint32_t index = op->schedule->input_index[chunk];
    return index == PCCL__NO_STEP ? NULL : &op->coding.inputs[(size_t)slot * op->schedule->inputs_sent + index];
}

void pccl__coding_admit(struct pccl_operation *op, uint32_t slot) {
    struct pccl__coded_input *inputs = &op->coding.inputs[(size_t)slot * op->schedule->inputs_sent];
    for (uint32_t i = 0; i < op->schedule->inputs_sent; i++)
        inputs[i] = (struct pccl__coded_input){.readers = op->schedule->input_readers[i]};
}

void pccl__coding_input_read(struct pccl__exec *exec, struct pccl_operation *op, const struct pccl__task *task) {
    const struct pccl__step *step = pccl__step_of(op, task);
    struct pccl__coded_input *input = step->kind == PCCL__COPY ? NULL : input_at(op, task->slot, step->chunk);
    if (!input || --input->readers > 0) return;
    pccl__pool_put(exec->pool, input->wire, op->coding.wire_bytes);
    input->wire = NULL;
}

void pccl__coding_release(struct pccl__exec *exec, struct pccl_operation *op) {
    if (!op->coding.on || !op->coding.inputs) return;
    for (size_t i = 0; i < (size_t)op->slots * op->schedule->inputs_sent; i++)
        pccl__pool_put(exec->pool, op->coding.inputs[i].wire, op->coding.wire_bytes);
    op->coding.inputs = NULL;
}

/* ---------------------------------------------------------------- folding */

/* A fold for a piece, and where its values end. */
struct work {
    struct pccl__piece piece;
    uint32_t segment;
    struct pccl__fold fold;
    uint8_t *apart; /* scratch for values that belong in several tensors */
};

enum origin { OF_INPUT = 0, OF_SUM = 1, OF_WHOLE = 2 };

/* Random numbers differ from one value to the next, but several members that compute the same one draw the same. So of
 * an input they depend on the rank, of a sum on the round it is made in. */
static uint64_t stream_of(const struct work *work, enum origin origin, uint32_t detail) {
    uint64_t place = (uint64_t)work->piece.chunk << 32 | work->segment;
    return place * UINT64_C(0x9e3779b97f4a7c15) + ((uint64_t)origin << 32 | detail);
}

static struct work work_on(const struct pccl_operation *op, const struct pccl__task *task) {
    uint32_t segment = op->slot[task->slot].segment;
    struct work work = {.piece = pccl__piece_of(op, pccl__step_of(op, task)->chunk, segment), .segment = segment};
    work.fold = (struct pccl__fold){
        .codec = &op->coding.codec, .elements = work.piece.place.elements, .op = op->call.op, .dtype = op->call.dtype};
    return work;
}

static float *errors_at(const struct pccl_operation *op, struct pccl__piece piece) {
    return op->call.errors && piece.place.input != PCCL__NOWHERE ? op->call.errors + piece.place.input : NULL;
}

/* What the result of a piece becomes goes there at once, or where that lies in several tensors by way of scratch. What
 * others have alone overwrites nothing of ours. */
static pccl_status land(struct pccl__exec *exec, struct pccl_operation *op, struct work *work) {
    if (work->piece.place.input != PCCL__NOWHERE) pccl__operands_save(op, work->piece, work->segment);
    work->fold.values = pccl__piece_result(op, work->piece);
    if (work->fold.values) return PCCL_OK;
    work->fold.values = work->apart = pccl__pool_take(exec->pool, op->scratch_bytes);
    return work->apart ? PCCL_OK : PCCL_NO_MEMORY;
}

static pccl_status unfit(struct pccl__exec *exec, struct pccl_operation *op, const struct work *work, size_t index) {
    struct pccl__unfit *unfit = &op->coding.unfit;
    unfit->element = work->piece.place.input == PCCL__NOWHERE ? index : work->piece.place.input + index;
    unfit->is_sum = work->fold.right.wire != NULL;
    struct pccl__codec exact = op->coding.codec;
    exact.propagate = true;
    struct pccl__fold again = work->fold;
    float *values = pccl__pool_take(exec->pool, op->scratch_bytes);
    if (!values) return PCCL_NO_MEMORY;
    again.codec = &exact;
    again.wire = NULL;
    again.errors = NULL;
    again.values = values;
    again.dtype = PCCL_FLOAT32;
    exec->kernels->fold(&again);
    unfit->value = values[index];
    pccl__pool_put(exec->pool, values, op->scratch_bytes);
    return PCCL_QUANTIZATION;
}

/* Runs the fold. Values of the caller's in several tensors are brought together first: `values` of left, else NULL. */
static pccl_status run(struct pccl__exec *exec, struct pccl_operation *op, struct work *work) {
    struct pccl__fold *fold = &work->fold;
    uint8_t *together = NULL;
    pccl_status status = PCCL_OK;
    if (!fold->left.wire && !fold->left.values) {
        together = pccl__pool_take(exec->pool, op->scratch_bytes);
        if (together) pccl__operands_gather(op, work->piece, together);
        fold->left.values = together;
        status = together ? PCCL_OK : PCCL_NO_MEMORY;
    }
    size_t index = status == PCCL_OK ? exec->kernels->fold(fold) : SIZE_MAX;
    if (index != SIZE_MAX) status = unfit(exec, op, work, index);
    if (status == PCCL_OK && work->apart) pccl__operands_spread(op, work->piece, work->apart);
    pccl__pool_put(exec->pool, work->apart, op->scratch_bytes);
    pccl__pool_put(exec->pool, together, op->scratch_bytes);
    return status;
}

/* ---------------------------------------------------------------- inputs */

/* Nobody sends us what we have of it: our part of an all_gather, a broadcast at its root. */
static bool is_kept(const struct pccl_operation *op, struct pccl__piece piece) {
    return op->coding.equal && !op->schedule->received[piece.chunk] && piece.place.result != PCCL__NOWHERE;
}

static pccl_status encode_input(struct pccl__exec *exec, struct pccl_operation *op, const struct pccl__task *task,
                                struct pccl__coded_input *input) {
    struct work work = work_on(op, task);
    work.fold.stream = stream_of(&work, OF_INPUT, op->layout.rank);
    work.fold.left = (struct pccl__coded){.values = pccl__piece_input(op, work.piece), .dtype = op->call.dtype};
    work.fold.errors = errors_at(op, work.piece);
    work.fold.wire = input->wire = pccl__pool_take(exec->pool, op->coding.wire_bytes);
    if (!input->wire) return PCCL_NO_MEMORY;
    pccl_status status = is_kept(op, work.piece) ? land(exec, op, &work) : PCCL_OK;
    if (status == PCCL_OK) status = run(exec, op, &work);
    if (status == PCCL_OK) return PCCL_OK;
    pccl__pool_put(exec->pool, input->wire, op->coding.wire_bytes); /* it holds nothing that could be sent */
    input->wire = NULL;
    return status;
}

static pccl_status input_wire(struct pccl__exec *exec, struct pccl_operation *op, const struct pccl__task *task,
                              const uint8_t **wire) {
    struct pccl__coded_input *input = input_at(op, task->slot, pccl__step_of(op, task)->chunk);
    pccl_status status = input->wire ? PCCL_OK : encode_input(exec, op, task, input);
    *wire = input->wire;
    return status;
}

pccl_status pccl__coding_wire(struct pccl__exec *exec, struct pccl_operation *op, struct pccl__task *task,
                              const uint8_t **wire) {
    uint32_t previous = op->schedule->previous[task->step];
    if (previous == PCCL__NO_STEP) return input_wire(exec, op, task, wire);
    *wire = pccl__task_at(op, task->slot, previous)->value;
    return PCCL_OK;
}

/* ---------------------------------------------------------------- what has come */

/* What the chunk held before. */
static pccl_status ours(struct pccl__exec *exec, struct pccl_operation *op, const struct pccl__task *task,
                        struct pccl__piece piece, struct pccl__coded *operand) {
    uint32_t previous = op->schedule->previous[task->step];
    *operand = (struct pccl__coded){.dtype = op->call.dtype};
    if (previous != PCCL__NO_STEP) {
        const struct pccl__task *before = pccl__task_at(op, task->slot, previous);
        operand->wire = before->coded ? before->value : NULL;
        operand->values = before->coded ? NULL : before->value;
        operand->dtype = PCCL_FLOAT32;
        return PCCL_OK;
    }
    if (input_at(op, task->slot, piece.chunk)) return input_wire(exec, op, task, &operand->wire);
    operand->values = pccl__piece_input(op, piece);
    return PCCL_OK;
}

static bool is_sent(const struct pccl_operation *op, uint32_t step) {
    const struct pccl__schedule *schedule = op->schedule;
    for (uint32_t d = schedule->first_dependent[step]; d != PCCL__NO_STEP; d = schedule->next_dependent[d])
        if (pccl__step_is_send(&schedule->plan.steps[d])) return true;
    return false;
}

static bool lands(const struct pccl_operation *op, const struct pccl__task *task, struct pccl__piece piece) {
    return op->schedule->last[task->step] && piece.place.result != PCCL__NOWHERE;
}

/* Sums that are sent or whole become wire; one that is for our result alone goes there, any other waits in float32. */
static pccl_status place_sum(struct pccl__exec *exec, struct pccl_operation *op, const struct pccl__task *task,
                             struct work *work, uint8_t *fresh) {
    const struct pccl__step *step = pccl__step_of(op, task);
    bool whole = step->complete && op->coding.equal, landing = lands(op, task, work->piece);
    if (whole || is_sent(op, task->step)) {
        work->fold.wire = fresh;
        work->fold.errors = errors_at(op, work->piece);
        work->fold.stream = stream_of(work, whole ? OF_WHOLE : OF_SUM, whole ? 0 : step->round);
    }
    if (landing) return land(exec, op, work);
    if (work->fold.wire) return PCCL_OK;
    work->fold.values = fresh;
    work->fold.dtype = PCCL_FLOAT32;
    return PCCL_OK;
}

/* The wire that came is not needed any more. */
static void hold(struct pccl__exec *exec, struct pccl_operation *op, struct pccl__task *task, void *scratch) {
    pccl__pool_put(exec->pool, task->scratch, op->scratch_bytes);
    task->scratch = scratch;
}

pccl_status pccl__coding_combine(struct pccl__exec *exec, struct pccl_operation *op, struct pccl__task *task) {
    struct work work = work_on(op, task);
    uint8_t *fresh = pccl__pool_take(exec->pool, op->scratch_bytes);
    pccl_status status = fresh ? ours(exec, op, task, work.piece, &work.fold.left) : PCCL_NO_MEMORY;
    if (pccl__step_of(op, task)->complete && op->call.op == PCCL_AVG) work.fold.divisor = (float)op->team->size;
    work.fold.right.wire = task->transfer.data;
    if (status == PCCL_OK) status = place_sum(exec, op, task, &work, fresh);
    if (status == PCCL_OK) status = run(exec, op, &work);
    task->coded = work.fold.wire != NULL;
    task->value = task->coded ? work.fold.wire : work.fold.values;
    bool kept = status == PCCL_OK && task->value == fresh;
    if (!kept) pccl__pool_put(exec->pool, fresh, op->scratch_bytes);
    hold(exec, op, task, kept ? fresh : NULL);
    return status;
}

pccl_status pccl__coding_take(struct pccl__exec *exec, struct pccl_operation *op, struct pccl__task *task) {
    struct work work = work_on(op, task);
    task->value = task->transfer.data;
    task->coded = true;
    if (!lands(op, task, work.piece)) return PCCL_OK;
    work.fold.left.wire = task->value;
    pccl_status status = land(exec, op, &work);
    return status == PCCL_OK ? run(exec, op, &work) : status;
}
