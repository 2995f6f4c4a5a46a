/* SPDX-License-Identifier: MIT
 *
 * tcp_medium.c - see tcp_medium.h.
 */
#include "channel/tcp_medium.h"

#include <errno.h>
#include <sys/socket.h>

#include "base/bits.h"
#include "channel/tcp_channel.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

void pccl__tcp_medium_init(struct tcp_medium *medium) {
    *medium = (struct tcp_medium){.segment.fd = -1, .waker = -1};
    list_init(&medium->link);
}

void pccl__tcp_medium_reset(struct tcp_stripe *stripe) {
    struct tcp_transport *transport = stripe->channel->transport;
    struct tcp_medium *medium = &stripe->medium;
    if (medium->rings)
        transport->base.looks--;
    else if (!list_empty(&medium->link))
        transport->base.sockets--;
    list_remove(&medium->link);
    /* Who closes in peace has words under way; whoever was lost does not hear them. */
    pccl__tcp_fabric_drop(stripe, stripe->channel->closed && !stripe->channel->base.broken && !medium->hung_up);
    pccl__shm_pull_close(&medium->pull);
    stripe->channel->base.maps = false;
    pccl__shm_segment_close(&medium->segment);
    pccl__tcp_medium_init(medium);
}

void pccl__tcp_medium_up(struct tcp_stripe *stripe) {
    if (stripe->medium.rings) return;
    pccl__tcp_fabric_drop(stripe, false);
    list_push_back(&stripe->channel->transport->sockets, &stripe->medium.link);
    stripe->channel->transport->base.sockets++;
}

/* ---------------------------------------------------------------- agreeing */

static void tell(struct tcp_transport *transport, const char *why, int error) {
    transport->base.unshared = why;
    transport->base.unshared_errno = error;
}

/* Names the connection that a segment is for. */
static struct shm_token token_of(const struct tcp_stripe *stripe, uint64_t answering, uint64_t dialling) {
    struct shm_token token;
    put_u64(token.bytes, answering);
    put_u64(token.bytes + 8, dialling);
    put_u32(token.bytes + 16, stripe->index);
    put_u32(token.bytes + 20, stripe->generation);
    return token;
}

/* Lets the other side read this process' memory, if it can. Before it can know of the segment, or that we attached. */
static void show_memory(struct tcp_stripe *stripe, int end) {
    struct shm_pull_shared *mine, *theirs;
    pccl__shm_segment_pulls(&stripe->medium.segment, end, &mine, &theirs);
    if (stripe->channel->transport->pulling)
        pccl__shm_pull_show(mine, &stripe->channel->transport->proof, stripe->channel->transport->arena);
}

static void use_rings(struct tcp_stripe *stripe, int end) {
    struct tcp_medium *medium = &stripe->medium;
    struct shm_pull_shared *mine, *theirs;
    pccl__shm_segment_rings(&medium->segment, end, &medium->out, &medium->in);
    pccl__shm_segment_pulls(&medium->segment, end, &mine, &theirs);
    if (stripe->channel->transport->pulling)
        pccl__shm_pull_open(&medium->pull, mine, theirs, stripe->channel->transport->arena, &stripe->channel->view);
    pccl__shm_segment_forget(&medium->segment);
    medium->rings = true;
    list_push_back(&stripe->channel->transport->rings, &medium->link);
    stripe->channel->transport->base.looks++;
}

/* Asking for many connections must not multiply the memory. */
uint64_t pccl__tcp_medium_ring_bytes(const struct tcp_transport *transport) {
    uint64_t bytes = transport->ring_bytes;
    for (uint32_t stripes = transport->stripes; stripes > 1 && bytes > TCP_RING_LEAST; stripes = (stripes + 1) / 2)
        bytes /= 2;
    return bytes;
}

