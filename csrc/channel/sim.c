/* SPDX-License-Identifier: MIT
 *
 * sim.c - channels in memory with virtual time and seeded faults; also the model of what a channel is. See sim.h.
 *
 * Must not know: real time, real sockets, threads. Everything random comes from one seed, in the order in which the
 * test calls: a run can be replayed.
 *
 * The idea: a frame is an event in one queue of the network, ordered by the virtual time at which it is due. When it is
 * due it moves to its channel's `arrived` list, and the channel's own progress reads it, perhaps in pieces. A large
 * transfer's payload is read from the sender's memory at that moment and not before: whoever changes or frees memory
 * that is still borrowed is found out. What may go when is decided by outbox and inbox, as in every transport.
 */
#include "channel/sim.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/prng.h"
#include "base/status.h"
#include "channel/outbox.h"

enum {
    FRAME_PAYLOAD_MAX = 256 * 1024, /* a large transfer comes in several frames, as over stripes */
    WINDOW_STEP = PCCL__EAGER_WINDOW / 4
};

enum frame_kind { FRAME_DATA, FRAME_OFFER, FRAME_GO, FRAME_WINDOW, FRAME_ACK, FRAME_NOTICE, FRAME_BREAK };

struct sim_channel;

struct frame {
    struct list link;             /* in `unlinked` of the sender, or in `in_flight` or `arrived*` of `to` */
    struct frame *child, *sibling; /* in the network's queue */
    bool queued;
    uint64_t due_ns, order;
    struct sim_channel *to;       /* NULL in the queue: lost */
    enum frame_kind kind;
    struct pccl__arrival head;
    uint64_t released_bytes;
    struct pccl__notice *notice;
    struct pccl__transfer *transfer; /* DATA: the sender's, while its memory is read; ACK: the one acknowledged */
    const uint8_t *payload;          /* in the transfer's memory or in `copy` */
    bool landing_begun;
    uint32_t landed_bytes;
    struct pccl__landing landing;
    uint8_t copy[];
};

struct peer {
    struct pccl__transport base;
    struct pccl__sim_network *network;
    struct list link;
    pccl_peer_id id;
    bool dead;
};

struct sim_channel {
    struct pccl__channel base;
    struct peer *peer;
    struct list network_link;
    struct sim_channel *other; /* the far end, from meeting until one side closes */
    bool met, down, closed;    /* down: nothing that is sent from now on arrives */
    struct list unlinked;      /* frames posted before the ends met */
    struct list in_flight, arrived_control, arrived_data;
    uint64_t control_due_ns, data_due_ns; /* of the last frame towards us, for order */
    struct list sends;                    /* posted ones */
    struct list completed, notices;       /* for the next progress */
    struct pccl__inbox inbox;
    struct pccl__outbox outbox;
    uint64_t announced_bytes; /* inbox.released_bytes as the far end knows it */
};

struct pccl__sim_network {
    uint64_t random, now_ns, order;
    struct pccl__sim_faults faults;
    struct frame *queue; /* a pairing heap (Fredman, Sedgewick, Sleator, Tarjan 1986): needs no memory of its own */
    struct list peers, channels;
};

static struct sim_channel *cast(struct pccl__channel *channel) { return (struct sim_channel *)channel; }

static struct pccl__sim_network *network_of(const struct sim_channel *channel) { return channel->peer->network; }

static bool chance_ppm(struct pccl__sim_network *network, uint32_t ppm) {
    return ppm && prng_below(&network->random, 1000000) < ppm;
}

/* ---------------------------------------------------------------- the queue of frames */

