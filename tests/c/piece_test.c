/* SPDX-License-Identifier: MIT
 *
 * piece_test.c - segments cover each chunk exactly once, whatever its length; of private parts that pass through others
 * the lengths go first, those who pass them on cut as both ends do, and what is told is believed only as far as it can
 * be counted.
 */
#include "engine/piece.h"

#include <stdlib.h>

#include "base/bits.h"
#include "check.h"

enum { MEMBERS = 4, SEGMENT_BYTES = 40, ELEMENT_BYTES = 4, CHUNKS_MAX = MEMBERS * MEMBERS };

/* An all_to_all along a line, as one of its positions sees it. */
struct member {
    struct pccl_operation op;
    struct pccl__schedule *schedule;
    uint64_t input_begins[MEMBERS + 1], output_begins[MEMBERS + 1];
    uint8_t lengths[CHUNKS_MAX * PCCL__LENGTH_BYTES];
};

static uint64_t length(uint32_t from, uint32_t to) { return from == to ? 500 : (from * 7 + to * 13) % 31; }

static void make(struct member *member, uint32_t rank, pccl_algorithm algorithm, pccl_shape kind) {
    static struct pccl__shape shape;
    EXPECT(pccl__shape_init(&shape, kind, MEMBERS, NULL) == PCCL_OK);
    const struct pccl__planner *planner = pccl__planner_find(PCCL_ALL_TO_ALL, algorithm);
    *member = (struct member){.op = {.call = {.collective = PCCL_ALL_TO_ALL, .dtype = PCCL_INT32},
                                     .element_bytes = ELEMENT_BYTES,
                                     .lengths_first = !(planner->traits & PCCL__STRAIGHT)}};
    EXPECT(pccl__schedule_new(planner, rank, &shape, 0, &member->schedule) == PCCL_OK);
    for (uint32_t r = 0; r < MEMBERS; r++) {
        member->input_begins[r + 1] = member->input_begins[r] + length(rank, r);
        member->output_begins[r + 1] = member->output_begins[r] + length(r, rank);
    }
    member->op.layout = (struct pccl__layout){.collective = PCCL_ALL_TO_ALL,
                                              .size = MEMBERS,
                                              .rank = rank,
                                              .position = rank,
                                              .chunks = member->schedule->plan.chunks,
                                              .uneven = true,
                                              .input_begins = member->input_begins,
                                              .output_begins = member->output_begins};
    member->op.schedule = member->schedule;
    member->op.lengths = member->lengths;
    EXPECT(pccl__pieces_cut(&member->op, SEGMENT_BYTES, false) == PCCL_OK);
    pccl__lengths_begin(&member->op);
    pccl__shape_free(&shape);
}

static void tell(struct member *member, uint32_t chunk, uint64_t elements) {
    put_u64(pccl__length_at(&member->op, chunk), elements);
}

static bool passes(const struct member *member, uint32_t chunk) {
    for (uint32_t i = 0; i < member->schedule->plan.steps_count; i++)
        if (member->schedule->plan.steps[i].chunk == chunk) return true;
    return false;
}

/* From segment `first` on. */
static void expect_covered(const struct member *member, uint32_t chunk, uint32_t first, uint64_t elements) {
    uint64_t covered = 0;
    uint32_t moving = 0;
    for (uint32_t segment = first; segment < member->op.segments; segment++) {
        struct pccl__piece piece = pccl__piece_of(&member->op, chunk, segment);
        struct pccl__place place = pccl__layout_place(&member->op.layout, chunk);
        EXPECT(piece.bytes == piece.place.elements * ELEMENT_BYTES && piece.bytes <= SEGMENT_BYTES);
        EXPECT(place.input == PCCL__NOWHERE || piece.place.input == place.input + covered);
        EXPECT(place.result == PCCL__NOWHERE || piece.place.result == place.result + covered);
        EXPECT(!piece.is_length && (piece.moves || piece.bytes == 0));
        covered += piece.place.elements;
        moving += piece.moves;
    }
    EXPECT(covered == elements, "chunk %u: %u of %u", chunk, (unsigned)covered, (unsigned)elements);
    EXPECT(moving == pccl__pieces_of(&member->op, chunk), "chunk %u: %u move", chunk, moving);
}

static void test_straight(void) {
    for (uint32_t rank = 0; rank < MEMBERS; rank++) {
        struct member member;
        make(&member, rank, PCCL_PAIRWISE, PCCL_SHAPE_FULL);
        EXPECT(pccl__lengths_bytes(&member.op) == 0);
        for (uint32_t chunk = 0; chunk < CHUNKS_MAX; chunk++)
            if (passes(&member, chunk)) expect_covered(&member, chunk, 0, length(chunk / MEMBERS, chunk % MEMBERS));
        pccl__schedule_free(member.schedule);
    }
}

