/* SPDX-License-Identifier: MIT
 *
 * line.c - see line.h.
 *
 * The first ticket of an operation stands for all of them: it is in the level's list and in the table; the others hang
 * on it and one of them takes its turn over when it leaves. Operations whose names share a hash share their turns,
 * which harms nobody.
 */
#include "channel/line.h"

#include "base/check.h"

static struct pccl__ticket *ticket_at(const struct list *node) { return LIST_ENTRY(node, struct pccl__ticket, link); }

void pccl__line_init(struct pccl__line *line) {
    *line = (struct pccl__line){.waiting = 0};
    for (int i = 0; i < PCCL__LEVELS; i++) {
        list_init(&line->level[i].small);
        list_init(&line->level[i].large);
    }
    for (int i = 0; i < PCCL__LINE_BUCKETS; i++) list_init(&line->buckets[i]);
}

void pccl__ticket_init(struct pccl__ticket *ticket) {
    list_init(&ticket->link);
    list_init(&ticket->hash_link);
    list_init(&ticket->followers);
}

static struct list *turns_of(struct pccl__line *line, const struct pccl__ticket *ticket) {
    struct pccl__line_level *level = &line->level[ticket->level];
    return ticket->small ? &level->small : &level->large;
}

static struct list *bucket_of(struct pccl__line *line, const struct pccl__ticket *ticket) {
    return &line->buckets[ticket->operation % PCCL__LINE_BUCKETS];
}

static struct pccl__ticket *first_of(struct pccl__line *line, const struct pccl__ticket *ticket) {
    struct list *chain = bucket_of(line, ticket);
    for (struct list *node = chain->next; node != chain; node = node->next) {
        struct pccl__ticket *first = LIST_ENTRY(node, struct pccl__ticket, hash_link);
        if (first->operation == ticket->operation && first->level == ticket->level && first->small == ticket->small)
            return first;
    }
    return NULL;
}

static void stand_first(struct pccl__line *line, struct pccl__ticket *ticket) {
    list_push_back(turns_of(line, ticket), &ticket->link);
    list_push_back(bucket_of(line, ticket), &ticket->hash_link);
}

void pccl__line_add(struct pccl__line *line, struct pccl__ticket *ticket, const struct pccl__key *key, int priority,
                    bool small) {
    DCHECK(priority >= PCCL_PRIORITY_MIN && priority <= PCCL_PRIORITY_MAX && list_empty(&ticket->link));
    const struct pccl__key name = {
        .epoch = key->epoch, .tag = key->tag, .scope = key->scope, .sequence = key->sequence};
    ticket->operation = pccl__key_hash(&name);
    ticket->level = (uint8_t)(PCCL_PRIORITY_MAX - priority);
    ticket->small = small;
    struct pccl__ticket *first = first_of(line, ticket);
    if (first)
        list_push_back(&first->followers, &ticket->link);
    else
        stand_first(line, ticket);
    struct pccl__line_level *level = &line->level[ticket->level];
    if (!(line->waiting & 1u << ticket->level)) level->passed = level->small_run = 0;
    line->waiting |= 1u << ticket->level;
}

static struct pccl__ticket *next_at(const struct pccl__line_level *level) {
    bool small = !list_empty(&level->small);
    if (small && !list_empty(&level->large)) small = level->small_run < PCCL__LINE_SMALL_BYTES;
    return ticket_at(small ? level->small.next : level->large.next);
}

struct pccl__ticket *pccl__line_next(const struct pccl__line *line) {
    if (line->waiting == 0) return NULL;
    uint32_t first = (uint32_t)__builtin_ctz(line->waiting);
    for (uint32_t rest = line->waiting & (line->waiting - 1); rest; rest &= rest - 1) {
        uint32_t behind = (uint32_t)__builtin_ctz(rest);
        if (line->level[behind].passed >= PCCL__LINE_PASSED_BYTES) return next_at(&line->level[behind]);
    }
    return next_at(&line->level[first]);
}

void pccl__line_went(struct pccl__line *line, struct pccl__ticket *ticket, uint64_t bytes, bool rest) {
    struct pccl__line_level *level = &line->level[ticket->level];
    level->passed = 0;
    level->small_run = ticket->small && !list_empty(&level->large) ? level->small_run + bytes : 0;
    for (uint32_t behind = line->waiting & ~((2u << ticket->level) - 1); behind; behind &= behind - 1)
        line->level[__builtin_ctz(behind)].passed += bytes;
    if (rest) pccl__line_remove(line, ticket);
}

/* The oldest of those behind `ticket` stands for their operation from now on, and waits for the next round of turns. */
static void follow(struct pccl__line *line, struct pccl__ticket *ticket) {
    struct list *node = list_pop_front(&ticket->followers);
    if (!node) return;
    struct pccl__ticket *next = ticket_at(node);
    list_splice(&next->followers, &ticket->followers);
    stand_first(line, next);
}

void pccl__line_remove(struct pccl__line *line, struct pccl__ticket *ticket) {
    if (list_empty(&ticket->link)) return;
    bool first = !list_empty(&ticket->hash_link);
    list_remove(&ticket->link);
    list_remove(&ticket->hash_link);
    if (first) follow(line, ticket);
    const struct pccl__line_level *level = &line->level[ticket->level];
    if (list_empty(&level->small) && list_empty(&level->large)) line->waiting &= ~(1u << ticket->level);
}
