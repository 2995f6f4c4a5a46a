/* SPDX-License-Identifier: MIT
 *
 * sim_channel.c - what a simulated channel does with transfers and frames. What may go when is decided by outbox and
 * inbox, as in every transport. See sim_frame.h.
 */
#include "channel/sim_frame.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/check.h"
#include "base/status.h"

enum {
    FRAME_PAYLOAD_MAX = 256 * 1024, /* a large transfer comes in several frames, as over stripes */
    WINDOW_STEP = PCCL__EAGER_WINDOW / 4
};

static struct sim_channel *cast(struct pccl__channel *channel) { return (struct sim_channel *)channel; }

/* ---------------------------------------------------------------- sends */

static void emit_key(struct sim_channel *from, enum frame_kind kind, const struct pccl__transfer *transfer) {
    struct frame *frame = pccl__sim_frame_new(kind, 0);
    if (!frame) {
        pccl__sim_link_break(from);
        return;
    }
    frame->head = (struct pccl__arrival){.key = transfer->key, .stamp = transfer->stamp, .bytes = transfer->bytes};
    pccl__sim_emit(from, frame);
}

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
    struct frame *copy = pccl__sim_frame_new(FRAME_DATA, frame->head.payload_bytes);
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
            pccl__sim_frame_lose(frame);
            if (copy) pccl__sim_schedule(other, copy);
        }
}

static void fail_all(struct sim_channel *channel, pccl_status why) {
    list_splice(&channel->sends, &channel->outbox.held);
    while (!list_empty(&channel->sends)) {
        struct pccl__transfer *transfer = LIST_ENTRY(channel->sends.next, struct pccl__transfer, link);
        withdraw(channel, transfer);
        send_complete(channel, transfer, why);
    }
    pccl__inbox_fail(&channel->inbox, why);
    pccl__outbox_clear(&channel->outbox);
    pccl__sim_lose_all(&channel->unlinked);
    pccl__sim_lose_all(&channel->in_flight);
    pccl__sim_lose_all(&channel->arrived_control);
    pccl__sim_lose_all(&channel->arrived_data);
    channel->base.ready = true;
}

static struct frame *data_frame(struct pccl__transfer *transfer, uint32_t offset, uint32_t payload_bytes,
                                enum pccl__way way) {
    bool copied = transfer->bytes <= PCCL__EAGER_BYTES;
    struct frame *frame = pccl__sim_frame_new(FRAME_DATA, copied ? payload_bytes : 0);
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
            pccl__sim_link_break(channel);
            return;
        }
        pccl__sim_emit(channel, frame);
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
    struct frame *ack = pccl__sim_frame_new(FRAME_ACK, 0);
    if (!ack) {
        pccl__sim_link_break(channel);
        return;
    }
    ack->transfer = frame->transfer;
    ack->head.payload_bytes = frame->head.payload_bytes;
    pccl__sim_emit(channel, ack);
}

