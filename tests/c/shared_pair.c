/* SPDX-License-Identifier: MIT
 *
 * shared_pair.c - see shared_pair.h.
 */
#include "shared_pair.h"

#include <stdarg.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/prng.h"
#include "check.h"

enum { GUARD_BYTES = 64, GUARD = 0xA5, POISON = 0x5C, SCRIBBLE = 0xEE };

/* Every word of the content differs from all others and from those of other seeds: bytes in a wrong place show. */
static uint64_t next_word(uint64_t *seed) { return *seed += UINT64_C(0x9e3779b97f4a7c15); }

static void fill_content(uint8_t *memory, uint32_t bytes, uint64_t seed) {
    uint32_t i = 0;
    for (; i + 8 <= bytes; i += 8) put_u64(memory + i, next_word(&seed));
    uint64_t last = next_word(&seed);
    memcpy(memory + i, &last, bytes - i);
}

/* Both directions of one key carry different bytes. */
static uint64_t seed_of(const struct pccl__key *key, int sender) { return pccl__key_hash(key) + (uint64_t)sender; }

void pair_content(uint8_t *memory, uint32_t bytes, const struct pccl__key *key, int sender) {
    fill_content(memory, bytes, seed_of(key, sender));
}

static bool has_content(const uint8_t *memory, uint32_t bytes, uint64_t seed) {
    uint32_t i = 0;
    for (; i + 8 <= bytes; i += 8)
        if (get_u64(memory + i) != next_word(&seed)) return false;
    uint64_t last = next_word(&seed);
    return memcmp(memory + i, &last, bytes - i) == 0;
}

static bool all_bytes(const uint8_t *memory, uint32_t bytes, uint8_t value) {
    return bytes == 0 || (memory[0] == value && memcmp(memory, memory + 1, bytes - 1) == 0);
}

static uint8_t *memory_of(const struct parcel *parcel) { return parcel->block + GUARD_BYTES; }

bool parcel_untouched(const struct parcel *parcel) {
    return all_bytes(memory_of(parcel), parcel->transfer.bytes, POISON);
}

unsigned long pair_expectations(void) { return expectations; }

static char context[200];

static void print_context(void) {
    if (context[0]) fprintf(stderr, "in %s\n", context);
}

void pair_context(const char *format, ...) {
    static bool registered;
    if (!registered) atexit(print_context);
    registered = true;
    context[0] = '\0';
    if (!format) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(context, sizeof context, format, arguments);
    va_end(arguments);
}

struct pccl__key pair_key(struct pair *pair, uint64_t epoch) {
    struct pccl__key key = {.epoch = epoch, .tag = 1, .sequence = 1, .step = 1, .segment = 1};
    uint32_t number = 2 + pair->next_number++;
    /* In one field only, so that matching by a part of the key would fail. */
    switch (number % 4) {
    case 0:
        key.tag = number;
        break;
    case 1:
        key.sequence = number;
        break;
    case 2:
        key.step = number;
        break;
    default:
        key.segment = number;
    }
    return key;
}

struct parcel *pair_parcel(struct pair *pair, int end, bool is_send, struct pccl__key key, uint32_t bytes) {
    struct parcel *parcel = calloc(1, sizeof *parcel);
    EXPECT(parcel);
    parcel->block = malloc((size_t)bytes + 2 * GUARD_BYTES);
    EXPECT(parcel->block);
    parcel->end = end;
    parcel->seed = seed_of(&key, is_send ? end : !end);
    memset(parcel->block, GUARD, (size_t)bytes + 2 * GUARD_BYTES);
    if (is_send)
        fill_content(memory_of(parcel), bytes, parcel->seed);
    else
        memset(memory_of(parcel), POISON, bytes);
    parcel->transfer =
        (struct pccl__transfer){.key = key, .data = memory_of(parcel), .bytes = bytes, .is_send = is_send};
    parcel->transfer.stamp.bytes[0] = 42;
    parcel->transfer.owner = parcel;
    parcel->next = pair->parcels;
    pair->parcels = parcel;
    return parcel;
}

pccl_status pair_post(struct pair *pair, struct parcel *parcel) {
    struct pccl__channel *channel = pair->ends[parcel->end].channel;
    pccl_status status;
    do {
        status = parcel->transfer.is_send ? channel->ops->post_send(channel, &parcel->transfer)
                                          : channel->ops->post_recv(channel, &parcel->transfer);
        EXPECT(status == PCCL_OK || parcel->transfer.state == PCCL__IDLE, "borrowed in spite of %d", status);
    } while (status == PCCL_NO_MEMORY);
    parcel->posted = status == PCCL_OK;
    EXPECT(parcel->completions == 0);
    return status;
}

