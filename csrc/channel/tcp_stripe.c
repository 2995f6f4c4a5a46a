/* SPDX-License-Identifier: MIT
 *
 * tcp_stripe.c - the two loops of a connection.
 *
 * A short write says that the socket is full, a short read that it is empty: neither is asked again before poll says
 * so.
 */
#include "channel/tcp_stripe.h"

#include <errno.h>
#include <sys/uio.h>

#include "base/bits.h"
#include "base/check.h"
#include "base/clock.h"
#include "channel/tcp_channel.h"
#include "kernel/kernel.h"

/* One sendmsg carries at most this much: enough to make the call's price vanish, little enough that stripes take turns
 * within one transfer. One stripe reads at most about as much before it writes, and before the next has its turn. In a
 * hurry less: what is laid out for the kernel is not overtaken, and what was read is worked on before anything else. */
enum { WRITE_FRAMES = 16, TURN_BYTES = 256 * 1024, TURN_HURRY = 64 * 1024 };

static size_t turn_bytes(const struct tcp_stripe *stripe) {
    return stripe->channel->transport->base.hurry ? TURN_HURRY : TURN_BYTES;
}

static void set_wants_out(struct tcp_stripe *stripe, bool wants) {
    if (stripe->wants_out == wants || stripe->medium.rings) return;
    stripe->wants_out = wants;
    pccl__poll_change(stripe->channel->transport->poll, stripe->handle,
                      PCCL__POLL_IN | (wants ? (unsigned)PCCL__POLL_OUT : 0u));
}

/* Tops `writing` up and lays it out for the kernel. */
static int gather(struct tcp_stripe *stripe, struct iovec parts[2 * WRITE_FRAMES], size_t *bytes) {
    int count = 0;
    *bytes = 0;
    size_t most = turn_bytes(stripe);
    struct list *node = stripe->writing.next;
    for (uint32_t skip = stripe->written; count < 2 * WRITE_FRAMES - 1; node = node->next) {
        if (node == &stripe->writing) {
            if (*bytes >= most) break;
            struct tcp_frame *next = pccl__tcp_next_frame(stripe->channel, stripe);
            if (!next) break;
            list_push_back(&stripe->writing, &next->link);
            stripe->writing_count++;
            node = &next->link;
        }
        struct tcp_frame *frame = LIST_ENTRY(node, struct tcp_frame, link);
        uint32_t payload = pccl__tcp_frame_follows(frame);
        bool joined = frame->payload == pccl__tcp_frame_own(frame);
        uint32_t first = TCP_HEADER_BYTES + (joined ? payload : 0);
        uint32_t second = joined ? 0 : payload;
        uint32_t skip_first = (uint32_t)min_u64(skip, first);
        uint32_t skip_second = skip - skip_first;
        if (first > skip_first) parts[count++] = (struct iovec){frame->wire + skip_first, first - skip_first};
        if (second > skip_second)
            parts[count++] = (struct iovec){(void *)(frame->payload + skip_second), second - skip_second};
        *bytes += first + second - skip;
        skip = 0;
    }
    return count;
}

static void advance(struct tcp_stripe *stripe, size_t bytes) {
    while (bytes > 0) {
        struct tcp_frame *frame = LIST_ENTRY(stripe->writing.next, struct tcp_frame, link);
        size_t left = TCP_HEADER_BYTES + pccl__tcp_frame_follows(frame) - stripe->written;
        if (bytes < left) {
            stripe->written += (uint32_t)bytes;
            return;
        }
        bytes -= left;
        stripe->written = 0;
        stripe->writing_count--;
        list_remove(&frame->link);
        pccl__tcp_frame_written(stripe->channel, stripe, frame);
    }
}

