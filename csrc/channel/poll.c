/* SPDX-License-Identifier: MIT
 *
 * poll.c - readiness by epoll. See poll_posix.c for systems without it.
 *
 * The kernel keeps the set, so waiting threads share nothing with those that change it. The wake-up is an eventfd in
 * the set; whoever sees it resets it.
 */
#if defined(__linux__) && !defined(PCCL_USE_POLL)

#include <errno.h>
#include <limits.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "channel/poll_slots.h"

struct pccl__poll {
    int epoll_fd, wake_fd;
    struct poll_slots table;
};

#define WAKE_TOKEN UINT64_MAX

pccl_status pccl__poll_new(struct pccl__poll **result) {
    struct pccl__poll *poll = calloc(1, sizeof *poll);
    if (!poll) return PCCL_NO_MEMORY;
    poll->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    poll->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = WAKE_TOKEN};
    if (poll->epoll_fd < 0 || poll->wake_fd < 0 ||
        epoll_ctl(poll->epoll_fd, EPOLL_CTL_ADD, poll->wake_fd, &event) < 0) {
        pccl__poll_free(poll);
        return PCCL_SYSTEM;
    }
    *result = poll;
    return PCCL_OK;
}

void pccl__poll_free(struct pccl__poll *poll) {
    if (!poll) return;
    int saved = errno;
    if (poll->epoll_fd >= 0) close(poll->epoll_fd);
    if (poll->wake_fd >= 0) close(poll->wake_fd);
    free(poll->table.slots);
    free(poll);
    errno = saved;
}

void pccl__poll_forked(struct pccl__poll *poll) {
    poll_slots_close_all(&poll->table); /* no EPOLL_CTL_DEL: the set is the parent's too */
    close(poll->epoll_fd);
    close(poll->wake_fd);
    poll->epoll_fd = poll->wake_fd = -1;
}

static uint32_t to_epoll(unsigned events) {
    return (events & PCCL__POLL_IN ? EPOLLIN : 0u) | (events & PCCL__POLL_OUT ? EPOLLOUT : 0u);
}

int pccl__poll_add(struct pccl__poll *poll, int fd, unsigned events, pccl__ready_fn *ready, void *owner) {
    int slot = poll_slots_take(&poll->table, fd, events, ready, owner);
    if (slot < 0) return -1;
    struct epoll_event event = {.events = to_epoll(events), .data.u64 = poll_token(&poll->table, slot)};
    if (epoll_ctl(poll->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0) return slot;
    poll_slots_give(&poll->table, slot);
    return -1;
}

void pccl__poll_change(struct pccl__poll *poll, int handle, unsigned events) {
    struct poll_slot *slot = poll_slots_at(&poll->table, handle);
    if (slot->events == events) return;
    slot->events = events;
    struct epoll_event event = {.events = to_epoll(events), .data.u64 = poll_token(&poll->table, handle)};
    CHECK(epoll_ctl(poll->epoll_fd, EPOLL_CTL_MOD, slot->fd, &event) == 0);
}

void pccl__poll_remove(struct pccl__poll *poll, int handle) {
    CHECK(epoll_ctl(poll->epoll_fd, EPOLL_CTL_DEL, poll_slots_at(&poll->table, handle)->fd, NULL) == 0);
    poll_slots_give(&poll->table, handle);
}

/* Rounded up: a deadline that is not reached yet must not make its owner spin. */
static int to_epoll_ms(uint64_t timeout_ns) {
    if (timeout_ns == NEVER_NS) return -1;
    uint64_t ms = timeout_ns / NS_PER_MS + (timeout_ns % NS_PER_MS != 0);
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

int pccl__poll_wait(struct pccl__poll *poll, uint64_t timeout_ns, struct pccl__ready ready[PCCL__POLL_BATCH]) {
    struct epoll_event events[PCCL__POLL_BATCH];
    int found = epoll_wait(poll->epoll_fd, events, PCCL__POLL_BATCH, to_epoll_ms(timeout_ns));
    int count = 0;
    for (int i = 0; i < found; i++) {
        if (events[i].data.u64 == WAKE_TOKEN) {
            uint64_t ignored;
            if (read(poll->wake_fd, &ignored, sizeof ignored) < 0) continue; /* another thread was first */
            continue;
        }
        unsigned got = (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLRDHUP) ? PCCL__POLL_IN : 0u) |
                       (events[i].events & EPOLLOUT ? PCCL__POLL_OUT : 0u) |
                       (events[i].events & EPOLLERR ? PCCL__POLL_ERROR : 0u);
        ready[count++] = (struct pccl__ready){events[i].data.u64, got};
    }
    return count;
}

void pccl__poll_wake(struct pccl__poll *poll) {
    uint64_t one = 1;
    /* The only failure is a full counter, which already wakes. */
    if (write(poll->wake_fd, &one, sizeof one) < 0) return;
}

void pccl__poll_dispatch(struct pccl__poll *poll, const struct pccl__ready *ready, int count) {
    poll_slots_dispatch(&poll->table, ready, count);
}

#else
typedef int poll_c_is_empty_here; /* ISO C wants a declaration */
#endif