static bool earlier(const struct frame *a, const struct frame *b) {
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

static struct frame *meld(struct frame *a, struct frame *b) {
    if (!a || !b) return a ? a : b;
    if (earlier(b, a)) {
        struct frame *swap = a;
        a = b;
        b = swap;
    }
    b->sibling = a->child;
    a->child = b;
    return a;
}

static struct frame *queue_pop(struct pccl__sim_network *network) {
    struct frame *first = network->queue, *pairs = NULL;
    for (struct frame *node = first->child; node;) {
        struct frame *a = node, *b = node->sibling;
        node = b ? b->sibling : NULL;
        a->sibling = NULL;
        if (b) b->sibling = NULL;
        a = meld(a, b);
        a->sibling = pairs;
        pairs = a;
    }
    network->queue = NULL;
    while (pairs) {
        struct frame *next = pairs->sibling;
        pairs->sibling = NULL;
        network->queue = meld(network->queue, pairs);
        pairs = next;
    }
    first->child = NULL;
    first->queued = false;
    return first;
}

/* ---------------------------------------------------------------- frames */

static struct frame *frame_new(enum frame_kind kind, uint32_t copy_bytes) {
    struct frame *frame = calloc(1, sizeof *frame + copy_bytes);
    if (!frame) return NULL;
    list_init(&frame->link);
    frame->kind = kind;
    return frame;
}

static void frame_free(struct frame *frame) {
    if (frame->landing_begun) pccl__landing_drop(&frame->landing);
    if (frame->notice) pccl__notice_free(frame->notice);
    free(frame);
}

/* It arrives nowhere. In the queue it stays until it is due. */
static void frame_lose(struct frame *frame) {
    list_remove(&frame->link);
    if (frame->queued) {
        frame->to = NULL;
        frame->transfer = NULL;
    } else {
        frame_free(frame);
    }
}

static void lose_all(struct list *frames) {
    while (!list_empty(frames)) frame_lose(LIST_ENTRY(frames->next, struct frame, link));
}

static void schedule(struct sim_channel *to, struct frame *frame) {
    struct pccl__sim_network *network = network_of(to);
    const struct pccl__sim_faults *faults = &network->faults;
    uint64_t due_ns = network->now_ns + UINT64_C(1000) * prng_below(&network->random, faults->delay_us_max + 1);
    bool data = frame->kind == FRAME_DATA;
    if (!data || prng_below(&network->random, 100) >= faults->reorder_percent) {
        uint64_t *last_ns = data ? &to->data_due_ns : &to->control_due_ns;
        *last_ns = due_ns = max_u64(due_ns, *last_ns);
    }
    /* A break comes after all that was not lost before it. */
    frame->due_ns = frame->kind == FRAME_BREAK ? max_u64(due_ns, to->data_due_ns) : due_ns;
    frame->order = network->order++;
    frame->to = to;
    frame->queued = true;
    list_push_back(&to->in_flight, &frame->link);
    network->queue = meld(network->queue, frame);
}

/* The link fails, as seen by both ends, each after a delay of its own. */
static void link_break(struct sim_channel *channel) {
    struct sim_channel *ends[2] = {channel, channel->other};
    for (int i = 0; i < 2; i++) {
        if (!ends[i] || ends[i]->down) continue;
        ends[i]->down = true;
        struct frame *frame = frame_new(FRAME_BREAK, 0);
        CHECK(frame); /* the simulator does not simulate its own lack of memory */
        schedule(ends[i], frame);
    }
}

static void emit(struct sim_channel *from, struct frame *frame) {
    if (from->down) {
        frame_free(frame);
    } else if (!from->met) {
        list_push_back(&from->unlinked, &frame->link);
    } else {
        schedule(from->other, frame);
        if (chance_ppm(network_of(from), network_of(from)->faults.break_ppm)) link_break(from);
    }
}

static void emit_key(struct sim_channel *from, enum frame_kind kind, const struct pccl__transfer *transfer) {
    struct frame *frame = frame_new(kind, 0);
    if (!frame) {
        link_break(from);
        return;
    }
    frame->head = (struct pccl__arrival){.key = transfer->key, .stamp = transfer->stamp, .bytes = transfer->bytes};
    emit(from, frame);
}

/* ---------------------------------------------------------------- sends */

static void send_complete(struct sim_channel *channel, struct pccl__transfer *transfer, pccl_status status) {
    pccl__outbox_remove(&channel->outbox, transfer);
    list_remove(&transfer->link);
    transfer->state = PCCL__COMPLETED;
    transfer->status = status;
    list_push_back(&channel->completed, &transfer->link);
    channel->base.ready = true;
}

/* One frame is finished without the sender's memory: from a copy, or not at all if nothing of it was read yet. */
static struct frame *frame_detach(struct pccl__sim_network *network, struct frame *frame) {
    if (!frame->landing_begun && prng_below(&network->random, 2)) return NULL;
    struct frame *copy = frame_new(FRAME_DATA, frame->head.payload_bytes);
    if (!copy) return NULL;
    copy->head = frame->head;
    memcpy(copy->copy, frame->payload, frame->head.payload_bytes);
    copy->payload = copy->copy;
    return copy;
}

/* Nothing on the way may touch the transfer any more. */
static void withdraw(struct sim_channel *channel, const struct pccl__transfer *transfer) {
    struct list *acks[] = {&channel->in_flight, &channel->arrived_control};
    for (int i = 0; i < 2; i++)
        for (struct list *node = acks[i]->next; node != acks[i]; node = node->next) {
            struct frame *frame = LIST_ENTRY(node, struct frame, link);
            if (frame->kind == FRAME_ACK && frame->transfer == transfer) frame->transfer = NULL;
        }
    struct sim_channel *other = channel->other;
    if (!other) return;
    struct list *data[] = {&other->in_flight, &other->arrived_data};
    for (int i = 0; i < 2; i++)
        for (struct list *node = data[i]->next, *next; node != data[i]; node = next) {
            next = node->next;
            struct frame *frame = LIST_ENTRY(node, struct frame, link);
            if (frame->kind != FRAME_DATA || frame->transfer != transfer) continue;
            struct frame *copy = frame_detach(network_of(channel), frame);
            frame_lose(frame);
            if (copy) schedule(other, copy);
        }
}

static void fail_all(struct sim_channel *channel, pccl_status why) {
    while (!list_empty(&channel->sends)) {
        struct pccl__transfer *transfer = LIST_ENTRY(channel->sends.next, struct pccl__transfer, link);
        withdraw(channel, transfer);
        send_complete(channel, transfer, why);
    }
    pccl__inbox_fail(&channel->inbox, why);
    pccl__outbox_clear(&channel->outbox);
    lose_all(&channel->unlinked);
    lose_all(&channel->in_flight);
    lose_all(&channel->arrived_control);
    lose_all(&channel->arrived_data);
    channel->base.ready = true;
}

static struct frame *data_frame(struct pccl__transfer *transfer, uint32_t offset, uint32_t payload_bytes,
                                enum pccl__way way) {
    bool copied = transfer->bytes <= PCCL__EAGER_BYTES;
    struct frame *frame = frame_new(FRAME_DATA, copied ? payload_bytes : 0);
    if (!frame) return NULL;
    frame->head = (struct pccl__arrival){.key = transfer->key,
                                         .stamp = transfer->stamp,
                                         .bytes = transfer->bytes,
                                         .offset = offset,
                                         .payload_bytes = payload_bytes,
                                         .eager = way == PCCL__WAY_EAGER,
                                         .offered = way == PCCL__WAY_OFFER};
    if (copied) {
        if (payload_bytes) memcpy(frame->copy, transfer->data, payload_bytes);
        frame->payload = frame->copy;
    } else {
        frame->payload = (const uint8_t *)transfer->data + offset;
        frame->transfer = transfer;
    }
    return frame;
}

/* All of a transfer that has its GO; small ones are copied, so they are done. */
static void send_granted(struct sim_channel *channel, struct pccl__transfer *transfer, enum pccl__way way) {
    uint32_t offset = 0;
    do {
        uint32_t payload_bytes = (uint32_t)min_u64(transfer->bytes - offset, FRAME_PAYLOAD_MAX);
        struct frame *frame = data_frame(transfer, offset, payload_bytes, way);
        if (!frame) {
            link_break(channel);
            return;
        }
        emit(channel, frame);
        offset += payload_bytes;
    } while (offset < transfer->bytes);
    if (transfer->bytes <= PCCL__EAGER_BYTES) send_complete(channel, transfer, PCCL_OK);
}

/* ---------------------------------------------------------------- reading frames */

/* Moves one piece; true when the frame is read to its end. */
static bool read_piece(struct sim_channel *channel, struct frame *frame, pccl_status *status) {
    struct pccl__sim_network *network = network_of(channel);
    if (!frame->landing_begun) {
        *status = pccl__inbox_land(&channel->inbox, &frame->head, &frame->landing);
        if (*status != PCCL_OK) return true;
        frame->landing_begun = true;
    }
    uint32_t left = frame->head.payload_bytes - frame->landed_bytes;
    uint32_t most = network->faults.piece_bytes_max;
    uint32_t piece = most ? (uint32_t)min_u64(left, 1 + prng_below(&network->random, most)) : left;
    uint8_t *memory = pccl__landing_memory(&frame->landing);
    if (memory && piece) memcpy(memory + frame->landed_bytes, frame->payload + frame->landed_bytes, piece);
    frame->landed_bytes += piece;
    if (frame->landed_bytes < frame->head.payload_bytes) return false;
    frame->landing_begun = false;
    *status = pccl__landing_end(&frame->landing);
    return true;
}

static void acknowledge(struct sim_channel *channel, const struct frame *frame) {
    if (!frame->transfer) return; /* copied or withdrawn */
    struct frame *ack = frame_new(FRAME_ACK, 0);
    if (!ack) {
        link_break(channel);
        return;
    }
    ack->transfer = frame->transfer;
    ack->head.payload_bytes = frame->head.payload_bytes;
    emit(channel, ack);
}

static pccl_status read_control(struct sim_channel *channel, struct frame *frame) {
    struct pccl__transfer *transfer = frame->transfer;
    pccl_status status = PCCL_OK;
    bool go = false;
    switch (frame->kind) {
    case FRAME_OFFER:
        status = pccl__inbox_offer(&channel->inbox, &frame->head.key, &frame->head.stamp, frame->head.bytes, &go);
        if (go) emit_key(channel, FRAME_GO, &(struct pccl__transfer){.key = frame->head.key, .bytes = frame->head.bytes});
        break;
    case FRAME_GO:
        status = pccl__outbox_go(&channel->outbox, &frame->head.key, frame->head.bytes, &transfer);
        if (transfer) send_granted(channel, transfer, PCCL__WAY_OFFER);
        break;
    case FRAME_WINDOW:
        status = pccl__outbox_release(&channel->outbox, frame->released_bytes);
        break;
    case FRAME_ACK:
        if (!transfer) break;
        transfer->acknowledged += frame->head.payload_bytes;
        if (transfer->acknowledged == transfer->bytes) send_complete(channel, transfer, PCCL_OK);
        break;
    case FRAME_NOTICE:
        list_push_back(&channel->notices, &frame->notice->link);
        frame->notice = NULL;
        break;
    default:
        CHECK(false);
    }
    return status;
}

static void become_broken(struct sim_channel *channel, pccl_status cause) {
    link_break(channel); /* the far end, where it does not know yet */
    channel->base.broken = true;
    pccl__fail(&channel->base.error, PCCL_PEER_LOST, "sim: link broken (%s)", pccl_status_string(cause));
    fail_all(channel, PCCL_PEER_LOST);
}

/* Control first: it is small and never waits behind a payload. */
static void read_arrived(struct sim_channel *channel) {
    struct pccl__sim_network *network = network_of(channel);
    pccl_status status = PCCL_OK;
    struct list *node;
    while (status == PCCL_OK && (node = list_pop_front(&channel->arrived_control))) {
        struct frame *frame = LIST_ENTRY(node, struct frame, link);
        status = read_control(channel, frame);
        frame_free(frame);
    }
    while (status == PCCL_OK && !list_empty(&channel->arrived_data)) {
        struct frame *frame = LIST_ENTRY(channel->arrived_data.next, struct frame, link);
        if (frame->kind == FRAME_BREAK) {
            status = PCCL_PEER_LOST;
        } else if (read_piece(channel, frame, &status)) {
            if (status == PCCL_OK) acknowledge(channel, frame);
            list_remove(&frame->link);
            frame_free(frame);
        } else if (prng_below(&network->random, 4) == 0) {
            /* Stop in the middle; another stripe's frame may come next. */
            if (prng_below(&network->random, 100) < network->faults.reorder_percent) {
                list_remove(&frame->link);
                list_push_back(&channel->arrived_data, &frame->link);
            }
            break;
        }
    }
    if (status != PCCL_OK) become_broken(channel, status);
}

static void announce_window(struct sim_channel *channel) {
    if (channel->inbox.released_bytes - channel->announced_bytes < WINDOW_STEP) return;
    struct frame *frame = frame_new(FRAME_WINDOW, 0);
    if (!frame) {
        link_break(channel);
        return;
    }
    frame->released_bytes = channel->announced_bytes = channel->inbox.released_bytes;
    emit(channel, frame);
}

/* ---------------------------------------------------------------- the channel's table */

static pccl_status may_post(struct sim_channel *channel) {
    if (channel->base.broken || channel->closed) return PCCL_PEER_LOST;
    struct pccl__sim_network *network = network_of(channel);
    return chance_ppm(network, network->faults.no_memory_ppm) ? PCCL_NO_MEMORY : PCCL_OK;
}

static pccl_status sim_post_send(struct pccl__channel *base, struct pccl__transfer *transfer) {
    struct sim_channel *channel = cast(base);
    if (transfer->bytes > PCCL__TRANSFER_BYTES) return PCCL_INVALID;
    pccl_status status = may_post(channel);
    if (status != PCCL_OK) return status;
    bool small = transfer->bytes <= PCCL__EAGER_BYTES;
    struct frame *eager = small ? data_frame(transfer, 0, transfer->bytes, PCCL__WAY_EAGER) : NULL;
    if (small && !eager) return PCCL_NO_MEMORY;

    transfer->is_send = true;
    transfer->state = PCCL__POSTED;
    transfer->moved = transfer->acknowledged = transfer->flags = 0;
    list_push_back(&channel->sends, &transfer->link);
    base->ready = true;
    switch (pccl__outbox_post(&channel->outbox, transfer)) {
    case PCCL__WAY_EAGER:
        emit(channel, eager);
        send_complete(channel, transfer, PCCL_OK);
        return PCCL_OK;
    case PCCL__WAY_GRANTED:
        send_granted(channel, transfer, PCCL__WAY_GRANTED);
        break;
    case PCCL__WAY_OFFER:
        emit_key(channel, FRAME_OFFER, transfer);
        break;
    }
    if (eager) frame_free(eager);
    return PCCL_OK;
}

static pccl_status sim_post_recv(struct pccl__channel *base, struct pccl__transfer *transfer) {
    struct sim_channel *channel = cast(base);
    bool go;
    pccl_status status = may_post(channel);
    if (status == PCCL_OK) status = pccl__inbox_post(&channel->inbox, transfer, &go);
    if (status != PCCL_OK) return status;
    if (go) emit_key(channel, FRAME_GO, transfer);
    base->ready = true;
    return PCCL_OK;
}

static pccl_status sim_post_notice(struct pccl__channel *base, uint32_t kind, const struct pccl__key *key,
                                   const struct pccl__stamp *stamp, const void *data, uint32_t bytes) {
    struct sim_channel *channel = cast(base);
    CHECK(kind >= PCCL__NOTICE_OWNER);
    pccl_status status = may_post(channel);
    if (status != PCCL_OK) return status;
    struct frame *frame = frame_new(FRAME_NOTICE, 0);
    if (!frame) return PCCL_NO_MEMORY;
    frame->notice = pccl__notice_new(kind, key, stamp, data, bytes);
    if (!frame->notice) {
        frame_free(frame);
        return PCCL_NO_MEMORY;
    }
    emit(channel, frame);
    return PCCL_OK;
}

static void sim_cancel(struct pccl__channel *base, struct pccl__transfer *transfer, pccl_status why) {
    struct sim_channel *channel = cast(base);
    if (transfer->state != PCCL__POSTED) return;
    base->ready = true;
    if (!transfer->is_send) {
        pccl__inbox_cancel(&channel->inbox, transfer, why);
        return;
    }
    withdraw(channel, transfer);
    send_complete(channel, transfer, why);
}

static void sim_expect(struct pccl__channel *base, uint64_t epoch) {
    struct sim_channel *channel = cast(base);
    pccl__inbox_expect(&channel->inbox, epoch);
    pccl__outbox_expect(&channel->outbox, epoch);
    base->ready = true; /* the window may have to be announced */
}

static void sim_progress(struct pccl__channel *base, uint64_t now_ns, struct pccl__done *done) {
    struct sim_channel *channel = cast(base);
    if (channel->peer->dead && !channel->closed) {
        base->ready = false;
        return;
    }
    if (!list_empty(&channel->arrived_control) || !list_empty(&channel->arrived_data)) {
        base->heard_ns = now_ns;
        read_arrived(channel);
    }
    announce_window(channel);
    list_splice(&done->transfers, &channel->completed);
    list_splice(&done->notices, &channel->notices);
    base->ready = !list_empty(&channel->arrived_data);
}

/* A random tail of what is on the way is lost; the far end sees the link break after the rest. */
static void part(struct sim_channel *channel) {
    struct sim_channel *other = channel->other;
    if (!other) return;
    struct pccl__sim_network *network = network_of(channel);
    uint32_t count = 0;
    for (struct list *node = other->in_flight.next; node != &other->in_flight; node = node->next) count++;
    uint32_t lost = other->down ? 0 : prng_below(&network->random, count + 1);
    while (lost--) frame_lose(LIST_ENTRY(other->in_flight.previous, struct frame, link));
    link_break(channel);
}

static void sim_close(struct pccl__channel *base, pccl_status why) {
    struct sim_channel *channel = cast(base);
    if (channel->closed) return;
    channel->closed = true;
    part(channel);
    channel->down = true;
    fail_all(channel, why);
    if (channel->other) channel->other->other = NULL;
    channel->other = NULL;
}

static void sim_free(struct pccl__channel *base) {
    struct sim_channel *channel = cast(base);
    CHECK(channel->closed && list_empty(&channel->sends) && list_empty(&channel->completed));
    struct list *node;
    while ((node = list_pop_front(&channel->notices))) pccl__notice_free(LIST_ENTRY(node, struct pccl__notice, link));
    list_remove(&channel->network_link);
    free(channel);
}

static const struct pccl__channel_ops channel_ops = {
    .name = "sim",
    .post_send = sim_post_send,
    .post_recv = sim_post_recv,
    .post_notice = sim_post_notice,
    .cancel = sim_cancel,
    .expect = sim_expect,
    .progress = sim_progress,
    .close = sim_close,
    .free = sim_free,
};

/* ---------------------------------------------------------------- transports and the network */

static bool same_id(const pccl_peer_id *a, const pccl_peer_id *b) { return memcmp(a, b, sizeof *a) == 0; }

static struct peer *find_peer(const struct pccl__sim_network *network, const pccl_peer_id *id) {
    for (struct list *node = network->peers.next; node != &network->peers; node = node->next) {
        struct peer *peer = LIST_ENTRY(node, struct peer, link);
        if (same_id(&peer->id, id)) return peer;
    }
    return NULL;
}

static void meet(struct sim_channel *a, struct sim_channel *b) {
    struct sim_channel *ends[2] = {a, b};
    a->other = b;
    b->other = a;
    a->met = b->met = true;
    for (int i = 0; i < 2; i++) {
        struct list *node;
        while ((node = list_pop_front(&ends[i]->unlinked))) emit(ends[i], LIST_ENTRY(node, struct frame, link));
    }
}

static pccl_status sim_open(struct pccl__transport *transport, const pccl_member *member,
                            struct pccl__channel **opened) {
    struct peer *peer = (struct peer *)transport;
    struct pccl__sim_network *network = peer->network;
    struct sim_channel *channel = calloc(1, sizeof *channel);
    if (!channel) return PCCL_NO_MEMORY;
    channel->base.ops = &channel_ops;
    channel->base.peer = member->id;
    channel->base.deadline_ns = NEVER_NS;
    list_init(&channel->base.ready_link);
    channel->peer = peer;
    struct list *lists[] = {&channel->network_link,    &channel->unlinked,     &channel->in_flight,
                            &channel->arrived_control, &channel->arrived_data, &channel->sends,
                            &channel->completed,       &channel->notices};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) list_init(lists[i]);
    pccl__inbox_init(&channel->inbox, &channel->completed, &channel->notices);
    pccl__outbox_init(&channel->outbox, &channel->notices);

    struct peer *target = find_peer(network, &member->id);
    bool dead = target && target->dead;
    for (struct list *node = network->channels.next; !dead && node != &network->channels; node = node->next) {
        struct sim_channel *other = LIST_ENTRY(node, struct sim_channel, network_link);
        if (other->met || other->down || other->peer != target || !same_id(&other->base.peer, &peer->id)) continue;
        meet(channel, other);
        break;
    }
    if (dead) link_break(channel); /* nobody answers there */
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
    return network;
}

