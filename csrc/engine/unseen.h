/* SPDX-License-Identifier: MIT
 *
 * unseen.h - failures that a change of epoch brought and that the caller has not looked at yet.
 *
 * Numbers start anew with each epoch, so a call made behind such a failure would take the number of the failed call's
 * retry, and meet another member's retry of something else. Therefore calls of that tag (of the whole step, for
 * deferred ones) fail too, until the caller has seen a failure: then it knows where it stands, as the others do. It
 * knows of the epoch that this failure belongs to, and not of what was called since and has failed with a later one.
 *
 * A note that is lost would pair the wrong calls, so there is one in reserve for every operation that may still fail.
 */
#ifndef PCCL_ENGINE_UNSEEN_H
#define PCCL_ENGINE_UNSEEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct pccl__unseen {
    struct list failures;
    struct list spare;
    uint32_t spare_count;
};

void pccl__unseen_init(struct pccl__unseen *unseen);
/* Sees that `count` notes can be added. False: no memory. */
bool pccl__unseen_reserve(struct pccl__unseen *unseen, uint32_t count);
/* The end of `epoch` failed an operation. Uses one note that was reserved, unless the tag has one already. */
void pccl__unseen_add(struct pccl__unseen *unseen, uint64_t tag, bool stepwise, uint64_t epoch);
/* Does a call of `tag` stand behind a failure? Then `*epoch` is that of the newest one. Else it may run. */
bool pccl__unseen_blocks(const struct pccl__unseen *unseen, uint64_t tag, bool stepwise, uint64_t *epoch);
/* The caller has seen a failure of `tag` and `epoch`, or of an older one: it may call again; if that was part of a
 * step, so may all of the step. Newer failures go on blocking. */
void pccl__unseen_seen(struct pccl__unseen *unseen, uint64_t tag, uint64_t epoch);
/* The same for all tags. */
void pccl__unseen_all_seen(struct pccl__unseen *unseen, uint64_t epoch);
void pccl__unseen_clear(struct pccl__unseen *unseen);

#endif
