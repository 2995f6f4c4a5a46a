/* SPDX-License-Identifier: MIT
 *
 * tcp_send.c - the sending half of a channel: which frame a stripe gets next, what an acknowledgement ends.
 *
 * A stripe that can write asks for a frame; nothing is assigned to a stripe before. So a fast one takes more, and a
 * single transfer, cut into pieces of its size by the stripes, runs over all of them.
 */
#include "base/bits.h"
#include "base/check.h"
#include "base/clock.h"
#include "channel/tcp_channel.h"
#include "kernel/kernel.h"

/* Pieces of a large transfer: small enough that all stripes share one of 256 KiB and more, large enough that header,
 * system call and the copied rest of a read do not count. */
enum { PIECE_MIN = 64 * 1024, PIECE_MAX = 256 * 1024, PIECE_HURRY = 64 * 1024, FLUSH_ROUNDS = 2 };

/* Pieces that the other side may fetch: from this size on the system call is worth it; and so many at most that have
 * not been fetched, for nothing overtakes them: some 0.5 ms. */
enum { SHOWN_LEAST = 256 * 1024, SHOWN_AHEAD = 8 };

void pccl__tcp_queue_control(struct tcp_channel *channel, struct tcp_frame *frame) {
    frame->header.number = ++channel->control_number;
    list_push_back(&channel->control, &frame->link);
    channel->base.ready = true;
}

/* The control stream keeps its order only on one stripe at a time. */
static bool carries_control(struct tcp_channel *channel, const struct tcp_stripe *stripe) {
    if (channel->control_stripe < 0) channel->control_stripe = (int)stripe->index;
    return channel->control_stripe == (int)stripe->index;
}

/* The next piece of a large transfer; NULL: no memory for its header. */
static struct tcp_frame *cut_frame(struct tcp_channel *channel, struct pccl__transfer *transfer) {
    struct tcp_frame *frame = pccl__tcp_frame_new(&channel->pool, TCP_DATA, 0);
    if (!frame) {
        channel->ack_ns = min_u64(channel->ack_ns, channel->now_ns + 10 * NS_PER_MS);
        return NULL;
    }
    uint64_t share = div_ceil(transfer->bytes, max_u64(channel->up_count, 1));
    uint64_t most = channel->transport->base.hurry ? PIECE_HURRY : PIECE_MAX;
    uint64_t piece = min_u64(max_u64((share + 4095) & ~UINT64_C(4095), PIECE_MIN), most);
    uint32_t bytes = (uint32_t)min_u64(piece, transfer->bytes - transfer->moved);
    frame->transfer = transfer;
    frame->payload = transfer->bytes ? (const uint8_t *)transfer->data + transfer->moved : NULL;
    frame->header.key = transfer->key;
    frame->header.stamp = transfer->stamp;
    frame->header.bytes = transfer->bytes;
    frame->header.offset = transfer->moved;
    frame->header.payload_bytes = bytes;
    if (transfer->flags & TCP_TRANSFER_OFFERED) frame->header.flags |= TCP_FLAG_OFFERED;
    transfer->moved += bytes;
    bool rest = transfer->moved == transfer->bytes;
    pccl__line_went(&channel->line, &transfer->ticket, bytes, rest);
    if (rest) list_push_back(&channel->unacknowledged, &transfer->link);
    channel->turn++;
    return frame;
}

/* A frame of whoever's turn it is; NULL: nobody's, or enough is under way, or no memory. */
static struct tcp_frame *take_turn(struct tcp_channel *channel, const struct tcp_stripe *stripe) {
    struct pccl__ticket *ticket = pccl__line_next(&channel->line);
    if (!ticket || (!ticket->small && stripe->shown >= SHOWN_AHEAD)) return NULL;
    if (!ticket->small) return cut_frame(channel, LIST_ENTRY(ticket, struct pccl__transfer, ticket));
    struct tcp_frame *frame = LIST_ENTRY(ticket, struct tcp_frame, ticket);
    pccl__line_went(&channel->line, ticket, TCP_HEADER_BYTES + frame->header.payload_bytes, true);
    return frame;
}

