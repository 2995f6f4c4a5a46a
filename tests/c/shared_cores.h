/* SPDX-License-Identifier: MIT
 *
 * shared_cores.h - a few cores joined by the simulated network, driven step by step, for tests that tell a story rather
 * than draw one from a seed.
 */
#ifndef PCCL_TESTS_SHARED_CORES_H
#define PCCL_TESTS_SHARED_CORES_H

#include "channel/sim.h"
#include "engine/core.h"

enum { CORES_MAX = 8 };

struct cores {
    struct pccl__sim_network *network;
    struct pccl__transport *transport[CORES_MAX];
    struct pccl__core *core[CORES_MAX]; /* NULL: killed */
    pccl_peer_id id[CORES_MAX];
    uint32_t size;
    uint64_t epoch, now_ns;
    pccl_shape shape; /* of views to come, with their ring and parents; all zero: FULL, in rank order */
    const uint32_t *ring, *parents;
    const uint64_t *host_ids; /* of peers; NULL: all share one */
    const uint32_t *usable;   /* cores that peers tell; NULL: none does */
};

void cores_make(struct cores *cores, uint32_t size, const struct pccl__core_options *options);
/* The same with what `shape`, `ring`, `parents`, `host_ids` and `usable` of `cores` are, over a network with faults. */
void cores_make_among(struct cores *cores, uint32_t size, const struct pccl__core_options *options, uint64_t seed,
                      struct pccl__sim_faults faults);
void cores_free(struct cores *cores);
/* Advances virtual time by `us` and runs everyone meanwhile. */
void cores_run(struct cores *cores, uint64_t us);
/* The next epoch with those that are left, the same commits and cause for all. */
void cores_install(struct cores *cores, const pccl_operation_name *commits, uint32_t commits_count, pccl_status cause,
                   const char *text);
void cores_kill(struct cores *cores, uint32_t peer);
/* Starts on peer `peer`; EXPECTs that it could be started. */
pccl_operation *cores_start(struct cores *cores, uint32_t peer, pccl_call call);
/* Takes the next event of a kind, dropping others; false: none. */
bool cores_event(struct cores *cores, uint32_t peer, pccl_event_kind kind, pccl_event *event);

#endif