static void test_lengths_first(void) {
    for (uint32_t rank = 0; rank < MEMBERS; rank++) {
        struct member member;
        make(&member, rank, PCCL_LINE, PCCL_SHAPE_RING);
        EXPECT(pccl__lengths_bytes(&member.op) == sizeof member.lengths && member.op.segments == 1);
        for (uint32_t chunk = 0; chunk < CHUNKS_MAX; chunk++) {
            struct pccl__piece piece = pccl__piece_of(&member.op, chunk, 0);
            EXPECT(piece.is_length && piece.moves && piece.bytes == PCCL__LENGTH_BYTES);
            EXPECT(pccl__piece_input(&member.op, piece) == pccl__length_at(&member.op, chunk));
            uint32_t from = chunk / MEMBERS, to = chunk % MEMBERS;
            if (from == rank) {
                EXPECT(pccl__length_of(&member.op, chunk) == length(from, to));
                continue;
            }
            tell(&member, chunk, length(from, to) + 1);
            EXPECT(pccl__length_fits(&member.op, chunk) == (to != rank));
            tell(&member, chunk, length(from, to));
            EXPECT(pccl__length_fits(&member.op, chunk));
        }
        pccl__lengths_end(&member.op);
        for (uint32_t chunk = 0; chunk < CHUNKS_MAX; chunk++)
            if (passes(&member, chunk)) expect_covered(&member, chunk, 1, length(chunk / MEMBERS, chunk % MEMBERS));
        EXPECT(member.op.segments == 1 + 30 * ELEMENT_BYTES / SEGMENT_BYTES, "%u", member.op.segments);
        pccl__schedule_free(member.schedule);
    }
}

/* All of them together can be counted, too. */
static void test_impossible_lengths(void) {
    struct member member;
    make(&member, 1, PCCL_LINE, PCCL_SHAPE_RING);
    const struct pccl__schedule *schedule = member.schedule;
    for (uint32_t chunk = 0; chunk < CHUNKS_MAX; chunk++) tell(&member, chunk, UINT64_MAX - chunk);
    pccl__lengths_end(&member.op);
    EXPECT(member.op.segments > 1000);
    uint64_t receives = 0;
    for (uint32_t i = 0; i < schedule->receives_count; i++)
        receives += pccl__pieces_of(&member.op, schedule->plan.steps[schedule->receives[i]].chunk);
    EXPECT(receives > member.op.segments && receives < UINT32_MAX);
    EXPECT(pccl__piece_of(&member.op, 2, member.op.segments - 1).bytes == SEGMENT_BYTES);
    EXPECT(!pccl__piece_of(&member.op, 2, member.op.segments).moves);
    pccl__schedule_free(member.schedule);
}

/* ---------------------------------------------------------------- the usual length */

/* How an all_reduce whose longest chunk has so many bytes is cut. */
static void expect_cut(uint64_t chunk_bytes, bool crowded, uint32_t segments, uint64_t segment_bytes) {
    struct pccl__schedule schedule = {.plan = {.chunks = MEMBERS, .steps_count = 1}};
    struct pccl_operation op = {.call = {.collective = PCCL_ALL_REDUCE, .dtype = PCCL_INT32},
                                .element_bytes = ELEMENT_BYTES,
                                .schedule = &schedule,
                                .layout = {.collective = PCCL_ALL_REDUCE,
                                           .size = MEMBERS,
                                           .chunks = MEMBERS,
                                           .count = MEMBERS * chunk_bytes / ELEMENT_BYTES}};
    EXPECT(pccl__pieces_cut(&op, 0, crowded) == PCCL_OK);
    EXPECT(op.segments == segments && op.segment_elements * ELEMENT_BYTES == segment_bytes,
           "%u of %llu bytes for a chunk of %llu", op.segments, (unsigned long long)op.segment_elements * ELEMENT_BYTES,
           (unsigned long long)chunk_bytes);
}

/* In four, of 64 to 256 KiB; where cores are shared in as few of 256 KiB as there can be. */
static void test_usual_segments(void) {
    enum { KIB = 1024 };
    expect_cut(16 * KIB, false, 1, 64 * KIB);
    expect_cut(16 * KIB, true, 1, 64 * KIB);
    expect_cut(128 * KIB, false, 2, 64 * KIB);
    expect_cut(128 * KIB, true, 1, 128 * KIB);
    expect_cut(256 * KIB, false, 4, 64 * KIB);
    expect_cut(256 * KIB, true, 1, 256 * KIB);
    expect_cut(512 * KIB, false, 4, 128 * KIB);
    expect_cut(512 * KIB, true, 2, 256 * KIB);
    expect_cut(4096 * KIB, false, 16, 256 * KIB);
    expect_cut(4096 * KIB, true, 16, 256 * KIB);
}

int main(void) {
    test_usual_segments();
    test_straight();
    test_lengths_first();
    test_impossible_lengths();
    FINISH();
}
