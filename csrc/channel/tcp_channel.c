/* SPDX-License-Identifier: MIT
 *
 * tcp_channel.c - the table of operations that channel.h asks for.
 *
 * Life of a transfer. A send is copied into an eager frame (and has completed), or stands in `line` until stripes
 * have taken all its pieces and then in `unacknowledged`, or first in `offered` (before that perhaps held back by the
 * outbox) until the other side's go-ahead. A
 * receive belongs to the inbox. Whoever completes goes to `completed`, which the next progress hands over.
 */
#include "channel/tcp_channel.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"
#include "channel/tcp_path.h"

void pccl__tcp_complete(struct tcp_channel *channel, struct pccl__transfer *transfer, pccl_status status) {
    pccl__line_remove(&channel->line, &transfer->ticket);
    list_remove(&transfer->link);
    transfer->status = status;
    transfer->state = PCCL__COMPLETED;
    list_push_back(&channel->completed, &transfer->link);
    channel->base.ready = true;
}

static void fail_sends(struct tcp_channel *channel, struct list *sends, pccl_status why) {
    while (!list_empty(sends)) {
        struct pccl__transfer *transfer = LIST_ENTRY(sends->next, struct pccl__transfer, link);
        pccl__outbox_remove(&channel->outbox, transfer);
        pccl__tcp_complete(channel, transfer, why);
    }
}

static void fail_line(struct tcp_channel *channel, pccl_status why) {
    for (struct pccl__ticket *ticket; (ticket = pccl__line_next(&channel->line));) {
        pccl__line_remove(&channel->line, ticket);
        if (ticket->small)
            pccl__tcp_frame_free(&channel->pool, LIST_ENTRY(ticket, struct tcp_frame, ticket));
        else
            pccl__tcp_complete(channel, LIST_ENTRY(ticket, struct pccl__transfer, ticket), why);
    }
}

/* Everything posted ends with `why`; every stripe is closed. */
static void fail_all(struct tcp_channel *channel, pccl_status why) {
    for (uint32_t i = 0; i < channel->stripes_count; i++) {
        struct tcp_stripe *stripe = channel->stripes[i];
        if (!stripe) continue;
        pccl__tcp_stripe_close(stripe);
        pccl__tcp_frame_free_all(&channel->pool, &stripe->writing);
        pccl__tcp_frame_free_all(&channel->pool, &stripe->retained);
        stripe->writing_count = stripe->written = 0;
    }
    pccl__tcp_frame_free_all(&channel->pool, &channel->control);
    pccl__tcp_frame_free_all(&channel->pool, &channel->control_sent);
    pccl__tcp_frame_free_all(&channel->pool, &channel->resend);
    fail_sends(channel, &channel->outbox.held, why);
    fail_sends(channel, &channel->offered, why);
    fail_line(channel, why);
    fail_sends(channel, &channel->unacknowledged, why);
    pccl__outbox_clear(&channel->outbox);
    pccl__inbox_fail(&channel->inbox, why);
    channel->ack_ns = NEVER_NS;
    channel->base.ready = true;
}

void pccl__tcp_break(struct tcp_channel *channel, int system_errno, const char *format, ...) {
    if (channel->closed || channel->base.broken) return;
    channel->base.broken = true;
    char why[PCCL_MESSAGE_BYTES / 2];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    (void)pccl__fail(&channel->base.error, PCCL_PEER_LOST, "tcp link to %s: %s%s%s", channel->address.text, why,
                     system_errno ? ": " : "", system_errno ? strerror(system_errno) : "");
    channel->base.error.system_errno = system_errno;
    fail_all(channel, PCCL_PEER_LOST);
}

/* ---------------------------------------------------------------- posting */

static pccl_status postable(const struct tcp_channel *channel, const struct pccl__transfer *transfer) {
    if (channel->base.broken) return PCCL_PEER_LOST;
    if (channel->closed) return PCCL_CLOSED;
    return transfer->bytes > PCCL__TRANSFER_BYTES ? PCCL_INVALID : PCCL_OK;
}

static void take_transfer(struct tcp_channel *channel, struct pccl__transfer *transfer, bool is_send) {
    list_init(&transfer->link);
    pccl__ticket_init(&transfer->ticket);
    transfer->is_send = is_send;
    transfer->state = PCCL__POSTED;
    transfer->status = PCCL_OK;
    transfer->moved = transfer->acknowledged = transfer->flags = 0;
    channel->wanted = true;
    channel->base.ready = true;
}

