/* SPDX-License-Identifier: MIT
 *
 * line.h - the line in which the sends of one link stand that may go: whose turn is it?
 *
 * Must not know: frames, stripes, what is sent. The idea: what is urgent goes first, and everybody goes some time.
 *   - Whatever is more urgent goes before the rest, though it came later. It need not wait for the end of what has
 * begun to go: a large send goes in pieces.
 *   - Among equals, small ones go first, since they cost large ones next to nothing; but after PCCL__LINE_SMALL_BYTES
 * of them a large one has its turn. So each of the two kinds gets half of the link if it has use for it.
 *   - Among those, operations take turns, one send (a segment) each. An operation is told by its name (the key's tag,
 *     scope and sequence), and has its sends in order.
 *   - Who waits while PCCL__LINE_PASSED_BYTES of more urgent ones pass goes next, one send's piece: the least urgent
 * has a seventeenth of the link, at least.
 *
 * Memory: each ticket is part of what stands there. Everything costs the same however long the line is.
 */
#ifndef PCCL_CHANNEL_LINE_H
#define PCCL_CHANNEL_LINE_H

#include "channel/channel.h"

enum {
    PCCL__LEVELS = PCCL_PRIORITY_MAX - PCCL_PRIORITY_MIN + 1,
    PCCL__LINE_BUCKETS = 64,
    PCCL__LINE_SMALL_BYTES = 256 * 1024,
    PCCL__LINE_PASSED_BYTES = 4 * 1024 * 1024
};

/* Of one level of urgency. */
struct pccl__line_level {
    struct list small, large; /* the first ticket of each operation, in the order of their turns: ticket.link */
    uint64_t small_run;       /* bytes of small ones that went since a large one waits */
    uint64_t passed;          /* bytes of more urgent ones that went since this level had its turn */
};

struct pccl__line {
    struct pccl__line_level level[PCCL__LEVELS]; /* the most urgent first */
    struct list buckets[PCCL__LINE_BUCKETS];     /* ticket.hash_link: first tickets, by operation */
    uint32_t waiting;                            /* one bit for each level at which somebody stands */
};

void pccl__line_init(struct pccl__line *line);
/* A ticket outside any line. */
void pccl__ticket_init(struct pccl__ticket *ticket);
/* `ticket` must be initialised, and outside. */
void pccl__line_add(struct pccl__line *line, struct pccl__ticket *ticket, const struct pccl__key *key, int priority,
                    bool small);
/* Whose turn it is; it stays where it is. NULL: nobody's. */
struct pccl__ticket *pccl__line_next(const struct pccl__line *line);
/* So many bytes of `ticket`, whose turn it was, went. It keeps its turn, unless that was the rest: then it leaves. */
void pccl__line_went(struct pccl__line *line, struct pccl__ticket *ticket, uint64_t bytes, bool rest);
/* Harmless for a ticket outside. */
void pccl__line_remove(struct pccl__line *line, struct pccl__ticket *ticket);

#endif
