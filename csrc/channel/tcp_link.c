/* SPDX-License-Identifier: MIT
 *
 * tcp_link.c - connections come and go: dialling, the handshake, losing a stripe, resuming it.
 *
 * Handshake: HELLO, ANSWER, then any frame of the dialler confirms. The answering side commits itself only then, so a
 * connection that its dialler gave up in between leaves no trace. A channel has a random instance number. It tells a
 * late greeting of the link we have (busy) from one of a channel that the other side opened anew (ours is dead).
 *
 * Both sides may dial at once. While the lower id's greeting is under way it answers BUSY to the other's; the higher id
 * drops its own dial instead. If the lower id cannot get through at all, it never greets, so the other way stays open.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"
#include "channel/tcp_channel.h"

#define HANDSHAKE_NS     (5000 * NS_PER_MS)
#define BUSY_NS          (50 * NS_PER_MS) /* after a refused or failed dial */
#define UNKNOWN_FIRST_NS (5 * NS_PER_MS)  /* the other side has not heard of us yet: soon, then slower */
#define UNKNOWN_LAST_NS  (100 * NS_PER_MS)
#define REDIAL_LAST_NS   (5000 * NS_PER_MS) /* of a lost stripe */
#define STEADY_NS        (1000 * NS_PER_MS) /* a stripe that held this long is dialled again without patience */

/* ---------------------------------------------------------------- stripes */

struct tcp_stripe *pccl__tcp_stripe_at(struct tcp_channel *channel, uint32_t index) {
    CHECK(index < TCP_STRIPES_MAX);
    if (channel->stripes[index]) return channel->stripes[index];
    struct tcp_stripe *stripe = calloc(1, sizeof *stripe);
    if (!stripe) return NULL;
    stripe->buffer = malloc(TCP_READ_BUFFER);
    if (!stripe->buffer) {
        free(stripe);
        return NULL;
    }
    stripe->channel = channel;
    stripe->index = index;
    stripe->fd = stripe->handle = -1;
    list_init(&stripe->writing);
    list_init(&stripe->retained);
    list_init(&stripe->landing.link);
    pccl__tcp_medium_init(&stripe->medium);
    channel->stripes[index] = stripe;
    channel->stripes_count = (uint32_t)max_u64(channel->stripes_count, index + 1);
    return stripe;
}

void pccl__tcp_stripe_free(struct tcp_stripe *stripe) {
    if (!stripe) return;
    free(stripe->buffer);
    free(stripe);
}

void pccl__tcp_stripe_close(struct tcp_stripe *stripe) {
    if (stripe->in_payload) pccl__landing_drop(&stripe->landing);
    stripe->in_payload = false;
    if (stripe->state == TCP_STRIPE_UP) stripe->channel->up_count--;
    stripe->state = TCP_STRIPE_IDLE;
    if (stripe->handle >= 0) pccl__poll_remove(stripe->channel->transport->poll, stripe->handle);
    pccl__tcp_medium_reset(stripe);
    if (stripe->fd >= 0) close(stripe->fd);
    stripe->fd = stripe->handle = -1;
    stripe->readable = stripe->writable = stripe->wants_out = false;
    pccl__tcp_pace_dry(&stripe->pace);
}

static void stripe_ready(void *owner, int fd, unsigned events) {
    (void)fd;
    struct tcp_stripe *stripe = owner;
    if (events & (PCCL__POLL_IN | PCCL__POLL_ERROR)) stripe->readable = stripe->medium.bell = true;
    if (events & (PCCL__POLL_OUT | PCCL__POLL_ERROR)) stripe->writable = true;
    stripe->channel->base.ready = true;
}

/* Takes `fd` over; false: the poll set is full, fd stays the caller's. */
static bool stripe_adopt(struct tcp_stripe *stripe, int fd, enum tcp_stripe_state state, unsigned events) {
    int handle = pccl__poll_add(stripe->channel->transport->poll, fd, events, stripe_ready, stripe);
    if (handle < 0) return false;
    stripe->fd = fd;
    stripe->handle = handle;
    stripe->state = state;
    stripe->since_ns = clock_now_ns();
    stripe->wants_out = events & PCCL__POLL_OUT;
    stripe->greeting_bytes = 0;
    stripe->begin = stripe->end = 0; /* the connection before may have ended in the middle of a frame */
    return true;
}

