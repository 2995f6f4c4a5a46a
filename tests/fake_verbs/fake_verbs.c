/* SPDX-License-Identifier: MIT
 *
 * fake_verbs.c - see fake_verbs.h.
 *
 * A request waits in its pair until a poll of any queue executes it. One whose target is gone, or has no receive for
 * it, waits on, as a device would try again; TARGET_POLLS or RECEIVE_POLLS later it fails. So a connection that closes
 * is noticed in other ways first, as it should be.
 */
#include "fake_verbs.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "channel/verbs.h"

#define EXPORT __attribute__((visibility("default")))

enum { PAIRS_MOST = 512, MEMORIES_MOST = 4096, QUEUE_MOST = 4096, TARGET_POLLS = 200000, RECEIVE_POLLS = 200000 };
enum { STATUS_LOCAL = 4, STATUS_REMOTE = 10 };

struct verbs_device {
    char name[16];
};

struct channel {
    struct verbs_channel base;
    unsigned unacknowledged;
};

struct completions {
    struct verbs_completions base;
    struct verbs_completion ring[QUEUE_MOST];
    uint32_t first, count;
    bool armed;
    unsigned events; /* told and not acknowledged */
    unsigned polls;
};

struct request {
    struct verbs_send send;
    struct verbs_piece pieces[4];
    uint8_t inlined[512];
    uint32_t waited;
};

struct pair {
    struct verbs_pair base;
    uint32_t state, target, sends_most, receives_most, inline_most;
    struct request *sends; /* a ring of sends_most */
    uint64_t *receives;
    uint32_t first_send, send_count, first_receive, receive_count;
    uint32_t open_sends; /* posted, and not covered by a completion yet */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_verbs state = {.devices = FAKE_DEVICES};
static struct verbs_device devices[FAKE_DEVICES] = {{"fake0"}, {"fake1"}, {"fake2"}};
static struct pair *pairs[PAIRS_MOST];
static struct verbs_memory *memories[MEMORIES_MOST];
static int accesses[MEMORIES_MOST];
static uint32_t memories_made, polls;

EXPORT struct fake_verbs *fake_verbs(void) { return &state; }

/* ---------------------------------------------------------------- memory */

/* Is all of it registered under that key, for that? */
static bool may(uint32_t key, uint64_t at, uint64_t bytes, int access) {
    for (int i = 0; i < MEMORIES_MOST; i++) {
        const struct verbs_memory *memory = memories[i];
        if (!memory || memory->local_key != key || (accesses[i] & access) != access) continue;
        uint64_t from = (uintptr_t)memory->at;
        return at >= from && bytes <= memory->bytes && at - from <= memory->bytes - bytes;
    }
    return false;
}

EXPORT struct verbs_memory *ibv_reg_mr(struct verbs_domain *domain, void *at, size_t bytes, int access) {
    pthread_mutex_lock(&lock);
    struct verbs_memory *memory = NULL;
    int slot = 0;
    while (slot < MEMORIES_MOST && memories[slot]) slot++;
    bool fits = !state.lock_bytes || state.locked_bytes + bytes <= state.lock_bytes;
    if (slot < MEMORIES_MOST && fits) memory = calloc(1, sizeof *memory);
    if (memory) {
        *memory = (struct verbs_memory){domain->context, domain, at, bytes, 0, 0, 0};
        memory->local_key = memory->remote_key = ++memories_made * 8 + 3;
        memories[slot] = memory;
        accesses[slot] = access;
        state.memories++;
        state.locked_bytes += bytes;
    } else {
        errno = ENOMEM;
    }
    pthread_mutex_unlock(&lock);
    return memory;
}

EXPORT int ibv_dereg_mr(struct verbs_memory *memory) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MEMORIES_MOST; i++)
        if (memories[i] == memory) memories[i] = NULL;
    state.memories--;
    state.locked_bytes -= memory->bytes;
    pthread_mutex_unlock(&lock);
    free(memory);
    return 0;
}

/* ---------------------------------------------------------------- completions */

static void complete(struct verbs_completions *base, const struct verbs_completion *completion) {
    struct completions *queue = (struct completions *)base;
    if (queue->count == (uint32_t)base->entries) abort(); /* the caller counted wrongly */
    queue->ring[(queue->first + queue->count++) % QUEUE_MOST] = *completion;
    state.reported++;
    if (!queue->armed || !base->channel) return;
    queue->armed = false;
    uint64_t one = 1;
    if (write(base->channel->fd, &one, sizeof one) != sizeof one) abort();
}