bool pccl__tcp_stripe_write(struct tcp_stripe *stripe) {
    struct iovec parts[2 * WRITE_FRAMES];
    size_t bytes;
    int count = gather(stripe, parts, &bytes);
    if (count == 0) {
        pccl__tcp_pace_dry(&stripe->pace);
        set_wants_out(stripe, false);
        return false;
    }
    ssize_t sent = pccl__tcp_medium_write(stripe, parts, count);
    if (sent < 0 && errno == EINTR) return true;
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS) {
        pccl__tcp_stripe_lost(stripe, errno, "cannot send");
        return false;
    }
    if (sent > 0) {
        pccl__tcp_pace_took(&stripe->pace, (uint64_t)sent);
        advance(stripe, (size_t)sent);
    }
    if (sent == (ssize_t)bytes) return true;
    if (!stripe->medium.rings) pccl__tcp_pace_full(&stripe->pace, clock_now_ns());
    stripe->writable = false;
    set_wants_out(stripe, true);
    return false;
}

static void check_payload(struct tcp_stripe *stripe, const uint8_t *bytes, size_t count) {
    if (stripe->header.flags & TCP_FLAG_CHECKED)
        stripe->payload_crc = pccl__kernels()->crc32c(stripe->payload_crc, bytes, count);
}

static void count_payload(struct tcp_stripe *stripe, uint32_t bytes) {
    stripe->payload_got += bytes;
    stripe->signs++;
    stripe->channel->base.moved_ns = stripe->channel->now_ns;
}

/* Moves payload from the buffer to where it belongs. True when the payload is whole. */
static bool take_payload(struct tcp_stripe *stripe) {
    uint32_t left = stripe->header.payload_bytes - stripe->payload_got;
    uint32_t count = (uint32_t)min_u64(left, stripe->end - stripe->begin);
    if (count > 0) {
        uint8_t *memory = pccl__landing_memory(&stripe->landing);
        check_payload(stripe, stripe->buffer + stripe->begin, count);
        if (memory) memcpy(memory + stripe->payload_got, stripe->buffer + stripe->begin, count);
        stripe->begin += count;
        count_payload(stripe, count);
    }
    return count == left;
}

static bool finish_payload(struct tcp_stripe *stripe) {
    if ((stripe->header.flags & TCP_FLAG_CHECKED) && stripe->payload_crc != stripe->header.payload_crc) {
        pccl__tcp_stripe_lost(stripe, 0, "a damaged frame came");
        return false;
    }
    stripe->in_payload = false;
    return pccl__tcp_arrived(stripe->channel, stripe, NULL);
}

/* Fetches a payload from where it lies. One that its sender has taken back counts as received and is nowhere. */
static bool pull_payload(struct tcp_stripe *stripe) {
    const struct tcp_header *header = &stripe->header;
    uint8_t *memory = pccl__landing_memory(&stripe->landing);
    int error = 0;
    if (memory)
        error =
            pccl__shm_pull_read(&stripe->medium.pull, header->number, memory, header->address, header->payload_bytes);
    if (error == ECANCELED) {
        pccl__landing_void(&stripe->landing);
    } else if (error) {
        if (error == ESRCH) (void)pccl__tcp_death_found(stripe);
        pccl__tcp_stripe_lost(stripe, error, "cannot read the other side's memory");
        return false;
    } else {
        stripe->pulled += header->payload_bytes;
        stripe->channel->transport->base.arrived_bytes += header->payload_bytes;
    }
    stripe->payload_got = header->payload_bytes;
    return finish_payload(stripe);
}

