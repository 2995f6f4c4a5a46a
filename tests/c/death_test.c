/* SPDX-License-Identifier: MIT
 *
 * death_test.c - every plan of every collective, and each of its members dies in the middle: the executor over the
 * simulated network, the moment drawn from a seed. The survivors agree on what became of the operation, hold the right
 * result or their input, and succeed when they repeat it among themselves.
 */
#include <string.h>

#include "base/prng.h"
#include "check.h"
#include "engine/coding.h"
#include "plan/plan.h"
#include "shared_cores.h"
#include "shared_program.h"
#include "shared_verdict.h"

enum { MEMBERS = 5, SURVIVORS = MEMBERS - 1, COUNT = 1500, SEGMENT_BYTES = 1000, DELAY_US = 40, SEEDS = 4 };

/* Hosts of two and three. */
static const uint64_t host_ids[MEMBERS] = {7, 7, 9, 9, 9};
/* Of five, and of the four that are left. */
static const uint32_t parents[] = {0, 0, 1, 1, 0};

static uint32_t aborted, committed;

struct one {
    const struct pccl__planner *planner;
    uint64_t seed, random;
    struct cores cores;
    struct program_step step;
    uint32_t members[MEMBERS], size; /* peers by rank */
    struct program_buffers buffers[MEMBERS];
    pccl_operation *op[MEMBERS]; /* by rank */
};

static struct program_group group_of(const struct one *it, uint32_t rank) {
    return (struct program_group){.size = it->size, .rank = rank, .members = it->members};
}

static void start(struct one *it) {
    for (uint32_t rank = 0; rank < it->size; rank++)
        it->op[rank] = cores_start(&it->cores, it->members[rank],
                                   program_prepare(&it->step, group_of(it, rank), &it->buffers[rank]));
}

static void give_back(struct one *it, uint32_t rank) {
    if (it->op[rank]) pccl__core_handle_free(it->op[rank]);
    program_release(&it->buffers[rank]);
    it->op[rank] = NULL;
}

static const char *name_of(const struct one *it) {
    static char name[120];
    snprintf(name, sizeof name, "%s by %s, seed %d%s%s%s", pccl_collective_name(it->planner->collective),
             pccl_algorithm_name(it->planner->algorithm), (int)it->seed, it->step.in_place ? ", in place" : "",
             it->step.uneven ? ", uneven" : "", it->step.tensors ? ", in tensors" : "");
    if (it->step.call.quantization.format) strncat(name, ", quantized", sizeof name - strlen(name) - 1);
    return name;
}

static void expect_result(const struct one *it, uint32_t rank) {
    uint64_t wrong = program_first_wrong(&it->step, group_of(it, rank), &it->buffers[rank]);
    EXPECT(wrong == UINT64_MAX, "%s: rank %u, element %d", name_of(it), rank, (int)wrong);
}

/* As a master does: stops everyone, hears everyone, and says what commits. */
static void next_view(struct one *it) {
    static struct report reports[MEMBERS];
    pccl_operation_name commits[1];
    uint32_t count = 0;
    for (uint32_t p = 0; p < MEMBERS; p++) {
        struct pccl__core *core = it->cores.core[p];
        if (!core) continue;
        pccl__core_freeze(core, PCCL_ABORTED, NULL, "the master asks");
        EXPECT(pccl__core_report(core, it->cores.epoch, reports[count].lines, REPORT_LINES, &reports[count].count) ==
               PCCL_OK);
        count++;
    }
    uint32_t names = verdict(reports, count, commits, 1);
    cores_install(&it->cores, commits, names, PCCL_PEER_LOST, "a member was lost");
}

/* All alike: success with the result of all five, or a loss with the input as it was. */
static bool judge(struct one *it, uint32_t victim) {
    uint32_t succeeded = 0;
    for (uint32_t rank = 0; rank < MEMBERS; rank++) {
        if (rank == victim) continue;
        const pccl_operation *op = it->op[rank];
        EXPECT(op->ended && (op->status == PCCL_OK || op->status == PCCL_PEER_LOST), "%s: %s", name_of(it), op->text);
        succeeded += op->status == PCCL_OK;
        if (op->status == PCCL_OK)
            expect_result(it, rank);
        else
            EXPECT(program_input_intact(&it->buffers[rank]), "%s: rank %u lost its input", name_of(it), rank);
    }
    EXPECT(succeeded == 0 || succeeded == SURVIVORS, "%s: %u of %d succeeded", name_of(it), succeeded, SURVIVORS);
    return succeeded > 0;
}