/* An acknowledgement of its own: what no other frame can say, and what may wait for a lift no longer. */
static struct tcp_frame *acknowledgement(struct tcp_channel *channel, struct tcp_stripe *stripe) {
    struct tcp_frame *frame = pccl__tcp_frame_new(&channel->pool, TCP_ACK, 0);
    if (!frame) return NULL;
    stripe->partly_told = frame->header.bytes = stripe->in_payload ? stripe->payload_got : 0;
    if (stripe->ask_now) frame->header.flags = TCP_FLAG_ASKS;
    stripe->partly_now = stripe->ask_now = false;
    return frame;
}

static struct tcp_frame *choose_frame(struct tcp_channel *channel, struct tcp_stripe *stripe) {
    struct list *node = NULL;
    if (stripe->partly_now || stripe->ask_now) return acknowledgement(channel, stripe);
    if (!list_empty(&channel->control) && carries_control(channel, stripe)) node = list_pop_front(&channel->control);
    if (!node) node = list_pop_front(&channel->resend);
    if (node) return LIST_ENTRY(node, struct tcp_frame, link);
    struct tcp_frame *frame = take_turn(channel, stripe);
    return frame || !stripe->ack_now ? frame : acknowledgement(channel, stripe);
}

/* Has the other side fetch a large piece from where it lies, if it can: one copy instead of two, and no memory that
 * both write. */
static void show_payload(struct tcp_channel *channel, struct tcp_stripe *stripe, struct tcp_frame *frame) {
    struct tcp_header *header = &frame->header;
    header->flags &= (uint8_t)~TCP_FLAG_SHOWN; /* it may be sent again */
    if (!frame->transfer || channel->checked) return;
    if (header->number - stripe->acknowledged > SHM_PULL_SHOWN_MOST) return;
    if (!pccl__shm_pull_mapped(&stripe->medium.pull, frame->payload) &&
        (header->payload_bytes < SHOWN_LEAST || !pccl__shm_pull_possible(&stripe->medium.pull)))
        return;
    header->flags |= TCP_FLAG_SHOWN;
    header->address = (uintptr_t)frame->payload;
    stripe->shown++;
}

struct tcp_frame *pccl__tcp_next_frame(struct tcp_channel *channel, struct tcp_stripe *stripe) {
    struct tcp_frame *frame = choose_frame(channel, stripe);
    if (!frame) return NULL;
    struct tcp_header *header = &frame->header;
    if (header->kind == TCP_DATA) {
        header->number = ++stripe->sent;
        show_payload(channel, stripe, frame);
    } else if (header->kind != TCP_ACK) {
        channel->control_written = max_u64(channel->control_written, header->number);
        stripe->control_taken = header->number;
    }
    if (tcp_checks(channel, stripe) && header->payload_bytes > 0) {
        header->flags |= TCP_FLAG_CHECKED;
        header->payload_crc = pccl__kernels()->crc32c(0, frame->payload, header->payload_bytes);
    }
    header->ack = stripe->told = stripe->received;
    header->control_ack = channel->control_told = channel->control_received;
    header->released = channel->released_told = channel->inbox.released_bytes;
    stripe->ack_due = stripe->ack_now = stripe->unanswered = false;
    stripe->untold_bytes = 0;
    pccl__tcp_header_encode(header, frame->wire);
    return frame;
}

void pccl__tcp_frame_written(struct tcp_channel *channel, struct tcp_stripe *stripe, struct tcp_frame *frame) {
    if (frame->header.kind == TCP_ACK)
        pccl__tcp_frame_free(&channel->pool, frame);
    else
        list_push_back(frame->header.kind == TCP_DATA ? &stripe->retained : &channel->control_sent, &frame->link);
}

bool pccl__tcp_acknowledge_data(struct tcp_channel *channel, struct tcp_stripe *stripe, uint64_t count) {
    while (stripe->acknowledged < count) {
        struct list *node = list_pop_front(&stripe->retained);
        if (!node) return false;
        struct tcp_frame *frame = LIST_ENTRY(node, struct tcp_frame, link);
        stripe->acknowledged++;
        if (frame->header.flags & TCP_FLAG_SHOWN) stripe->shown--;
        struct pccl__transfer *transfer = frame->transfer;
        if (transfer) {
            transfer->acknowledged += frame->header.payload_bytes;
            if (transfer->acknowledged == transfer->bytes) pccl__tcp_complete(channel, transfer, PCCL_OK);
        }
        pccl__tcp_frame_free(&channel->pool, frame);
    }
    return true;
}