struct parcel *pair_send(struct pair *pair, int end, struct pccl__key key, uint32_t bytes) {
    struct parcel *parcel = pair_parcel(pair, end, true, key, bytes);
    pccl_status status = pair_post(pair, parcel);
    EXPECT(status == PCCL_OK, "post_send: %s", pccl_status_string(status));
    return parcel;
}

struct parcel *pair_recv(struct pair *pair, int end, struct pccl__key key, uint32_t bytes) {
    struct parcel *parcel = pair_parcel(pair, end, false, key, bytes);
    pccl_status status = pair_post(pair, parcel);
    EXPECT(status == PCCL_OK, "post_recv: %s", pccl_status_string(status));
    return parcel;
}

void pair_notice(struct pair *pair, int end, uint32_t kind, const struct pccl__key *key, uint32_t number) {
    struct pccl__channel *channel = pair->ends[end].channel;
    struct pccl__stamp stamp = {{9}};
    uint8_t data[PCCL__NOTICE_BYTES] = {0};
    put_u32(data, number);
    pccl_status status;
    do {
        status = channel->ops->post_notice(channel, kind, key, &stamp, data, number % 2 ? 4 : sizeof data);
    } while (status == PCCL_NO_MEMORY);
    EXPECT(status == PCCL_OK, "post_notice: %s", pccl_status_string(status));
}

void pair_cancel(struct pair *pair, struct parcel *parcel, pccl_status why) {
    struct pccl__channel *channel = pair->ends[parcel->end].channel;
    int before = parcel->completions;
    channel->ops->cancel(channel, &parcel->transfer, why);
    EXPECT(parcel->completions == before, "completed inside cancel");
}

void pair_close(struct pair *pair, int end, pccl_status why) {
    struct pccl__channel *channel = pair->ends[end].channel;
    channel->ops->close(channel, why);
    channel->ops->close(channel, PCCL_INVALID); /* idempotent: the first reason stays */
    pair->ends[end].closed = true;
}

void pair_expect(struct pair *pair, uint64_t epoch) {
    for (int end = 0; end < 2; end++) pair->ends[end].channel->ops->expect(pair->ends[end].channel, epoch);
}

static void take_completion(struct pccl__transfer *transfer) {
    struct parcel *parcel = transfer->owner;
    EXPECT(&parcel->transfer == transfer, "owner was changed");
    EXPECT(parcel->posted && transfer->state == PCCL__COMPLETED);
    EXPECT(++parcel->completions == 1, "completed %d times", parcel->completions);
    uint8_t *memory = memory_of(parcel);
    if (transfer->is_send) {
        EXPECT(has_content(memory, transfer->bytes, parcel->seed), "a send's memory was written");
        memset(memory, SCRIBBLE, transfer->bytes);
        return;
    }
    if (transfer->status == PCCL_OK)
        EXPECT(has_content(memory, transfer->bytes, parcel->seed), "wrong bytes received (%u)", transfer->bytes);
    parcel->after = malloc((size_t)transfer->bytes + 1);
    EXPECT(parcel->after);
    memcpy(parcel->after, memory, transfer->bytes);
}

static void run(struct pair *pair, struct end *end) {
    struct pccl__done done;
    pccl__done_init(&done);
    end->channel->ops->progress(end->channel, pair->driver->now_ns(pair), &done);
    struct list *node;
    while ((node = list_pop_front(&done.transfers))) take_completion(LIST_ENTRY(node, struct pccl__transfer, link));
    while ((node = list_pop_front(&done.notices))) {
        EXPECT(end->notices_count < PAIR_NOTICES);
        end->notices[end->notices_count++] = LIST_ENTRY(node, struct pccl__notice, link);
    }
}

static bool run_ready(struct pair *pair) {
    bool ran = false;
    uint64_t now_ns = pair->driver->now_ns(pair);
    /* Who goes first is random: nothing may depend on it. */
    int first = (int)prng_below(&pair->random, 2);
    for (int i = 0; i < 2; i++) {
        struct end *end = &pair->ends[(first + i) % 2];
        if (!end->channel || (end->dead && !end->closed)) continue;
        if (!end->channel->ready && end->channel->deadline_ns > now_ns) continue;
        run(pair, end);
        ran = true;
        if (prng_below(&pair->random, 4) == 0) break; /* the other end is slow at times */
    }
    return ran;
}

bool pair_step(struct pair *pair) { return run_ready(pair) || pair->driver->step(pair, true); }

