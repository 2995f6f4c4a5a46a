/* SPDX-License-Identifier: MIT
 *
 * sim_frame.c - frames of the simulated network: delays, losses, breaks. See sim_frame.h.
 */
#include "channel/sim_frame.h"

#include <stdlib.h>

#include "base/bits.h"
#include "base/check.h"
#include "base/status.h"

struct frame *pccl__sim_frame_new(enum frame_kind kind, uint32_t copy_bytes) {
    struct frame *frame = calloc(1, sizeof *frame + copy_bytes);
    if (!frame) return NULL;
    list_init(&frame->link);
    frame->kind = kind;
    return frame;
}

void pccl__sim_frame_free(struct frame *frame) {
    if (frame->landing_begun) pccl__landing_drop(&frame->landing);
    if (frame->notice) pccl__notice_free(frame->notice);
    free(frame);
}

void pccl__sim_frame_lose(struct frame *frame) {
    list_remove(&frame->link);
    if (frame->timer.inside) heap_remove(&network_of(frame->to)->queue, &frame->timer);
    pccl__sim_frame_free(frame);
}

void pccl__sim_lose_all(struct list *frames) {
    while (!list_empty(frames)) pccl__sim_frame_lose(LIST_ENTRY(frames->next, struct frame, link));
}

void pccl__sim_schedule(struct sim_channel *to, struct frame *frame) {
    struct pccl__sim_network *network = network_of(to);
    const struct pccl__sim_faults *faults = &network->faults;
    uint64_t due_ns = network->now_ns + UINT64_C(1000) * prng_below(&network->random, faults->delay_us_max + 1);
    bool data = frame->kind == FRAME_DATA;
    if (!data || prng_below(&network->random, 100) >= faults->reorder_percent) {
        uint64_t *last_ns = data ? &to->data_due_ns : &to->control_due_ns;
        *last_ns = due_ns = max_u64(due_ns, *last_ns);
    }
    /* A break comes after all that was not lost before it. */
    if (frame->kind == FRAME_BREAK) due_ns = max_u64(due_ns, to->data_due_ns);
    frame->to = to;
    list_push_back(&to->in_flight, &frame->link);
    heap_add(&network->queue, &frame->timer, due_ns);
}

void pccl__sim_link_break(struct sim_channel *channel) {
    struct sim_channel *ends[2] = {channel, channel->other};
    for (int i = 0; i < 2; i++) {
        if (!ends[i] || ends[i]->down) continue;
        ends[i]->down = true;
        pccl__sim_schedule(ends[i], ends[i]->break_frame);
        ends[i]->break_frame = NULL;
    }
}

void pccl__sim_emit(struct sim_channel *from, struct frame *frame) {
    network_of(from)->blocked_frames += from->blocked;
    if (from->blocked && !from->down) {
        from->base.doubted = true;
        (void)pccl__fail(&from->base.error, PCCL_SYSTEM, "sim: link blocked");
        pccl__sim_link_break(from);
    }
    if (from->down) {
        pccl__sim_frame_free(frame);
    } else if (!from->met) {
        list_push_back(&from->unlinked, &frame->link);
    } else {
        pccl__sim_schedule(from->other, frame);
        if (chance_ppm(network_of(from), network_of(from)->faults.break_ppm)) pccl__sim_link_break(from);
    }
}

void pccl__sim_part(struct sim_channel *channel) {
    struct sim_channel *other = channel->other;
    if (!other) return;
    struct pccl__sim_network *network = network_of(channel);
    uint32_t count = 0;
    for (struct list *node = other->in_flight.next; node != &other->in_flight; node = node->next) count++;
    uint32_t lost = other->down ? 0 : prng_below(&network->random, count + 1);
    while (lost--) pccl__sim_frame_lose(LIST_ENTRY(other->in_flight.previous, struct frame, link));
    pccl__sim_link_break(channel);
}
