/* SPDX-License-Identifier: MIT
 *
 * poll.h - readiness of descriptors: epoll on Linux, poll(2) elsewhere (or with PCCL_USE_POLL, so that tests run both).
 *
 * A source is a slot number, not a pointer: two threads may sleep on one set at once, and an event that was fetched
 * before its source was removed must be recognised. Each slot has a generation for that.
 *
 * Threads: pccl__poll_wait may run in several threads at once and without the engine's lock; everything else under it.
 */
#ifndef PCCL_CHANNEL_POLL_H
#define PCCL_CHANNEL_POLL_H

#include <stdbool.h>
#include <stdint.h>

#include "pccl.h"

struct pccl__poll;

enum { PCCL__POLL_IN = 1, PCCL__POLL_OUT = 2, PCCL__POLL_ERROR = 4, PCCL__POLL_BATCH = 64 };

struct pccl__ready {
    uint64_t token; /* slot and generation; pass to pccl__poll_dispatch */
    unsigned events;
};

/* Called under the engine's lock for each ready descriptor. It only marks its channel or transport as ready; reading
 * happens in progress. */
typedef void pccl__ready_fn(void *owner, int fd, unsigned events);

pccl_status pccl__poll_new(struct pccl__poll **poll); /* NO_MEMORY, SYSTEM */
void pccl__poll_free(struct pccl__poll *poll);
/* Level-triggered. Returns a handle >= 0 for the calls below, or -1 (NO_MEMORY or SYSTEM). */
int pccl__poll_add(struct pccl__poll *poll, int fd, unsigned events, pccl__ready_fn *ready, void *owner);
void pccl__poll_change(struct pccl__poll *poll, int handle, unsigned events);
/* Before the descriptor is closed. */
void pccl__poll_remove(struct pccl__poll *poll, int handle);
/* Sleeps up to timeout_ns (0: does not sleep; NEVER_NS: no limit) or until pccl__poll_wake. Returns how many of `ready`
 * were filled. EINTR counts as a wake. */
int pccl__poll_wait(struct pccl__poll *poll, uint64_t timeout_ns, struct pccl__ready ready[PCCL__POLL_BATCH]);
/* Makes one pccl__poll_wait that runs now, or the next one, return. Any thread. */
void pccl__poll_wake(struct pccl__poll *poll);
/* In a forked child: closes the child's copies of every registered descriptor and of the set itself, without touching
 * the parent's set. Only pccl__poll_free of an unused set may follow; the child must not. */
void pccl__poll_forked(struct pccl__poll *poll);
void pccl__poll_dispatch(struct pccl__poll *poll, const struct pccl__ready *ready, int count);

#endif