static struct request *head(struct pair *pair) { return &pair->sends[pair->first_send]; }

static void request_ends(struct pair *pair, uint32_t status) {
    struct request *request = head(pair);
    if (status != VERBS_OK || request->send.flags & VERBS_SIGNALED) {
        struct verbs_completion completion = {.id = request->send.id, .status = status, .pair = pair->base.number};
        complete(pair->base.sends, &completion);
        pair->open_sends = pair->send_count - 1;
    }
    pair->first_send = (pair->first_send + 1) % pair->sends_most;
    pair->send_count--;
}

static void receive_ends(struct pair *pair, uint32_t status, uint32_t note, uint32_t bytes) {
    struct verbs_completion completion = {.id = pair->receives[pair->first_receive],
                                          .status = status,
                                          .opcode = VERBS_COMPLETED_RECEIVE + 1,
                                          .bytes = bytes,
                                          .note = note,
                                          .pair = pair->base.number};
    complete(pair->base.receives, &completion);
    pair->first_receive = (pair->first_receive + 1) % pair->receives_most;
    pair->receive_count--;
}

/* All that is posted comes back. */
static void flush(struct pair *pair) {
    while (pair->send_count > 0) request_ends(pair, VERBS_FLUSHED);
    while (pair->receive_count > 0) receive_ends(pair, VERBS_FLUSHED, 0, 0);
}

static void break_pair(struct pair *pair, uint32_t status) {
    pair->state = VERBS_ERROR;
    request_ends(pair, status);
    flush(pair);
}

/* ---------------------------------------------------------------- execution */

static struct pair *target_of(const struct pair *pair) {
    struct pair *target = pair->target < PAIRS_MOST ? pairs[pair->target] : NULL;
    bool ready = target && target->target == pair->base.number &&
                 (target->state == VERBS_MAY_RECEIVE || target->state == VERBS_MAY_SEND);
    return ready ? target : NULL;
}

static uint64_t bytes_of(const struct request *request) {
    uint64_t bytes = 0;
    for (int i = 0; i < request->send.pieces_count; i++) bytes += request->pieces[i].bytes;
    return bytes;
}

static void copy(const struct request *request) {
    uint8_t *remote = (uint8_t *)(uintptr_t)request->send.remote_at;
    const uint8_t *inlined = request->inlined;
    for (int i = 0; i < request->send.pieces_count; i++) {
        const struct verbs_piece *piece = &request->pieces[i];
        void *local = (void *)(uintptr_t)piece->at;
        if (request->send.opcode == VERBS_READ)
            memcpy(local, remote, piece->bytes);
        else
            memcpy(remote, request->send.flags & VERBS_INLINE ? inlined : local, piece->bytes);
        remote += piece->bytes;
        inlined += piece->bytes;
    }
}

static uint32_t check(const struct request *request, uint64_t bytes) {
    bool reads = request->send.opcode == VERBS_READ;
    for (int i = 0; i < request->send.pieces_count; i++) {
        const struct verbs_piece *piece = &request->pieces[i];
        if (request->send.flags & VERBS_INLINE) continue;
        if (!may(piece->local_key, piece->at, piece->bytes, reads ? VERBS_LOCAL_WRITE : 0)) return STATUS_LOCAL;
    }
    if (bytes == 0) return VERBS_OK;
    int access = reads ? VERBS_REMOTE_READ : VERBS_REMOTE_WRITE;
    return may(request->send.remote_key, request->send.remote_at, bytes, access) ? VERBS_OK : STATUS_REMOTE;
}