/* `frame` has the transfer's key, stamp and bytes. */
static void offer(struct tcp_channel *channel, struct pccl__transfer *transfer, struct tcp_frame *frame) {
    frame->header.kind = TCP_OFFER;
    transfer->flags |= TCP_TRANSFER_OFFERED;
    pccl__tcp_queue_control(channel, frame);
    list_push_back(&channel->offered, &transfer->link);
}

static pccl_status post_send(struct pccl__channel *base, struct pccl__transfer *transfer) {
    struct tcp_channel *channel = tcp_channel_of(base);
    pccl_status status = postable(channel, transfer);
    if (status != PCCL_OK) return status;
    bool small = transfer->bytes <= PCCL__EAGER_BYTES;
    /* Taken before the outbox decides: it cannot take a decision back. */
    struct tcp_frame *frame = pccl__tcp_frame_new(&channel->pool, TCP_DATA, small ? transfer->bytes : 0);
    if (!frame) return PCCL_NO_MEMORY;
    take_transfer(channel, transfer, true);
    frame->header.key = transfer->key;
    frame->header.stamp = transfer->stamp;
    frame->header.bytes = transfer->bytes;
    switch (pccl__outbox_post(&channel->outbox, transfer)) {
    case PCCL__WAY_EAGER:
        frame->header.flags = TCP_FLAG_EAGER;
        frame->header.payload_bytes = transfer->bytes;
        if (transfer->bytes) memcpy(pccl__tcp_frame_own(frame), transfer->data, transfer->bytes);
        pccl__line_add(&channel->line, &frame->ticket, &transfer->key, transfer->priority, true);
        transfer->moved = transfer->acknowledged = transfer->bytes;
        pccl__tcp_complete(channel, transfer, PCCL_OK);
        break;
    case PCCL__WAY_GRANTED:
        pccl__tcp_frame_free(&channel->pool, frame);
        pccl__line_add(&channel->line, &transfer->ticket, &transfer->key, transfer->priority, false);
        break;
    case PCCL__WAY_OFFER:
        offer(channel, transfer, frame);
        break;
    case PCCL__WAY_HOLD:
        pccl__tcp_frame_free(&channel->pool, frame);
        break;
    }
    return PCCL_OK;
}

/* Offers that were held back go when others were answered. */
static void offer_held(struct tcp_channel *channel) {
    struct pccl__transfer *transfer;
    while ((transfer = pccl__outbox_next_offer(&channel->outbox))) {
        struct tcp_frame *frame = pccl__tcp_frame_new(&channel->pool, TCP_OFFER, 0);
        if (!frame) {
            list_push_back(&channel->offered, &transfer->link); /* to end with the others */
            pccl__tcp_break(channel, 0, "out of memory for an offer");
            return;
        }
        frame->header.key = transfer->key;
        frame->header.stamp = transfer->stamp;
        frame->header.bytes = transfer->bytes;
        offer(channel, transfer, frame);
    }
}

static pccl_status post_recv(struct pccl__channel *base, struct pccl__transfer *transfer) {
    struct tcp_channel *channel = tcp_channel_of(base);
    pccl_status status = postable(channel, transfer);
    if (status != PCCL_OK) return status;
    struct tcp_frame *frame = pccl__tcp_frame_new(&channel->pool, TCP_GO, 0);
    if (!frame) return PCCL_NO_MEMORY;
    take_transfer(channel, transfer, false);
    frame->header.key = transfer->key;
    frame->header.bytes = transfer->bytes;
    bool go = false;
    status = pccl__inbox_post(&channel->inbox, transfer, &go);
    if (status == PCCL_OK && go)
        pccl__tcp_queue_control(channel, frame);
    else
        pccl__tcp_frame_free(&channel->pool, frame);
    return status;
}

static pccl_status post_notice(struct pccl__channel *base, uint32_t kind, const struct pccl__key *key,
                               const struct pccl__stamp *stamp, const void *data, uint32_t bytes) {
    struct tcp_channel *channel = tcp_channel_of(base);
    CHECK(bytes <= PCCL__NOTICE_BYTES && kind >= PCCL__NOTICE_OWNER);
    if (base->broken) return PCCL_PEER_LOST;
    if (channel->closed) return PCCL_CLOSED;
    struct tcp_frame *frame = pccl__tcp_frame_new(&channel->pool, TCP_NOTICE, bytes);
    if (!frame) return PCCL_NO_MEMORY;
    if (key) frame->header.key = *key;
    if (stamp) frame->header.stamp = *stamp;
    frame->header.argument = kind;
    frame->header.payload_bytes = bytes;
    if (bytes) memcpy(pccl__tcp_frame_own(frame), data, bytes);
    pccl__tcp_queue_control(channel, frame);
    channel->wanted = true;
    return PCCL_OK;
}

