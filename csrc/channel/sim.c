/* SPDX-License-Identifier: MIT
 *
 * sim.c - the simulated network: its peers, how their channels meet and part, and its virtual time. See sim.h.
 *
 * Must not know: real time, sockets, threads. Everything random comes from one seed, in the order in which the test
 * calls: a run can be replayed.
 */
#include "channel/sim_frame.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/check.h"
#include "base/clock.h"

static bool same_id(const pccl_peer_id *a, const pccl_peer_id *b) { return memcmp(a, b, sizeof *a) == 0; }

static struct peer *find_peer(const struct pccl__sim_network *network, const pccl_peer_id *id) {
    for (struct list *node = network->peers.next; node != &network->peers; node = node->next) {
        struct peer *peer = LIST_ENTRY(node, struct peer, link);
        if (same_id(&peer->id, id)) return peer;
    }
    return NULL;
}

static bool is_blocked(const struct pccl__sim_network *network, const pccl_peer_id *a, const pccl_peer_id *b) {
    for (struct list *node = network->blocks.next; node != &network->blocks; node = node->next) {
        const struct block *block = LIST_ENTRY(node, struct block, link);
        if ((same_id(&block->a, a) && same_id(&block->b, b)) || (same_id(&block->a, b) && same_id(&block->b, a)))
            return true;
    }
    return false;
}

static void meet(struct sim_channel *a, struct sim_channel *b) {
    struct sim_channel *ends[2] = {a, b};
    a->other = b;
    b->other = a;
    a->met = b->met = true;
    for (int i = 0; i < 2; i++) {
        struct list *node;
        while ((node = list_pop_front(&ends[i]->unlinked)))
            pccl__sim_emit(ends[i], LIST_ENTRY(node, struct frame, link));
    }
}

static pccl_status sim_open(struct pccl__transport *transport, const pccl_member *member,
                            struct pccl__channel **opened) {
    struct peer *peer = (struct peer *)transport;
    struct pccl__sim_network *network = peer->network;
    struct sim_channel *channel = calloc(1, sizeof *channel);
    if (!channel) return PCCL_NO_MEMORY;
    channel->break_frame = pccl__sim_frame_new(FRAME_BREAK, 0);
    if (!channel->break_frame) {
        free(channel);
        return PCCL_NO_MEMORY;
    }
    channel->base.ops = &pccl__sim_channel_ops;
    channel->base.peer = member->id;
    channel->base.deadline_ns = NEVER_NS;
    channel->base.maps = true; /* all peers are in one process */
    list_init(&channel->base.ready_link);
    channel->peer = peer;
    struct list *lists[] = {&channel->network_link, &channel->unlinked, &channel->in_flight, &channel->arrived_control,
                            &channel->arrived_data, &channel->sends,    &channel->completed, &channel->notices};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) list_init(lists[i]);
    pccl__inbox_init(&channel->inbox, &channel->completed, &channel->notices);
    pccl__outbox_init(&channel->outbox, &channel->notices);

    struct peer *target = find_peer(network, &member->id);
    bool dead = target && target->dead;
    channel->blocked = is_blocked(network, &peer->id, &member->id);
    for (struct list *node = network->channels.next; !dead && !channel->blocked && node != &network->channels;
         node = node->next) {
        struct sim_channel *other = LIST_ENTRY(node, struct sim_channel, network_link);
        if (other->met || other->down || other->blocked || other->peer != target ||
            !same_id(&other->base.peer, &peer->id))
            continue;
        meet(channel, other);
        break;
    }
    if (dead) pccl__sim_link_break(channel); /* nobody answers there */
    list_push_back(&network->channels, &channel->network_link);
    *opened = &channel->base;
    return PCCL_OK;
}

static void sim_transport_progress(struct pccl__transport *transport, uint64_t now_ns) {
    (void)now_ns;
    transport->ready = false;
}

static void sim_transport_free(struct pccl__transport *transport) {
    struct peer *peer = (struct peer *)transport;
    struct list *channels = &peer->network->channels;
    for (struct list *node = channels->next; node != channels; node = node->next)
        CHECK(LIST_ENTRY(node, struct sim_channel, network_link)->peer != peer);
    list_remove(&peer->link);
    free(peer);
}

