/* SPDX-License-Identifier: MIT
 *
 * flight_test.c - hundreds of operations at a time in one group: of all sizes and priorities, each member begins them
 * in an order of its own, and some of them one member begins only when all others have ended. So: what stalls stops
 * nobody, windows of different sizes meet, results are exact, and memory stays within what docs/limits.md says.
 */
#include <string.h>

#include "base/bits.h"
#include "base/prng.h"
#include "channel/sim_frame.h"
#include "check.h"
#include "shared_cores.h"

enum { FLIGHT = 300, LATE = 10, MEMBERS_MAX = CORES_MAX, SEGMENT_MAX = 256 * 1024, PER_OPERATION = 96 * 1024 };

struct one {
    uint64_t count;
    int8_t priority;
    bool in_place, late;
    float *input[MEMBERS_MAX], *output[MEMBERS_MAX];
    pccl_operation *op[MEMBERS_MAX];
};

struct world {
    uint64_t seed, random;
    struct cores cores;
    struct one one[FLIGHT];
    uint32_t order[MEMBERS_MAX][FLIGHT], begun[MEMBERS_MAX];
    uint32_t laggard; /* begins the late ones last */
};

static uint32_t draw(struct world *w, uint32_t bound) { return prng_below(&w->random, bound); }
static float value(uint32_t number, uint32_t member, uint64_t i) { return (float)(number % 50 + member * 3 + i % 100); }

static uint64_t draw_count(struct world *w) {
    static const uint32_t most[] = {2, 500, 500, 5000, 5000, 40000};
    return 1 + draw(w, draw(w, 40) ? most[draw(w, 6)] : 300000);
}

static void make(struct world *w, uint64_t seed) {
    *w = (struct world){.seed = seed, .random = seed};
    struct pccl__core_options options = {.min_world_size = 2,
                                         .operation_timeout_ms = 60000,
                                         .stall_ms = 100,
                                         .segment_bytes = draw(w, 2) ? 0 : 2000 + 4 * draw(w, 20000)};
    uint32_t members = 2 + draw(w, MEMBERS_MAX - 1);
    cores_make(&w->cores, members, &options);
    w->laggard = draw(w, members);
    /* As if others held all windows there: one segment at a time. */
    if (draw(w, 2)) w->cores.core[draw(w, members)]->exec.windows_bytes = PCCL__WINDOWS_BYTES;
    for (uint32_t number = 0; number < FLIGHT; number++) {
        struct one *one = &w->one[number];
        one->count = draw_count(w);
        one->priority = (int8_t)(draw(w, 2) ? 0 : PCCL_PRIORITY_MIN + (int)draw(w, PCCL_PRIORITY_MAX * 2 + 1));
        one->in_place = draw(w, 2);
        one->late = number % (FLIGHT / LATE) == 0;
        for (uint32_t m = 0; m < members; m++) {
            one->input[m] = malloc(one->count * sizeof(float));
            one->output[m] = one->in_place ? one->input[m] : malloc(one->count * sizeof(float));
            for (uint64_t i = 0; i < one->count; i++) one->input[m][i] = value(number, m, i);
        }
    }
    for (uint32_t m = 0; m < members; m++)
        for (uint32_t i = 0; i < FLIGHT; i++) { /* inside-out shuffle */
            uint32_t j = draw(w, i + 1);
            w->order[m][i] = w->order[m][j];
            w->order[m][j] = i;
        }
}

static void begin(struct world *w, uint32_t member, uint32_t number) {
    struct one *one = &w->one[number];
    one->op[member] = cores_start(&w->cores, member,
                                  (pccl_call){.collective = PCCL_ALL_REDUCE,
                                              .dtype = PCCL_FLOAT32,
                                              .count = one->count,
                                              .tag = 1000 + number,
                                              .priority = one->priority,
                                              .input = one->input[member],
                                              .output = one->output[member]});
}

static void check_memory(const struct world *w, uint32_t member) {
    const struct pccl__core *core = w->cores.core[member];
    uint64_t windows = PCCL__WINDOWS_BYTES + (uint64_t)core->open_calls * SEGMENT_MAX;
    EXPECT(core->exec.windows_bytes <= windows + PCCL__WINDOWS_BYTES, "seed %" PRIu64, w->seed);
    uint64_t shadows = 0;
    for (uint32_t number = 0; number < FLIGHT; number++) {
        const struct one *one = &w->one[number];
        if (one->op[member] && one->in_place) shadows += 2 * one->count * sizeof(float) + 512; /* powers of two */
    }
    EXPECT(core->pool.used_bytes <= 3 * windows + shadows + (uint64_t)FLIGHT * PER_OPERATION,
           "seed %" PRIu64 ": %zu bytes", w->seed, core->pool.used_bytes);
    for (uint32_t m = 0; m < w->cores.size; m++) {
        const struct sim_channel *channel = (const struct sim_channel *)core->group.channels[m];
        if (channel) EXPECT(channel->inbox.held_bytes <= PCCL__EAGER_WINDOW, "seed %" PRIu64, w->seed);
    }
}