/* True when a header (and, of a control frame, its payload too) was in the buffer and has been taken. */
static bool take_header(struct tcp_stripe *stripe) {
    struct tcp_header *header = &stripe->header;
    if (stripe->end - stripe->begin < TCP_HEADER_BYTES) return false;
    const uint8_t *at = stripe->buffer + stripe->begin;
    if (!pccl__tcp_header_decode(header, at)) {
        pccl__tcp_stripe_lost(stripe, 0, "a damaged frame header came");
        return false;
    }
    uint32_t whole = TCP_HEADER_BYTES + (header->kind == TCP_DATA ? 0 : header->payload_bytes);
    if (stripe->end - stripe->begin < whole) return false;
    if (!pccl__tcp_arriving(stripe->channel, stripe)) return false;
    stripe->begin += whole;
    stripe->payload_got = stripe->payload_crc = 0;
    stripe->in_payload = header->kind == TCP_DATA;
    if (header->flags & TCP_FLAG_SHOWN) return pull_payload(stripe);
    if (stripe->in_payload) return true;
    at += TCP_HEADER_BYTES;
    check_payload(stripe, at, header->payload_bytes);
    if ((header->flags & TCP_FLAG_CHECKED) && stripe->payload_crc != header->payload_crc) {
        pccl__tcp_stripe_lost(stripe, 0, "a damaged frame came");
        return false;
    }
    return pccl__tcp_arrived(stripe->channel, stripe, at);
}

/* Works off the buffer; what stays is less than a header and a notice, unless enough was pulled for this turn. */
static void take_buffer(struct tcp_stripe *stripe) {
    size_t most = turn_bytes(stripe);
    while (stripe->pulled < most) {
        if (stripe->in_payload) {
            if (!take_payload(stripe)) break;
            if (!finish_payload(stripe)) return;
        } else if (!take_header(stripe)) {
            break;
        }
    }
    if (stripe->fd < 0) return;
    uint32_t left = stripe->end - stripe->begin;
    if (left > 0 && stripe->begin > 0) memmove(stripe->buffer, stripe->buffer + stripe->begin, left);
    stripe->begin = 0;
    stripe->end = left;
    if (stripe->pulled >= most) stripe->readable = true; /* there may be another header */
}

/* How much to read into the buffer behind `direct` bytes of payload. A system call less is worth a copy; where there is
 * none to save, what stands in the buffer is only what must be seen whole. */
static size_t room_behind(const struct tcp_stripe *stripe, size_t direct) {
    if (!stripe->medium.rings || (stripe->in_payload && direct == 0)) return TCP_READ_BUFFER - stripe->end;
    return direct ? 0 : TCP_HEADER_BYTES + PCCL__NOTICE_BYTES - stripe->end;
}

/* A bounded amount per turn: what arrived is worked on while it is in the cache, and writing takes its turn. */
void pccl__tcp_stripe_read(struct tcp_stripe *stripe) {
    size_t most = turn_bytes(stripe);
    stripe->pulled = 0;
    if (stripe->end > 0) take_buffer(stripe);
    for (size_t taken = 0; taken + stripe->pulled < most && stripe->readable && stripe->fd >= 0;) {
        struct iovec parts[2];
        int count = 0;
        size_t direct = 0;
        uint8_t *memory = stripe->in_payload ? pccl__landing_memory(&stripe->landing) : NULL;
        if (memory) {
            direct = stripe->header.payload_bytes - stripe->payload_got;
            parts[count++] = (struct iovec){memory + stripe->payload_got, direct};
        }
        size_t room = room_behind(stripe, direct);
        parts[count++] = (struct iovec){stripe->buffer + stripe->end, room};
        ssize_t got = pccl__tcp_medium_read(stripe, parts, count);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            stripe->readable = false;
            return;
        }
        if (got <= 0) {
            pccl__tcp_stripe_lost(stripe, got < 0 ? errno : 0, got < 0 ? "cannot receive" : "closed by the other side");
            return;
        }
        taken += (size_t)got;
        stripe->channel->transport->base.arrived_bytes += (uint64_t)got;
        stripe->readable = (size_t)got == direct + room || stripe->medium.hung_up;
        stripe->channel->base.heard_ns = stripe->channel->now_ns;
        uint32_t straight = (uint32_t)min_u64((uint64_t)got, direct);
        if (straight > 0) {
            check_payload(stripe, memory + stripe->payload_got, straight);
            count_payload(stripe, straight);
        }
        stripe->end += (uint32_t)got - straight;
        take_buffer(stripe);
    }
}
