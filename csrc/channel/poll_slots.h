/* SPDX-License-Identifier: MIT
 *
 * poll_slots.h - the table of sources behind both poll implementations: slot numbers with generations.
 *
 * A token is generation and slot. A removed slot's generation moves on, so an event that was fetched before the removal
 * finds nobody, also when the slot has a new owner.
 */
#ifndef PCCL_CHANNEL_POLL_SLOTS_H
#define PCCL_CHANNEL_POLL_SLOTS_H

#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "channel/poll.h"

struct poll_slot {
    int fd; /* -1: free */
    unsigned events;
    uint32_t generation;
    pccl__ready_fn *ready;
    void *owner;
};

struct poll_slots {
    struct poll_slot *slots;
    int count, free_hint;
};

static inline uint64_t poll_token(const struct poll_slots *table, int slot) {
    return (uint64_t)table->slots[slot].generation << 32 | (uint32_t)slot;
}

/* A slot for `fd`, or -1: no memory. */
static inline int poll_slots_take(struct poll_slots *table, int fd, unsigned events, pccl__ready_fn *ready,
                                  void *owner) {
    int slot = table->free_hint;
    while (slot < table->count && table->slots[slot].fd >= 0) slot++;
    if (slot == table->count) {
        int count = table->count ? 2 * table->count : 16;
        struct poll_slot *slots = realloc(table->slots, (size_t)count * sizeof *slots);
        if (!slots) return -1;
        for (int i = table->count; i < count; i++) slots[i] = (struct poll_slot){.fd = -1};
        table->slots = slots;
        table->count = count;
    }
    table->free_hint = slot + 1;
    uint32_t generation = table->slots[slot].generation;
    table->slots[slot] = (struct poll_slot){fd, events, generation, ready, owner};
    return slot;
}

static inline struct poll_slot *poll_slots_at(struct poll_slots *table, int slot) {
    CHECK(slot >= 0 && slot < table->count && table->slots[slot].fd >= 0);
    return &table->slots[slot];
}

static inline void poll_slots_give(struct poll_slots *table, int slot) {
    poll_slots_at(table, slot)->fd = -1;
    table->slots[slot].generation++;
    if (slot < table->free_hint) table->free_hint = slot;
}

static inline void poll_slots_close_all(struct poll_slots *table) {
    for (int slot = 0; slot < table->count; slot++)
        if (table->slots[slot].fd >= 0) close(table->slots[slot].fd);
}

static inline void poll_slots_dispatch(struct poll_slots *table, const struct pccl__ready *ready, int count) {
    for (int i = 0; i < count; i++) {
        int slot = (int)(uint32_t)ready[i].token;
        if (slot < 0 || slot >= table->count) continue;
        struct poll_slot found = table->slots[slot];
        if (found.fd < 0 || found.generation != (uint32_t)(ready[i].token >> 32)) continue;
        found.ready(found.owner, found.fd, ready[i].events);
    }
}

#endif