void pccl__tcp_medium_offer(struct tcp_stripe *stripe, uint64_t caller_instance, uint32_t *process,
                            uint32_t *descriptor) {
    struct tcp_channel *channel = stripe->channel;
    struct shm_segment *segment = &stripe->medium.segment;
    *process = *descriptor = 0;
    if (!channel->transport->sharing || !channel->base.same_host) return;
    struct shm_token token = token_of(stripe, channel->instance, caller_instance);
    int error = pccl__shm_segment_make(segment, &token, pccl__tcp_medium_ring_bytes(channel->transport));
    if (error) {
        tell(channel->transport, "cannot make memory to share", error);
        return;
    }
    show_memory(stripe, 0);
    *process = channel->transport->process;
    *descriptor = (uint32_t)segment->fd;
}

void pccl__tcp_medium_take(struct tcp_stripe *stripe, uint64_t answering_instance, uint32_t process,
                           uint32_t descriptor) {
    struct tcp_channel *channel = stripe->channel;
    if (process == 0 || !channel->transport->sharing || !channel->base.same_host) return;
    struct shm_token token = token_of(stripe, answering_instance, channel->instance);
    int error = pccl__shm_segment_open(&stripe->medium.segment, &token, process, descriptor);
    if (error) {
        stripe->medium.refused_errno = error;
        return;
    }
    show_memory(stripe, 1);
    use_rings(stripe, 1);
    pccl__shm_segment_attach(&stripe->medium.segment);
}

/* At the first bytes from the other side. A dialler has attached by now, or never will. An answering one lives: its
 * memory was not missing only because its process had just ended. */
static void settle(struct tcp_stripe *stripe, uint8_t first) {
    struct tcp_medium *medium = &stripe->medium;
    if (medium->stream) {
        if (first == 0)
            pccl__tcp_fabric_use(stripe);
        else
            pccl__tcp_fabric_drop(stripe, false);
    } else if (medium->refused_errno) {
        tell(stripe->channel->transport, "cannot open another peer's memory", medium->refused_errno);
        medium->refused_errno = 0;
    } else if (pccl__shm_segment_attached(&medium->segment)) {
        use_rings(stripe, 0);
    } else {
        pccl__shm_segment_close(&medium->segment);
    }
}

/* ---------------------------------------------------------------- moving bytes */

/* A bell that finds the socket full is not needed: others are in it. One that finds it broken neither: so will our own
 * poll set. */
static void ring_bell(struct tcp_stripe *stripe) { (void)!send(stripe->fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT); }

/* What is left in the socket will be reported again. */
static void hear_bell(struct tcp_stripe *stripe) {
    uint8_t bells[64];
    ssize_t got = recv(stripe->fd, bells, sizeof bells, MSG_DONTWAIT);
    stripe->medium.bell = false;
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))) return;
    stripe->medium.hung_up = true;
    stripe->medium.hung_up_errno = got < 0 ? errno : 0;
}

static ssize_t failed(int error) {
    errno = error;
    return -1;
}

static bool half_empty(int64_t filled, uint64_t capacity) { return filled <= (int64_t)(capacity / 2); }

/* There is nothing to read now, or ever. */
static ssize_t nothing(const struct tcp_medium *medium) {
    return !medium->hung_up ? failed(EAGAIN) : medium->hung_up_errno ? failed(medium->hung_up_errno) : 0;
}

static ssize_t write_ring(struct tcp_stripe *stripe, const struct iovec *parts, int count) {
    struct shm_ring *out = &stripe->medium.out;
    bool hurry = stripe->channel->transport->base.hurry;
    out->limit = hurry ? min_u64(out->capacity, TCP_RING_HURRY) : out->capacity;
    int64_t wrote = pccl__shm_ring_write(out, parts, count);
    if (wrote <= 0) return failed(wrote < 0 ? EPROTO : EAGAIN);
    if (pccl__shm_ring_must_wake(&out->shared->reader_sleeps)) ring_bell(stripe);
    return (ssize_t)wrote;
}

/* A writer that found the ring full goes on when half of it is free: fewer, longer strides. */
static ssize_t read_ring(struct tcp_stripe *stripe, const struct iovec *parts, int count) {
    struct tcp_medium *medium = &stripe->medium;
    struct shm_ring *in = &medium->in;
    if (medium->bell) hear_bell(stripe); /* before the ring: what came before the end is in it by now */
    int64_t got = pccl__shm_ring_read(in, parts, count);
    if (got < 0) return failed(EPROTO);
    if (got == 0) return nothing(medium);
    bool room = half_empty((int64_t)(in->theirs - in->mine), in->capacity);
    if (room && pccl__shm_ring_must_wake(&in->shared->writer_sleeps)) ring_bell(stripe);
    return (ssize_t)got;
}