/* A connection is agreed on: counts start anew. */
static void stripe_up(struct tcp_stripe *stripe) {
    stripe->state = TCP_STRIPE_UP;
    stripe->since_ns = clock_now_ns();
    stripe->writable = true;
    stripe->written = stripe->writing_count = stripe->shown = 0;
    stripe->sent = stripe->acknowledged = stripe->received = stripe->told = 0;
    stripe->untold_bytes = 0;
    stripe->ack_due = stripe->ack_now = false;
    pccl__tcp_silence_begin(stripe);
    pccl__tcp_medium_up(stripe);
    /* Who is given more time by us is not to be given up by the kernel before. */
    pccl__tcp_socket_be_patient(stripe->fd, stripe->channel->transport->connect_timeout_ns / NS_PER_MS);
    if (stripe->channel->base.same_host)
        pccl__tcp_socket_stay_in_cache(stripe->fd);
    else
        pccl__tcp_socket_queue_little(stripe->fd);
    stripe->channel->up_count++;
    if (!stripe->medium.rings && stripe->channel->transport->fabric.mode == TCP_RDMA_REQUIRED) {
        const char *why = stripe->channel->transport->fabric.why;
        pccl__tcp_break(stripe->channel, 0, "RDMA is required: %s", why[0] ? why : "the other side has none");
        return;
    }
    stripe->channel->base.medium = !stripe->medium.rings ? "tcp" : stripe->medium.stream ? "rdma" : "shm";
    stripe->channel->base.doubted = false;
    stripe->channel->base.ready = true;
}

/* ---------------------------------------------------------------- dialling */

static void dial_again(struct tcp_stripe *stripe, uint64_t delay_ns, const char *obstacle, int system_errno) {
    struct tcp_channel *channel = stripe->channel;
    pccl__tcp_stripe_close(stripe);
    stripe->retry_ns = channel->now_ns + delay_ns;
    channel->obstacle = obstacle;
    channel->obstacle_errno = system_errno;
    if (system_errno == 0 || channel->up_count > 0 || channel->base.doubted) return;
    errno = system_errno;
    pccl__fail(&channel->base.error, PCCL_SYSTEM, "%s", obstacle);
    channel->base.doubted = true;
}

static void dial_again_slower(struct tcp_stripe *stripe, uint64_t first_ns, uint64_t last_ns, const char *obstacle,
                              int system_errno) {
    stripe->backoff_ns = min_u64(max_u64(2 * stripe->backoff_ns, first_ns), last_ns);
    dial_again(stripe, stripe->backoff_ns, obstacle, system_errno);
}

static void dial(struct tcp_stripe *stripe) {
    struct tcp_channel *channel = stripe->channel;
    int fd = pccl__tcp_socket_dial(&channel->address);
    if (fd < 0) {
        dial_again_slower(stripe, BUSY_NS, REDIAL_LAST_NS, "cannot connect", errno);
        return;
    }
    stripe->generation++;
    if (!stripe_adopt(stripe, fd, TCP_STRIPE_CONNECTING, PCCL__POLL_OUT)) {
        close(fd);
        dial_again_slower(stripe, BUSY_NS, REDIAL_LAST_NS, "cannot poll", errno);
    }
}

