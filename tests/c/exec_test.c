/* SPDX-License-Identifier: MIT
 *
 * exec_test.c - what chance seldom brings (what the executor does in general, core_test tries). Parts of very different
 * lengths: the longest of all may be the one that stays where it is, so that for most of its segments nothing moves.
 * Inputs that are scaled first and overwritten by the result: an abort brings them back as they were, for every plan,
 * and those of many tensors, too. Large inputs that are given up.
 */
#include "engine/exec.h"

#include <stdlib.h>
#include <string.h>

#include "channel/inbox.h"
#include "check.h"
#include "engine/piece.h"
#include "plan/plan.h"
#include "shared_cores.h"

enum { MEMBERS = 3, LONG = 50000, SHORT = 3, SEGMENT_BYTES = 1000 };

struct member {
    uint64_t counts[MEMBERS];
    int32_t *input, *output;
    pccl_operation *op;
};

static uint64_t length(uint32_t from, uint32_t to) { return from == to && from != 1 ? LONG : SHORT; }
static int32_t value(uint32_t from, uint32_t to, uint64_t i) {
    return (int32_t)(from * 1000000 + to * 100000 + i % 1000);
}

static void start(struct cores *c, uint32_t rank, uint32_t flags, struct member *member) {
    uint64_t total = 0, at = 0;
    for (uint32_t to = 0; to < MEMBERS; to++) total += member->counts[to] = length(rank, to);
    member->input = malloc(total * sizeof *member->input);
    member->output = calloc(total, sizeof *member->output);
    for (uint32_t to = 0; to < MEMBERS; to++)
        for (uint64_t i = 0; i < member->counts[to]; i++) member->input[at++] = value(rank, to, i);
    member->op = cores_start(c, rank,
                             (pccl_call){.collective = PCCL_ALL_TO_ALL,
                                         .dtype = PCCL_INT32,
                                         .flags = PCCL_UNEVEN | flags,
                                         .input = member->input,
                                         .output = member->output,
                                         .input_counts = member->counts,
                                         .output_counts = member->counts});
}

static void finish(uint32_t rank, struct member *member) {
    EXPECT(member->op->ended && member->op->status == PCCL_OK, "rank %u: %s", rank, member->op->text);
    uint64_t at = 0;
    for (uint32_t from = 0; from < MEMBERS; from++)
        for (uint64_t i = 0; i < member->counts[from]; i++, at++)
            EXPECT(member->output[at] == value(from, rank, i), "rank %u: element %u", rank, (unsigned)at);
    pccl__core_handle_free(member->op);
    free(member->input);
    free(member->output);
}

static void test_longest_part_stays(uint32_t flags) {
    struct pccl__core_options options = {
        .min_world_size = 2, .operation_timeout_ms = 5000, .stall_ms = 100, .segment_bytes = SEGMENT_BYTES};
    struct cores c;
    cores_make(&c, MEMBERS, &options);
    struct member members[MEMBERS];
    for (uint32_t rank = 0; rank < MEMBERS; rank++) start(&c, rank, flags, &members[rank]);
    EXPECT(members[0].op->segments > 10 * PCCL__WINDOW_SEGMENTS && members[1].op->segments == 1);
    cores_run(&c, 1000);
    for (uint32_t rank = 0; rank < MEMBERS; rank++) finish(rank, &members[rank]);
    cores_free(&c);
}

/* ---------------------------------------------------------------- scaled inputs */

enum { SCALED = 600, SURVIVORS = MEMBERS - 1 };

/* In place where that has a meaning; the last member dies before it has begun. */
static void test_scaled_input_survives(pccl_collective collective, pccl_algorithm algorithm, bool in_tensors) {
    struct pccl__core_options options = {
        .min_world_size = 2, .operation_timeout_ms = 5000, .stall_ms = 100, .segment_bytes = SEGMENT_BYTES};
    struct cores c;
    cores_make(&c, MEMBERS, &options);
    double memory[SURVIVORS][SCALED], before[SCALED];
    pccl_operation *ops[SURVIVORS];
    for (int i = 0; i < SCALED; i++) before[i] = i + 1;
    bool scatters = collective == PCCL_REDUCE_SCATTER;
    for (uint32_t rank = 0; rank < SURVIVORS; rank++) {
        size_t count = scatters ? SCALED / MEMBERS : SCALED;
        memcpy(memory[rank], before, sizeof before);
        pccl_tensor tensors[SCALED / 50];
        for (int i = 0; i < SCALED / 50; i++) /* the last one first */
            tensors[i].input = tensors[i].output = memory[rank] + SCALED - (i + 1) * 50, tensors[i].count = 50;
        ops[rank] = cores_start(&c, rank,
                                (pccl_call){.collective = collective,
                                            .dtype = PCCL_FLOAT64,
                                            .op = PCCL_PREMUL_SUM,
                                            .tensors = in_tensors ? tensors : NULL,
                                            .tensors_count = in_tensors ? SCALED / 50 : 0,
                                            .algorithm = algorithm,
                                            .count = count,
                                            .input = memory[rank],
                                            .output = memory[rank] + (scatters ? rank * count : 0),
                                            .factor = 3});
    }
    cores_run(&c, 1000);
    cores_kill(&c, SURVIVORS);
    cores_run(&c, 1000);
    cores_install(&c, NULL, 0, PCCL_PEER_LOST, "a member was lost");
    for (uint32_t rank = 0; rank < SURVIVORS; rank++) {
        EXPECT(ops[rank]->status == PCCL_PEER_LOST, "%s: %s", pccl_collective_name(collective), ops[rank]->text);
        EXPECT(memcmp(memory[rank], before, sizeof before) == 0, "%s by %s: input of rank %u is not what it was",
               pccl_collective_name(collective), pccl_algorithm_name(algorithm), rank);
        pccl__core_handle_free(ops[rank]);
    }
    cores_free(&c);
}

