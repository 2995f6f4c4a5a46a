/* SPDX-License-Identifier: MIT
 *
 * sparse.c - the sum of sparse vectors.
 *
 * The one idea: a window slides over the indices, from one that somebody has to the next. What falls into it is added
 * up there as in a dense vector that lies in the cache; a bitmap of two levels tells what was touched. So each entry is
 * read once and nothing is compared, however many vectors there are.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/status.h"
#include "kernel/element.h"
#include "kernel/fp_env.h"
#include "pccl_sparse.h"

enum { WINDOW = 1 << 14, WORDS = WINDOW / 64, GROUPS = WORDS / 64 };

struct window {
    uint64_t used[WORDS];    /* one bit for each element */
    uint64_t groups[GROUPS]; /* one bit for each word of `used` */
    uint32_t places[WINDOW]; /* the elements that are used, once they are listed */
    union {                  /* of what is not used: -0, to which any value can be added without a trace */
        float f32[WINDOW];
        double f64[WINDOW];
        uint64_t u64[WINDOW];
    } sums;
};

/* What differs from dtype to dtype. */
struct dtype_rule {
    void (*clear)(struct window *window);
    /* Adds entries of `vector` from `cursor` on to the window that begins at index `first`, as long as they rise and
     * are in it. Returns the next one. */
    uint64_t (*add)(struct window *window, uint64_t first, const pccl_sparse *vector, uint64_t cursor);
    /* Writes the sums at the first `count` places from values[entry] on, and forgets them. */
    void (*take)(struct window *window, uint32_t count, void *values, uint64_t entry);
};

static void mark(struct window *window, uint64_t at) {
    window->used[at / 64] |= UINT64_C(1) << at % 64;
    window->groups[at / 4096] |= UINT64_C(1) << at / 64 % 64;
}