static pccl_status read_control(struct sim_channel *channel, struct frame *frame) {
    struct pccl__transfer *transfer = frame->transfer;
    pccl_status status = PCCL_OK;
    bool go = false;
    switch (frame->kind) {
    case FRAME_OFFER:
        status = pccl__inbox_offer(&channel->inbox, &frame->head.key, &frame->head.stamp, frame->head.bytes, &go);
        if (go)
            emit_key(channel, FRAME_GO, &(struct pccl__transfer){.key = frame->head.key, .bytes = frame->head.bytes});
        break;
    case FRAME_GO:
        status = pccl__outbox_go(&channel->outbox, &frame->head.key, frame->head.bytes, &transfer);
        if (!transfer) break;
        if (transfer->flags & PCCL__TRANSFER_HELD) {
            list_remove(&transfer->link);
            list_push_back(&channel->sends, &transfer->link);
        }
        send_granted(channel, transfer, transfer->flags & PCCL__TRANSFER_HELD ? PCCL__WAY_GRANTED : PCCL__WAY_OFFER);
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
    pccl__sim_link_break(channel); /* the far end, where it does not know yet */
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
        if (frame->kind != FRAME_NOTICE) channel->base.moved_ns = channel->base.heard_ns;
        status = read_control(channel, frame);
        pccl__sim_frame_free(frame);
    }
    while (status == PCCL_OK && !list_empty(&channel->arrived_data)) {
        struct frame *frame = LIST_ENTRY(channel->arrived_data.next, struct frame, link);
        channel->base.moved_ns = channel->base.heard_ns;
        if (frame->kind == FRAME_BREAK) {
            status = PCCL_PEER_LOST;
        } else if (read_piece(channel, frame, &status)) {
            if (status == PCCL_OK) acknowledge(channel, frame);
            list_remove(&frame->link);
            pccl__sim_frame_free(frame);
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

static void offer_held(struct sim_channel *channel) {
    struct pccl__transfer *transfer;
    while ((transfer = pccl__outbox_next_offer(&channel->outbox))) {
        list_push_back(&channel->sends, &transfer->link);
        emit_key(channel, FRAME_OFFER, transfer);
    }
}

static void announce_window(struct sim_channel *channel) {
    if (channel->inbox.released_bytes - channel->announced_bytes < WINDOW_STEP) return;
    struct frame *frame = pccl__sim_frame_new(FRAME_WINDOW, 0);
    if (!frame) {
        pccl__sim_link_break(channel);
        return;
    }
    frame->released_bytes = channel->announced_bytes = channel->inbox.released_bytes;
    pccl__sim_emit(channel, frame);
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
    base->ready = true;
    enum pccl__way way = pccl__outbox_post(&channel->outbox, transfer);
    if (way != PCCL__WAY_HOLD) list_push_back(&channel->sends, &transfer->link);
    switch (way) {
    case PCCL__WAY_EAGER:
        pccl__sim_emit(channel, eager);
        send_complete(channel, transfer, PCCL_OK);
        return PCCL_OK;
    case PCCL__WAY_GRANTED:
        send_granted(channel, transfer, PCCL__WAY_GRANTED);
        break;
    case PCCL__WAY_OFFER:
        emit_key(channel, FRAME_OFFER, transfer);
        break;
    case PCCL__WAY_HOLD:
        break;
    }
    if (eager) pccl__sim_frame_free(eager);
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
    struct frame *frame = pccl__sim_frame_new(FRAME_NOTICE, 0);
    if (!frame) return PCCL_NO_MEMORY;
    frame->notice = pccl__notice_new(kind, key, stamp, data, bytes);
    if (!frame->notice) {
        pccl__sim_frame_free(frame);
        return PCCL_NO_MEMORY;
    }
    pccl__sim_emit(channel, frame);
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

static pccl_status sim_discard(struct pccl__channel *base, const struct pccl__key *key) {
    base->ready = true; /* the window may have to be announced */
    return pccl__inbox_discard(&cast(base)->inbox, key);
}

static void sim_decline(struct pccl__channel *base, const struct pccl__key *key) {
    pccl__outbox_decline(&cast(base)->outbox, key);
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
    offer_held(channel);
    list_splice(&done->transfers, &channel->completed);
    list_splice(&done->notices, &channel->notices);
    base->ready = !list_empty(&channel->arrived_data);
}

static void sim_close(struct pccl__channel *base, pccl_status why) {
    struct sim_channel *channel = cast(base);
    if (channel->closed) return;
    channel->closed = true;
    pccl__sim_part(channel);
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
    if (channel->break_frame) pccl__sim_frame_free(channel->break_frame);
    list_remove(&channel->network_link);
    free(channel);
}

const struct pccl__channel_ops pccl__sim_channel_ops = {
    .name = "sim",
    .post_send = sim_post_send,
    .post_recv = sim_post_recv,
    .post_notice = sim_post_notice,
    .cancel = sim_cancel,
    .discard = sim_discard,
    .decline = sim_decline,
    .expect = sim_expect,
    .progress = sim_progress,
    .close = sim_close,
    .free = sim_free,
};