/* False: the first request has to wait. */
static bool execute(struct pair *pair) {
    struct request *request = head(pair);
    struct pair *target = target_of(pair);
    if (!target) {
        if (++request->waited < TARGET_POLLS) return false;
        break_pair(pair, VERBS_RETRIES_EXCEEDED);
        return true;
    }
    bool noted = request->send.opcode == VERBS_WRITE_NOTED;
    if (noted && target->receive_count == 0) {
        state.not_ready++;
        if (++request->waited < RECEIVE_POLLS) return false;
        break_pair(pair, VERBS_NOT_READY_EXCEEDED);
        return true;
    }
    uint64_t bytes = bytes_of(request);
    uint32_t status = check(request, bytes);
    if (state.fail_status && state.requests >= state.fail_after) {
        status = state.fail_status;
        state.fail_status = 0;
    }
    if (status != VERBS_OK) {
        break_pair(pair, status);
        return true;
    }
    copy(request);
    state.requests++;
    state.reads += request->send.opcode == VERBS_READ;
    *(request->send.opcode == VERBS_READ ? &state.read_bytes : &state.written_bytes) += bytes;
    if (noted) receive_ends(target, VERBS_OK, request->send.note, (uint32_t)bytes);
    request_ends(pair, VERBS_OK);
    return true;
}

static void execute_all(void) {
    if (state.polls_between && ++polls % state.polls_between) return;
    for (int i = 0; i < PAIRS_MOST; i++) {
        struct pair *pair = pairs[i];
        if (!pair || pair->state != VERBS_MAY_SEND) continue;
        uint32_t most = state.requests_a_poll ? state.requests_a_poll : UINT32_MAX;
        while (most-- && pair->state == VERBS_MAY_SEND && pair->send_count > 0 && execute(pair)) continue;
    }
}

static int poll_completions(struct verbs_completions *base, int most, struct verbs_completion *found) {
    struct completions *queue = (struct completions *)base;
    pthread_mutex_lock(&lock);
    execute_all();
    int count = 0;
    bool nothing = state.partial && ++queue->polls % state.partial == 0;
    while (!nothing && count < most && queue->count > 0) {
        found[count++] = queue->ring[queue->first];
        queue->first = (queue->first + 1) % QUEUE_MOST;
        queue->count--;
    }
    pthread_mutex_unlock(&lock);
    return count;
}

static int arm(struct verbs_completions *base, int solicited_only) {
    (void)solicited_only;
    pthread_mutex_lock(&lock);
    ((struct completions *)base)->armed = true;
    pthread_mutex_unlock(&lock);
    return 0;
}