/* Each member begins some more of its own order, at its own pace. */
static void begin_all(struct world *w) {
    for (bool more = true; more;) {
        more = false;
        for (uint32_t m = 0; m < w->cores.size; m++) {
            for (uint32_t some = draw(w, 40); some > 0 && w->begun[m] < FLIGHT; some--) {
                uint32_t number = w->order[m][w->begun[m]++];
                if (!w->one[number].late || m != w->laggard) begin(w, m, number);
            }
            more = more || w->begun[m] < FLIGHT;
            check_memory(w, m);
        }
        if (draw(w, 2)) cores_run(&w->cores, draw(w, 3));
    }
}

static void check_one(const struct world *w, uint32_t number) {
    const struct one *one = &w->one[number];
    for (uint32_t m = 0; m < w->cores.size; m++) {
        EXPECT(one->op[m]->ended && one->op[m]->status == PCCL_OK, "seed %" PRIu64 ": operation %u: %s", w->seed,
               number, one->op[m]->ended ? one->op[m]->text : "has not ended");
        for (uint64_t i = 0; i < one->count; i++) {
            float expected = 0;
            for (uint32_t other = 0; other < w->cores.size; other++) expected += value(number, other, i);
            if (one->output[m][i] != expected)
                EXPECT(false, "seed %" PRIu64 ": operation %u at member %u: %f", w->seed, number, m, one->output[m][i]);
        }
    }
}

static void check_all(const struct world *w, bool late) {
    for (uint32_t number = 0; number < FLIGHT; number++) {
        const struct one *one = &w->one[number];
        if (!one->late || late)
            check_one(w, number);
        else
            for (uint32_t m = 0; m < w->cores.size; m++) EXPECT(m == w->laggard || !one->op[m]->ended);
    }
}

static void end(struct world *w) {
    for (uint32_t number = 0; number < FLIGHT; number++) {
        struct one *one = &w->one[number];
        for (uint32_t m = 0; m < w->cores.size; m++) {
            pccl__core_handle_free(one->op[m]);
            if (!one->in_place) free(one->output[m]);
            free(one->input[m]);
        }
    }
    for (uint32_t m = 0; m < w->cores.size; m++) {
        uint64_t windows = w->cores.core[m]->exec.windows_bytes;
        EXPECT(windows == 0 || windows == PCCL__WINDOWS_BYTES, "seed %" PRIu64 ": %" PRIu64, w->seed, windows);
        EXPECT(w->cores.core[m]->pool.used_bytes == 0, "seed %" PRIu64, w->seed);
    }
    cores_free(&w->cores);
}

static void fly(uint64_t seed) {
    static struct world w;
    make(&w, seed);
    begin_all(&w);
    cores_run(&w.cores, 20000);
    check_all(&w, false);
    for (uint32_t number = 0; number < FLIGHT; number++)
        if (w.one[number].late) begin(&w, w.laggard, number);
    cores_run(&w.cores, 20000);
    check_all(&w, true);
    end(&w);
}

/* However many large ones begin, most of them get one segment each, and so little memory. */
static void large_ones_share_windows(void) {
    enum { LARGE = 100, ELEMENTS = 8 * 1024 * 1024 };
    struct cores c;
    pccl_operation *ops[LARGE];
    cores_make(&c, 2, NULL);
    float *memory = malloc(2 * ELEMENTS * sizeof *memory); /* nobody ever touches it */
    for (uint32_t i = 0; i < LARGE; i++)
        ops[i] = cores_start(&c, 0,
                             (pccl_call){.collective = PCCL_ALL_REDUCE,
                                         .dtype = PCCL_FLOAT32,
                                         .count = ELEMENTS,
                                         .tag = i,
                                         .input = memory,
                                         .output = memory + ELEMENTS});
    cores_run(&c, 1000);
    const struct pccl__core *core = c.core[0];
    uint32_t cached = PCCL__WINDOW_CACHED / (ops[0]->schedule->plan.steps_count * SEGMENT_MAX);
    EXPECT(cached > PCCL__WINDOW_LEAST && cached <= PCCL__WINDOW_SEGMENTS, "%u", cached);
    EXPECT(ops[0]->slots == cached && ops[LARGE - 1]->slots == 1, "%u", ops[0]->slots);
    EXPECT(core->exec.windows_bytes <= PCCL__WINDOWS_BYTES + LARGE * SEGMENT_MAX);
    EXPECT(core->pool.used_bytes <= 3 * core->exec.windows_bytes + LARGE * PER_OPERATION, "%zu", core->pool.used_bytes);
    for (uint32_t i = 0; i < LARGE; i++) EXPECT(!ops[i]->ended);
    pccl__core_halt(c.core[0], PCCL_CLOSED, "enough");
    for (uint32_t i = 0; i < LARGE; i++) pccl__core_handle_free(ops[i]);
    cores_run(&c, 1000);
    EXPECT(core->exec.windows_bytes == 0);
    cores_free(&c);
    free(memory);
}

int main(int argc, char **argv) {
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, seeds = argc > 2 ? strtoull(argv[2], NULL, 10) : 6;
    for (uint64_t seed = first; seed < first + seeds; seed++) fly(seed);
    large_ones_share_windows();
    FINISH();
}
