/* SPDX-License-Identifier: MIT
 *
 * rdma_queue.c - see rdma_queue.h.
 *
 * A request's id has how many were posted with it, so a report of one tells that all before it are done, too; that of
 * a read has the caller's number as well.
 */
#include "channel/rdma_queue.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/bits.h"

#define ID_READ    (UINT64_C(1) << 63)
#define ID_RECEIVE (UINT64_C(1) << 62)
#define ID_COUNT   ((UINT64_C(1) << 40) - 1)

/* A lost packet is sent again after 4.096 us * 2^14 = 67 ms, and six times: a dead path is given up in half a second to
 * two, depending on the device. 7 would mean for ever. A side without places for notes would be a fault of ours; the
 * same goes for its count. */
enum { TIMEOUT = 14, RETRIES = 6, NOT_READY_RETRIES = 6, NOT_READY_TIMER = 12, HOPS = 64 };

void pccl__rdma_queue_fail(struct rdma_queue *queue, int error, const char *why) {
    if (queue->error) return;
    queue->error = error;
    queue->why = why;
    struct verbs_pair_attributes attributes = {.state = VERBS_ERROR};
    if (queue->pair) (void)queue->port->verbs.modify_qp(queue->pair, &attributes, VERBS_SET_STATE);
}

/* ---------------------------------------------------------------- life */

static bool post_receive(struct rdma_queue *queue) {
    struct verbs_receive receive = {.id = ID_RECEIVE}, *bad;
    return queue->pair->context->own.receive(queue->pair, &receive, &bad) == 0;
}

static int make_pair(struct rdma_queue *queue, const struct rdma_queue_options *options) {
    static const uint32_t inline_bytes[] = {RDMA_INLINE_BYTES, 192, 64, 0};
    for (size_t i = 0; i < sizeof inline_bytes / sizeof *inline_bytes && !queue->pair; i++) {
        struct verbs_pair_options wanted = {.sends = queue->completions,
                                            .receives = queue->completions,
                                            .type = VERBS_RELIABLE,
                                            .capacities = {.sends = options->sends,
                                                           .receives = options->notes,
                                                           .send_pieces = RDMA_PIECES,
                                                           .receive_pieces = 1,
                                                           .inline_bytes = inline_bytes[i]}};
        errno = 0;
        queue->pair = queue->port->verbs.create_qp(queue->port->domain, &wanted);
        queue->inline_bytes = inline_bytes[i];
    }
    return queue->pair ? 0 : errno ? errno : ENOMEM;
}

static int prepare(struct rdma_queue *queue, const struct rdma_queue_options *options) {
    struct verbs *verbs = &queue->port->verbs;
    errno = 0;
    queue->channel = verbs->create_comp_channel(queue->port->context);
    if (!queue->channel) return errno ? errno : ENOMEM;
    int flags = fcntl(queue->channel->fd, F_GETFL);
    if (flags < 0 || fcntl(queue->channel->fd, F_SETFL, flags | O_NONBLOCK) < 0) return errno;
    int entries = (int)(options->sends + options->notes);
    queue->completions = verbs->create_cq(queue->port->context, entries, NULL, queue->channel, 0);
    if (!queue->completions) return errno ? errno : ENOMEM;
    int error = make_pair(queue, options);
    if (error) return error;
    struct verbs_pair_attributes attributes = {
        .state = VERBS_INIT, .port = queue->port->number, .access = VERBS_REMOTE_WRITE | VERBS_REMOTE_READ};
    error = verbs->modify_qp(queue->pair, &attributes,
                             VERBS_SET_STATE | VERBS_SET_KEY_INDEX | VERBS_SET_PORT | VERBS_SET_ACCESS);
    if (error) return error < 0 ? errno : error;
    for (uint32_t i = 0; i < options->notes; i++)
        if (!post_receive(queue)) return ENOMEM;
    return 0;
}

