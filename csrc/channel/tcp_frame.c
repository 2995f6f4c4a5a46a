/* SPDX-License-Identifier: MIT
 *
 * tcp_frame.c - the frame pool.
 */
#include "channel/tcp_frame.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* Room for own bytes per class, and how many freed frames are kept: in all under 2 MiB per channel. */
static const uint32_t class_bytes[TCP_FRAME_CLASSES] = {0, PCCL__NOTICE_BYTES, 4096, 16384, PCCL__EAGER_BYTES};
static const uint32_t class_spares[TCP_FRAME_CLASSES] = {256, 256, 64, 32, 16};

void pccl__tcp_frame_pool_init(struct tcp_frame_pool *pool) {
    for (int i = 0; i < TCP_FRAME_CLASSES; i++) {
        list_init(&pool->spare[i]);
        pool->spare_count[i] = 0;
    }
}

void pccl__tcp_frame_pool_free(struct tcp_frame_pool *pool) {
    for (int i = 0; i < TCP_FRAME_CLASSES; i++) {
        for (struct list *node; (node = list_pop_front(&pool->spare[i]));)
            free(LIST_ENTRY(node, struct tcp_frame, link));
        pool->spare_count[i] = 0;
    }
}

struct tcp_frame *pccl__tcp_frame_new(struct tcp_frame_pool *pool, enum tcp_kind kind, uint32_t bytes) {
    uint8_t class = 0;
    while (class < TCP_FRAME_CLASSES && class_bytes[class] < bytes) class ++;
    CHECK(class < TCP_FRAME_CLASSES);
    struct list *node = list_pop_front(&pool->spare[class]);
    struct tcp_frame *frame =
        node ? LIST_ENTRY(node, struct tcp_frame, link) : malloc(sizeof *frame + TCP_HEADER_BYTES + class_bytes[class]);
    if (!frame) return NULL;
    if (node) pool->spare_count[class]--;
    list_init(&frame->link);
    pccl__ticket_init(&frame->ticket);
    memset(&frame->header, 0, sizeof frame->header);
    frame->header.kind = (uint8_t)kind;
    frame->transfer = NULL;
    frame->payload = pccl__tcp_frame_own(frame);
    frame->copy = NULL;
    frame->forsaken = false;
    frame->size_class = class;
    return frame;
}

void pccl__tcp_frame_free(struct tcp_frame_pool *pool, struct tcp_frame *frame) {
    uint8_t class = frame->size_class;
    free(frame->copy);
    if (pool->spare_count[class] >= class_spares[class]) {
        free(frame);
        return;
    }
    pool->spare_count[class]++;
    list_init(&frame->link);
    list_push_front(&pool->spare[class], &frame->link);
}

void pccl__tcp_frame_free_all(struct tcp_frame_pool *pool, struct list *frames) {
    for (struct list *node; (node = list_pop_front(frames));)
        pccl__tcp_frame_free(pool, LIST_ENTRY(node, struct tcp_frame, link));
}

bool pccl__tcp_frame_detach(struct tcp_frame *frame) {
    if (!frame->transfer) return true;
    frame->transfer = NULL;
    frame->forsaken = true;
    uint32_t bytes = frame->header.payload_bytes;
    frame->copy = malloc(bytes ? bytes : 1);
    if (!frame->copy) return false;
    memcpy(frame->copy, frame->payload, bytes);
    frame->payload = frame->copy;
    return true;
}
