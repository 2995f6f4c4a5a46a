/* SPDX-License-Identifier: MIT
 *
 * tcp_listener.c - the listening port, and connections that have not shown yet who they are.
 *
 * A stranger costs one small struct and is read no further than the fixed size of a greeting. There are at most
 * STRANGERS_MAX; one more pushes the oldest out, so neither silence nor a flood keeps members away for long. Garbage is
 * dropped without an answer and only counted.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/check.h"
#include "base/clock.h"
#include "channel/tcp_channel.h"

enum { STRANGERS_MAX = 64, ACCEPTS_PER_TURN = 64 };
#define GREETING_NS           (5000 * NS_PER_MS)
#define OUT_OF_DESCRIPTORS_NS (100 * NS_PER_MS)

struct stranger {
    struct list link;
    struct tcp_transport *transport;
    int fd, handle;
    bool readable;
    uint64_t deadline_ns;
    uint32_t bytes;
    uint8_t greeting[TCP_HELLO_BYTES];
};

static void stranger_ready(void *owner, int fd, unsigned events) {
    (void)fd, (void)events;
    struct stranger *stranger = owner;
    stranger->readable = true;
    stranger->transport->base.ready = true;
}

static void listener_ready(void *owner, int fd, unsigned events) {
    (void)fd, (void)events;
    struct tcp_transport *transport = owner;
    transport->acceptable = true;
    transport->base.ready = true;
}

/* `keep`: the descriptor has a new owner. */
static void stranger_free(struct stranger *stranger, bool keep) {
    struct tcp_transport *transport = stranger->transport;
    list_remove(&stranger->link);
    transport->strangers_count--;
    if (stranger->handle >= 0) pccl__poll_remove(transport->poll, stranger->handle);
    if (!keep) close(stranger->fd);
    free(stranger);
}

static void refuse(struct stranger *stranger) {
    stranger->transport->base.refused++;
    stranger_free(stranger, false);
}

static void stranger_new(struct tcp_transport *transport, int fd, uint64_t now_ns) {
    if (transport->strangers_count == STRANGERS_MAX)
        refuse(LIST_ENTRY(transport->strangers.next, struct stranger, link));
    struct stranger *stranger = calloc(1, sizeof *stranger);
    if (!stranger) {
        close(fd);
        return;
    }
    stranger->transport = transport;
    stranger->fd = fd;
    stranger->readable = true; /* the greeting is often here already */
    stranger->deadline_ns = now_ns + GREETING_NS;
    list_push_back(&transport->strangers, &stranger->link);
    transport->strangers_count++;
    stranger->handle = pccl__poll_add(transport->poll, fd, PCCL__POLL_IN, stranger_ready, stranger);
    if (stranger->handle < 0) stranger_free(stranger, false);
}

static void accept_some(struct tcp_transport *transport, uint64_t now_ns) {
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int fd = pccl__tcp_socket_accept(transport->listener);
        if (fd >= 0) {
            stranger_new(transport, fd, now_ns);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            /* The connection stays in the backlog and the listener readable: look away for a while, or we would spin.
             */
            transport->resume_ns = now_ns + OUT_OF_DESCRIPTORS_NS;
            transport->acceptable = false;
            pccl__poll_change(transport->poll, transport->listener_handle, 0);
            return;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            transport->acceptable = false;
            return;
        }
        /* Else that one connection failed before it was taken (ECONNABORTED and the like): the next, please. */
    }
}