/* The connection stands: greet. */
static void greet(struct tcp_stripe *stripe) {
    struct tcp_channel *channel = stripe->channel;
    int error = pccl__tcp_socket_error(stripe->fd);
    if (error) {
        dial_again_slower(stripe, BUSY_NS, channel->peer_instance ? REDIAL_LAST_NS : 10 * BUSY_NS, "cannot connect",
                          error);
        return;
    }
    struct tcp_hello hello = {
        .version = TCP_WIRE_VERSION,
        .shares = channel->transport->sharing && channel->base.same_host,
        .from = channel->transport->id,
        .to = channel->base.peer,
        .from_instance = channel->instance,
        .to_instance = channel->peer_instance,
        .stripe = stripe->index,
        .generation = stripe->generation,
    };
    if (!hello.shares) pccl__tcp_fabric_offer(stripe, &hello.offer);
    memcpy(hello.secret, channel->transport->secret, sizeof hello.secret);
    uint8_t wire[TCP_HELLO_BYTES];
    pccl__tcp_hello_encode(&hello, wire);
    /* A fresh connection takes so few bytes whole, or is broken. */
    if (send(stripe->fd, wire, sizeof wire, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof wire) {
        dial_again_slower(stripe, BUSY_NS, REDIAL_LAST_NS, "cannot greet", errno);
        return;
    }
    stripe->state = TCP_STRIPE_GREETING;
    stripe->since_ns = clock_now_ns();
    stripe->readable = stripe->writable = stripe->wants_out = false;
    pccl__poll_change(channel->transport->poll, stripe->handle, PCCL__POLL_IN);
}

/* How many connections fill the pipe: one cannot when its window is short of bandwidth times round trip, or when the
 * path shares bandwidth per connection, as the long ones do. */
static uint32_t stripes_wanted(const struct tcp_channel *channel) {
    uint32_t forced = channel->transport->stripes;
    if (forced) return (uint32_t)min_u64(forced, TCP_STRIPES_MAX);
    if (channel->base.same_host) return 1;
    if (channel->base.rtt_ns < NS_PER_MS / 2) return 2;
    return channel->base.rtt_ns < 5 * NS_PER_MS ? 4 : 8;
}

static void answered_ok(struct tcp_stripe *stripe, const struct tcp_answer *answer) {
    struct tcp_channel *channel = stripe->channel;
    if (channel->peer_instance && channel->peer_instance != answer->instance) {
        pccl__tcp_break(channel, 0, "the other side started anew");
        return;
    }
    uint64_t rtt_ns = max_u64(clock_now_ns() - stripe->since_ns, 1);
    channel->base.rtt_ns = channel->base.rtt_ns ? min_u64(channel->base.rtt_ns, rtt_ns) : rtt_ns;
    bool first = channel->peer_instance == 0;
    channel->peer_instance = answer->instance;
    channel->dialler = true;
    pccl__tcp_medium_take(stripe, answer->instance, answer->process, answer->descriptor);
    pccl__tcp_fabric_take(stripe, &answer->offer);
    stripe_up(stripe);
    stripe->ack_now = true; /* the confirmation, unless another frame goes out with it */
    if (!first) return;
    for (uint32_t i = 1; i < stripes_wanted(channel); i++) {
        struct tcp_stripe *more = pccl__tcp_stripe_at(channel, i);
        if (more) more->retry_ns = 0; /* without memory the link is merely narrower */
    }
}

static void take_answer(struct tcp_stripe *stripe) {
    struct tcp_channel *channel = stripe->channel;
    ssize_t got = recv(stripe->fd, stripe->greeting + stripe->greeting_bytes, TCP_ANSWER_BYTES - stripe->greeting_bytes,
                       MSG_DONTWAIT);
    stripe->readable = false;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (got <= 0) {
        dial_again_slower(stripe, BUSY_NS, 10 * BUSY_NS, "hung up on", got < 0 ? errno : 0);
        return;
    }
    stripe->greeting_bytes += (uint32_t)got;
    if (stripe->greeting_bytes < TCP_ANSWER_BYTES) return;
    struct tcp_answer answer;
    if (!pccl__tcp_answer_decode(&answer, stripe->greeting)) {
        dial_again_slower(stripe, BUSY_NS, 10 * BUSY_NS, "something else answers there", 0);
        return;
    }
    channel->base.heard_ns = channel->now_ns;
    switch (answer.code) {
    case TCP_ANSWER_OK:
        answered_ok(stripe, &answer);
        break;
    case TCP_ANSWER_BUSY:
        dial_again(stripe, BUSY_NS, "the other side dials too but does not get through", 0);
        break;
    case TCP_ANSWER_UNKNOWN:
        dial_again_slower(stripe, UNKNOWN_FIRST_NS, UNKNOWN_LAST_NS, "the other side does not expect this peer", 0);
        break;
    case TCP_ANSWER_VERSION:
        if (channel->peer_instance)
            dial_again_slower(stripe, BUSY_NS, REDIAL_LAST_NS, "another wire version", 0);
        else
            pccl__tcp_break(channel, 0, "it speaks wire version %u, this side %u", answer.version, TCP_WIRE_VERSION);
        break;
    default:
        dial_again_slower(stripe, BUSY_NS, 10 * BUSY_NS, "refused: another run or another peer is there", 0);
        break;
    }
}

/* ---------------------------------------------------------------- accepting */

static bool id_below(const pccl_peer_id *a, const pccl_peer_id *b) {
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) < 0;
}