void pair_nudge(struct pair *pair, uint32_t rounds) {
    while (rounds--)
        if (!run_ready(pair)) pair->driver->step(pair, false);
}

void pair_await(struct pair *pair, const struct parcel *parcel, pccl_status status) {
    while (!parcel->completions)
        EXPECT(pair_step(pair), "%s of %u bytes never completes", parcel->transfer.is_send ? "send" : "receive",
               parcel->transfer.bytes);
    EXPECT(parcel->transfer.status == status, "completed with \"%s\", not \"%s\"",
           pccl_status_string(parcel->transfer.status), pccl_status_string(status));
}

void pair_await_all(struct pair *pair) {
    for (struct parcel *parcel = pair->parcels; parcel; parcel = parcel->next)
        while (parcel->posted && !parcel->completions)
            EXPECT(pair_step(pair), "%s of %u bytes never completes", parcel->transfer.is_send ? "send" : "receive",
                   parcel->transfer.bytes);
}

uint32_t pair_count_notices(const struct pair *pair, int end, uint32_t kind) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < pair->ends[end].notices_count; i++) count += pair->ends[end].notices[i]->kind == kind;
    return count;
}

void pair_await_notices(struct pair *pair, int end, uint32_t kind, uint32_t count) {
    while (pair_count_notices(pair, end, kind) < count) EXPECT(pair_step(pair), "notice %u never comes", kind);
}

const struct pccl__notice *pair_find_notice(const struct pair *pair, int end, uint32_t kind,
                                            const struct pccl__key *key) {
    for (uint32_t i = 0; i < pair->ends[end].notices_count; i++) {
        const struct pccl__notice *notice = pair->ends[end].notices[i];
        if (notice->kind == kind && pccl__key_equal(&notice->key, key)) return notice;
    }
    return NULL;
}

void pair_settle(struct pair *pair) {
    enum { SETTLE_KIND = 1000000 };
    uint32_t sizes[] = {100, pair->driver->bulk_bytes};
    for (int end = 0; end < 2; end++) {
        uint32_t before = pair_count_notices(pair, !end, SETTLE_KIND);
        pair_notice(pair, end, SETTLE_KIND, NULL, 0);
        pair_await_notices(pair, !end, SETTLE_KIND, before + 1);
        for (int i = 0; i < 2; i++) {
            struct pccl__key key = pair_key(pair, 0);
            struct parcel *recv = pair_recv(pair, !end, key, sizes[i]);
            struct parcel *send = pair_send(pair, end, key, sizes[i]);
            pair_await(pair, recv, PCCL_OK);
            pair_await(pair, send, PCCL_OK);
        }
    }
}

void pair_new(struct pair *pair, struct pair_driver *driver, uint64_t seed, bool open_both) {
    *pair = (struct pair){.driver = driver, .random = ~seed};
    driver->make(pair, seed);
    driver->open(pair, 0);
    if (!open_both) return;
    driver->open(pair, 1);
    pair_expect(pair, 1);
}

static void parcel_free(struct parcel *parcel) {
    const struct pccl__transfer *transfer = &parcel->transfer;
    EXPECT(parcel->completions == parcel->posted, "%s of %u bytes: %d completions",
           transfer->is_send ? "send" : "receive", transfer->bytes, parcel->completions);
    EXPECT(all_bytes(parcel->block, GUARD_BYTES, GUARD), "written before the memory");
    EXPECT(all_bytes(memory_of(parcel) + transfer->bytes, GUARD_BYTES, GUARD), "written behind the memory");
    if (parcel->completions && transfer->is_send)
        EXPECT(all_bytes(memory_of(parcel), transfer->bytes, SCRIBBLE), "a send's memory was written");
    if (parcel->after)
        EXPECT(memcmp(parcel->after, memory_of(parcel), transfer->bytes) == 0, "touched after completion");
    free(parcel->after);
    free(parcel->block);
    free(parcel);
}

void pair_free(struct pair *pair) {
    for (int end = 0; end < 2; end++)
        if (pair->ends[end].channel && !pair->ends[end].closed) pair_close(pair, end, PCCL_CLOSED);
    pair_await_all(pair);
    for (int end = 0; end < 2; end++) {
        if (!pair->ends[end].channel) continue;
        run(pair, &pair->ends[end]);
        pair->ends[end].channel->ops->free(pair->ends[end].channel);
        for (uint32_t i = 0; i < pair->ends[end].notices_count; i++) pccl__notice_free(pair->ends[end].notices[i]);
    }
    pair->driver->free(pair);
    while (pair->parcels) {
        struct parcel *next = pair->parcels->next;
        parcel_free(pair->parcels);
        pair->parcels = next;
    }
}
