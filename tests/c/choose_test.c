/* SPDX-License-Identifier: MIT
 *
 * choose_test.c - which planner runs: from few rounds to few bytes as vectors grow, never over links that are not
 * there, and said in words.
 */
#include <string.h>

#include "check.h"
#include "plan/plan.h"

enum { SIZES = 64 };

/* Both for one collective, both fit the shape; who works by host is only asked where there are several, and who sends
 * to everyone at once where there is one. */
static bool rivals(const struct pccl__planner *other, const struct pccl__planner *chosen,
                   const struct pccl__shape *shape) {
    if (other->collective != chosen->collective || !pccl__planner_fits(other, shape, 0)) return false;
    if (other->traits & PCCL__AT_ONCE) return shape->hosts == 1;
    return !(other->traits & PCCL__BY_HOST) || (shape->hosts > 1 && shape->host_most > 1);
}

static double start_ns(const struct pccl__planner *planner, const struct pccl__shape *shape,
                       struct pccl__link_model link) {
    struct pccl__work work = planner->work(shape);
    return work.rounds * link.latency_ns + work.transfers * link.overhead_ns;
}

static const struct pccl__planner *choose(pccl_collective collective, const struct pccl__shape *shape, uint64_t bytes,
                                          uint8_t needed, struct pccl__link_models links) {
    struct pccl__offers offers;
    pccl__offers_make(&offers, shape, links);
    return pccl__planner_choose(&offers, collective, bytes, needed);
}

static struct pccl__link_models alike(struct pccl__link_model link) {
    return (struct pccl__link_models){.inside = link, .between = link};
}

static void expect_least_start(const struct pccl__planner *chosen, const struct pccl__shape *shape,
                               struct pccl__link_model link) {
    const struct pccl__planner *other;
    for (size_t i = 0; (other = pccl__planner_at(i)); i++)
        if (rivals(other, chosen, shape))
            EXPECT(start_ns(chosen, shape, link) <= 1.06 * start_ns(other, shape, link), "size %u: %s is earlier",
                   shape->size, pccl_algorithm_name(other->algorithm));
}

static void expect_least_volume(const struct pccl__planner *chosen, const struct pccl__shape *shape) {
    const struct pccl__planner *other;
    for (size_t i = 0; (other = pccl__planner_at(i)); i++)
        if (rivals(other, chosen, shape))
            EXPECT(chosen->work(shape).volume <= other->work(shape).volume, "size %u: %s has less", shape->size,
                   pccl_algorithm_name(other->algorithm));
}

/* From small to large vectors the choice goes from few rounds to few bytes, and never back. */
static void expect_no_way_back(pccl_collective collective) {
    static const struct pccl__link_model links[] = {{20e3, 1e3, 5.0}, {10e6, 5e3, 0.01}, {300.0, 80.0, 20.0}};
    for (size_t l = 0; l < 3; l++) {
        for (uint32_t size = 2; size <= 256; size++) {
            const struct pccl__shape shape = {.kind = PCCL_SHAPE_FULL, .size = size};
            const struct pccl__planner *last = NULL;
            struct pccl__offers offers;
            pccl__offers_make(&offers, &shape, alike(links[l]));
            for (uint32_t bit = 0; bit <= 44; bit++) {
                const struct pccl__planner *planner = pccl__planner_choose(&offers, collective, UINT64_C(1) << bit, 0);
                EXPECT(planner && planner->collective == collective);
                EXPECT(!last || planner->work(&shape).volume <= last->work(&shape).volume,
                       "size %u, 2^%u bytes: back to %s", size, bit, pccl_algorithm_name(planner->algorithm));
                if (bit == 0) expect_least_start(planner, &shape, links[l]);
                last = planner;
            }
            expect_least_volume(last, &shape);
        }
    }
}

static void forced_and_unknown(void) {
    const struct pccl__planner *planner;
    for (size_t i = 0; (planner = pccl__planner_at(i)); i++)
        EXPECT(pccl__planner_find(planner->collective, planner->algorithm) == planner, "two lines for one name");
    EXPECT(pccl__planner_find(PCCL_ALL_REDUCE, PCCL_CHAIN) == NULL);
    EXPECT(pccl__planner_find(PCCL_BROADCAST, PCCL_RING) == NULL);
    EXPECT(pccl__planner_find(PCCL_ALL_REDUCE, PCCL_AUTO) == NULL);
    const struct pccl__link_models link = alike((struct pccl__link_model){20e3, 1e3, 5.0});
    const struct pccl__shape shape = {.kind = PCCL_SHAPE_FULL, .size = 4};
    EXPECT(choose(PCCL_COLLECTIVE_COUNT, &shape, 1, 0, link) == NULL);
}