/* May this connection become that stripe? */
static enum tcp_answer_code judge(struct tcp_channel *channel, const struct tcp_hello *hello,
                                  const struct tcp_stripe *stripe) {
    if (hello->to_instance != 0 && hello->to_instance != channel->instance) return TCP_ANSWER_UNKNOWN;
    if (channel->peer_instance) {
        if (hello->from_instance != channel->peer_instance) {
            pccl__tcp_break(channel, 0, "the other side started anew");
            return TCP_ANSWER_UNKNOWN;
        }
        bool open = stripe->state == TCP_STRIPE_IDLE || stripe->state == TCP_STRIPE_ACCEPTED;
        return !channel->dialler && open ? TCP_ANSWER_OK : TCP_ANSWER_BUSY;
    }
    if (hello->stripe != 0) return TCP_ANSWER_BUSY;
    bool ours_first = stripe->state == TCP_STRIPE_GREETING && id_below(&channel->transport->id, &channel->base.peer);
    return ours_first ? TCP_ANSWER_BUSY : TCP_ANSWER_OK;
}

enum tcp_answer_code pccl__tcp_link_accept(struct tcp_channel *channel, const struct tcp_hello *hello, int fd) {
    if (channel->closed || channel->base.broken) return TCP_ANSWER_UNKNOWN;
    /* Its dialler has hung up since: a greeting of the past proves nothing about the present. */
    uint8_t next;
    if (recv(fd, &next, sizeof next, MSG_PEEK | MSG_DONTWAIT) == 0) return TCP_ANSWER_BUSY;
    struct tcp_stripe *stripe = pccl__tcp_stripe_at(channel, hello->stripe);
    if (!stripe) return TCP_ANSWER_BUSY;
    enum tcp_answer_code code = judge(channel, hello, stripe);
    if (code != TCP_ANSWER_OK) return code;
    pccl__tcp_stripe_close(stripe); /* our own dial, or an accepted one that its dialler replaces */
    if (!stripe_adopt(stripe, fd, TCP_STRIPE_ACCEPTED, PCCL__POLL_IN)) return TCP_ANSWER_BUSY;
    stripe->generation = hello->generation;
    stripe->caller_instance = hello->from_instance;
    stripe->received = 0;
    uint8_t wire[TCP_ANSWER_BYTES];
    struct tcp_answer answer = {.version = TCP_WIRE_VERSION, .code = TCP_ANSWER_OK, .instance = channel->instance};
    if (hello->shares) pccl__tcp_medium_offer(stripe, hello->from_instance, &answer.process, &answer.descriptor);
    pccl__tcp_fabric_answer(stripe, &hello->offer, &answer.offer);
    pccl__tcp_answer_encode(&answer, wire);
    /* Should it fail, the dialler does not confirm. */
    (void)!send(fd, wire, sizeof wire, MSG_NOSIGNAL | MSG_DONTWAIT);
    channel->base.ready = true;
    return TCP_ANSWER_OK;
}

bool pccl__tcp_link_confirmed(struct tcp_channel *channel, struct tcp_stripe *stripe) {
    if (channel->peer_instance && channel->peer_instance != stripe->caller_instance) {
        pccl__tcp_break(channel, 0, "the other side started anew");
        return false;
    }
    channel->peer_instance = stripe->caller_instance;
    channel->dialler = false;
    stripe_up(stripe);
    return true;
}

/* ---------------------------------------------------------------- losing */

