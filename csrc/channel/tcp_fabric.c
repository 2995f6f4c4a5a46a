/* SPDX-License-Identifier: MIT
 *
 * tcp_fabric.c - see tcp_fabric.h.
 */
#include "channel/tcp_fabric.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/prng.h"
#include "channel/tcp_channel.h"

/* For last words to arrive: some round trips, with packets sent again. */
#define PATIENCE_NS (100 * NS_PER_MS)

enum { LAST_LOOKS = 3 };

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

/* ---------------------------------------------------------------- the port */

static bool any_address(const struct sockaddr_storage *address) {
    if (address->ss_family == AF_INET)
        return ((const struct sockaddr_in *)address)->sin_addr.s_addr == htonl(INADDR_ANY);
    return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

/* A device is asked for before the first link only if there must be one. */
bool pccl__tcp_fabric_begin(struct tcp_transport *transport, const struct pccl__tcp_options *options,
                            const struct sockaddr_storage *listen) {
    struct tcp_fabric *fabric = &transport->fabric;
    *fabric = (struct tcp_fabric){.mode = options->rdma, .library = options->rdma_library};
    if (options->rdma_device && *options->rdma_device) {
        snprintf(fabric->name, sizeof fabric->name, "%s", options->rdma_device);
        fabric->device = fabric->name;
    }
    if (!any_address(listen)) fabric->address = *listen;
    if (fabric->mode != TCP_RDMA_REQUIRED || fabric->address.ss_family == AF_UNSPEC) return true;
    struct rdma_wish wish = {fabric->library, fabric->device, &fabric->address};
    return pccl__rdma_port_open(&fabric->port, &wish, fabric->why);
}

void pccl__tcp_fabric_end(struct tcp_transport *transport) { pccl__rdma_port_close(&transport->fabric.port); }

/* Where this link leaves the host. */
static bool own_address(const struct tcp_stripe *stripe, struct sockaddr_storage *address) {
    const struct tcp_fabric *fabric = &stripe->channel->transport->fabric;
    socklen_t bytes = sizeof *address;
    *address = fabric->address;
    if (address->ss_family != AF_UNSPEC) return true;
    return getsockname(stripe->fd, (struct sockaddr *)address, &bytes) == 0;
}

/* One port serves all links that leave by it; a link that leaves by another one goes over TCP. */
static struct rdma_port *port_of(const struct tcp_stripe *stripe) {
    struct tcp_fabric *fabric = &stripe->channel->transport->fabric;
    struct sockaddr_storage address;
    uint8_t gid[VERBS_GID_BYTES];
    if (fabric->mode == TCP_RDMA_OFF || !own_address(stripe, &address)) return NULL;
    pccl__rdma_gid_of(&address, gid);
    if (fabric->port.context) {
        bool leads =
            fabric->device || fabric->port.layer == VERBS_INFINIBAND || memcmp(gid, fabric->port.gid, sizeof gid) == 0;
        return leads ? &fabric->port : NULL;
    }
    if (fabric->tried && memcmp(gid, fabric->refused, sizeof gid) == 0) return NULL;
    struct rdma_wish wish = {fabric->library, fabric->device, &address};
    if (pccl__rdma_port_open(&fabric->port, &wish, fabric->why)) return &fabric->port;
    fabric->tried = true;
    memcpy(fabric->refused, gid, sizeof gid);
    stripe->channel->transport->base.detour = fabric->why;
    return NULL;
}

static void tell(struct tcp_stripe *stripe, const char *what, int error) {
    struct tcp_fabric *fabric = &stripe->channel->transport->fabric;
    struct rlimit limit = {0};
    char most[32] = "none";
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        snprintf(most, sizeof most, "%llu bytes", (unsigned long long)limit.rlim_cur);
    snprintf(fabric->why, sizeof fabric->why, "%s \"%s\": %s (limit of locked memory: %s)", what, fabric->port.device,
             strerror(error), most);
    stripe->channel->transport->base.detour = fabric->why;
}

/* ---------------------------------------------------------------- agreeing */

void pccl__tcp_fabric_offer(struct tcp_stripe *stripe, struct rdma_offer *offer) {
    struct tcp_transport *transport = stripe->channel->transport;
    *offer = (struct rdma_offer){0};
    struct rdma_port *port = port_of(stripe);
    struct rdma_stream *stream = port ? calloc(1, sizeof *stream) : NULL;
    if (!stream) return;
    const char *what;
    uint64_t bytes = pccl__tcp_medium_ring_bytes(transport);
    int error = pccl__rdma_stream_open(stream, port, bytes, (uint32_t)prng_next(&transport->instances), &what);
    if (error) {
        tell(stripe, what, error);
        free(stream);
        return;
    }
    stripe->medium.stream = stream;
    pccl__rdma_stream_offer(stream, offer);
}

void pccl__tcp_fabric_answer(struct tcp_stripe *stripe, const struct rdma_offer *other, struct rdma_offer *offer) {
    *offer = (struct rdma_offer){0};
    if (other->queue.number == 0) return;
    pccl__tcp_fabric_offer(stripe, offer);
    if (offer->queue.number == 0) return;
    int error = pccl__rdma_stream_connect(stripe->medium.stream, other);
    if (error == 0) return;
    tell(stripe, "cannot connect to another peer's queue from", error);
    pccl__tcp_fabric_drop(stripe, false);
    *offer = (struct rdma_offer){0};
}

void pccl__tcp_fabric_take(struct tcp_stripe *stripe, const struct rdma_offer *other) {
    struct tcp_medium *medium = &stripe->medium;
    if (!medium->stream) return;
    int error = other->queue.number ? pccl__rdma_stream_connect(medium->stream, other) : 0;
    if (error) tell(stripe, "cannot connect to another peer's queue from", error);
    if (other->queue.number == 0 || error) {
        pccl__tcp_fabric_drop(stripe, false);
        return;
    }
    /* A fresh connection takes a byte, or is broken, and then so is this. */
    (void)!send(stripe->fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    pccl__tcp_fabric_use(stripe);
}

static void woken(void *owner, int fd, unsigned events) {
    (void)fd, (void)events;
    struct tcp_stripe *stripe = owner;
    pccl__rdma_queue_wake(&stripe->medium.stream->queue);
    stripe->readable = stripe->channel->base.ready = true;
}

void pccl__tcp_fabric_use(struct tcp_stripe *stripe) {
    struct tcp_medium *medium = &stripe->medium;
    struct tcp_transport *transport = stripe->channel->transport;
    int fd = pccl__rdma_queue_fd(&medium->stream->queue);
    medium->waker = pccl__poll_add(transport->poll, fd, PCCL__POLL_IN, woken, stripe);
    if (medium->waker < 0) pccl__rdma_queue_fail(&medium->stream->queue, ENOSPC, "the poll set is full");
    medium->rings = true;
    list_push_back(&transport->rings, &medium->link);
    transport->base.looks++;
}

void pccl__tcp_fabric_drop(struct tcp_stripe *stripe, bool last_words) {
    struct tcp_medium *medium = &stripe->medium;
    if (!medium->stream) return;
    if (medium->waker >= 0) pccl__poll_remove(stripe->channel->transport->poll, medium->waker);
    pccl__rdma_stream_close(medium->stream, last_words ? PATIENCE_NS : 0);
    free(medium->stream);
    medium->stream = NULL;
    medium->waker = -1;
}

/* ---------------------------------------------------------------- moving bytes */

bool pccl__tcp_fabric_look(struct tcp_stripe *stripe, bool sleeping) {
    struct rdma_stream *stream = stripe->medium.stream;
    if (sleeping) pccl__rdma_queue_arm(&stream->queue);
    pccl__rdma_stream_look(stream);
    bool readable = pccl__rdma_stream_readable(stream);
    bool writable = !stripe->writable && pccl__rdma_stream_writable(stream);
    if (readable) stripe->readable = true;
    if (writable) stripe->writable = true;
    return readable || writable;
}

static ssize_t result(const struct rdma_stream *stream, int64_t moved) {
    if (moved > 0) return (ssize_t)moved;
    errno = moved == 0 ? EAGAIN : stream->queue.error;
    return -1;
}

ssize_t pccl__tcp_fabric_write(struct tcp_stripe *stripe, const struct iovec *parts, int count) {
    struct rdma_stream *stream = stripe->medium.stream;
    bool hurry = stripe->channel->transport->base.hurry;
    stream->limit = hurry ? min_u64(stream->capacity, TCP_RING_HURRY) : stream->capacity;
    return result(stream, pccl__rdma_stream_write(stream, parts, count));
}

/* What the other side wrote before it closed has arrived, but a device may tell of it a little later. */
ssize_t pccl__tcp_fabric_read(struct tcp_stripe *stripe, const struct iovec *parts, int count) {
    struct rdma_stream *stream = stripe->medium.stream;
    for (int i = 1; stripe->medium.hung_up && !pccl__rdma_stream_readable(stream) && i < LAST_LOOKS; i++)
        pccl__rdma_stream_look(stream);
    return result(stream, pccl__rdma_stream_read(stream, parts, count));
}
