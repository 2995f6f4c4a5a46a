/* SPDX-License-Identifier: MIT
 *
 * rdma_stream.c - see rdma_stream.h.
 *
 * Places for notes. At most RDMA_NOTES_AHEAD messages are not returned. A return covers at least a quarter of those, or
 * `return_bytes` of a ring, and is not sent for what was returned already: so as long as the other side has not seen
 * them (and then it has their places ready again) no more than four and capacity / return_bytes of them can be under
 * way. There are as many places as that, together.
 */
#include "channel/rdma_stream.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "base/clock.h"

#define NOTE_RETURN (UINT32_C(1) << 31) /* else a message: its bytes */
enum {
    NOTE_BYTES = (1 << 22) - 1,
    NOTE_NOTES_AT = 22,
    RETURN_NOTES = RDMA_NOTES_AHEAD / 4,
    KEPT_FOR_RETURNS = 80, /* requests that messages leave free */
    READS = 2 * RDMA_READS_MOST
};
_Static_assert((int)RDMA_RING_MOST <= (int)NOTE_BYTES, "a note tells any number of bytes");
_Static_assert(RDMA_RING_MOST / RDMA_RETURN_BYTES + 4 < KEPT_FOR_RETURNS, "all returns can be under way");

static uint64_t return_bytes(uint64_t capacity) { return min_u64(capacity / 4, RDMA_RETURN_BYTES); }

/* ---------------------------------------------------------------- life */

