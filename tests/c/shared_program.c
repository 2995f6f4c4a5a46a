/* SPDX-License-Identifier: MIT */
#include "shared_program.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/prng.h"
#include "engine/coding.h"
#include "engine/layout.h"
#include "kernel/kernel.h"
#include "plan/plan.h"

/* ---------------------------------------------------------------- drawing */

static bool in_parts(pccl_collective collective) {
    return collective == PCCL_REDUCE_SCATTER || collective == PCCL_ALL_GATHER || collective == PCCL_GATHER ||
           collective == PCCL_SCATTER || collective == PCCL_ALL_TO_ALL;
}

static bool is_rooted(pccl_collective collective) {
    return collective == PCCL_BROADCAST || collective == PCCL_REDUCE || collective == PCCL_GATHER ||
           collective == PCCL_SCATTER;
}

/* A third of what can be quantized is. */
static void draw_quantization(struct program_step *step, uint64_t *random) {
    static const pccl_format formats[] = {PCCL_TO_BFLOAT16, PCCL_TO_FLOAT16, PCCL_INT8_BLOCK, PCCL_UINT8_MIN_MAX,
                                          PCCL_INT4_BLOCK};
    pccl_call call = step->call;
    call.quantization = (pccl_quantization){.format = formats[prng_below(random, 5)]};
    bool cast = call.quantization.format <= PCCL_TO_FLOAT16;
    if (!cast && prng_below(random, 2)) call.quantization.block = 32 << prng_below(random, 6);
    if (!cast && prng_below(random, 4) == 0) call.quantization.stochastic = 1, call.quantization.seed = step->number;
    call.flags = 0;
    bool fits = pccl__has_data(call.collective) && pccl__coding_check(&call, NULL, NULL) == PCCL_OK;
    if (fits && prng_below(random, 3) == 0) step->call = call;
}

struct program_step program_draw(uint32_t number, bool all_links, uint64_t *random) {
    static const pccl_dtype dtypes[] = {PCCL_INT8, PCCL_INT32, PCCL_FLOAT32, PCCL_FLOAT64, PCCL_COMPLEX64};
    static const pccl_reduce_op ops[] = {PCCL_SUM, PCCL_MIN, PCCL_MAX, PCCL_PREMUL_SUM};
    static const uint32_t bounds[] = {3, 100, 5000, PROGRAM_COUNT_MAX};
    struct program_step step = {.number = number, .in_place = prng_below(random, 2)};
    pccl_collective collective = (pccl_collective)prng_below(random, PCCL_EXSCAN);
    if (collective >= PCCL_COMMIT) collective++; /* not that one */
    step.call = (pccl_call){.collective = collective,
                            .dtype = dtypes[prng_below(random, 5)],
                            .op = ops[prng_below(random, 4)],
                            .count = prng_below(random, bounds[prng_below(random, 4)]),
                            .priority = (int32_t)(number % 7) - 3};
    if (!pccl__reduces_dtype(step.call.op, step.call.dtype)) step.call.op = PCCL_SUM;
    step.root_is_last = is_rooted(collective) && prng_below(random, 2);
    step.uneven = in_parts(collective) && prng_below(random, 2);
    if (collective == PCCL_ALL_REDUCE && number % 2) step.tensors = 1 + number % 7;
    if (all_links && pccl__reduces(collective) && prng_below(random, 3) == 0) step.call.flags = PCCL_DETERMINISTIC;
    draw_quantization(&step, random);
    if (prng_below(random, 2)) return step;
    pccl_algorithm *wish = &step.call.algorithm;
    do *wish = (pccl_algorithm)prng_below(random, PCCL_ALGORITHM_COUNT);
    while (*wish != PCCL_AUTO && !pccl__planner_find(collective, *wish));
    const struct pccl__planner *planner = pccl__planner_find(collective, *wish);
    if (planner && !(planner->traits & PCCL__FIXED_ORDER)) step.call.flags = 0;
    return step;
}

void program_make_pair(struct program_step *step, uint32_t source, uint32_t target) {
    *step = (struct program_step){.number = step->number, .source = source, .target = target, .call = step->call};
    step->call = (pccl_call){.collective = PCCL_SEND, .dtype = step->call.dtype, .count = step->call.count};
}

static bool is_pair(const struct program_step *step) { return step->call.collective == PCCL_SEND; }

bool program_has(const struct program_step *step, uint32_t number) {
    return !is_pair(step) || number == step->source || number == step->target;
}

