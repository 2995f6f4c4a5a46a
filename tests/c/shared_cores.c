/* SPDX-License-Identifier: MIT */
#include "shared_cores.h"

#include "base/bits.h"
#include "base/clock.h"
#include "check.h"

void cores_make(struct cores *cores, uint32_t size, const struct pccl__core_options *options) {
    *cores = (struct cores){0};
    cores_make_among(cores, size, options, size, (struct pccl__sim_faults){0});
}

void cores_make_among(struct cores *cores, uint32_t size, const struct pccl__core_options *options, uint64_t seed,
                      struct pccl__sim_faults faults) {
    static const struct pccl__core_options standard = {
        .min_world_size = 2, .operation_timeout_ms = 5000, .stall_ms = 100};
    EXPECT(size <= CORES_MAX);
    cores->size = size;
    cores->network = pccl__sim_network_new(seed, faults);
    for (uint32_t i = 0; i < size; i++) {
        cores->id[i].bytes[0] = (uint8_t)(i + 1);
        cores->transport[i] = pccl__sim_transport_new(cores->network, cores->id[i]);
        EXPECT(pccl__core_new(options ? options : &standard, cores->transport[i], &cores->core[i]) == PCCL_OK, "core");
    }
    cores_install(cores, NULL, 0, PCCL_OK, NULL);
}

void cores_free(struct cores *cores) {
    for (uint32_t i = 0; i < cores->size; i++) {
        if (cores->core[i]) pccl__core_free(cores->core[i]);
        if (cores->core[i]) cores->transport[i]->ops->free(cores->transport[i]);
    }
    pccl__sim_network_free(cores->network);
}

void cores_run(struct cores *cores, uint64_t us) {
    uint64_t end_ns = cores->now_ns + us * 1000;
    for (;;) {
        uint64_t next_ns = end_ns;
        for (uint32_t i = 0; i < cores->size; i++) {
            if (!cores->core[i]) continue;
            pccl__core_progress(cores->core[i], cores->now_ns);
            next_ns = min_u64(next_ns, pccl__core_deadline(cores->core[i]));
        }
        next_ns = min_u64(next_ns, pccl__sim_next_ns(cores->network));
        if (cores->now_ns >= end_ns) return;
        cores->now_ns = next_ns > cores->now_ns ? next_ns : cores->now_ns + 1000;
        pccl__sim_advance(cores->network, cores->now_ns);
    }
}

void cores_install(struct cores *cores, const pccl_operation_name *commits, uint32_t commits_count, pccl_status cause,
                   const char *text) {
    pccl_member members[CORES_MAX];
    uint32_t alive = 0;
    for (uint32_t i = 0; i < cores->size; i++)
        if (cores->core[i])
            members[alive++] = (pccl_member){.id = cores->id[i],
                                             .address = "127.0.0.1",
                                             .port = 1,
                                             .host_id = cores->host_ids ? cores->host_ids[i] : 0,
                                             .cores = cores->usable ? cores->usable[i] : 0};
    pccl_view view = {.epoch = ++cores->epoch,
                      .size = alive,
                      .members = members,
                      .ring = cores->ring,
                      .shape = cores->shape,
                      .parents = cores->parents,
                      .commits = commits,
                      .commits_count = commits_count,
                      .cause = cause,
                      .cause_text = text};
    for (uint32_t i = 0; i < cores->size; i++) {
        if (!cores->core[i]) continue;
        pccl_error error;
        EXPECT(pccl__core_install(cores->core[i], &view, cores->now_ns, &error) == PCCL_OK, "%s", error.message);
        view.rank++;
    }
}

void cores_kill(struct cores *cores, uint32_t peer) {
    pccl__sim_kill(cores->network, cores->id[peer]);
    pccl__core_free(cores->core[peer]);
    cores->transport[peer]->ops->free(cores->transport[peer]);
    cores->core[peer] = NULL;
}

pccl_operation *cores_start(struct cores *cores, uint32_t peer, pccl_call call) {
    pccl_operation *op = NULL;
    pccl_error error = {.message = ""};
    EXPECT(pccl__core_start(cores->core[peer], &call, cores->now_ns, &op, &error) == PCCL_OK, "%s", error.message);
    return op;
}

bool cores_event(struct cores *cores, uint32_t peer, pccl_event_kind kind, pccl_event *event) {
    while (pccl__events_take(&cores->core[peer]->events, event))
        if (event->kind == kind) return true;
    return false;
}