void pccl__sim_network_free(struct pccl__sim_network *network) {
    CHECK(list_empty(&network->peers) && list_empty(&network->channels));
    while (network->queue) frame_free(queue_pop(network));
    free(network);
}

void pccl__sim_kill(struct pccl__sim_network *network, pccl_peer_id id) {
    struct peer *peer = find_peer(network, &id);
    if (!peer || peer->dead) return;
    peer->dead = true;
    for (struct list *node = network->channels.next; node != &network->channels; node = node->next) {
        struct sim_channel *channel = LIST_ENTRY(node, struct sim_channel, network_link);
        if (channel->peer == peer)
            part(channel);
        else if (!channel->met && !channel->down && same_id(&channel->base.peer, &id))
            link_break(channel);
    }
}

void pccl__sim_cut(struct pccl__sim_network *network, pccl_peer_id a, pccl_peer_id b) {
    for (struct list *node = network->channels.next; node != &network->channels; node = node->next) {
        struct sim_channel *channel = LIST_ENTRY(node, struct sim_channel, network_link);
        if (channel->other && same_id(&channel->peer->id, &a) && same_id(&channel->base.peer, &b)) part(channel);
    }
}

uint64_t pccl__sim_next_ns(const struct pccl__sim_network *network) {
    return network->queue ? network->queue->due_ns : NEVER_NS;
}

uint64_t pccl__sim_now_ns(const struct pccl__sim_network *network) { return network->now_ns; }

void pccl__sim_advance(struct pccl__sim_network *network, uint64_t now_ns) {
    network->now_ns = max_u64(network->now_ns, now_ns);
    while (network->queue && network->queue->due_ns <= network->now_ns) {
        struct frame *frame = queue_pop(network);
        struct sim_channel *to = frame->to;
        if (!to) {
            frame_free(frame);
            continue;
        }
        bool data = frame->kind == FRAME_DATA || frame->kind == FRAME_BREAK;
        list_remove(&frame->link);
        list_push_back(data ? &to->arrived_data : &to->arrived_control, &frame->link);
        to->base.ready = true;
    }
}