bool program_is_bound(const struct program_step *step) {
    return in_parts(step->call.collective) || is_rooted(step->call.collective) || is_pair(step);
}

/* ---------------------------------------------------------------- lengths */

/* Elements that pass from one to another in an all_to_all; of one rank's part elsewhere, whoever the other is. Of
 * uneven ones some are empty, and some so much longer than others that segments are left of them alone. */
static uint64_t part(const struct program_step *step, uint32_t from, uint32_t to) {
    uint64_t count = step->call.count, lengths[] = {count, 0, count / 64, count / 2 + 1};
    uint32_t mixed = step->call.collective == PCCL_ALL_TO_ALL ? 3 * from + 2 * to : to;
    return step->uneven ? lengths[(step->number + mixed) % 4] : count;
}

/* The part of `of` as `us` sees it: what goes there or comes from there. */
static uint64_t input_part(const struct program_step *step, uint32_t us, uint32_t of) { return part(step, us, of); }
static uint64_t output_part(const struct program_step *step, uint32_t us, uint32_t of) {
    return step->call.collective == PCCL_ALL_TO_ALL ? part(step, of, us) : part(step, us, of);
}

static uint64_t begin(uint64_t (*length)(const struct program_step *, uint32_t, uint32_t),
                      const struct program_step *step, uint32_t us, uint32_t of) {
    uint64_t sum = 0;
    for (uint32_t rank = 0; rank < of; rank++) sum += length(step, us, rank);
    return sum;
}

static uint32_t root_of(const struct program_step *step, struct program_group group) {
    return step->root_is_last ? group.size - 1 : 0;
}

static uint64_t input_length(const struct program_step *step, struct program_group group) {
    bool is_root = group.rank == root_of(step, group);
    switch (step->call.collective) {
    case PCCL_BARRIER:
    case PCCL_COMMIT:
        return 0;
    case PCCL_SEND:
        return group.members[group.rank] == step->source ? step->call.count : 0;
    case PCCL_BROADCAST:
        return is_root ? step->call.count : 0;
    case PCCL_SCATTER:
        return is_root ? begin(input_part, step, group.rank, group.size) : 0;
    case PCCL_REDUCE_SCATTER:
    case PCCL_ALL_TO_ALL:
        return begin(input_part, step, group.rank, group.size);
    case PCCL_ALL_GATHER:
    case PCCL_GATHER:
        return part(step, group.rank, group.rank);
    default:
        return step->call.count;
    }
}

static uint64_t output_length(const struct program_step *step, struct program_group group) {
    bool is_root = group.rank == root_of(step, group);
    switch (step->call.collective) {
    case PCCL_BARRIER:
    case PCCL_COMMIT:
        return 0;
    case PCCL_SEND:
        return group.members[group.rank] == step->target ? step->call.count : 0;
    case PCCL_REDUCE:
        return is_root ? step->call.count : 0;
    case PCCL_EXSCAN:
        return group.rank > 0 ? step->call.count : 0;
    case PCCL_GATHER:
        return is_root ? begin(output_part, step, group.rank, group.size) : 0;
    case PCCL_ALL_GATHER:
    case PCCL_ALL_TO_ALL:
        return begin(output_part, step, group.rank, group.size);
    case PCCL_REDUCE_SCATTER:
    case PCCL_SCATTER:
        return part(step, group.rank, group.rank);
    default:
        return step->call.count;
    }
}

/* ---------------------------------------------------------------- values */

enum { VALUE_MOST = 6 };

static int64_t value(uint32_t peer, uint32_t number, uint64_t i) {
    return (int64_t)((peer * 7 + number * 3 + i * 5) % 11) - 4;
}

static void put(pccl_dtype dtype, uint8_t *at, uint64_t i, int64_t v) {
    if (dtype == PCCL_INT32)
        ((int32_t *)at)[i] = (int32_t)v;
    else if (dtype == PCCL_FLOAT32)
        ((float *)at)[i] = (float)v;
    else if (dtype == PCCL_FLOAT64)
        ((double *)at)[i] = (double)v;
    else if (dtype == PCCL_COMPLEX64)
        ((float *)at)[2 * i] = (float)v, ((float *)at)[2 * i + 1] = (float)-v;
    else
        ((int8_t *)at)[i] = (int8_t)v;
}