static void cancel(struct pccl__channel *base, struct pccl__transfer *transfer, pccl_status why) {
    struct tcp_channel *channel = tcp_channel_of(base);
    if (transfer->state != PCCL__POSTED) return;
    base->ready = true;
    if (!transfer->is_send) {
        pccl__inbox_cancel(&channel->inbox, transfer, why);
        return;
    }
    pccl__outbox_remove(&channel->outbox, transfer);
    pccl__tcp_complete(channel, transfer, why);
    pccl__tcp_forsake(channel, transfer);
}

static pccl_status discard(struct pccl__channel *base, const struct pccl__key *key) {
    base->ready = true; /* the window may have to be announced */
    return pccl__inbox_discard(&tcp_channel_of(base)->inbox, key);
}

static void decline(struct pccl__channel *base, const struct pccl__key *key) {
    pccl__outbox_decline(&tcp_channel_of(base)->outbox, key);
}

static void expect(struct pccl__channel *base, uint64_t epoch) {
    struct tcp_channel *channel = tcp_channel_of(base);
    pccl__inbox_expect(&channel->inbox, epoch);
    pccl__outbox_expect(&channel->outbox, epoch);
    base->ready = true;
}

/* ---------------------------------------------------------------- progress */

/* What was due when the last progress ended had its chance of a lift. */
static void acknowledgements_fall_due(struct tcp_channel *channel) {
    bool late = channel->now_ns >= channel->ack_ns;
    bool window = channel->inbox.released_bytes != channel->released_told;
    bool control = channel->control_received != channel->control_told;
    for (uint32_t i = 0; i < channel->stripes_count; i++) {
        struct tcp_stripe *stripe = channel->stripes[i];
        if (!stripe || stripe->state != TCP_STRIPE_UP) continue;
        pccl__tcp_silence_tell(stripe, channel->now_ns);
        if (stripe->ack_due) stripe->ack_now = true;
        if (!late) continue;
        if (window || control || stripe->unanswered || stripe->received != stripe->told) stripe->ack_now = true;
        window = control = false;
    }
    if (late) channel->ack_ns = NEVER_NS;
}

static bool has_work(const struct tcp_channel *channel) {
    if (channel->unflushed) return true;
    for (uint32_t i = 0; i < channel->stripes_count; i++) {
        const struct tcp_stripe *stripe = channel->stripes[i];
        if (!stripe || stripe->state != TCP_STRIPE_UP) continue;
        /* A full socket will report itself; being called before that would not help. */
        if (stripe->readable || (stripe->ack_due && stripe->writable)) return true;
    }
    return false;
}

static void move(struct tcp_channel *channel) {
    pccl__tcp_link_progress(channel, channel->now_ns);
    acknowledgements_fall_due(channel);
    for (uint32_t i = 0; i < channel->stripes_count; i++) {
        struct tcp_stripe *stripe = channel->stripes[i];
        if (!stripe || !stripe->readable) continue;
        if (stripe->state == TCP_STRIPE_UP || stripe->state == TCP_STRIPE_ACCEPTED) pccl__tcp_stripe_read(stripe);
    }
    if (!channel->base.broken) offer_held(channel);
    pccl__tcp_flush(channel);
    if (!channel->base.broken && pccl__tcp_silence_look(channel)) pccl__tcp_flush(channel);
    if (!channel->base.broken) pccl__tcp_death_look(channel);
}

static void progress(struct pccl__channel *base, uint64_t now_ns, struct pccl__done *done) {
    struct tcp_channel *channel = tcp_channel_of(base);
    base->ready = false;
    base->deadline_ns = NEVER_NS;
    channel->now_ns = now_ns;
    if (!channel->closed && !base->broken) move(channel);
    if (!channel->closed && !base->broken) {
        base->deadline_ns = min_u64(min_u64(channel->ack_ns, channel->look_ns),
                                    min_u64(channel->death.look_ns, pccl__tcp_link_deadline(channel)));
        base->ready = has_work(channel);
    } else {
        base->ready = false;
    }
    list_splice(&done->transfers, &channel->completed);
    list_splice(&done->notices, &channel->notices);
}