/* Frees what the other side has from the front of one queue of the control stream. */
static void release_control(struct tcp_channel *channel, struct list *queue, uint64_t count) {
    while (!list_empty(queue)) {
        struct tcp_frame *frame = LIST_ENTRY(queue->next, struct tcp_frame, link);
        if (frame->header.number > count) return;
        list_remove(&frame->link);
        pccl__tcp_frame_free(&channel->pool, frame);
    }
}

bool pccl__tcp_acknowledge(struct tcp_channel *channel, struct tcp_stripe *stripe, const struct tcp_header *header) {
    if (header->ack > stripe->acknowledged) {
        stripe->partly_acknowledged = 0;
        stripe->signs++;
        channel->base.moved_ns = channel->now_ns;
    }
    if (!pccl__tcp_acknowledge_data(channel, stripe, header->ack)) return false;
    if (header->control_ack > channel->control_written) return false;
    if (header->control_ack > stripe->control_answered) {
        if (stripe->control_answered < stripe->control_taken) stripe->signs++;
        stripe->control_answered = header->control_ack;
    }
    release_control(channel, &channel->control_sent, header->control_ack);
    /* After a stripe was lost these may stand in line for a second time. */
    release_control(channel, &channel->control, header->control_ack);
    return pccl__outbox_release(&channel->outbox, header->released) == PCCL_OK;
}

/* The other side no longer fetches, nor believes, what it was shown; nothing else of it is in our hands. */
static void forsake(struct tcp_stripe *stripe, struct tcp_frame *frame) {
    if (frame->header.flags & TCP_FLAG_SHOWN) pccl__shm_pull_take_back(&stripe->medium.pull, frame->header.number);
    frame->transfer = NULL;
    frame->forsaken = true;
}

/* Frames of `transfer` that nobody may be writing any more. */
static void forsake_all(struct tcp_stripe *stripe, struct list *frames, const struct pccl__transfer *transfer) {
    for (struct list *node = frames->next; node != frames; node = node->next) {
        struct tcp_frame *frame = LIST_ENTRY(node, struct tcp_frame, link);
        if (frame->transfer == transfer) forsake(stripe, frame);
    }
}

static bool detach_all(struct tcp_stripe *stripe, const struct pccl__transfer *transfer) {
    for (struct list *node = stripe->writing.next; node != &stripe->writing; node = node->next) {
        struct tcp_frame *frame = LIST_ENTRY(node, struct tcp_frame, link);
        if (frame->transfer != transfer) continue;
        if (frame->header.flags & TCP_FLAG_SHOWN)
            forsake(stripe, frame);
        else if (!pccl__tcp_frame_detach(frame))
            return false;
    }
    return true;
}

void pccl__tcp_forsake(struct tcp_channel *channel, struct pccl__transfer *transfer) {
    for (struct list *node = channel->resend.next, *next; node != &channel->resend; node = next) {
        next = node->next;
        struct tcp_frame *frame = LIST_ENTRY(node, struct tcp_frame, link);
        if (frame->transfer != transfer) continue;
        list_remove(&frame->link);
        pccl__tcp_frame_free(&channel->pool, frame);
    }
    for (uint32_t i = 0; i < channel->stripes_count; i++) {
        struct tcp_stripe *stripe = channel->stripes[i];
        if (!stripe) continue;
        forsake_all(stripe, &stripe->retained, transfer);
        /* A header that is out promises its payload: without memory for a copy the connection cannot be kept. */
        if (!detach_all(stripe, transfer)) {
            forsake_all(stripe, &stripe->writing, transfer);
            pccl__tcp_stripe_lost(stripe, 0, "out of memory");
        }
    }
}

/* Bounded like reading; `unflushed` says that more could go at once. */
void pccl__tcp_flush(struct tcp_channel *channel) {
    channel->unflushed = false;
    for (int round = 0; round < FLUSH_ROUNDS; round++) {
        bool moved = false;
        uint32_t first = channel->turn;
        for (uint32_t i = 0; i < channel->stripes_count; i++) {
            struct tcp_stripe *stripe = channel->stripes[(first + i) % channel->stripes_count];
            if (!stripe || stripe->state != TCP_STRIPE_UP || !stripe->writable) continue;
            if (pccl__tcp_stripe_write(stripe)) moved = true;
        }
        channel->unflushed = moved;
        if (!moved) return;
    }
}