/* Whatever the sizes, the choice keeps to the shape. */
static void keeps_to_the_shape(void) {
    const struct pccl__link_models link = alike((struct pccl__link_model){20e3, 1e3, 5.0});
    for (uint32_t size = 1; size <= SIZES; size++) {
        struct pccl__shape shapes[PCCL_SHAPE_COUNT] = {{0}};
        uint32_t parents[SIZES] = {0};
        for (int kind = 0; kind < PCCL_SHAPE_COUNT; kind++) {
            EXPECT(pccl__shape_init(&shapes[kind], (pccl_shape)kind, size, parents) == PCCL_OK);
            for (int collective = 0; collective < PCCL_COLLECTIVE_COUNT; collective++) {
                if (collective == PCCL_COMMIT) continue;                          /* a barrier for the data plane */
                if (collective == PCCL_SEND || collective == PCCL_RECV) continue; /* there is but one way */
                for (uint32_t bit = 0; bit <= 44; bit += 4) {
                    const struct pccl__planner *planner =
                        choose((pccl_collective)collective, &shapes[kind], UINT64_C(1) << bit, 0, link);
                    EXPECT(planner && pccl__planner_fits(planner, &shapes[kind], 0));
                }
            }
        }
        pccl__shape_free(&shapes[PCCL_SHAPE_TREE]);
    }
}

static bool is_by_host(const struct pccl__planner *planner) { return planner->traits & PCCL__BY_HOST; }

/* By host where links between hosts are slow and each has many members; never where nobody shares one, or all do. */
static void by_host(void) {
    static const pccl_collective collectives[] = {PCCL_ALL_REDUCE, PCCL_REDUCE_SCATTER, PCCL_ALL_GATHER,
                                                  PCCL_BROADCAST,  PCCL_REDUCE,         PCCL_BARRIER};
    const struct pccl__link_models links = {.inside = {15e3, 1500, 2.0}, .between = {250e3, 3e3, 0.1}};
    bool chosen[PCCL_COLLECTIVE_COUNT][PCCL_ALGORITHM_COUNT] = {{false}};
    for (uint32_t hosts = 1; hosts <= 8; hosts++) {
        for (uint32_t members = 1; members <= 8; members++) {
            struct pccl__shape shape = {0};
            uint64_t ids[SIZES];
            for (uint32_t p = 0; p < hosts * members; p++) ids[p] = p / members;
            EXPECT(pccl__shape_init(&shape, PCCL_SHAPE_FULL, hosts * members, NULL) == PCCL_OK);
            EXPECT(pccl__shape_set_hosts(&shape, ids) == PCCL_OK && shape.hosts == hosts);
            bool shares = hosts > 1 && members > 1;
            struct pccl__offers offers;
            pccl__offers_make(&offers, &shape, links);
            for (size_t i = 0; i < sizeof collectives / sizeof *collectives; i++) {
                for (uint32_t bit = 0; bit <= 44; bit++) {
                    const struct pccl__planner *planner =
                        pccl__planner_choose(&offers, collectives[i], UINT64_C(1) << bit, 0);
                    EXPECT(shares || !is_by_host(planner), "%u hosts of %u", hosts, members);
                    bool many = bit > 34 && collectives[i] == PCCL_ALL_REDUCE;
                    /* 2(H-1)/H of the vector leave each host, on a flat ring 2(n-1)/n. */
                    if (shares && (many || collectives[i] == PCCL_BARRIER))
                        EXPECT(is_by_host(planner), "%s, %u hosts of %u, 2^%u bytes: %s",
                               pccl_collective_name(collectives[i]), hosts, members, bit,
                               pccl_algorithm_name(planner->algorithm));
                    chosen[planner->collective][planner->algorithm] = true;
                }
            }
            pccl__shape_free(&shape);
        }
    }
    const struct pccl__planner *planner;
    for (size_t i = 0; (planner = pccl__planner_at(i)); i++)
        if (planner->inside)
            EXPECT(chosen[planner->collective][planner->algorithm], "%s by %s is never worth it",
                   pccl_collective_name(planner->collective), pccl_algorithm_name(planner->algorithm));
}

/* Among those who share a host two rounds do, but for few bytes (as little to handle as can be).
 * Where hosts are several, or nothing is known of them, not all send at once, nor where links are missing. */
static void at_once(void) {
    const struct pccl__link_models links = alike((struct pccl__link_model){15e3, 1500, 2.0});
    static const uint64_t ids[2][4] = {{1, 1, 1, 1}, {1, 2, 3, 4}};
    for (int spread = 0; spread < 3; spread++) {
        for (int kind = PCCL_SHAPE_FULL; kind <= PCCL_SHAPE_RING; kind++) {
            struct pccl__shape shape = {0};
            EXPECT(pccl__shape_init(&shape, (pccl_shape)kind, 4, NULL) == PCCL_OK);
            if (spread < 2) EXPECT(pccl__shape_set_hosts(&shape, ids[spread]) == PCCL_OK);
            for (uint32_t bit = 0; bit <= 44; bit++) {
                const struct pccl__planner *planner = choose(PCCL_ALL_REDUCE, &shape, UINT64_C(1) << bit, 0, links);
                bool wanted = spread == 0 && kind == PCCL_SHAPE_FULL && bit >= 14;
                EXPECT((planner->algorithm == PCCL_DIRECT) == wanted, "spread %d, kind %d, 2^%u bytes: %s", spread,
                       kind, bit, pccl_algorithm_name(planner->algorithm));
            }
            pccl__shape_free(&shape);
        }
    }
}