/* The control stream leaves a stripe: what the other side has not confirmed goes out again, in order. */
static void control_back(struct tcp_channel *channel, struct tcp_stripe *stripe) {
    struct list again;
    list_init(&again);
    list_splice(&again, &channel->control_sent);
    for (struct list *node = stripe->writing.next, *next; node != &stripe->writing; node = next) {
        next = node->next;
        struct tcp_frame *frame = LIST_ENTRY(node, struct tcp_frame, link);
        if (frame->header.kind == TCP_DATA) continue;
        list_remove(node);
        if (frame->header.kind == TCP_ACK)
            pccl__tcp_frame_free(&channel->pool, frame);
        else
            list_push_back(&again, node);
    }
    list_splice(&again, &channel->control);
    list_splice(&channel->control, &again);
    channel->control_stripe = -1;
}

static void drop_acks(struct tcp_channel *channel, struct tcp_stripe *stripe) {
    for (struct list *node = stripe->writing.next, *next; node != &stripe->writing; node = next) {
        next = node->next;
        struct tcp_frame *frame = LIST_ENTRY(node, struct tcp_frame, link);
        if (frame->header.kind != TCP_ACK) continue;
        list_remove(node);
        pccl__tcp_frame_free(&channel->pool, frame);
    }
}

/* False: no memory, the channel is broken. */
static bool tell_down(struct tcp_channel *channel, uint32_t index, uint32_t generation, uint64_t received) {
    struct tcp_frame *frame = pccl__tcp_frame_new(&channel->pool, TCP_DOWN, 0);
    if (!frame) {
        pccl__tcp_break(channel, 0, "out of memory");
        return false;
    }
    frame->header.argument = index;
    frame->header.bytes = generation;
    frame->header.key.tag = received;
    pccl__tcp_queue_control(channel, frame);
    return true;
}

void pccl__tcp_stripe_lost(struct tcp_stripe *stripe, int system_errno, const char *why) {
    struct tcp_channel *channel = stripe->channel;
    bool was_up = stripe->state == TCP_STRIPE_UP;
    bool steady = channel->now_ns >= stripe->since_ns + STEADY_NS; /* it may be younger than this progress */
    pccl__tcp_stripe_close(stripe);
    if (!was_up) { /* accepted but never confirmed: nothing hangs on it */
        stripe->retry_ns = channel->now_ns;
        return;
    }
    if (channel->up_count == 0) {
        if (channel->base.ended)
            pccl__tcp_break(channel, 0, "its process has ended");
        else
            pccl__tcp_break(channel, system_errno, "%s", why);
        return;
    }
    if (channel->control_stripe == (int)stripe->index)
        control_back(channel, stripe);
    else
        drop_acks(channel, stripe);
    list_splice(&stripe->retained, &stripe->writing);
    stripe->writing_count = stripe->written = 0;
    stripe->state = TCP_STRIPE_DOWN;
    if (steady) stripe->backoff_ns = 0;
    stripe->told_down = stripe->generation;
    (void)tell_down(channel, stripe->index, stripe->generation, stripe->received);
}

void pccl__tcp_link_down(struct tcp_channel *channel, uint32_t index, uint32_t generation, uint64_t received) {
    struct tcp_stripe *stripe = pccl__tcp_stripe_at(channel, index);
    if (!stripe) {
        pccl__tcp_break(channel, 0, "out of memory");
        return;
    }
    if (stripe->state == TCP_STRIPE_UP && stripe->generation == generation)
        pccl__tcp_stripe_lost(stripe, 0, "given up by the other side");
    if (channel->base.broken) return;
    if (stripe->state == TCP_STRIPE_DOWN && stripe->generation == generation) {
        if (received < stripe->acknowledged || !pccl__tcp_acknowledge_data(channel, stripe, received)) {
            pccl__tcp_break(channel, 0, "it acknowledged what was never sent");
            return;
        }
        for (struct list *node; (node = list_pop_front(&stripe->retained));) {
            struct tcp_frame *frame = LIST_ENTRY(node, struct tcp_frame, link);
            if (frame->forsaken)
                pccl__tcp_frame_free(&channel->pool, frame);
            else
                list_push_back(&channel->resend, node);
        }
        stripe->state = TCP_STRIPE_IDLE;
        stripe->backoff_ns = min_u64(max_u64(2 * stripe->backoff_ns, BUSY_NS), REDIAL_LAST_NS);
        stripe->retry_ns = channel->now_ns + stripe->backoff_ns;
        return;
    }
    /* The dialler lost a connection that was never confirmed here. Our count of it is zero, and we sent nothing. */
    if (channel->dialler || stripe->told_down >= generation) return;
    if (stripe->state == TCP_STRIPE_ACCEPTED && stripe->generation == generation) pccl__tcp_stripe_close(stripe);
    stripe->told_down = generation;
    (void)tell_down(channel, index, generation, 0);
}