static int map(struct rdma_stream *stream) {
    void *memory = mmap(NULL, 2 * stream->own_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return errno;
    stream->ring = memory;
    stream->image = stream->ring + stream->own_bytes;
    /* A forked child that writes to its copy of a page must not take this side's away from the device. */
#ifdef MADV_DONTFORK
    if (madvise(memory, 2 * stream->own_bytes, MADV_DONTFORK) < 0) return errno;
#endif
    return 0;
}

static int lock(struct rdma_stream *stream, struct rdma_port *port) {
    int error = map(stream);
    if (error) return error;
    errno = 0;
    stream->memory = port->verbs.reg_mr(port->domain, stream->ring, 2 * stream->own_bytes,
                                        VERBS_LOCAL_WRITE | VERBS_REMOTE_WRITE | VERBS_REMOTE_READ);
    return stream->memory ? 0 : errno ? errno : ENOMEM;
}

int pccl__rdma_stream_open(struct rdma_stream *stream, struct rdma_port *port, uint64_t ring_bytes, uint32_t start,
                           const char **why) {
    *stream = (struct rdma_stream){.own_bytes = min_u64(max_u64(ring_bytes, RDMA_RING_LEAST), RDMA_RING_MOST)};
    struct rdma_queue_options options = {
        .sends = 2 * RDMA_NOTES_AHEAD + KEPT_FOR_RETURNS + READS,
        .notes = RDMA_NOTES_AHEAD + 4 + (uint32_t)(stream->own_bytes / return_bytes(stream->own_bytes)),
        .start = start,
    };
    int error = options.sends > port->requests ? E2BIG : pccl__rdma_queue_open(&stream->queue, port, &options);
    *why = "cannot make a queue on the RDMA device";
    if (error) return error;
    error = lock(stream, port);
    *why = "cannot lock memory for the RDMA device";
    if (error) pccl__rdma_stream_close(stream, 0);
    return error;
}

void pccl__rdma_stream_offer(const struct rdma_stream *stream, struct rdma_offer *offer) {
    pccl__rdma_queue_address(&stream->queue, &offer->queue);
    offer->ring_at = (uintptr_t)stream->ring;
    offer->ring_key = stream->memory->remote_key;
    offer->ring_bytes = (uint32_t)stream->own_bytes;
}

int pccl__rdma_stream_connect(struct rdma_stream *stream, const struct rdma_offer *other) {
    stream->capacity = stream->limit = min_u64(stream->own_bytes, other->ring_bytes);
    stream->out = (struct rdma_place){other->ring_at, other->ring_key};
    return pccl__rdma_queue_connect(&stream->queue, &other->queue);
}

static bool all_done(const struct rdma_queue *queue) { return queue->sends == queue->sends_done; }

/* A device takes back what was not sent yet when its queue goes; the last words of this side are among that. */
static void drain(struct rdma_stream *stream, uint64_t patience_ns) {
    struct rdma_queue *queue = &stream->queue;
    uint64_t until_ns = clock_now_ns() + patience_ns;
    if (patience_ns == 0 || !pccl__rdma_queue_sound(queue) || all_done(queue)) return;
    if (pccl__rdma_queue_room(queue) > 0) pccl__rdma_queue_report(queue);
    while (pccl__rdma_queue_sound(queue) && !all_done(queue) && clock_now_ns() < until_ns)
        pccl__rdma_stream_look(stream);
}

void pccl__rdma_stream_close(struct rdma_stream *stream, uint64_t patience_ns) {
    const struct rdma_port *port = stream->queue.port;
    drain(stream, patience_ns);
    pccl__rdma_queue_close(&stream->queue);
    if (stream->memory) port->verbs.dereg_mr(stream->memory);
    if (stream->ring) munmap(stream->ring, 2 * stream->own_bytes);
    *stream = (struct rdma_stream){0};
}

/* ---------------------------------------------------------------- notes */

static void take_note(struct rdma_stream *stream, uint32_t note) {
    if (note & NOTE_RETURN) {
        stream->returned += note & NOTE_BYTES;
        stream->notes_returned += (note & ~NOTE_RETURN) >> NOTE_NOTES_AT;
        if (stream->returned > stream->written || (int32_t)(stream->notes - stream->notes_returned) < 0)
            pccl__rdma_queue_fail(&stream->queue, EPROTO, "the other side returned what it never had");
        return;
    }
    stream->arrived += note;
    stream->arrivals++;
    if (stream->arrived - stream->read > stream->capacity)
        pccl__rdma_queue_fail(&stream->queue, EPROTO, "the other side wrote more than there is room for");
}

/* Tells the other side of room and places that it has again, when it is worth it. */
static void give_back(struct rdma_stream *stream) {
    uint64_t bytes = stream->read - stream->told;
    uint32_t notes = stream->arrivals - stream->arrivals_told;
    if (bytes < return_bytes(stream->capacity) && notes < RETURN_NOTES) return;
    if (!pccl__rdma_queue_sound(&stream->queue) || pccl__rdma_queue_room(&stream->queue) == 0) return;
    uint32_t note = NOTE_RETURN | notes << NOTE_NOTES_AT | (uint32_t)bytes;
    if (!pccl__rdma_queue_write_noted(&stream->queue, NULL, 0, stream->out, false, note)) return;
    stream->told += bytes;
    stream->arrivals_told += notes;
}

void pccl__rdma_stream_look(struct rdma_stream *stream) {
    for (;;) {
        struct rdma_news news = pccl__rdma_queue_poll(&stream->queue);
        if (news.kind == RDMA_NOTHING) break;
        if (news.kind == RDMA_NOTE && stream->queue.error == 0) take_note(stream, news.note);
    }
    give_back(stream);
}

bool pccl__rdma_stream_readable(const struct rdma_stream *stream) {
    return stream->arrived != stream->read || stream->queue.error;
}

/* Bytes that may be written now; less than half of the ring is not worth a stride. */
static uint64_t room_of(const struct rdma_stream *stream) {
    uint64_t filled = stream->written - stream->returned;
    bool places = stream->notes - stream->notes_returned < RDMA_NOTES_AHEAD;
    if (!places || pccl__rdma_queue_room(&stream->queue) <= KEPT_FOR_RETURNS) return 0;
    return filled < stream->limit ? stream->limit - filled : 0;
}

bool pccl__rdma_stream_writable(const struct rdma_stream *stream) {
    return room_of(stream) >= stream->limit / 2 || stream->queue.error;
}

/* ---------------------------------------------------------------- bytes */

/* A place in a list of parts. */
struct cursor {
    const struct iovec *parts;
    int count;
    size_t skip;
};

/* The next bytes that lie together, at most so many; NULL: there are none. */
static uint8_t *next(struct cursor *cursor, uint64_t most, uint64_t *bytes) {
    while (cursor->count > 0 && cursor->skip == cursor->parts->iov_len) {
        cursor->parts++;
        cursor->count--;
        cursor->skip = 0;
    }
    if (cursor->count == 0 || most == 0) return NULL;
    uint8_t *at = (uint8_t *)cursor->parts->iov_base + cursor->skip;
    *bytes = min_u64(cursor->parts->iov_len - cursor->skip, most);
    cursor->skip += *bytes;
    return at;
}

static uint64_t total_of(const struct iovec *parts, int count) {
    uint64_t total = 0;
    for (int i = 0; i < count; i++) total += parts[i].iov_len;
    return total;
}

/* One message: `bytes` from the cursor, which lie together in the ring. */
static bool send_message(struct rdma_stream *stream, struct cursor *cursor, uint64_t bytes) {
    uint64_t offset = stream->written & (stream->capacity - 1), part;
    struct verbs_piece pieces[RDMA_PIECES];
    int count = 0;
    bool inlined = bytes <= stream->queue.inline_bytes && cursor->count <= RDMA_PIECES;
    uint64_t left = bytes;
    for (uint8_t *at; (at = next(cursor, left, &part)); left -= part) {
        if (inlined)
            pieces[count++] = (struct verbs_piece){.at = (uintptr_t)at, .bytes = (uint32_t)part};
        else
            memcpy(stream->image + offset + (bytes - left), at, part);
    }
    if (!inlined)
        pieces[count++] =
            (struct verbs_piece){(uintptr_t)stream->image + offset, (uint32_t)bytes, stream->memory->local_key};
    struct rdma_place to = {stream->out.at + offset, stream->out.key};
    if (!pccl__rdma_queue_write_noted(&stream->queue, pieces, count, to, inlined, (uint32_t)bytes)) return false;
    stream->written += bytes;
    stream->notes++;
    return true;
}

int64_t pccl__rdma_stream_write(struct rdma_stream *stream, const struct iovec *parts, int count) {
    uint64_t left = total_of(parts, count), before = stream->written;
    struct cursor cursor = {parts, count, 0};
    if (room_of(stream) < left) pccl__rdma_stream_look(stream);
    for (uint64_t room; left > 0 && stream->queue.error == 0 && (room = room_of(stream)) > 0;) {
        uint64_t together = stream->capacity - (stream->written & (stream->capacity - 1));
        uint64_t bytes = min_u64(min_u64(left, room), together);
        if (!send_message(stream, &cursor, bytes)) break;
        left -= bytes;
    }
    return stream->queue.error ? -1 : (int64_t)(stream->written - before);
}

int64_t pccl__rdma_stream_read(struct rdma_stream *stream, const struct iovec *parts, int count) {
    if (stream->arrived == stream->read) pccl__rdma_stream_look(stream);
    uint64_t here = stream->arrived - stream->read;
    if (here == 0) return stream->queue.error ? -1 : 0;
    struct cursor cursor = {parts, count, 0};
    uint64_t left = here, part;
    for (;;) {
        uint64_t offset = stream->read & (stream->capacity - 1);
        uint8_t *to = next(&cursor, min_u64(left, stream->capacity - offset), &part);
        if (!to) break;
        memcpy(to, stream->ring + offset, part);
        stream->read += part;
        left -= part;
    }
    if (stream->queue.error == 0) give_back(stream);
    return (int64_t)(here - left);
}
