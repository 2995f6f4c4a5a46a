/* SPDX-License-Identifier: MIT */
#include "engine/call.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/status.h"
#include "engine/coding.h"
#include "engine/tensors.h"
#include "kernel/kernel.h"
#include "plan/plan.h"

static bool scans(pccl_collective collective) { return collective == PCCL_SCAN || collective == PCCL_EXSCAN; }

static pccl_status refuse_dtype(const pccl_call *call, pccl_error *error) {
    char possible[128] = "";
    size_t used = 0;
    for (int op = 0; op < PCCL_REDUCE_OP_COUNT; op++)
        if (pccl__reduces_dtype((pccl_reduce_op)op, call->dtype))
            used += (size_t)snprintf(possible + used, sizeof possible - used, "%s%s", used ? ", " : "; it has ",
                                     pccl_reduce_op_name((pccl_reduce_op)op));
    return pccl__fail(error, PCCL_INVALID, "%s: %s has no %s%s", pccl_collective_name(call->collective),
                      pccl_dtype_name(call->dtype), pccl_reduce_op_name(call->op),
                      used ? possible : ", nor any other reduction: it can only be moved");
}

static pccl_status check_scope(const pccl_call *call, pccl_error *error) {
    const char *name = pccl_collective_name(call->collective);
    if (call->flags & PCCL_SAME_MEMBERS && call->expected_epoch == 0)
        return pccl__fail(error, PCCL_INVALID, "%s: the same members as in which epoch?", name);
    if (call->scope == 0) return PCCL_OK;
    if (pccl__is_pair(call->collective) || call->collective == PCCL_COMMIT)
        return pccl__fail(error, PCCL_INVALID, "%s is never one of a subgroup: leave its scope 0", name);
    if (call->expected_epoch == 0)
        return pccl__fail(error, PCCL_INVALID, "%s of a subgroup needs the epoch that its scope belongs to", name);
    return PCCL_OK;
}

pccl_status pccl__call_check(const pccl_call *call, pccl_error *error) {
    if ((unsigned)call->collective >= PCCL_COLLECTIVE_COUNT)
        return pccl__fail(error, PCCL_INVALID, "unknown collective %d", (int)call->collective);
    if (call->priority < PCCL_PRIORITY_MIN || call->priority > PCCL_PRIORITY_MAX)
        return pccl__fail(error, PCCL_INVALID, "priority %d is not between %d and %d", call->priority,
                          PCCL_PRIORITY_MIN, PCCL_PRIORITY_MAX);
    pccl_status status = check_scope(call, error);
    if (status == PCCL_OK) status = pccl__tensors_check(call, error);
    if (status != PCCL_OK || !pccl__has_data(call->collective)) return status;
    const char *name = pccl_collective_name(call->collective);
    if ((unsigned)call->dtype >= PCCL_DTYPE_COUNT)
        return pccl__fail(error, PCCL_INVALID, "unknown dtype %d", (int)call->dtype);
    if (pccl__reduces(call->collective) && (unsigned)call->op >= PCCL_REDUCE_OP_COUNT)
        return pccl__fail(error, PCCL_INVALID, "unknown reduce op %d", (int)call->op);
    if (pccl__reduces(call->collective) && !pccl__reduces_dtype(call->op, call->dtype))
        return refuse_dtype(call, error);
    if (scans(call->collective) && call->op == PCCL_AVG)
        return pccl__fail(error, PCCL_INVALID, "%s cannot average: each rank has another number of contributions",
                          name);
    if (call->flags & PCCL_UNEVEN && !pccl__in_parts(call->collective))
        return pccl__fail(error, PCCL_INVALID, "%s has no parts that could be uneven", name);
    if (call->collective == PCCL_SEND && call->root == PCCL_ANY_SOURCE)
        return pccl__fail(error, PCCL_INVALID, "send needs the rank that it goes to");
    const struct pccl__planner *planner = pccl__planner_find(call->collective, call->algorithm);
    if (call->algorithm != PCCL_AUTO && !planner)
        return pccl__fail(error, PCCL_INVALID, "no algorithm %s for %s", pccl_algorithm_name(call->algorithm), name);
    status = pccl__coding_check(call, planner, error);
    if (status != PCCL_OK) return status;
    bool fixed = call->flags & PCCL_DETERMINISTIC;
    if (fixed && !pccl__reduces(call->collective))
        return pccl__fail(error, PCCL_INVALID, "%s reduces nothing that could be deterministic", name);
    if (fixed && planner && !(planner->traits & PCCL__FIXED_ORDER))
        return pccl__fail(error, PCCL_INVALID, "%s by %s is not deterministic: its order follows ring and count", name,
                          pccl_algorithm_name(call->algorithm));
    return PCCL_OK;
}

/* ---------------------------------------------------------------- uneven parts */

/* Sums up `counts` into `begins` [size + 1]. */
static bool sum_up(const uint64_t *counts, uint32_t size, uint64_t *begins) {
    begins[0] = 0;
    for (uint32_t rank = 0; rank < size; rank++)
        if (__builtin_add_overflow(begins[rank], counts[rank], &begins[rank + 1])) return false;
    return true;
}

