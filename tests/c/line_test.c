/* SPDX-License-Identifier: MIT
 *
 * line_test.c - whose turn it is: each rule of line.h by itself, then random lines held to the rules that follow from
 * them: the order within an operation, urgent ones first, shares of the link.
 */
#include "channel/line.h"

#include <string.h>

#include "base/prng.h"
#include "check.h"

enum { SEGMENT = 256 * 1024, SMALL = 1024 };

struct sender {
    struct pccl__ticket ticket;
    uint32_t operation, number;
    uint64_t left;
};

static struct pccl__line line;

static struct sender sender_of(uint32_t operation, uint32_t number, uint64_t bytes) {
    struct sender sender = {.operation = operation, .number = number, .left = bytes};
    return sender;
}

static void stand(struct sender *sender, int priority, bool small) {
    struct pccl__key key = {.epoch = 1, .tag = sender->operation, .sequence = 7, .step = sender->number};
    pccl__ticket_init(&sender->ticket);
    pccl__line_add(&line, &sender->ticket, &key, priority, small);
}

static void add(struct sender *sender, struct sender as, int priority, bool small) {
    *sender = as;
    stand(sender, priority, small);
}

static struct sender *next(void) {
    struct pccl__ticket *ticket = pccl__line_next(&line);
    return ticket ? LIST_ENTRY(ticket, struct sender, ticket) : NULL;
}

/* The whole of whoever's turn it is; its operation and number in one. UINT32_MAX: nobody's. */
static uint32_t go(void) {
    struct sender *sender = next();
    if (!sender) return UINT32_MAX;
    pccl__line_went(&line, &sender->ticket, sender->left, true);
    return sender->operation * 100 + sender->number;
}

static void expect_order(const uint32_t *order, int count) {
    for (int i = 0; i < count; i++) {
        uint32_t got = go();
        EXPECT(got == order[i], "at %d: %u instead of %u", i, got, order[i]);
    }
    EXPECT(go() == UINT32_MAX && line.waiting == 0);
}
#define EXPECT_ORDER(...) expect_order((const uint32_t[]){__VA_ARGS__}, sizeof((uint32_t[]){__VA_ARGS__}) / 4)

/* ---------------------------------------------------------------- one rule each */

static void operations_take_turns(void) {
    struct sender a[4], b[2], c[1];
    for (uint32_t i = 0; i < 4; i++) add(&a[i], sender_of(1, i, SEGMENT), 0, false);
    for (uint32_t i = 0; i < 2; i++) add(&b[i], sender_of(2, i, SEGMENT), 0, false);
    add(&c[0], sender_of(3, 0, SEGMENT), 0, false);
    EXPECT_ORDER(100, 200, 300, 101, 201, 102, 103);
}

static void urgent_goes_first_in_the_middle_of_a_large_one(void) {
    struct sender bulk = sender_of(1, 0, 4 * SEGMENT), urgent = sender_of(2, 0, SMALL), last = sender_of(3, 0, SMALL);
    stand(&last, -1, true);
    stand(&bulk, 0, false);
    EXPECT(next() == &bulk);
    pccl__line_went(&line, &bulk.ticket, SEGMENT, false);
    EXPECT(next() == &bulk, "it keeps its turn");
    stand(&urgent, 1, true);
    EXPECT_ORDER(200, 100, 300);
}

static void small_goes_first_but_not_for_ever(void) {
    struct sender bulk = sender_of(1, 0, SEGMENT), small[2 * PCCL__LINE_SMALL_BYTES / SMALL];
    uint32_t count = sizeof small / sizeof *small, before = 0;
    stand(&bulk, 0, false);
    for (uint32_t i = 0; i < count; i++) add(&small[i], sender_of(2 + i, 0, SMALL), 0, true);
    while (next() != &bulk) EXPECT(go() == 100 * (2 + before++));
    EXPECT(before == PCCL__LINE_SMALL_BYTES / SMALL, "after %u small ones", before);
    EXPECT(go() == 100);
    while (go() != UINT32_MAX) before++;
    EXPECT(before == count);
}