static int post_send(struct verbs_pair *base, struct verbs_send *send, struct verbs_send **bad) {
    struct pair *pair = (struct pair *)base;
    pthread_mutex_lock(&lock);
    *bad = send;
    bool full = pair->open_sends == pair->sends_most;
    int error = full ? ENOMEM : pair->state != VERBS_MAY_SEND && pair->state != VERBS_ERROR ? EINVAL : 0;
    if (error == 0) {
        struct request *request = &pair->sends[(pair->first_send + pair->send_count++) % pair->sends_most];
        *request = (struct request){.send = *send};
        uint8_t *inlined = request->inlined;
        for (int i = 0; i < send->pieces_count; i++) {
            request->pieces[i] = send->pieces[i];
            if (!(send->flags & VERBS_INLINE)) continue;
            if (inlined + send->pieces[i].bytes > request->inlined + pair->inline_most) abort();
            memcpy(inlined, (void *)(uintptr_t)send->pieces[i].at, send->pieces[i].bytes);
            inlined += send->pieces[i].bytes;
        }
        pair->open_sends++;
        if (pair->state == VERBS_ERROR) flush(pair);
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static int post_receive(struct verbs_pair *base, struct verbs_receive *receive, struct verbs_receive **bad) {
    struct pair *pair = (struct pair *)base;
    pthread_mutex_lock(&lock);
    *bad = receive;
    bool full = pair->receive_count == pair->receives_most;
    if (!full) pair->receives[(pair->first_receive + pair->receive_count++) % pair->receives_most] = receive->id;
    if (pair->state == VERBS_ERROR) flush(pair);
    pthread_mutex_unlock(&lock);
    return full ? ENOMEM : 0;
}

/* ---------------------------------------------------------------- devices */

EXPORT struct verbs_device **ibv_get_device_list(int *count) {
    struct verbs_device **list = calloc(FAKE_DEVICES + 1, sizeof *list);
    if (!list) return NULL;
    for (int i = 0; i < state.devices; i++) list[i] = &devices[i];
    *count = state.devices;
    return list;
}

EXPORT void ibv_free_device_list(struct verbs_device **list) { free(list); }
EXPORT const char *ibv_get_device_name(struct verbs_device *device) { return device->name; }

EXPORT struct verbs_context *ibv_open_device(struct verbs_device *device) {
    struct verbs_context *context = calloc(1, sizeof *context);
    if (!context) return NULL;
    context->device = device;
    context->own.poll = poll_completions;
    context->own.arm = arm;
    context->own.send = post_send;
    context->own.receive = post_receive;
    __atomic_fetch_add(&state.contexts, 1, __ATOMIC_RELAXED);
    return context;
}

EXPORT int ibv_close_device(struct verbs_context *context) {
    __atomic_fetch_sub(&state.contexts, 1, __ATOMIC_RELAXED);
    free(context);
    return 0;
}

EXPORT int ibv_query_device(struct verbs_context *context, struct verbs_limits *limits) {
    (void)context;
    limits->ports = 1;
    limits->requests = QUEUE_MOST;
    limits->reads_in = limits->reads_out = 8;
    return 0;
}

EXPORT int ibv_query_port(struct verbs_context *context, uint8_t port, struct verbs_port *attributes) {
    (void)port;
    ptrdiff_t number = context->device - devices;
    *attributes = (struct verbs_port){.state = number == 1 ? 1 : VERBS_PORT_ACTIVE,
                                      .most_mtu = 5,
                                      .mtu = number == 0 ? 3 : 4,
                                      .gids = 8,
                                      .lid = number == 2 ? 77 : 0,
                                      .layer = number == 2 ? VERBS_INFINIBAND : VERBS_ETHERNET};
    return 0;
}

/* Of each address v1 stands before v2, as in the kernel's tables. */
static const uint8_t gids[8][VERBS_GID_BYTES] = {
    {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},   {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1},
    {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},         {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
};

EXPORT int ibv_query_gid(struct verbs_context *context, uint8_t port, int index, uint8_t *gid) {
    (void)context, (void)port;
    memcpy(gid, gids[index & 7], VERBS_GID_BYTES);
    return 0;
}

EXPORT int _ibv_query_gid_ex(struct verbs_context *context, uint32_t port, uint32_t index, struct verbs_gid *entry,
                             uint32_t flags, size_t bytes) {
    (void)flags;
    if (index >= 6 || bytes != sizeof *entry) return ENODATA;
    ibv_query_gid(context, (uint8_t)port, (int)index, entry->bytes);
    entry->type = context->device == &devices[2] ? 0 : index % 2 ? VERBS_GID_ROCE_V2 : 1;
    return 0;
}

EXPORT struct verbs_domain *ibv_alloc_pd(struct verbs_context *context) {
    struct verbs_domain *domain = calloc(1, sizeof *domain);
    if (!domain) return NULL;
    domain->context = context;
    __atomic_fetch_add(&state.domains, 1, __ATOMIC_RELAXED);
    return domain;
}

EXPORT int ibv_dealloc_pd(struct verbs_domain *domain) {
    __atomic_fetch_sub(&state.domains, 1, __ATOMIC_RELAXED);
    free(domain);
    return 0;
}

EXPORT struct verbs_channel *ibv_create_comp_channel(struct verbs_context *context) {
    struct channel *channel = calloc(1, sizeof *channel);
    if (!channel) return NULL;
    channel->base = (struct verbs_channel){context, eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE), 0};
    __atomic_fetch_add(&state.channels, 1, __ATOMIC_RELAXED);
    return &channel->base;
}

EXPORT int ibv_destroy_comp_channel(struct verbs_channel *channel) {
    if (channel->references) return EBUSY;
    close(channel->fd);
    __atomic_fetch_sub(&state.channels, 1, __ATOMIC_RELAXED);
    free(channel);
    return 0;
}

EXPORT struct verbs_completions *ibv_create_cq(struct verbs_context *context, int entries, void *owner,
                                               struct verbs_channel *channel, int vector) {
    (void)vector;
    struct completions *queue = entries > QUEUE_MOST ? NULL : calloc(1, sizeof *queue);
    if (!queue) return NULL;
    queue->base = (struct verbs_completions){context, channel, owner, 0, entries};
    if (channel) channel->references++;
    __atomic_fetch_add(&state.completions, 1, __ATOMIC_RELAXED);
    return &queue->base;
}

/* The true one waits until all events are acknowledged; here that would be for ever. */
EXPORT int ibv_destroy_cq(struct verbs_completions *base) {
    struct completions *queue = (struct completions *)base;
    if (queue->events) abort();
    if (base->channel) base->channel->references--;
    __atomic_fetch_sub(&state.completions, 1, __ATOMIC_RELAXED);
    free(queue);
    return 0;
}

/* One queue to a channel is all that is needed here. */
static struct completions *queue_of(const struct verbs_channel *channel) {
    for (int i = 0; i < PAIRS_MOST; i++)
        if (pairs[i] && pairs[i]->base.sends->channel == channel) return (struct completions *)pairs[i]->base.sends;
    return NULL;
}

EXPORT int ibv_get_cq_event(struct verbs_channel *channel, struct verbs_completions **completions, void **owner) {
    uint64_t count;
    if (read(channel->fd, &count, sizeof count) != sizeof count) return -1;
    pthread_mutex_lock(&lock);
    struct completions *queue = queue_of(channel);
    if (queue) {
        queue->events++;
        *completions = &queue->base;
        *owner = queue->base.owner;
    }
    pthread_mutex_unlock(&lock);
    return queue ? 0 : -1;
}

EXPORT void ibv_ack_cq_events(struct verbs_completions *completions, unsigned count) {
    pthread_mutex_lock(&lock);
    struct completions *queue = (struct completions *)completions;
    if (count > queue->events) abort();
    queue->events -= count;
    pthread_mutex_unlock(&lock);
}

/* ---------------------------------------------------------------- pairs */

EXPORT struct verbs_pair *ibv_create_qp(struct verbs_domain *domain, struct verbs_pair_options *options) {
    pthread_mutex_lock(&lock);
    uint32_t number = 1;
    while (number < PAIRS_MOST && pairs[number]) number++;
    uint32_t inline_most = state.inline_bytes ? state.inline_bytes : 512;
    bool refused = options->capacities.inline_bytes > inline_most || number == PAIRS_MOST || state.refuse_pairs;
    if (state.refuse_pairs) state.refuse_pairs--;
    struct pair *pair = refused ? NULL : calloc(1, sizeof *pair);
    if (pair) {
        pair->base = (struct verbs_pair){.context = domain->context,
                                         .domain = domain,
                                         .sends = options->sends,
                                         .receives = options->receives,
                                         .number = number};
        pair->sends_most = options->capacities.sends;
        pair->receives_most = options->capacities.receives;
        pair->inline_most = options->capacities.inline_bytes;
        pair->sends = calloc(pair->sends_most, sizeof *pair->sends);
        pair->receives = calloc(pair->receives_most, sizeof *pair->receives);
        if (!pair->sends || !pair->receives) abort();
        pairs[number] = pair;
        state.pairs++;
    } else {
        errno = EINVAL;
    }
    pthread_mutex_unlock(&lock);
    return pair ? &pair->base : NULL;
}

EXPORT int ibv_modify_qp(struct verbs_pair *base, struct verbs_pair_attributes *attributes, int mask) {
    static const uint32_t before[] = {0, VERBS_RESET, VERBS_INIT, VERBS_MAY_RECEIVE};
    struct pair *pair = (struct pair *)base;
    int error = 0;
    pthread_mutex_lock(&lock);
    if (attributes->state == VERBS_ERROR) {
        pair->state = VERBS_ERROR;
        flush(pair);
    } else if (attributes->state > VERBS_MAY_SEND || pair->state != before[attributes->state] ||
               (mask & VERBS_SET_RETRIES && attributes->retries > 6)) {
        error = EINVAL;
    } else if (attributes->state == VERBS_MAY_RECEIVE && state.refuse_connects) {
        state.refuse_connects--;
        error = ENETUNREACH;
    } else {
        pair->state = attributes->state;
        if (mask & VERBS_SET_TARGET) pair->target = attributes->target;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

EXPORT int ibv_destroy_qp(struct verbs_pair *base) {
    struct pair *pair = (struct pair *)base;
    pthread_mutex_lock(&lock);
    pairs[base->number] = NULL;
    state.pairs--;
    pthread_mutex_unlock(&lock);
    free(pair->sends);
    free(pair->receives);
    free(pair);
    return 0;
}