static pccl_status lay_uneven(const pccl_call *call, struct pccl__layout *layout, uint64_t **begins,
                              pccl_error *error) {
    bool reads_all = pccl__layout_input_has_parts(layout), writes_all = pccl__layout_output_has_parts(layout);
    const char *name = pccl_collective_name(call->collective);
    if ((reads_all && !call->input_counts) || (writes_all && !call->output_counts))
        return pccl__fail(error, PCCL_INVALID, "uneven %s needs the counts of all %u ranks for its %s", name,
                          layout->size, reads_all && !call->input_counts ? "input" : "output");
    if (!reads_all && !writes_all) return PCCL_OK;
    uint32_t us = layout->rank;
    if (reads_all && writes_all && call->input_counts[us] != call->output_counts[us])
        return pccl__fail(error, PCCL_INVALID, "%s sends %llu elements to its own rank, which expects %llu", name,
                          (unsigned long long)call->input_counts[us], (unsigned long long)call->output_counts[us]);
    size_t entries = (size_t)layout->size + 1;
    uint64_t *memory = malloc(2 * entries * sizeof *memory);
    if (!memory) return pccl__fail(error, PCCL_NO_MEMORY, "no memory for the counts of %u ranks", layout->size);
    bool fits = (!reads_all || sum_up(call->input_counts, layout->size, memory)) &&
                (!writes_all || sum_up(call->output_counts, layout->size, memory + entries));
    if (!fits) {
        free(memory);
        return pccl__fail(error, PCCL_INVALID, "the counts of %s are too many elements", name);
    }
    if (reads_all) layout->input_begins = memory;
    if (writes_all) layout->output_begins = memory + entries;
    const uint64_t *own = reads_all ? call->input_counts : call->output_counts;
    layout->count = own[layout->rank];
    *begins = memory;
    return PCCL_OK;
}

pccl_status pccl__call_layout(const pccl_call *call, uint32_t size, uint32_t rank, struct pccl__layout *layout,
                              uint64_t **begins, pccl_error *error) {
    *layout = (struct pccl__layout){.collective = call->collective,
                                    .size = size,
                                    .rank = rank,
                                    .root = call->root,
                                    .chunks = 1,
                                    .count = call->tensors ? pccl__tensors_total(call) : call->count,
                                    .uneven = call->flags & PCCL_UNEVEN};
    *begins = NULL;
    return layout->uneven ? lay_uneven(call, layout, begins, error) : PCCL_OK;
}

/* ---------------------------------------------------------------- buffers */

/* In numbers: where nothing is given or got, the pointer may be NULL, which C lets nobody calculate with. */
static bool overlap(uintptr_t a, uint64_t a_bytes, uintptr_t b, uint64_t b_bytes) {
    return a_bytes && b_bytes && a < b + b_bytes && b < a + a_bytes;
}

/* Errors are cleared before anything is read. Of one array or tensor. */
static bool errors_overlap(const pccl_call *call, uint64_t errors_bytes, const void *memory, uint64_t bytes) {
    return overlap((uintptr_t)call->errors, errors_bytes, (uintptr_t)memory, bytes);
}

static pccl_status check_errors(const pccl_call *call, const struct pccl__layout *layout, pccl_error *error) {
    uint64_t element = pccl_dtype_bytes(call->dtype), errors_bytes = pccl__coding_errors(call, layout) * sizeof(float);
    uint64_t input = pccl__layout_input(layout) * element, output = pccl__layout_output(layout) * element;
    bool apart = call->tensors || !(errors_overlap(call, errors_bytes, call->input, input) ||
                                    errors_overlap(call, errors_bytes, call->output, output));
    for (uint32_t i = 0; errors_bytes && i < call->tensors_count; i++) {
        const pccl_tensor *it = &call->tensors[i];
        apart = apart && !errors_overlap(call, errors_bytes, it->input, it->count * element) &&
                !errors_overlap(call, errors_bytes, it->output, it->count * element);
    }
    if (apart) return PCCL_OK;
    return pccl__fail(error, PCCL_INVALID, "errors of %s overlap its input or output, which they would overwrite",
                      pccl_collective_name(call->collective));
}

pccl_status pccl__call_check_buffers(const pccl_call *call, const struct pccl__layout *layout, pccl_error *error) {
    if (call->tensors) return check_errors(call, layout, error); /* pccl__tensors_new has judged them */
    uint64_t element = pccl_dtype_bytes(call->dtype), input, output;
    const char *name = pccl_collective_name(call->collective);
    if (mul_overflows(pccl__layout_input(layout), element, &input) ||
        mul_overflows(pccl__layout_output(layout), element, &output) || input > INT64_MAX || output > INT64_MAX)
        return pccl__fail(error, PCCL_INVALID, "%llu elements of %s for %u ranks are too many bytes",
                          (unsigned long long)call->count, pccl_dtype_name(call->dtype), layout->size);
    uintptr_t in = (uintptr_t)call->input, out = (uintptr_t)call->output;
    if ((input && !in) || (output && !out))
        return pccl__fail(error, PCCL_INVALID, "%s of %llu elements needs buffers, got a NULL pointer", name,
                          (unsigned long long)call->count);
    uint64_t own = pccl__layout_own(layout) * element;
    bool in_place = pccl__layout_all_in_output(call->collective) ? in == out + own : out == in + own;
    if (!in_place && overlap(in, input, out, output))
        return pccl__fail(error, PCCL_INVALID, "input and output of %s overlap without being in place", name);
    return check_errors(call, layout, error);
}