static double get(pccl_dtype dtype, const uint8_t *at, uint64_t i) {
    const float *number = (const float *)at + 2 * i;
    if (dtype == PCCL_COMPLEX64) return number[0] == -number[1] ? number[0] : NAN;
    if (dtype == PCCL_INT32) return ((const int32_t *)at)[i];
    if (dtype == PCCL_FLOAT32) return ((const float *)at)[i];
    if (dtype == PCCL_FLOAT64) return ((const double *)at)[i];
    return ((const int8_t *)at)[i];
}

static double factor_of(uint32_t peer) { return (double)(peer % 4) - 1; }

/* Of the first `ranks` members. */
static double reduced(const struct program_step *step, struct program_group group, uint32_t ranks, uint64_t i) {
    double total = 0;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        double v = (double)value(group.members[rank], step->number, i);
        if (step->call.op == PCCL_PREMUL_SUM) v *= factor_of(group.members[rank]);
        if (step->call.op == PCCL_SUM || step->call.op == PCCL_PREMUL_SUM)
            total += v;
        else if (step->call.op == PCCL_MIN)
            total = rank == 0 || v < total ? v : total;
        else
            total = rank == 0 || v > total ? v : total;
    }
    return total;
}

/* Element `i` of an output that is made of parts. */
static double gathered(const struct program_step *step, struct program_group group, uint64_t i) {
    uint32_t from = 0;
    while (i >= output_part(step, group.rank, from)) i -= output_part(step, group.rank, from++);
    uint64_t there = step->call.collective == PCCL_ALL_TO_ALL ? begin(input_part, step, from, group.rank) : 0;
    return (double)value(group.members[from], step->number, there + i);
}

static double expected(const struct program_step *step, struct program_group group, uint64_t i) {
    uint64_t own = begin(input_part, step, group.rank, group.rank);
    switch (step->call.collective) {
    case PCCL_ALL_REDUCE:
    case PCCL_REDUCE:
        return reduced(step, group, group.size, i);
    case PCCL_REDUCE_SCATTER:
        return reduced(step, group, group.size, own + i);
    case PCCL_SCAN:
        return reduced(step, group, group.rank + 1, i);
    case PCCL_EXSCAN:
        return reduced(step, group, group.rank, i);
    case PCCL_SEND:
        return (double)value(step->source, step->number, i);
    case PCCL_SCATTER:
        return (double)value(group.members[root_of(step, group)], step->number, own + i);
    case PCCL_BROADCAST:
        return (double)value(group.members[root_of(step, group)], step->number, i);
    default:
        return gathered(step, group, i);
    }
}

/* Inputs, or outputs, of all tensors behind one another in `whole`. */
static void bring_together(const struct program_buffers *buffers, bool outputs, uint8_t *whole) {
    for (uint32_t i = 0; i < buffers->tensors_count; i++) {
        const pccl_tensor *it = &buffers->tensors[i];
        memcpy(whole, outputs ? it->output : it->input, it->count * buffers->element);
        whole += it->count * buffers->element;
    }
}

/* How far a value may be from what it should be: each time that it is encoded takes half a step, or with random
 * rounding a whole one. Small integers go through casts unchanged. */
static double tolerance(const struct program_step *step, struct program_group group) {
    static const double steps[PCCL_FORMAT_COUNT] = {
        [PCCL_INT8_BLOCK] = 1.0 / 127, [PCCL_UINT8_MIN_MAX] = 2.0 / 255, [PCCL_INT4_BLOCK] = 1.0 / 7};
    double most = VALUE_MOST * (pccl__reduces(step->call.collective) ? group.size : 1);
    if (step->call.op == PCCL_PREMUL_SUM) most *= 2;
    double encodings = pccl__reduces(step->call.collective) ? 2.0 * group.size : 1;
    return 1.01 * encodings * most * steps[step->call.quantization.format];
}

uint64_t program_first_wrong(const struct program_step *step, struct program_group group,
                             const struct program_buffers *buffers) {
    bring_together(buffers, true, buffers->output);
    uint64_t elements = output_length(step, group), stride = elements > 300 ? 37 : 1;
    double allowed = tolerance(step, group);
    for (uint64_t i = 0; i < elements; i += i + stride < elements ? stride : 1)
        if (!(fabs(get(step->call.dtype, buffers->output, i) - expected(step, group, i)) <= allowed)) return i;
    return UINT64_MAX;
}

uint64_t program_hash(const struct program_buffers *buffers) {
    uint8_t digest[16];
    pccl_hash128(buffers->output, buffers->output_bytes, digest);
    return get_u64(digest);
}