static const struct pccl__transport_ops transport_ops = {
    .name = "sim",
    .open = sim_open,
    .progress = sim_transport_progress,
    .free = sim_transport_free,
};

struct pccl__transport *pccl__sim_transport_new(struct pccl__sim_network *network, pccl_peer_id id) {
    struct peer *peer = calloc(1, sizeof *peer);
    if (!peer) return NULL;
    peer->base.ops = &transport_ops;
    peer->base.deadline_ns = NEVER_NS;
    peer->network = network;
    peer->id = id;
    list_push_back(&network->peers, &peer->link);
    return &peer->base;
}

struct pccl__sim_network *pccl__sim_network_new(uint64_t seed, struct pccl__sim_faults faults) {
    struct pccl__sim_network *network = calloc(1, sizeof *network);
    if (!network) return NULL;
    network->random = seed;
    network->faults = faults;
    list_init(&network->peers);
    list_init(&network->channels);
    list_init(&network->blocks);
    return network;
}

void pccl__sim_network_free(struct pccl__sim_network *network) {
    CHECK(list_empty(&network->peers) && list_empty(&network->channels));
    CHECK(!network->queue.first);
    struct list *node;
    while ((node = list_pop_front(&network->blocks))) free(LIST_ENTRY(node, struct block, link));
    free(network);
}

void pccl__sim_kill(struct pccl__sim_network *network, pccl_peer_id id) {
    struct peer *peer = find_peer(network, &id);
    if (!peer || peer->dead) return;
    peer->dead = true;
    for (struct list *node = network->channels.next; node != &network->channels; node = node->next) {
        struct sim_channel *channel = LIST_ENTRY(node, struct sim_channel, network_link);
        if (channel->peer == peer)
            pccl__sim_part(channel);
        else if (!channel->met && !channel->down && same_id(&channel->base.peer, &id))
            pccl__sim_link_break(channel);
    }
}

void pccl__sim_cut(struct pccl__sim_network *network, pccl_peer_id a, pccl_peer_id b) {
    for (struct list *node = network->channels.next; node != &network->channels; node = node->next) {
        struct sim_channel *channel = LIST_ENTRY(node, struct sim_channel, network_link);
        if (channel->other && same_id(&channel->peer->id, &a) && same_id(&channel->base.peer, &b))
            pccl__sim_part(channel);
    }
}

void pccl__sim_block(struct pccl__sim_network *network, pccl_peer_id a, pccl_peer_id b) {
    struct block *block = calloc(1, sizeof *block);
    CHECK(block); /* as in pccl__sim_link_break */
    *block = (struct block){.a = a, .b = b};
    list_init(&block->link);
    list_push_back(&network->blocks, &block->link);
    pccl__sim_cut(network, a, b);
    for (struct list *node = network->channels.next; node != &network->channels; node = node->next) {
        struct sim_channel *channel = LIST_ENTRY(node, struct sim_channel, network_link);
        if (is_blocked(network, &channel->peer->id, &channel->base.peer)) channel->blocked = !channel->met;
    }
}

uint64_t pccl__sim_blocked_frames(const struct pccl__sim_network *network) { return network->blocked_frames; }

uint64_t pccl__sim_next_ns(const struct pccl__sim_network *network) {
    return network->queue.first ? network->queue.first->due_ns : NEVER_NS;
}

uint64_t pccl__sim_now_ns(const struct pccl__sim_network *network) { return network->now_ns; }

void pccl__sim_advance(struct pccl__sim_network *network, uint64_t now_ns) {
    network->now_ns = max_u64(network->now_ns, now_ns);
    while (network->queue.first && network->queue.first->due_ns <= network->now_ns) {
        struct frame *frame = LIST_ENTRY(network->queue.first, struct frame, timer);
        struct sim_channel *to = frame->to;
        heap_remove(&network->queue, &frame->timer);
        bool data = frame->kind == FRAME_DATA || frame->kind == FRAME_BREAK;
        list_remove(&frame->link);
        list_push_back(data ? &to->arrived_data : &to->arrived_control, &frame->link);
        to->base.ready = true;
    }
}