static void who_is_passed_goes_some_time(void) {
    struct sender low = sender_of(1, 0, SEGMENT), lowest = sender_of(2, 0, SEGMENT), high[2];
    uint64_t passed = 0;
    uint32_t turns[3] = {0};
    stand(&low, -1, false);
    stand(&lowest, PCCL_PRIORITY_MIN, false);
    for (uint32_t i = 0; i < 2; i++) add(&high[i], sender_of(3, i, SEGMENT), PCCL_PRIORITY_MAX, false);
    for (uint32_t i = 0; passed < 40 * PCCL__LINE_PASSED_BYTES; i++) { /* everybody is back at once */
        struct sender *sender = next();
        turns[sender == &low ? 1 : sender == &lowest ? 2 : 0]++;
        if (sender != &low && sender != &lowest) passed += SEGMENT;
        pccl__line_went(&line, &sender->ticket, SEGMENT, true);
        stand(sender, sender == &low ? -1 : sender == &lowest ? PCCL_PRIORITY_MIN : PCCL_PRIORITY_MAX, false);
    }
    EXPECT(turns[1] >= 39 && turns[1] <= 41 && turns[2] >= 39 && turns[2] <= 43, "%u and %u turns", turns[1], turns[2]);
    pccl__line_remove(&line, &low.ticket);
    pccl__line_remove(&line, &lowest.ticket);
    for (uint32_t i = 0; i < 2; i++) pccl__line_remove(&line, &high[i].ticket);
    EXPECT(!next());
}

static void who_leaves_is_followed(void) {
    struct sender a[3], b = sender_of(2, 0, SEGMENT), outside = sender_of(9, 9, 1);
    for (uint32_t i = 0; i < 3; i++) add(&a[i], sender_of(1, i, SEGMENT), 0, false);
    stand(&b, 0, false);
    pccl__ticket_init(&outside.ticket);
    pccl__line_remove(&line, &outside.ticket);
    pccl__line_remove(&line, &a[0].ticket);
    pccl__line_remove(&line, &a[2].ticket);
    EXPECT_ORDER(200, 101);
}

/* ---------------------------------------------------------------- whatever the line */

enum { SENDERS = 300, OPERATIONS = 12 };

/* Within an operation the order stays; nobody goes while somebody more urgent waits, unless he was passed; everybody
 * goes once. */
static void random_line(uint64_t seed) {
    static struct sender senders[SENDERS];
    uint64_t random = seed;
    uint32_t numbers[OPERATIONS] = {0}, went[OPERATIONS] = {0}, added = 0, gone = 0, removed = 0;
    while (gone + removed < SENDERS) {
        if (added < SENDERS && prng_below(&random, 2)) {
            uint32_t operation = prng_below(&random, OPERATIONS);
            senders[added] = sender_of(operation, numbers[operation]++, 1 + prng_below(&random, 2 * SEGMENT));
            stand(&senders[added], (int)(operation % PCCL__LEVELS) + PCCL_PRIORITY_MIN, operation % 2);
            added++;
            continue;
        }
        struct sender *sender = next();
        if (!sender) continue;
        uint8_t first = (uint8_t)__builtin_ctz(line.waiting);
        EXPECT(sender->ticket.level == first || line.level[sender->ticket.level].passed >= PCCL__LINE_PASSED_BYTES);
        if (prng_below(&random, 8) == 0) {
            pccl__line_remove(&line, &sender->ticket);
            EXPECT(sender->number >= went[sender->operation], "seed %u", (unsigned)seed);
            went[sender->operation] = sender->number + 1;
            removed++;
            continue;
        }
        uint64_t piece = 1 + prng_below(&random, SEGMENT);
        if (piece > sender->left) piece = sender->left;
        sender->left -= piece;
        pccl__line_went(&line, &sender->ticket, piece, sender->left == 0);
        if (sender->left > 0) continue;
        EXPECT(sender->number >= went[sender->operation], "seed %u: out of order", (unsigned)seed);
        went[sender->operation] = sender->number + 1;
        gone++;
    }
    EXPECT(!next() && line.waiting == 0);
}

int main(void) {
    pccl__line_init(&line);
    operations_take_turns();
    urgent_goes_first_in_the_middle_of_a_large_one();
    small_goes_first_but_not_for_ever();
    who_is_passed_goes_some_time();
    who_leaves_is_followed();
    for (uint64_t seed = 1; seed <= 200; seed++) random_line(seed);
    FINISH();
}