/* SUM: which of the sums. `load` and `store` are expressions of `bits` and `sum`. */
#define RULE(NAME, BITS, SUM, NOTHING, load, store)                                                                    \
    static void NAME##_clear(struct window *window) {                                                                  \
        for (uint32_t at = 0; at < WINDOW; at++) window->sums.SUM[at] = (NOTHING);                                     \
    }                                                                                                                  \
    static uint64_t NAME##_add(struct window *window, uint64_t first, const pccl_sparse *vector, uint64_t cursor) {    \
        for (uint64_t least = 0; cursor < vector->count; cursor++) {                                                   \
            uint64_t at = vector->indices[cursor] - first;                                                             \
            if (at < least || at >= WINDOW) break;                                                                     \
            BITS bits;                                                                                                 \
            memcpy(&bits, (const uint8_t *)vector->values + cursor * sizeof bits, sizeof bits);                        \
            window->sums.SUM[at] += (load);                                                                            \
            mark(window, at);                                                                                          \
            least = at + 1;                                                                                            \
        }                                                                                                              \
        return cursor;                                                                                                 \
    }                                                                                                                  \
    static void NAME##_take(struct window *window, uint32_t count, void *values, uint64_t entry) {                     \
        for (uint32_t i = 0; i < count; i++) {                                                                         \
            __typeof__(window->sums.SUM[0]) sum = window->sums.SUM[window->places[i]];                                 \
            BITS bits = (BITS)(store);                                                                                 \
            memcpy((uint8_t *)values + (entry + i) * sizeof bits, &bits, sizeof bits);                                 \
            window->sums.SUM[window->places[i]] = (NOTHING);                                                           \
        }                                                                                                              \
    }                                                                                                                  \
    static const struct dtype_rule NAME = {NAME##_clear, NAME##_add, NAME##_take};

RULE(f16, uint16_t, f32, -0.0f, f16_load(bits), f16_store(sum))
RULE(bf16, uint16_t, f32, -0.0f, f32_load((uint32_t)bits << 16), bf16_round(sum) >> 16)
RULE(f32, uint32_t, f32, -0.0f, f32_load(bits), f32_store(sum))
RULE(f64, uint64_t, f64, -0.0, f64_load(bits), f64_store(sum))
RULE(u8, uint8_t, u64, 0, bits, sum) /* sums of signed integers have the same bits */
RULE(u16, uint16_t, u64, 0, bits, sum)
RULE(u32, uint32_t, u64, 0, bits, sum)
RULE(u64, uint64_t, u64, 0, bits, sum)

static const struct dtype_rule *const rules[PCCL_DTYPE_COUNT] = {
    [PCCL_INT8] = &u8,     [PCCL_UINT8] = &u8,      [PCCL_INT16] = &u16,   [PCCL_UINT16] = &u16,
    [PCCL_INT32] = &u32,   [PCCL_UINT32] = &u32,    [PCCL_INT64] = &u64,   [PCCL_UINT64] = &u64,
    [PCCL_FLOAT16] = &f16, [PCCL_BFLOAT16] = &bf16, [PCCL_FLOAT32] = &f32, [PCCL_FLOAT64] = &f64,
};

/* Writes the window's used elements to `places`, in order, and forgets that they were used. */
static uint32_t list_places(struct window *window) {
    uint32_t count = 0;
    for (uint32_t g = 0; g < GROUPS; g++) {
        for (uint64_t words = window->groups[g]; words != 0; words &= words - 1) {
            uint32_t w = 64 * g + (uint32_t)__builtin_ctzll(words);
            for (uint64_t bits = window->used[w]; bits != 0; bits &= bits - 1)
                window->places[count++] = 64 * w + (uint32_t)__builtin_ctzll(bits);
            window->used[w] = 0;
        }
        window->groups[g] = 0;
    }
    return count;
}

/* The smallest index that is left; false: there is none. */
static bool first_left(const pccl_sparse *vectors, const uint64_t *cursors, uint32_t count, uint64_t *first) {
    bool any = false;
    for (uint32_t i = 0; i < count; i++) {
        if (cursors[i] == vectors[i].count) continue;
        uint64_t index = vectors[i].indices[cursors[i]];
        *first = any ? min_u64(*first, index) : index;
        any = true;
    }
    return any;
}

pccl_status pccl_sparse_sum(pccl_dtype dtype, const pccl_sparse *vectors, uint32_t vectors_count, uint64_t *indices,
                            void *values, uint64_t capacity, uint64_t *count, pccl_error *error) {
    const struct dtype_rule *rule = (unsigned)dtype < PCCL_DTYPE_COUNT ? rules[dtype] : NULL;
    if (!rule) return pccl__fail(error, PCCL_INVALID, "sparse %s cannot be added up", pccl_dtype_name(dtype));
    struct window *window = calloc(1, sizeof *window);
    uint64_t *cursors = calloc(vectors_count + 1u, sizeof *cursors);
    pccl_status status = window && cursors ? PCCL_OK : pccl__fail(error, PCCL_NO_MEMORY, "no memory for a sparse sum");
    if (status == PCCL_OK) rule->clear(window);
    uint64_t modes = fp_env_enter(), first = 0, done = 0;
    for (bool begun = false; status == PCCL_OK; begun = true) {
        uint64_t before = first;
        if (!first_left(vectors, cursors, vectors_count, &first)) break;
        if (begun && (first <= before || first - before < WINDOW)) {
            status = pccl__fail(error, PCCL_INVALID, "index %" PRIu64 " of a sparse vector comes too late", first);
            break;
        }
        for (uint32_t i = 0; i < vectors_count; i++) cursors[i] = rule->add(window, first, &vectors[i], cursors[i]);
        uint32_t used = list_places(window);
        if (used > capacity - done) {
            status = pccl__fail(error, PCCL_INVALID, "room for %" PRIu64 " entries is too little", capacity);
            break;
        }
        for (uint32_t i = 0; i < used; i++) indices[done + i] = first + window->places[i];
        rule->take(window, used, values, done);
        done += used;
    }
    fp_env_leave(modes);
    free(cursors);
    free(window);
    if (status == PCCL_OK) *count = done;
    return status;
}