/* Its stripes share the path, so they add up; one that had too little to send is taken to be like the others. What goes
 * through shared memory is not measured: large pieces are fetched from where they lie, and how long the rest takes is
 * a matter of cores. */
static void measure(struct pccl__channel *base) {
    const struct tcp_channel *channel = tcp_channel_of(base);
    uint64_t rtt_ns = 0, together = 0, busy = 0, up = 0;
    for (uint32_t i = 0; i < channel->stripes_count; i++) {
        const struct tcp_stripe *stripe = channel->stripes[i];
        if (!stripe || stripe->state != TCP_STRIPE_UP || stripe->medium.rings) continue;
        uint64_t round_ns = pccl__tcp_path_rtt_ns(stripe->fd), pace = pccl__tcp_pace_bytes_per_s(&stripe->pace);
        if (round_ns && (!rtt_ns || round_ns < rtt_ns)) rtt_ns = round_ns;
        together += pace;
        busy += pace > 0;
        up++;
    }
    if (rtt_ns) base->rtt_ns = rtt_ns;
    if (busy) base->bytes_per_s = together / busy * up;
}

/* ---------------------------------------------------------------- life */

/* What is queued goes as far as the sockets take it: completed sends should not die with the channel that took them. */
static void close_channel(struct pccl__channel *base, pccl_status why) {
    struct tcp_channel *channel = tcp_channel_of(base);
    if (channel->closed) return;
    channel->closed = true; /* first: a stripe that fails now must not break the channel with another reason */
    if (!base->broken) pccl__tcp_flush(channel);
    fail_all(channel, why);
}

static void free_channel(struct pccl__channel *base) {
    struct tcp_channel *channel = tcp_channel_of(base);
    CHECK(channel->closed);
    for (struct list *node; (node = list_pop_front(&channel->notices));)
        pccl__notice_free(LIST_ENTRY(node, struct pccl__notice, link));
    CHECK(list_empty(&channel->completed));
    for (uint32_t i = 0; i < channel->stripes_count; i++) pccl__tcp_stripe_free(channel->stripes[i]);
    pccl__arena_view_close(&channel->view);
    pccl__tcp_frame_pool_free(&channel->pool);
    list_remove(&channel->link);
    free(channel);
}

static const struct pccl__channel_ops operations = {
    .name = "tcp",
    .post_send = post_send,
    .post_recv = post_recv,
    .post_notice = post_notice,
    .cancel = cancel,
    .discard = discard,
    .decline = decline,
    .measure = measure,
    .expect = expect,
    .progress = progress,
    .close = close_channel,
    .free = free_channel,
};

static void init_lists(struct tcp_channel *channel) {
    struct list *lists[] = {&channel->link,    &channel->completed,      &channel->notices,
                            &channel->offered, &channel->unacknowledged, &channel->resend,
                            &channel->control, &channel->control_sent,   &channel->base.ready_link};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) list_init(lists[i]);
}

pccl_status pccl__tcp_channel_new(struct tcp_transport *transport, const pccl_member *peer,
                                  struct pccl__channel **result) {
    struct tcp_address address;
    if (!memchr(peer->address, 0, sizeof peer->address)) return PCCL_INVALID;
    if (!pccl__tcp_address_parse(&address, peer->address, peer->port)) return PCCL_INVALID;
    struct tcp_channel *channel = calloc(1, sizeof *channel);
    if (!channel) return PCCL_NO_MEMORY;
    channel->base.ops = &operations;
    channel->base.peer = peer->id;
    channel->base.deadline_ns = NEVER_NS;
    channel->base.same_host = peer->host_id != 0 && peer->host_id == transport->host_id;
    channel->transport = transport;
    channel->address = address;
    channel->checked = transport->checksum == 1 || (transport->checksum == 0 && !channel->base.same_host);
    channel->control_stripe = -1;
    channel->ack_ns = channel->look_ns = channel->death.look_ns = NEVER_NS;
    init_lists(channel);
    pccl__inbox_init(&channel->inbox, &channel->completed, &channel->notices);
    pccl__outbox_init(&channel->outbox, &channel->notices);
    pccl__line_init(&channel->line);
    pccl__tcp_frame_pool_init(&channel->pool);
    if (!pccl__tcp_stripe_at(channel, 0)) {
        free(channel);
        return PCCL_NO_MEMORY;
    }
    *result = &channel->base;
    return PCCL_OK;
}