static void answer(struct stranger *stranger, enum tcp_answer_code code) {
    uint8_t wire[TCP_ANSWER_BYTES];
    struct tcp_answer message = {.version = TCP_WIRE_VERSION, .code = (uint8_t)code};
    pccl__tcp_answer_encode(&message, wire);
    (void)!send(stranger->fd, wire, sizeof wire, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (code == TCP_ANSWER_REFUSED || code == TCP_ANSWER_VERSION)
        refuse(stranger);
    else
        stranger_free(stranger, false);
}

static void take_greeting(struct stranger *stranger) {
    struct tcp_transport *transport = stranger->transport;
    struct tcp_hello hello;
    enum tcp_hello_verdict verdict = pccl__tcp_hello_decode(&hello, stranger->greeting);
    if (verdict == TCP_HELLO_FOREIGN) {
        refuse(stranger);
        return;
    }
    if (verdict == TCP_HELLO_VERSION) {
        answer(stranger, TCP_ANSWER_VERSION);
        return;
    }
    bool ours = pccl__tcp_secret_equal(hello.secret, transport->secret);
    if (!ours || memcmp(&hello.to, &transport->id, sizeof hello.to) != 0) {
        answer(stranger, TCP_ANSWER_REFUSED);
        return;
    }
    struct tcp_channel *channel = pccl__tcp_find(transport, &hello.from);
    if (!channel) {
        answer(stranger, TCP_ANSWER_UNKNOWN);
        return;
    }
    pccl__poll_remove(transport->poll, stranger->handle);
    stranger->handle = -1;
    enum tcp_answer_code code = pccl__tcp_link_accept(channel, &hello, stranger->fd);
    if (code == TCP_ANSWER_OK)
        stranger_free(stranger, true);
    else
        answer(stranger, code);
}

/* May free the stranger. */
static void run_stranger(struct stranger *stranger, uint64_t now_ns) {
    if (now_ns >= stranger->deadline_ns) {
        refuse(stranger);
        return;
    }
    if (!stranger->readable) return;
    stranger->readable = false;
    ssize_t got =
        recv(stranger->fd, stranger->greeting + stranger->bytes, TCP_HELLO_BYTES - stranger->bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (got <= 0 && stranger->bytes == 0) { /* said nothing: also a member that gave up its dial for ours */
        stranger_free(stranger, false);
        return;
    }
    if (got <= 0) {
        refuse(stranger);
        return;
    }
    stranger->bytes += (uint32_t)got;
    if (stranger->bytes == TCP_HELLO_BYTES) take_greeting(stranger);
}

void pccl__tcp_listener_progress(struct tcp_transport *transport, uint64_t now_ns) {
    transport->base.ready = false;
    if (transport->resume_ns && now_ns >= transport->resume_ns) {
        transport->resume_ns = 0;
        transport->acceptable = true;
        pccl__poll_change(transport->poll, transport->listener_handle, PCCL__POLL_IN);
    }
    if (transport->acceptable) accept_some(transport, now_ns);
    for (struct list *node = transport->strangers.next, *next; node != &transport->strangers; node = next) {
        next = node->next;
        run_stranger(LIST_ENTRY(node, struct stranger, link), now_ns);
    }
    if (transport->acceptable) transport->base.ready = true;
    uint64_t deadline = transport->resume_ns ? transport->resume_ns : NEVER_NS;
    if (!list_empty(&transport->strangers)) /* the oldest is first */
        deadline = min_u64(deadline, LIST_ENTRY(transport->strangers.next, struct stranger, link)->deadline_ns);
    transport->base.deadline_ns = deadline;
}

pccl_status pccl__tcp_listener_open(struct tcp_transport *transport, const struct tcp_address *address) {
    list_init(&transport->strangers);
    transport->listener = pccl__tcp_socket_listen(address);
    if (transport->listener < 0) return PCCL_SYSTEM;
    transport->listener_handle =
        pccl__poll_add(transport->poll, transport->listener, PCCL__POLL_IN, listener_ready, transport);
    if (transport->listener_handle >= 0) return PCCL_OK;
    int saved = errno;
    close(transport->listener);
    errno = saved;
    return saved == ENOMEM ? PCCL_NO_MEMORY : PCCL_SYSTEM;
}

void pccl__tcp_listener_close(struct tcp_transport *transport) {
    while (!list_empty(&transport->strangers))
        stranger_free(LIST_ENTRY(transport->strangers.next, struct stranger, link), false);
    pccl__poll_remove(transport->poll, transport->listener_handle);
    close(transport->listener);
}