/* ---------------------------------------------------------------- buffers */

/* Of very different lengths, some of them empty. */
static void cut_up(const struct program_step *step, struct program_buffers *buffers) {
    uint64_t count = step->call.count, lengths[] = {1, count / 3, 0, 5, count / 64};
    buffers->tensors = calloc(step->tensors, sizeof *buffers->tensors);
    buffers->tensors_count = step->tensors;
    for (uint32_t i = 0; i < step->tensors; i++) {
        bool is_last = i + 1 == step->tensors;
        uint64_t length = is_last ? count : min_u64(lengths[(step->number / 2 + i) % 5], count);
        buffers->tensors[i].count = length;
        count -= length;
    }
}

/* Out of place, and every third in place where the step is, an output has a place of its own. */
static void lay_apart(const struct program_step *step, struct program_buffers *buffers) {
    size_t bytes = buffers->input_bytes + step->tensors * buffers->element, at = bytes;
    buffers->apart = calloc(2, bytes);
    const uint8_t *before = buffers->before;
    for (uint32_t i = 0; i < step->tensors; i++) {
        pccl_tensor *it = &buffers->tensors[i];
        at -= (it->count + 1) * buffers->element; /* with a gap */
        bool in_place = step->in_place && (i % 3 != 2 || step->number & 4);
        it->input = buffers->apart + at;
        it->output = buffers->apart + at + (in_place ? 0 : bytes);
        memcpy(buffers->apart + at, before, it->count * buffers->element);
        before += it->count * buffers->element;
    }
}

pccl_call program_prepare(const struct program_step *step, struct program_group group,
                          struct program_buffers *buffers) {
    pccl_call call = step->call;
    size_t element = pccl_dtype_bytes(call.dtype);
    uint64_t in = input_length(step, group), out = output_length(step, group);
    *buffers = (struct program_buffers){.input_bytes = in * element, .output_bytes = out * element, .element = element};
    buffers->before = malloc(buffers->input_bytes + 1);
    for (uint64_t i = 0; i < in; i++)
        put(call.dtype, buffers->before, i, value(group.members[group.rank], step->number, i));
    buffers->memory = malloc(max_u64(buffers->input_bytes, buffers->output_bytes) + 1);
    buffers->input = buffers->output = buffers->memory;
    bool scatters = call.collective == PCCL_REDUCE_SCATTER || call.collective == PCCL_SCATTER;
    bool gathers = call.collective == PCCL_ALL_GATHER || call.collective == PCCL_GATHER;
    if (!step->in_place)
        buffers->input = buffers->other = malloc(buffers->input_bytes + 1);
    else if (scatters && in > 0)
        buffers->output += begin(input_part, step, group.rank, group.rank) * element;
    else if (gathers && out > 0)
        buffers->input += begin(output_part, step, group.rank, group.rank) * element;
    memcpy(buffers->input, buffers->before, buffers->input_bytes);
    call.input = buffers->input;
    call.output = buffers->output;
    call.root = root_of(step, group);
    if (is_pair(step)) {
        bool sends = group.members[group.rank] == step->source;
        call.collective = sends ? PCCL_SEND : PCCL_RECV;
        for (call.root = 0; group.members[call.root] != (sends ? step->target : step->source);) call.root++;
    }
    call.factor = factor_of(group.members[group.rank]);
    if (step->tensors) {
        cut_up(step, buffers);
        lay_apart(step, buffers);
        call.input = call.output = NULL;
        call.tensors = buffers->tensors;
        call.tensors_count = buffers->tensors_count;
    }
    if (!step->uneven) return call;
    call.flags |= PCCL_UNEVEN;
    call.count = part(step, group.rank, group.rank);
    call.input_counts = buffers->input_counts;
    call.output_counts = buffers->output_counts;
    for (uint32_t rank = 0; rank < group.size; rank++) {
        buffers->input_counts[rank] = input_part(step, group.rank, rank);
        buffers->output_counts[rank] = output_part(step, group.rank, rank);
    }
    return call;
}

void program_release(struct program_buffers *buffers) {
    free(buffers->memory);
    free(buffers->other);
    free(buffers->before);
    free(buffers->tensors);
    free(buffers->apart);
    *buffers = (struct program_buffers){0};
}

bool program_input_intact(const struct program_buffers *buffers) {
    bring_together(buffers, false, buffers->input);
    return memcmp(buffers->input, buffers->before, buffers->input_bytes) == 0;
}
