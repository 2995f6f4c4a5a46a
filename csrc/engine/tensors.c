/* SPDX-License-Identifier: MIT */
#include "engine/tensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/status.h"

/* ---------------------------------------------------------------- one by one */

static pccl_status check_one(const pccl_call *call, uint32_t index, uint64_t *total, pccl_error *error) {
    const pccl_tensor *tensor = &call->tensors[index];
    uint64_t bytes, element = pccl_dtype_bytes(call->dtype);
    if (__builtin_add_overflow(*total, tensor->count, total) || mul_overflows(*total, element, &bytes) ||
        bytes > INT64_MAX)
        return pccl__fail(error, PCCL_INVALID, "tensors 0 to %u of %s are too many bytes", index,
                          pccl_dtype_name(call->dtype));
    if (tensor->count && (!tensor->input || !tensor->output))
        return pccl__fail(error, PCCL_INVALID, "tensor %u of %llu elements needs buffers, got a NULL pointer", index,
                          (unsigned long long)tensor->count);
    return PCCL_OK;
}

pccl_status pccl__tensors_check(const pccl_call *call, pccl_error *error) {
    const char *name = pccl_collective_name(call->collective);
    if (!call->tensors && call->tensors_count == 0) return PCCL_OK;
    if (call->collective != PCCL_ALL_REDUCE)
        return pccl__fail(error, PCCL_INVALID, "%s takes no list of tensors", name);
    if (!call->tensors || call->tensors_count == 0 || call->tensors_count > PCCL_TENSORS_MAX)
        return pccl__fail(error, PCCL_INVALID, "%s takes 1 to %d tensors together, got %u%s", name, PCCL_TENSORS_MAX,
                          call->tensors_count, call->tensors ? "" : " and a NULL pointer");
    uint64_t total = 0;
    pccl_status status = PCCL_OK;
    for (uint32_t i = 0; i < call->tensors_count && status == PCCL_OK; i++) status = check_one(call, i, &total, error);
    return status;
}

uint64_t pccl__tensors_total(const pccl_call *call) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < call->tensors_count; i++) total += call->tensors[i].count;
    return total;
}

/* ---------------------------------------------------------------- how they lie to each other */

/* In numbers, as C compares no pointers of different arrays. */
struct range {
    uintptr_t begin, end;
    uint32_t tensor;
    bool written;
};

static int by_begin(const void *a, const void *b) {
    const struct range *left = a, *right = b;
    if (left->begin != right->begin) return left->begin < right->begin ? -1 : 1;
    return left->tensor < right->tensor ? -1 : left->tensor > right->tensor;
}

static pccl_status refuse_overlap(uint32_t a, uint32_t b, pccl_error *error) {
    if (a == b)
        return pccl__fail(error, PCCL_INVALID, "input and output of tensor %u overlap without being in place", a);
    return pccl__fail(error, PCCL_INVALID, "tensors %u and %u overlap, and one of them is written to", a < b ? a : b,
                      a < b ? b : a);
}

/* From left to right: nothing written may begin before the end of what came so far, nothing else before the end of what
 * is written. */
static pccl_status check_apart(struct range *ranges, size_t count, pccl_error *error) {
    const struct range *farthest = NULL, *farthest_written = NULL;
    qsort(ranges, count, sizeof *ranges, by_begin);
    for (const struct range *it = ranges; it < ranges + count; it++) {
        const struct range *other = it->written ? farthest : farthest_written;
        if (other && it->begin < other->end) return refuse_overlap(it->tensor, other->tensor, error);
        if (!farthest || it->end > farthest->end) farthest = it;
        if (it->written && (!farthest_written || it->end > farthest_written->end)) farthest_written = it;
    }
    return PCCL_OK;
}

/* `ranges` has room for two of each. */
static size_t list_ranges(const struct pccl__tensors *tensors, struct range *ranges) {
    size_t count = 0;
    for (uint32_t i = 0; i < tensors->count; i++) {
        const pccl_tensor *it = &tensors->tensor[i];
        if (it->count == 0) continue;
        uintptr_t input = (uintptr_t)it->input, output = (uintptr_t)it->output;
        size_t bytes = it->count * tensors->element_bytes;
        ranges[count++] = (struct range){output, output + bytes, i, true};
        if (input != output) ranges[count++] = (struct range){input, input + bytes, i, false};
    }
    return count;
}

/* ---------------------------------------------------------------- the list */

static struct pccl__tensors *copy_of(const pccl_call *call) {
    uint32_t count = call->tensors_count;
    size_t listed = count * sizeof(pccl_tensor);
    struct pccl__tensors *tensors = malloc(sizeof *tensors + listed + ((size_t)count + 1) * sizeof(uint64_t));
    if (!tensors) return NULL;
    uint64_t *begins = (uint64_t *)(tensors->tensor + count);
    *tensors = (struct pccl__tensors){.count = count, .element_bytes = pccl_dtype_bytes(call->dtype), .begins = begins};
    memcpy(tensors->tensor, call->tensors, listed);
    begins[0] = 0;
    for (uint32_t i = 0; i < count; i++) {
        const pccl_tensor *it = &tensors->tensor[i];
        begins[i + 1] = begins[i] + it->count;
        tensors->in_place = tensors->in_place || (it->count && it->input == it->output);
    }
    return tensors;
}

pccl_status pccl__tensors_new(const pccl_call *call, struct pccl__tensors **out, pccl_error *error) {
    struct pccl__tensors *tensors = copy_of(call);
    struct range *ranges = malloc(2 * (size_t)call->tensors_count * sizeof *ranges);
    pccl_status status = PCCL_NO_MEMORY;
    if (tensors && ranges)
        status = check_apart(ranges, list_ranges(tensors, ranges), error);
    else
        pccl__fail(error, status, "no memory for a list of %u tensors", call->tensors_count);
    free(ranges);
    if (status == PCCL_OK)
        *out = tensors;
    else
        free(tensors);
    return status;
}

void pccl__tensors_free(struct pccl__tensors *tensors) { free(tensors); }

/* ---------------------------------------------------------------- places */

/* That which holds an element: the last that does not begin behind it. Empty ones are before it. */
static uint32_t find(const struct pccl__tensors *tensors, uint64_t element) {
    uint32_t low = 0, high = tensors->count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (tensors->begins[middle] <= element)
            low = middle;
        else
            high = middle;
    }
    return low;
}

bool pccl__tensors_next(const struct pccl__tensors *tensors, uint64_t begin, uint64_t end,
                        struct pccl__stretch *stretch) {
    bool first = stretch->elements == 0;
    uint32_t tensor = first ? 0 : stretch->tensor + 1;
    uint64_t at = first ? begin : tensors->begins[tensor];
    if (at >= end) return false;
    if (first) tensor = find(tensors, at);
    while (tensors->begins[tensor + 1] == at) tensor++;
    const pccl_tensor *it = &tensors->tensor[tensor];
    size_t skipped = (at - tensors->begins[tensor]) * tensors->element_bytes;
    *stretch = (struct pccl__stretch){.input = (const uint8_t *)it->input + skipped,
                                      .result = (uint8_t *)it->output + skipped,
                                      .offset = (at - begin) * tensors->element_bytes,
                                      .elements = min_u64(end, tensors->begins[tensor + 1]) - at,
                                      .tensor = tensor};
    return true;
}
