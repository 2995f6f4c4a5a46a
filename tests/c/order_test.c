/* SPDX-License-Identifier: MIT
 *
 * order_test.c - deterministic calls: terms that cancel, so that each order of adding them up gives another sum, give
 * the same bits whatever collective, algorithm, root, count, segments and ring order; and who asks for what cannot be
 * deterministic is told.
 */
#include <string.h>

#include "check.h"
#include "shared_cores.h"

enum { COUNT = 1000, MEMBERS_MAX = 4 };

static float input[MEMBERS_MAX][MEMBERS_MAX * COUNT], output[MEMBERS_MAX][MEMBERS_MAX * COUNT];

/* Of every member, every one of 24 orders of four terms stands somewhere. */
static float term(uint32_t rank, uint64_t i) {
    static const float terms[] = {1e8F, 1.0F, -1e8F, 3.25F};
    uint64_t order = i % 24;
    uint32_t left[] = {0, 1, 2, 3}, chosen = 0;
    for (uint32_t r = 0; r <= rank; r++) {
        uint32_t pick = (uint32_t)(order % (4 - r));
        order /= 4 - r;
        chosen = left[pick];
        for (uint32_t k = pick; k + 1 < 4 - r; k++) left[k] = left[k + 1];
    }
    return terms[chosen];
}

/* The tree of recursive doubling: the first two of three are a pair; of four each two, then those. */
static float expected(uint32_t size, uint64_t i) {
    float low = term(0, i) + term(1, i);
    if (size == 2) return low;
    return size == 3 ? low + term(2, i) : low + (term(2, i) + term(3, i));
}

static pccl_call call_of(pccl_collective collective, pccl_algorithm algorithm, uint64_t count, uint32_t root,
                         uint32_t rank) {
    return (pccl_call){.collective = collective,
                       .dtype = PCCL_FLOAT32,
                       .algorithm = algorithm,
                       .root = root,
                       .flags = PCCL_DETERMINISTIC,
                       .count = count,
                       .input = input[rank],
                       .output = output[rank]};
}

static bool has_result(const pccl_call *call, uint32_t rank) {
    return call->collective != PCCL_REDUCE || rank == call->root;
}

static void run(struct cores *c, pccl_collective collective, pccl_algorithm algorithm, uint64_t count, uint32_t root) {
    pccl_operation *op[MEMBERS_MAX];
    for (uint32_t rank = 0; rank < c->size; rank++) {
        for (uint64_t i = 0; i < MEMBERS_MAX * COUNT; i++) input[rank][i] = term(rank, i);
        op[rank] = cores_start(c, rank, call_of(collective, algorithm, count, root, rank));
    }
    cores_run(c, 20000);
    for (uint32_t rank = 0; rank < c->size; rank++) {
        EXPECT(op[rank]->ended && op[rank]->status == PCCL_OK, "%s", op[rank]->text);
        uint64_t first = collective == PCCL_REDUCE_SCATTER ? rank * count : 0;
        for (uint64_t i = 0; i < count && has_result(&op[rank]->call, rank); i++) {
            float want = expected(c->size, first + i);
            EXPECT(memcmp(&output[rank][i], &want, sizeof want) == 0, "%s by %s, %u members, element %u: %g not %g",
                   pccl_collective_name(collective), pccl_algorithm_name(op[rank]->info.algorithm), c->size,
                   (unsigned)i, (double)output[rank][i], (double)want);
        }
        pccl__core_handle_free(op[rank]);
    }
}

static void run_all(struct cores *c) {
    static const uint64_t counts[] = {1, 7, COUNT};
    const struct pccl__planner *planner;
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        for (size_t i = 0; (planner = pccl__planner_at(i)); i++) {
            pccl_collective collective = planner->collective;
            if (!(planner->traits & PCCL__FIXED_ORDER) || collective >= PCCL_SCAN) continue;
            for (uint32_t root = 0; root < (collective == PCCL_REDUCE ? c->size : 1); root++) {
                run(c, collective, planner->algorithm, counts[k], root);
                run(c, collective, PCCL_AUTO, counts[k], root);
            }
        }
    }
}