/* ---------------------------------------------------------------- large inputs that are given up */

enum { GIVEN_UP = 8 << 20 };

/* What others of the host have mapped is where its pieces are sent from, as those of an input that is kept are. */
static void test_given_up_input_is_lent(pccl_algorithm algorithm) {
    struct pccl__core_options options = {
        .min_world_size = 2, .operation_timeout_ms = 60000, .stall_ms = 60000, .lend_least = 1};
    struct cores c;
    cores_make(&c, 2, &options);
    float *memory[2];
    pccl_operation *ops[2];
    for (uint32_t rank = 0; rank < 2; rank++) {
        EXPECT((memory[rank] = malloc(GIVEN_UP * sizeof(float))));
        for (int i = 0; i < GIVEN_UP; i++) memory[rank][i] = (float)(i % 1000 + (int)rank);
        ops[rank] = cores_start(&c, rank,
                                (pccl_call){.collective = PCCL_ALL_REDUCE,
                                            .dtype = PCCL_FLOAT32,
                                            .algorithm = algorithm,
                                            .flags = PCCL_DISCARD_INPUT | PCCL_DEFERRED,
                                            .count = GIVEN_UP,
                                            .input = memory[rank],
                                            .output = memory[rank]});
        EXPECT(!ops[rank]->shadow && c.core[rank]->exec.lent_bytes > 0, "%s", pccl_algorithm_name(algorithm));
    }
    cores_run(&c, 10000);
    for (uint32_t rank = 0; rank < 2; rank++) {
        EXPECT(ops[rank]->ended && ops[rank]->status == PCCL_OK, "%s", ops[rank]->text);
        int wrong = 0;
        for (int i = 0; i < GIVEN_UP; i++) wrong += memory[rank][i] != (float)(2 * (i % 1000) + 1);
        EXPECT(wrong == 0, "%d wrong by %s", wrong, pccl_algorithm_name(algorithm));
        EXPECT(c.core[rank]->exec.lent_bytes == 0);
        pccl__core_handle_free(ops[rank]);
        free(memory[rank]);
    }
    cores_free(&c);
}

/* ---------------------------------------------------------------- a full window */

/* The window is a multiple of what one of them takes of it. */
enum { BEHIND = PCCL__EAGER_WINDOW / PCCL__EAGER_BYTES, ELEMENTS = (PCCL__EAGER_BYTES - PCCL__EAGER_OVERHEAD) / 4 };

struct full {
    struct cores cores;
    float memory[2][ELEMENTS], result[ELEMENTS];
    pccl_operation *behind[BEHIND], *both[2];
};

/* Member 0 has sent its part of an operation that both call, and then so much that member 1 does not want yet that it
 * may send no more unasked. Member 1 calls: it has all it needs, so its part and its last word come together, and
 * member 0 is done as soon as it hears them; but its own last word has to be offered first. */
static void fill_window(struct full *full) {
    struct cores *c = &full->cores;
    cores_make(c, 2, NULL);
    pccl_call call = {.collective = PCCL_ALL_REDUCE, .dtype = PCCL_FLOAT32, .algorithm = PCCL_DOUBLING};
    for (uint32_t member = 0; member < 2; member++) {
        call.tag = 1, call.count = ELEMENTS, call.input = call.output = full->memory[member];
        for (uint32_t i = 0; i < ELEMENTS; i++) full->memory[member][i] = (float)member + 1;
        full->both[member] = cores_start(c, member, call);
        cores_run(c, member == 0 ? 1000 : 0);
        call.input = full->result, call.output = full->result;
        for (uint32_t i = 0; member == 0 && i < BEHIND; i++) {
            call.tag = 100 + i;
            full->behind[i] = cores_start(c, 0, call);
        }
        if (member == 0) cores_run(c, 1000);
    }
}

static void end_full(struct full *full) {
    for (uint32_t member = 0; member < 2; member++) pccl__core_handle_free(full->both[member]);
    for (uint32_t i = 0; i < BEHIND; i++) pccl__core_handle_free(full->behind[i]);
    cores_free(&full->cores);
}