int pccl__rdma_queue_open(struct rdma_queue *queue, struct rdma_port *port, const struct rdma_queue_options *options) {
    *queue = (struct rdma_queue){.port = port,
                                 .start = options->start & 0xffffff,
                                 .sends_most = options->sends,
                                 .reads_most = (uint32_t)min_u64(port->reads, RDMA_READS_MOST)};
    int error = prepare(queue, options);
    if (error) pccl__rdma_queue_close(queue);
    return error;
}

void pccl__rdma_queue_address(const struct rdma_queue *queue, struct rdma_address *address) {
    *address = (struct rdma_address){.number = queue->pair->number,
                                     .start = queue->start,
                                     .lid = queue->port->lid,
                                     .mtu = queue->port->mtu,
                                     .layer = queue->port->layer,
                                     .reads = (uint8_t)queue->reads_most};
    memcpy(address->gid, queue->port->gid, sizeof address->gid);
}

int pccl__rdma_queue_connect(struct rdma_queue *queue, const struct rdma_address *other) {
    struct rdma_port *port = queue->port;
    if (other->layer != port->layer) return EPROTONOSUPPORT;
    struct verbs_pair_attributes attributes = {
        .state = VERBS_MAY_RECEIVE,
        .mtu = port->mtu < other->mtu ? port->mtu : other->mtu,
        .target = other->number,
        .receive_start = other->start,
        .reads_in = (uint8_t)queue->reads_most,
        .not_ready_timer = NOT_READY_TIMER,
        .path = {.gid_index = port->gid_index,
                 .hops = HOPS,
                 .lid = other->lid,
                 .global = port->layer == VERBS_ETHERNET || other->lid == 0,
                 .port = port->number},
    };
    memcpy(attributes.path.gid, other->gid, sizeof attributes.path.gid);
    int error = port->verbs.modify_qp(queue->pair, &attributes,
                                      VERBS_SET_STATE | VERBS_SET_PATH | VERBS_SET_MTU | VERBS_SET_TARGET |
                                          VERBS_SET_RECEIVE_START | VERBS_SET_READS_IN | VERBS_SET_NOT_READY_TIMER);
    if (error) return error < 0 ? errno : error;
    queue->reads_most = (uint32_t)min_u64(queue->reads_most, other->reads);
    attributes = (struct verbs_pair_attributes){.state = VERBS_MAY_SEND,
                                                .timeout = TIMEOUT,
                                                .retries = RETRIES,
                                                .not_ready_retries = NOT_READY_RETRIES,
                                                .send_start = queue->start,
                                                .reads_out = (uint8_t)queue->reads_most};
    error = port->verbs.modify_qp(queue->pair, &attributes,
                                  VERBS_SET_STATE | VERBS_SET_TIMEOUT | VERBS_SET_RETRIES |
                                      VERBS_SET_NOT_READY_RETRIES | VERBS_SET_SEND_START | VERBS_SET_READS_OUT);
    return error < 0 ? errno : error;
}

/* To destroy a pair waits until its device has let go of it. */
void pccl__rdma_queue_close(struct rdma_queue *queue) {
    if (!queue->port) return;
    const struct verbs *verbs = &queue->port->verbs;
    pccl__rdma_queue_fail(queue, ECONNRESET, "closed");
    if (queue->pair) verbs->destroy_qp(queue->pair);
    if (queue->completions) {
        pccl__rdma_queue_wake(queue);
        verbs->destroy_cq(queue->completions);
    }
    if (queue->channel) verbs->destroy_comp_channel(queue->channel);
    *queue = (struct rdma_queue){0};
}

/* ---------------------------------------------------------------- requests */

static bool post(struct rdma_queue *queue, struct verbs_send *send, bool report) {
    struct verbs_send *bad;
    queue->sends++;
    if (report || ++queue->unreported >= RDMA_REPORT_EACH || pccl__rdma_queue_room(queue) < RDMA_REPORT_EACH) {
        send->flags |= VERBS_SIGNALED;
        queue->unreported = 0;
    }
    send->id |= queue->sends & ID_COUNT;
    int error = queue->pair->context->own.send(queue->pair, send, &bad);
    if (error) pccl__rdma_queue_fail(queue, error < 0 ? errno : error, "a request was refused");
    return error == 0;
}