/* Who needs a fixed order gets one of those that have it, or nothing where links are missing. */
static void fixed_order(void) {
    const struct pccl__link_models link = alike((struct pccl__link_model){20e3, 1e3, 5.0});
    static const pccl_collective reducing[] = {PCCL_ALL_REDUCE, PCCL_REDUCE, PCCL_REDUCE_SCATTER, PCCL_SCAN,
                                               PCCL_EXSCAN};
    for (uint32_t size = 1; size <= SIZES; size++) {
        for (uint32_t bit = 0; bit <= 44; bit += 4) {
            for (size_t i = 0; i < sizeof reducing / sizeof *reducing; i++) {
                struct pccl__shape shape = {.kind = PCCL_SHAPE_FULL, .size = size};
                const struct pccl__planner *planner =
                    choose(reducing[i], &shape, UINT64_C(1) << bit, PCCL__FIXED_ORDER, link);
                EXPECT(planner && planner->traits & PCCL__FIXED_ORDER);
                shape.kind = PCCL_SHAPE_RING;
                EXPECT(!choose(reducing[i], &shape, 1, PCCL__FIXED_ORDER, link));
            }
        }
    }
}

static void explain(const struct pccl__shape *shape, pccl_collective collective, uint64_t bytes,
                    struct pccl__link_models links, char *text, size_t text_bytes) {
    struct pccl__offers offers;
    pccl__offers_make(&offers, shape, links);
    const struct pccl__planner *planner = pccl__planner_choose(&offers, collective, bytes, 0);
    pccl__planner_explain(&offers, planner, shape, bytes, 0, text, text_bytes);
}

static void says_why(void) {
    const struct pccl__link_models link = alike((struct pccl__link_model){20e3, 1e3, 5.0});
    char why[300];
    const struct pccl__shape four = {.kind = PCCL_SHAPE_FULL, .size = 4}, five = {.kind = PCCL_SHAPE_FULL, .size = 5};
    explain(&four, PCCL_ALL_REDUCE, 64 << 20, link, why, sizeof why);
    EXPECT(strcmp(why, "ring: 20.3 ms (6 rounds, 1.50 times 67108864 bytes); halving: 20.2 ms; doubling: 26.9 ms; "
                       "star: 40.3 ms") == 0,
           "%s", why);
    explain(&five, PCCL_BARRIER, 0, link, why, sizeof why);
    EXPECT(strncmp(why, "dissemination: 63 us (3 rounds", 30) == 0, "%s", why);
    for (size_t bytes = 1; bytes < sizeof why; bytes++) {
        memset(why, 'x', sizeof why);
        explain(&four, PCCL_ALL_REDUCE, 64, link, why, bytes);
        EXPECT(memchr(why, '\0', bytes) && (bytes == sizeof why || why[bytes] == 'x'));
    }
}

/* Who asks for it by name gets it where it pays nothing, too, and is told what it takes. */
static void says_what_it_takes_off_offer(void) {
    const struct pccl__link_models link = alike((struct pccl__link_model){20e3, 1e3, 5.0});
    const struct pccl__shape four = {
        .kind = PCCL_SHAPE_FULL, .size = 4, .host_least = 4, .host_most = 4}; /* nothing is known of hosts */
    struct pccl__offers offers;
    char text[300];
    pccl__offers_make(&offers, &four, link);
    pccl__planner_explain(&offers, pccl__planner_find(PCCL_ALL_REDUCE, PCCL_HIERARCHICAL), &four, 1000, 0, text,
                          sizeof text);
    EXPECT(strncmp(text,
                   "hierarchical: 46.3 us (0 rounds, 0.00 times 1000 bytes between hosts; 2 rounds, 1.50 times "
                   "within); ring: ",
                   106) == 0,
           "%s", text);
}

static void names(void) {
    EXPECT(strcmp(pccl_collective_name(PCCL_ALL_REDUCE), "all_reduce") == 0);
    EXPECT(strcmp(pccl_algorithm_name(PCCL_DISSEMINATION), "dissemination") == 0);
    for (int i = 0; i < PCCL_COLLECTIVE_COUNT; i++) EXPECT(strcmp(pccl_collective_name((pccl_collective)i), "?") != 0);
    for (int i = 0; i < PCCL_ALGORITHM_COUNT; i++) EXPECT(strcmp(pccl_algorithm_name((pccl_algorithm)i), "?") != 0);
    EXPECT(strcmp(pccl_collective_name(PCCL_COLLECTIVE_COUNT), "?") == 0);
    EXPECT(strcmp(pccl_algorithm_name((pccl_algorithm)-1), "?") == 0);
}

int main(void) {
    for (int i = 0; i < PCCL_SEND; i++)
        if (i != PCCL_BARRIER && i != PCCL_COMMIT) expect_no_way_back((pccl_collective)i);
    forced_and_unknown();
    by_host();
    at_once();
    fixed_order();
    says_why();
    says_what_it_takes_off_offer();
    keeps_to_the_shape();
    names();
    FINISH();
}