static void repeat(struct one *it, uint32_t victim) {
    for (uint32_t rank = 0; rank < MEMBERS; rank++) give_back(it, rank);
    it->size = 0;
    for (uint32_t p = 0; p < MEMBERS; p++)
        if (p != victim) it->members[it->size++] = p;
    start(it);
    cores_run(&it->cores, 1000000);
    for (uint32_t rank = 0; rank < it->size; rank++) {
        EXPECT(it->op[rank]->ended && it->op[rank]->status == PCCL_OK, "%s, again: %s", name_of(it),
               it->op[rank]->text);
        expect_result(it, rank);
        give_back(it, rank);
    }
}

/* Private parts go straight where all links are there. */
static bool may_be_uneven(const struct pccl__planner *planner) {
    if (!pccl__in_parts(planner->collective)) return false;
    return !pccl__parts_are_private(planner->collective) || planner->traits & PCCL__STRAIGHT ||
           planner->links != PCCL_SHAPE_FULL;
}

static void quantize(struct program_step *step) {
    pccl_call call = step->call;
    call.dtype = PCCL_FLOAT32;
    call.quantization = (pccl_quantization){.format = PCCL_INT8_BLOCK, .block = 64};
    bool has_form = pccl__has_data(call.collective) && pccl__coding_check(&call, NULL, NULL) == PCCL_OK;
    if (has_form) step->call = call;
}

static struct program_step step_of(const struct pccl__planner *planner, uint64_t seed) {
    bool barrier = planner->collective == PCCL_BARRIER;
    return (struct program_step){.call = {.collective = planner->collective,
                                          .dtype = PCCL_INT32,
                                          .algorithm = barrier ? PCCL_AUTO : planner->algorithm,
                                          .count = COUNT},
                                 .number = (uint32_t)seed,
                                 .in_place = seed & 1,
                                 .uneven = seed & 2 && may_be_uneven(planner),
                                 .tensors = seed & 2 && planner->collective == PCCL_ALL_REDUCE ? 6 : 0,
                                 .root_is_last = seed & 4};
}

static void try(const struct pccl__planner *planner, uint32_t victim, uint64_t seed) {
    static struct one it;
    it = (struct one){.planner = planner,
                      .seed = seed,
                      .random = seed * MEMBERS + victim + 1,
                      .step = step_of(planner, seed),
                      .size = MEMBERS,
                      .cores = {.shape = planner->links,
                                .parents = planner->links == PCCL_SHAPE_TREE ? parents : NULL,
                                .host_ids = planner->inside ? host_ids : NULL}};
    for (uint32_t p = 0; p < MEMBERS; p++) it.members[p] = p;
    if (seed / SEEDS % 2) quantize(&it.step);
    const struct pccl__core_options options = {
        .min_world_size = 2, .operation_timeout_ms = 5000, .stall_ms = 100, .segment_bytes = SEGMENT_BYTES};
    const struct pccl__sim_faults faults = {.delay_us_max = DELAY_US, .reorder_percent = 20};
    cores_make_among(&it.cores, MEMBERS, &options, it.random, faults);
    start(&it);
    /* A frame is under way for half the delay, on average. The finish phase is part of it. */
    uint32_t rounds = it.op[0]->schedule->plan.rounds + it.op[0]->finish.schedule->plan.rounds;
    cores_run(&it.cores, prng_below(&it.random, DELAY_US * (rounds + 3)));
    cores_kill(&it.cores, victim);
    give_back(&it, victim);
    cores_run(&it.cores, 2000);
    next_view(&it);
    if (judge(&it, victim))
        committed++;
    else
        aborted++;
    repeat(&it, victim);
    cores_free(&it.cores);
}

int main(void) {
    const struct pccl__planner *planner;
    for (size_t i = 0; (planner = pccl__planner_at(i)); i++) {
        aborted = committed = 0;
        for (uint32_t victim = 0; victim < MEMBERS; victim++)
            for (uint64_t seed = 0; seed < 4 * SEEDS; seed++) try(planner, victim, seed);
        EXPECT(aborted > 0 && committed > 0, "%s by %s: %u lost, %u committed",
               pccl_collective_name(planner->collective), pccl_algorithm_name(planner->algorithm), aborted, committed);
    }
    FINISH();
}
