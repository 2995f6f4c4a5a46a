/* SPDX-License-Identifier: MIT
 *
 * tcp_receive.c - the receiving half of a channel: what an arrived frame does.
 */
#include "base/bits.h"
#include "base/check.h"
#include "base/clock.h"
#include "channel/tcp_channel.h"

/* What is not told by a frame that goes the other way anyhow is told in a frame of its own: soon after a large transfer
 * ended (somebody waits for its memory) or when this much is untold, else after this time. */
enum { UNTOLD_BYTES = 1024 * 1024, UNTOLD_WINDOW = PCCL__EAGER_WINDOW / 4, UNTOLD_CONTROL = 64 };
#define UNTOLD_NS (20 * NS_PER_MS)

static void tell_later(struct tcp_channel *channel) {
    if (channel->ack_ns == NEVER_NS) channel->ack_ns = channel->now_ns + UNTOLD_NS;
}

bool pccl__tcp_arriving(struct tcp_channel *channel, struct tcp_stripe *stripe) {
    const struct tcp_header *header = &stripe->header;
    if (stripe->state == TCP_STRIPE_ACCEPTED && !pccl__tcp_link_confirmed(channel, stripe)) return false;
    if (!pccl__tcp_acknowledge(channel, stripe, header)) {
        pccl__tcp_break(channel, 0, "it acknowledged what was never sent");
        return false;
    }
    if (!channel->base.maps && !channel->checked) channel->base.maps = pccl__shm_pull_maps(&stripe->medium.pull);
    if (header->kind == TCP_ACK) return true;
    stripe->signs++;
    if (header->kind == TCP_OFFER || header->kind == TCP_GO) channel->base.moved_ns = channel->now_ns;
    if (header->kind != TCP_DATA) return true;
    channel->base.moved_ns = channel->now_ns;
    if (header->number != stripe->received + 1) {
        pccl__tcp_break(channel, 0, "its frames are out of order");
        return false;
    }
    struct pccl__arrival arrival = {
        .key = header->key,
        .stamp = header->stamp,
        .bytes = header->bytes,
        .offset = header->offset,
        .payload_bytes = header->payload_bytes,
        .eager = header->flags & TCP_FLAG_EAGER,
        .offered = header->flags & TCP_FLAG_OFFERED,
    };
    pccl_status status = pccl__inbox_land(&channel->inbox, &arrival, &stripe->landing);
    if (status == PCCL_OK) return true;
    pccl__tcp_break(channel, 0, "cannot take a frame: %s", pccl_status_string(status));
    return false;
}

static bool data_arrived(struct tcp_channel *channel, struct tcp_stripe *stripe) {
    struct pccl__transfer *transfer = stripe->landing.transfer;
    if (pccl__landing_end(&stripe->landing) != PCCL_OK) {
        pccl__tcp_break(channel, 0, "it sent more than a transfer holds");
        return false;
    }
    stripe->received++;
    stripe->untold_bytes += TCP_HEADER_BYTES + stripe->header.payload_bytes;
    tell_later(channel);
    bool window = channel->inbox.released_bytes - channel->released_told >= UNTOLD_WINDOW;
    if (stripe->untold_bytes >= UNTOLD_BYTES || window) stripe->ack_due = true;
    bool large = !(stripe->header.flags & TCP_FLAG_EAGER);
    if (!large || !transfer || transfer->state != PCCL__COMPLETED) return true;
    for (uint32_t i = 0; i < channel->stripes_count; i++) {
        struct tcp_stripe *each = channel->stripes[i];
        if (each && each->told != each->received) each->ack_due = true;
    }
    return true;
}

/* GO for a receive that is already posted. */
static bool answer_offer(struct tcp_channel *channel, const struct tcp_header *header) {
    bool go = false;
    pccl_status status = pccl__inbox_offer(&channel->inbox, &header->key, &header->stamp, header->bytes, &go);
    if (status == PCCL_OK && go) {
        struct tcp_frame *frame = pccl__tcp_frame_new(&channel->pool, TCP_GO, 0);
        if (frame) {
            frame->header.key = header->key;
            frame->header.bytes = header->bytes;
            pccl__tcp_queue_control(channel, frame);
        } else {
            status = PCCL_NO_MEMORY;
        }
    }
    if (status == PCCL_OK) return true;
    pccl__tcp_break(channel, 0, "cannot take an offer: %s", pccl_status_string(status));
    return false;
}

static bool go_arrived(struct tcp_channel *channel, const struct tcp_header *header) {
    struct pccl__transfer *transfer;
    pccl_status status = pccl__outbox_go(&channel->outbox, &header->key, header->bytes, &transfer);
    if (status != PCCL_OK) {
        pccl__tcp_break(channel, 0, "cannot take a go-ahead: %s", pccl_status_string(status));
        return false;
    }
    if (transfer) {
        list_remove(&transfer->link);
        pccl__line_add(&channel->line, &transfer->ticket, &transfer->key, transfer->priority, false);
    }
    return true;
}

static bool notice_arrived(struct tcp_channel *channel, const struct tcp_header *header, const uint8_t *payload) {
    if (header->argument < PCCL__NOTICE_OWNER) {
        pccl__tcp_break(channel, 0, "it sent a notice of a kind that only channels make");
        return false;
    }
    struct pccl__notice *notice =
        pccl__notice_new(header->argument, &header->key, &header->stamp, payload, header->payload_bytes);
    if (!notice) {
        pccl__tcp_break(channel, 0, "out of memory for a notice");
        return false;
    }
    list_push_back(&channel->notices, &notice->link);
    return true;
}

static bool acknowledgement_arrived(struct tcp_channel *channel, struct tcp_stripe *stripe) {
    stripe->signs += stripe->asked;
    if (stripe->header.flags & TCP_FLAG_ASKS) stripe->ack_due = true;
    if (stripe->header.bytes == 0 || pccl__tcp_silence_partly(stripe, stripe->header.bytes)) return true;
    pccl__tcp_break(channel, 0, "it acknowledged what was never sent");
    return false;
}

bool pccl__tcp_arrived(struct tcp_channel *channel, struct tcp_stripe *stripe, const uint8_t *payload) {
    const struct tcp_header *header = &stripe->header;
    if (header->kind == TCP_DATA) return data_arrived(channel, stripe);
    if (header->kind == TCP_ACK) return acknowledgement_arrived(channel, stripe);
    stripe->unanswered = true;
    tell_later(channel);
    if (header->number <= channel->control_received) return true; /* it came on a stripe that was lost since */
    if (header->number != channel->control_received + 1) {
        pccl__tcp_break(channel, 0, "its control frames are out of order");
        return false;
    }
    channel->control_received++;
    if (channel->control_received - channel->control_told >= UNTOLD_CONTROL) stripe->ack_due = true;
    switch (header->kind) {
    case TCP_OFFER:
        return answer_offer(channel, header);
    case TCP_GO:
        return go_arrived(channel, header);
    case TCP_NOTICE:
        return notice_arrived(channel, header, payload);
    default:
        CHECK(header->kind == TCP_DOWN);
        pccl__tcp_link_down(channel, header->argument, header->bytes, header->key.tag);
        return stripe->fd >= 0;
    }
}