/* Orders in which the sums that a plain ring gives differ. */
static void same_bits_on_every_ring(uint32_t size) {
    static const uint32_t rings[][MEMBERS_MAX] = {{0, 1, 2, 3}, {2, 0, 1, 3}, {1, 2, 0, 3},
                                                  {1, 0, 3, 2}, {0, 3, 1, 2}, {3, 2, 1, 0}};
    struct pccl__core_options options = {.min_world_size = 2, .operation_timeout_ms = 5000, .stall_ms = 100};
    for (uint32_t i = 0; i < 6; i++) {
        bool fits = true;
        for (uint32_t p = 0; p < size; p++) fits = fits && rings[i][p] < size;
        if (!fits) continue;
        options.segment_bytes = i % 2 ? 100 : 0;
        struct cores c;
        cores_make(&c, size, &options);
        c.ring = rings[i];
        cores_install(&c, NULL, 0, PCCL_OK, NULL);
        run_all(&c);
        cores_free(&c);
    }
}

static void expect_refusal(struct cores *c, pccl_collective collective, pccl_algorithm algorithm, const char *text) {
    pccl_call call = call_of(collective, algorithm, 1, 0, 0);
    pccl_operation *op = NULL;
    pccl_error error = {.message = ""};
    EXPECT(pccl__core_start(c->core[0], &call, c->now_ns, &op, &error) == PCCL_INVALID, "%s", error.message);
    EXPECT(op == NULL && strstr(error.message, text), "%s", error.message);
}

static void test_refusals(void) {
    struct cores c;
    cores_make(&c, 3, NULL);
    expect_refusal(&c, PCCL_ALL_REDUCE, PCCL_RING, "all_reduce by ring is not deterministic");
    expect_refusal(&c, PCCL_SCAN, PCCL_DOUBLING, "scan by doubling is not deterministic");
    expect_refusal(&c, PCCL_BROADCAST, PCCL_AUTO, "reduces nothing");
    c.shape = PCCL_SHAPE_RING;
    cores_install(&c, NULL, 0, PCCL_OK, NULL);
    pccl_call call = call_of(PCCL_ALL_REDUCE, PCCL_AUTO, 1, 0, 0);
    pccl_operation *op = cores_start(&c, 0, call);
    EXPECT(op->ended && op->status == PCCL_UNSUPPORTED && strstr(op->text, "links that are down"), "%s", op->text);
    pccl__core_handle_free(op);
    char text[200];
    pccl_error error = {.message = ""};
    EXPECT(pccl__core_explain(c.core[0], &call, 0, text, sizeof text, &error) == PCCL_UNSUPPORTED, "%s", error.message);
    cores_free(&c);
}

static void test_all_or_none(void) {
    struct cores c;
    cores_make(&c, 3, NULL);
    pccl_operation *op[3];
    for (uint32_t rank = 0; rank < 3; rank++) {
        pccl_call call = call_of(PCCL_ALL_REDUCE, PCCL_DOUBLING, 1, 0, rank);
        if (rank == 1) call.flags = 0;
        op[rank] = cores_start(&c, rank, call);
    }
    cores_run(&c, 400000);
    for (uint32_t rank = 0; rank < 3; rank++) {
        EXPECT(op[rank]->ended && op[rank]->status == PCCL_MISMATCH, "%s", op[rank]->text);
        EXPECT(strstr(op[rank]->text, "algorithm=doubling, deterministic)"), "%s", op[rank]->text);
        pccl__core_handle_free(op[rank]);
    }
    cores_free(&c);
}

int main(void) {
    for (uint32_t size = 2; size <= MEMBERS_MAX; size++) same_bits_on_every_ring(size);
    test_refusals();
    test_all_or_none();
    FINISH();
}