static ssize_t read_stream(struct tcp_stripe *stripe, const struct iovec *parts, int count) {
    if (stripe->medium.bell) hear_bell(stripe); /* first, as above */
    ssize_t got = pccl__tcp_fabric_read(stripe, parts, count);
    bool ended = got < 0 && stripe->medium.hung_up; /* the connection knows better than the device why */
    return ended || (got < 0 && errno == EAGAIN) ? nothing(&stripe->medium) : got;
}

ssize_t pccl__tcp_medium_write(struct tcp_stripe *stripe, const struct iovec *parts, int count) {
    if (stripe->medium.rings && stripe->medium.stream) return pccl__tcp_fabric_write(stripe, parts, count);
    if (stripe->medium.rings) return write_ring(stripe, parts, count);
    if (count == 1) return send(stripe->fd, parts[0].iov_base, parts[0].iov_len, MSG_NOSIGNAL | MSG_DONTWAIT);
    struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)count};
    return sendmsg(stripe->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t pccl__tcp_medium_read(struct tcp_stripe *stripe, const struct iovec *parts, int count) {
    struct tcp_medium *medium = &stripe->medium;
    if (medium->rings) return medium->stream ? read_stream(stripe, parts, count) : read_ring(stripe, parts, count);
    ssize_t got = count == 1 ? recv(stripe->fd, parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT)
                             : readv(stripe->fd, parts, count);
    if (got <= 0 || (!medium->segment.memory && !medium->refused_errno && !medium->stream)) return got;
    settle(stripe, *(const uint8_t *)parts[0].iov_base);
    if (!medium->rings) return got;
    return medium->stream ? read_stream(stripe, parts, count) : read_ring(stripe, parts, count); /* it was a bell */
}

/* ---------------------------------------------------------------- looking */

static bool may_read(struct shm_ring *in, bool sleeping) {
    if (sleeping) pccl__shm_ring_sleep(&in->shared->reader_sleeps);
    if (pccl__shm_ring_filled(in) == 0) return false;
    pccl__shm_ring_stay(&in->shared->reader_sleeps);
    return true;
}

static bool may_write(struct shm_ring *out, bool sleeping) {
    if (sleeping) pccl__shm_ring_sleep(&out->shared->writer_sleeps);
    int64_t room = pccl__shm_ring_room(out);
    if (room >= 0 && !half_empty((int64_t)out->limit - room, out->limit)) return false;
    pccl__shm_ring_stay(&out->shared->writer_sleeps);
    return true;
}

bool pccl__tcp_medium_look(struct pccl__transport *base, bool sleeping) {
    struct tcp_transport *transport = tcp_transport_of(base);
    bool news = false;
    for (struct list *node = transport->rings.next; node != &transport->rings; node = node->next) {
        struct tcp_medium *medium = LIST_ENTRY(node, struct tcp_medium, link);
        struct tcp_stripe *stripe = LIST_ENTRY(medium, struct tcp_stripe, medium);
        if (medium->stream) {
            if (pccl__tcp_fabric_look(stripe, sleeping)) stripe->channel->base.ready = news = true;
            continue;
        }
        bool readable = may_read(&medium->in, sleeping);
        bool writable = !stripe->writable && may_write(&medium->out, sleeping);
        if (!readable && !writable) continue;
        if (readable) stripe->readable = true;
        if (writable) stripe->writable = true;
        stripe->channel->base.ready = news = true;
    }
    return news;
}

void pccl__tcp_medium_guess(struct pccl__transport *base) {
    struct tcp_transport *transport = tcp_transport_of(base);
    for (struct list *node = transport->sockets.next; node != &transport->sockets; node = node->next) {
        struct tcp_stripe *stripe = LIST_ENTRY(node, struct tcp_stripe, medium.link);
        stripe->readable = stripe->channel->base.ready = true;
    }
}