/* ---------------------------------------------------------------- timers */

static bool may_dial(const struct tcp_channel *channel, const struct tcp_stripe *stripe) {
    if (stripe->state != TCP_STRIPE_IDLE) return false;
    return channel->peer_instance ? channel->dialler : channel->wanted && stripe->index == 0;
}

static bool in_handshake(const struct tcp_stripe *stripe) {
    return stripe->state == TCP_STRIPE_CONNECTING || stripe->state == TCP_STRIPE_GREETING ||
           stripe->state == TCP_STRIPE_ACCEPTED;
}

static void run_stripe(struct tcp_stripe *stripe, uint64_t now_ns) {
    if (stripe->state == TCP_STRIPE_CONNECTING && stripe->writable)
        greet(stripe);
    else if (stripe->state == TCP_STRIPE_GREETING && stripe->readable)
        take_answer(stripe);
    if (in_handshake(stripe) && now_ns > stripe->since_ns && now_ns - stripe->since_ns >= HANDSHAKE_NS)
        dial_again(stripe, BUSY_NS, "no answer", ETIMEDOUT);
    if (may_dial(stripe->channel, stripe) && now_ns >= stripe->retry_ns) dial(stripe);
}

void pccl__tcp_link_progress(struct tcp_channel *channel, uint64_t now_ns) {
    if (!channel->peer_instance && channel->wanted) {
        if (channel->wanted_ns == 0) channel->wanted_ns = now_ns;
        if (now_ns - channel->wanted_ns >= channel->transport->connect_timeout_ns) {
            pccl__tcp_break(channel, channel->obstacle_errno, "no link within %u ms: %s",
                            (unsigned)(channel->transport->connect_timeout_ns / NS_PER_MS),
                            channel->obstacle ? channel->obstacle : "no answer");
            return;
        }
    }
    for (uint32_t i = 0; i < channel->stripes_count && !channel->base.broken; i++)
        if (channel->stripes[i]) run_stripe(channel->stripes[i], now_ns);
}

uint64_t pccl__tcp_link_deadline(const struct tcp_channel *channel) {
    uint64_t deadline = NEVER_NS;
    if (!channel->peer_instance && channel->wanted_ns)
        deadline = channel->wanted_ns + channel->transport->connect_timeout_ns;
    for (uint32_t i = 0; i < channel->stripes_count; i++) {
        const struct tcp_stripe *stripe = channel->stripes[i];
        if (!stripe) continue;
        if (in_handshake(stripe)) deadline = min_u64(deadline, stripe->since_ns + HANDSHAKE_NS);
        if (may_dial(channel, stripe)) deadline = min_u64(deadline, stripe->retry_ns);
    }
    return deadline;
}

/* ---------------------------------------------------------------- for tests */

bool pccl__tcp_test_break_stripe(struct pccl__channel *base, uint32_t index) {
    struct tcp_channel *channel = tcp_channel_of(base);
    if (index >= channel->stripes_count || !channel->stripes[index]) return false;
    if (channel->stripes[index]->state != TCP_STRIPE_UP) return false;
    return shutdown(channel->stripes[index]->fd, SHUT_RDWR) == 0;
}

uint32_t pccl__tcp_test_stripes_up(const struct pccl__channel *base) {
    return ((const struct tcp_channel *)base)->up_count;
}
