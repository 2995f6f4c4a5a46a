/* SPDX-License-Identifier: MIT
 *
 * poll_posix.c - readiness by poll(2), for systems without epoll (and for tests, with PCCL_USE_POLL).
 *
 * poll(2) takes the set with each call, so a sleeping thread works on a copy that a change makes stale. Each waiter has
 * a pipe of its own for that: a change writes to all of them, a wake-up to one. The mutex guards the table and the list
 * of waiters; it is never held while somebody sleeps. Good for tens of descriptors.
 */
#if !defined(__linux__) || defined(PCCL_USE_POLL)

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "channel/poll_slots.h"

struct waiter {
    struct list link; /* in `sleeping` or `idle` */
    int pipe_fds[2];  /* read, write; both non-blocking */
};

struct pccl__poll {
    pthread_mutex_t mutex;
    struct poll_slots table;
    struct list sleeping, idle; /* waiters */
    bool woken;                 /* a wake-up came while nobody slept */
    uint32_t turn;              /* whose sources are looked at first: where more are ready than one wait can tell */
};

static struct waiter *waiter_new(void) {
    struct waiter *waiter = malloc(sizeof *waiter);
    if (!waiter) return NULL;
    if (pipe(waiter->pipe_fds) < 0) {
        free(waiter);
        return NULL;
    }
    for (int i = 0; i < 2; i++) {
        (void)fcntl(waiter->pipe_fds[i], F_SETFL, O_NONBLOCK);
        (void)fcntl(waiter->pipe_fds[i], F_SETFD, FD_CLOEXEC);
    }
    list_init(&waiter->link);
    return waiter;
}

static void waiter_free(struct waiter *waiter) {
    close(waiter->pipe_fds[0]);
    close(waiter->pipe_fds[1]);
    free(waiter);
}

/* The first waiter is made here: a process that runs out of descriptors later still hears of those that it has. */
pccl_status pccl__poll_new(struct pccl__poll **result) {
    struct pccl__poll *poll_set = calloc(1, sizeof *poll_set);
    struct waiter *first = waiter_new();
    if (!poll_set || !first || pthread_mutex_init(&poll_set->mutex, NULL) != 0) {
        pccl_status status = poll_set && !first ? PCCL_SYSTEM : PCCL_NO_MEMORY;
        if (first) waiter_free(first);
        free(poll_set);
        return status;
    }
    list_init(&poll_set->sleeping);
    list_init(&poll_set->idle);
    list_push_back(&poll_set->idle, &first->link);
    *result = poll_set;
    return PCCL_OK;
}

void pccl__poll_free(struct pccl__poll *poll_set) {
    if (!poll_set) return;
    CHECK(list_empty(&poll_set->sleeping));
    for (struct list *node; (node = list_pop_front(&poll_set->idle));)
        waiter_free(LIST_ENTRY(node, struct waiter, link));
    pthread_mutex_destroy(&poll_set->mutex);
    free(poll_set->table.slots);
    free(poll_set);
}

void pccl__poll_forked(struct pccl__poll *poll_set) {
    /* The mutex was copied in whatever state it had; this thread is the child's only one. */
    poll_slots_close_all(&poll_set->table);
    list_splice(&poll_set->idle, &poll_set->sleeping);
    for (struct list *node; (node = list_pop_front(&poll_set->idle));)
        waiter_free(LIST_ENTRY(node, struct waiter, link));
}

/* A full pipe wakes as well. */
static void rouse(struct waiter *waiter) { (void)!write(waiter->pipe_fds[1], "", 1); }

/* The sleeping copies are stale. The mutex is held. */
static void rouse_all(struct pccl__poll *poll_set) {
    for (struct list *node = poll_set->sleeping.next; node != &poll_set->sleeping; node = node->next)
        rouse(LIST_ENTRY(node, struct waiter, link));
}

int pccl__poll_add(struct pccl__poll *poll_set, int fd, unsigned events, pccl__ready_fn *ready, void *owner) {
    pthread_mutex_lock(&poll_set->mutex);
    int slot = poll_slots_take(&poll_set->table, fd, events, ready, owner);
    rouse_all(poll_set);
    pthread_mutex_unlock(&poll_set->mutex);
    return slot;
}

void pccl__poll_change(struct pccl__poll *poll_set, int handle, unsigned events) {
    pthread_mutex_lock(&poll_set->mutex);
    struct poll_slot *slot = poll_slots_at(&poll_set->table, handle);
    if (slot->events != events) rouse_all(poll_set);
    slot->events = events;
    pthread_mutex_unlock(&poll_set->mutex);
}

void pccl__poll_remove(struct pccl__poll *poll_set, int handle) {
    pthread_mutex_lock(&poll_set->mutex);
    poll_slots_give(&poll_set->table, handle);
    rouse_all(poll_set);
    pthread_mutex_unlock(&poll_set->mutex);
}