static void test_last_word_behind_a_full_window(void) {
    static struct full full;
    fill_window(&full);
    cores_run(&full.cores, 1000);
    for (uint32_t member = 0; member < 2; member++) {
        EXPECT(full.both[member]->ended && full.both[member]->status == PCCL_OK, "member %u waits", member);
        EXPECT(full.memory[member][ELEMENTS - 1] == 3 && full.both[member]->borrowed == 0);
    }
    end_full(&full);
}

/* The epoch stops before anybody has asked for it: it is taken back, as all else. */
static void test_last_word_of_a_stopped_epoch(void) {
    static struct full full;
    fill_window(&full);
    struct pccl__core *core = full.cores.core[0];
    pccl__sim_advance(full.cores.network, full.cores.now_ns);
    pccl__core_step(core, full.cores.now_ns);
    EXPECT(full.both[0]->ended && full.both[0]->status == PCCL_OK);
    const struct pccl__transfer *word = &full.both[0]->finish.transfer[0];
    word = word->is_send ? word : word + 1;
    EXPECT(full.both[0]->borrowed > 0 && word->state == PCCL__POSTED, "it owes its last word");
    pccl__core_freeze(core, PCCL_ABORTED, NULL, "the epoch ends");
    pccl__core_step(core, full.cores.now_ns);
    EXPECT(full.both[0]->borrowed == 0);
    end_full(&full);
}

/* ---------------------------------------------------------------- lengths that cannot be */

/* The last of a line says that it gathers more than anybody could count. Who passes it on goes on, and the root, which
 * expects something else, knows whom to name. The liar's link serves no operation. */
static void test_impossible_length(void) {
    static const uint64_t counts[MEMBERS] = {1, 2, 3};
    static const uint8_t told[PCCL__LENGTH_BYTES] = {255, 255, 255, 255, 255, 255, 255, 255};
    int32_t whole[6], own[2] = {0};
    struct cores c;
    cores_make(&c, MEMBERS, NULL);
    c.shape = PCCL_SHAPE_RING;
    cores_install(&c, NULL, 0, PCCL_OK, NULL);
    pccl_call call = {.collective = PCCL_GATHER, .dtype = PCCL_INT32, .flags = PCCL_UNEVEN, .output = whole};
    call.output_counts = counts;
    call.input = whole;
    pccl_operation *root = cores_start(&c, 0, call);
    call = (pccl_call){.collective = PCCL_GATHER, .dtype = PCCL_INT32, .flags = PCCL_UNEVEN, .count = 2, .input = own};
    pccl_operation *middle = cores_start(&c, 1, call);
    const struct pccl__schedule *schedule = middle->schedule;
    EXPECT(schedule->receives_count == 1 && middle->lengths_first, "%u", schedule->receives_count);
    const struct pccl__step *step = &schedule->plan.steps[schedule->receives[0]];
    struct pccl_operation nobody = {.state = PCCL__ENDED, .borrowed = 2}; /* never given back */
    struct pccl__transfer lie = {
        .key = {.epoch = c.epoch,
                .step = schedule->plan.once ? step->chunk : step->round * schedule->plan.chunks + step->chunk},
        .stamp = middle->stamp,
        .data = (void *)(uintptr_t)told,
        .owner = &nobody,
        .bytes = sizeof told};
    struct pccl__channel *link = c.core[2]->group.channels[1];
    EXPECT(link->ops->post_send(link, &lie) == PCCL_OK);
    cores_run(&c, 1000);
    EXPECT(middle->segments > 1000, "%u", middle->segments);
    pccl_operation *both[] = {root, middle};
    for (int i = 0; i < 2; i++) {
        EXPECT(both[i]->ended && both[i]->status == PCCL_MISMATCH, "%s", both[i]->text);
        EXPECT(strstr(both[i]->text, "rank 2 called gather(int32[18446744073709551615]"), "%s", both[i]->text);
        pccl__core_handle_free(both[i]);
    }
    cores_free(&c);
}

int main(void) {
    test_impossible_length();
    for (int c = 0; c < PCCL_COLLECTIVE_COUNT; c++)
        for (int a = 0; a < PCCL_ALGORITHM_COUNT && pccl__reduces((pccl_collective)c); a++)
            if (pccl__planner_find((pccl_collective)c, (pccl_algorithm)a))
                for (int many = 0; many <= (c == PCCL_ALL_REDUCE); many++)
                    test_scaled_input_survives((pccl_collective)c, (pccl_algorithm)a, many);
    test_given_up_input_is_lent(PCCL_RING);
    test_given_up_input_is_lent(PCCL_DIRECT);
    test_last_word_behind_a_full_window();
    test_last_word_of_a_stopped_epoch();
    test_longest_part_stays(0);
    test_longest_part_stays(PCCL_DEFERRED);
    FINISH();
}