static bool write_some(struct rdma_queue *queue, struct verbs_send *send, struct rdma_place to, bool inlined) {
    send->remote_at = to.at;
    send->remote_key = to.key;
    send->flags = inlined ? VERBS_INLINE : 0;
    return post(queue, send, false);
}

bool pccl__rdma_queue_write(struct rdma_queue *queue, struct verbs_piece *pieces, int count, struct rdma_place to,
                            bool inlined) {
    struct verbs_send send = {.pieces = pieces, .pieces_count = count, .opcode = VERBS_WRITE};
    return write_some(queue, &send, to, inlined);
}

bool pccl__rdma_queue_write_noted(struct rdma_queue *queue, struct verbs_piece *pieces, int count, struct rdma_place to,
                                  bool inlined, uint32_t note) {
    struct verbs_send send = {
        .pieces = pieces, .pieces_count = count, .opcode = VERBS_WRITE_NOTED, .note = htonl(note)};
    return write_some(queue, &send, to, inlined);
}

bool pccl__rdma_queue_read(struct rdma_queue *queue, struct verbs_piece *to, struct rdma_place from, uint16_t read) {
    struct verbs_send send = {.id = ID_READ | (uint64_t)read << 40,
                              .pieces = to,
                              .pieces_count = 1,
                              .opcode = VERBS_READ,
                              .remote_at = from.at,
                              .remote_key = from.key};
    return post(queue, &send, true);
}

void pccl__rdma_queue_report(struct rdma_queue *queue) {
    if (queue->unreported == 0) return;
    struct verbs_send send = {.opcode = VERBS_WRITE};
    (void)post(queue, &send, true);
}

/* ---------------------------------------------------------------- completions */

static const char *words_of(uint32_t status) {
    switch (status) {
    case VERBS_RETRIES_EXCEEDED:
        return "the other side's device does not answer";
    case VERBS_NOT_READY_EXCEEDED:
        return "the other side has no place for notes";
    case VERBS_FLUSHED:
        return "the device gave the connection up";
    default:
        return "the device refused a request";
    }
}

static struct rdma_news failure(struct rdma_queue *queue, uint32_t status) {
    int error = status == VERBS_RETRIES_EXCEEDED ? ETIMEDOUT : status == VERBS_FLUSHED ? ECONNRESET : EPROTO;
    pccl__rdma_queue_fail(queue, error, words_of(status));
    return (struct rdma_news){.kind = RDMA_FAILED};
}

struct rdma_news pccl__rdma_queue_poll(struct rdma_queue *queue) {
    for (;;) {
        struct verbs_completion completion;
        int count = queue->completions->context->own.poll(queue->completions, 1, &completion);
        if (count < 0) pccl__rdma_queue_fail(queue, EIO, "completions cannot be read");
        if (count <= 0) return (struct rdma_news){.kind = RDMA_NOTHING};
        if (completion.status != VERBS_OK) return failure(queue, completion.status);
        if (completion.id == ID_RECEIVE) {
            if (!post_receive(queue)) pccl__rdma_queue_fail(queue, ENOMEM, "no place for notes");
            return (struct rdma_news){.kind = RDMA_NOTE, .note = ntohl(completion.note)};
        }
        queue->sends_done = queue->sends - ((queue->sends - completion.id) & ID_COUNT);
        if (completion.id & ID_READ)
            return (struct rdma_news){.kind = RDMA_READ_DONE, .read = (uint16_t)(completion.id >> 40)};
    }
}

void pccl__rdma_queue_arm(struct rdma_queue *queue) {
    if (queue->armed) return;
    if (queue->completions->context->own.arm(queue->completions, 0) != 0)
        pccl__rdma_queue_fail(queue, EIO, "completions cannot be waited for");
    queue->armed = true;
}

void pccl__rdma_queue_wake(struct rdma_queue *queue) {
    struct verbs_completions *completions;
    void *owner;
    unsigned count = 0;
    while (queue->port->verbs.get_cq_event(queue->channel, &completions, &owner) == 0) count++;
    if (count == 0) return;
    queue->port->verbs.ack_cq_events(queue->completions, count);
    queue->armed = false;
}