/* What poll(2) gets: the waiter's pipe first, then the table. The mutex is held. NULL: no memory. */
static struct pollfd *copy_set(struct pccl__poll *poll_set, const struct waiter *waiter, uint64_t **tokens,
                               nfds_t *count) {
    const struct poll_slots *table = &poll_set->table;
    uint32_t first = poll_set->turn;
    poll_set->turn += PCCL__POLL_BATCH;
    size_t most = (size_t)table->count + 1;
    struct pollfd *set = malloc(most * sizeof *set);
    *tokens = malloc(most * sizeof **tokens);
    if (!set || !*tokens) {
        free(set);
        free(*tokens);
        return NULL;
    }
    set[0] = (struct pollfd){.fd = waiter->pipe_fds[0], .events = POLLIN};
    *count = 1;
    for (int i = 0; i < table->count; i++) {
        int slot = (int)((first + (uint32_t)i) % (uint32_t)table->count);
        if (table->slots[slot].fd < 0) continue;
        unsigned events = table->slots[slot].events;
        short wanted = (short)((events & PCCL__POLL_IN ? POLLIN : 0) | (events & PCCL__POLL_OUT ? POLLOUT : 0));
        set[*count] = (struct pollfd){.fd = table->slots[slot].fd, .events = wanted};
        (*tokens)[(*count)++] = poll_token(table, slot);
    }
    return set;
}

/* Rounded up: a deadline that is not reached yet must not make its owner spin. */
static int to_poll_ms(uint64_t timeout_ns) {
    if (timeout_ns == NEVER_NS) return -1;
    uint64_t ms = timeout_ns / NS_PER_MS + (timeout_ns % NS_PER_MS != 0);
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

static int sleep_on(struct pollfd *set, const uint64_t *tokens, nfds_t count, int timeout_ms,
                    struct pccl__ready ready[PCCL__POLL_BATCH]) {
    int found = 0;
    if (poll(set, count, timeout_ms) <= 0) return 0;
    for (nfds_t i = 1; i < count && found < PCCL__POLL_BATCH; i++) {
        unsigned got = (set[i].revents & (POLLIN | POLLHUP) ? PCCL__POLL_IN : 0u) |
                       (set[i].revents & POLLOUT ? PCCL__POLL_OUT : 0u) |
                       (set[i].revents & (POLLERR | POLLNVAL) ? PCCL__POLL_ERROR : 0u);
        if (got) ready[found++] = (struct pccl__ready){tokens[i], got};
    }
    return found;
}

/* A waiter from the idle ones, and its copy of the set. False: no memory or descriptors. */
static bool begin_wait(struct pccl__poll *poll_set, struct waiter **waiter, struct pollfd **set, uint64_t **tokens,
                       nfds_t *count, bool *woken) {
    pthread_mutex_lock(&poll_set->mutex);
    struct list *node = list_pop_front(&poll_set->idle);
    *waiter = node ? LIST_ENTRY(node, struct waiter, link) : waiter_new();
    *set = *waiter ? copy_set(poll_set, *waiter, tokens, count) : NULL;
    if (*set) list_push_back(&poll_set->sleeping, &(*waiter)->link);
    if (*waiter && !*set) list_push_back(&poll_set->idle, &(*waiter)->link);
    *woken = poll_set->woken;
    poll_set->woken = false;
    pthread_mutex_unlock(&poll_set->mutex);
    return *set != NULL;
}

int pccl__poll_wait(struct pccl__poll *poll_set, uint64_t timeout_ns, struct pccl__ready ready[PCCL__POLL_BATCH]) {
    struct waiter *waiter;
    struct pollfd *set;
    uint64_t *tokens;
    nfds_t count;
    bool woken;
    if (!begin_wait(poll_set, &waiter, &set, &tokens, &count, &woken)) {
        (void)poll(NULL, 0, 1); /* out of memory or descriptors: the caller tries again, but must not spin */
        return 0;
    }
    int found = sleep_on(set, tokens, count, woken ? 0 : to_poll_ms(timeout_ns), ready);
    free(set);
    free(tokens);
    char drained[64];
    pthread_mutex_lock(&poll_set->mutex);
    list_remove(&waiter->link);
    while (read(waiter->pipe_fds[0], drained, sizeof drained) > 0) {
    }
    list_push_back(&poll_set->idle, &waiter->link);
    pthread_mutex_unlock(&poll_set->mutex);
    return found;
}

void pccl__poll_wake(struct pccl__poll *poll_set) {
    pthread_mutex_lock(&poll_set->mutex);
    if (list_empty(&poll_set->sleeping))
        poll_set->woken = true;
    else
        rouse(LIST_ENTRY(poll_set->sleeping.next, struct waiter, link));
    pthread_mutex_unlock(&poll_set->mutex);
}

void pccl__poll_dispatch(struct pccl__poll *poll_set, const struct pccl__ready *ready, int count) {
    poll_slots_dispatch(&poll_set->table, ready, count);
}

#else
typedef int poll_posix_c_is_empty_here; /* ISO C wants a declaration */
#endif
