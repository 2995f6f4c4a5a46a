/* SPDX-License-Identifier: MIT
 *
 * shared_pair.h - two ends of one link under test: posts transfers with known content and holds the channel to its
 * contract at every completion.
 *
 * What every transfer is checked for, whatever the case: it completes once; a received one holds the right bytes; its
 * memory has guard bytes around it; from its completion on, a receive's memory never changes again, and a send's
 * memory is overwritten at once (a transport that still reads it delivers rubbish).
 */
#ifndef PCCL_TESTS_SHARED_PAIR_H
#define PCCL_TESTS_SHARED_PAIR_H

#include "channel/channel.h"

struct pair;

/* What a transport's test program supplies. */
struct pair_driver {
    const char *name;
    uint32_t bulk_bytes; /* a transfer too large to vanish in the transport's own buffers */
    /* Both ends' transports exist; channel 0 is opened. Sets pair->state. */
    void (*make)(struct pair *pair, uint64_t seed);
    void (*open)(struct pair *pair, int end); /* sets pair->ends[end].channel */
    /* Lets something happen: time passes, descriptors become ready. With `wait` until something does; false then
     * means that nothing ever will (or that the driver's patience is over). Not called while a channel is ready. */
    bool (*step)(struct pair *pair, bool wait);
    uint64_t (*now_ns)(struct pair *pair);
    /* The peer at `end` dies: its channel runs no more until it is closed. */
    void (*kill)(struct pair *pair, int end);
    void (*free)(struct pair *pair); /* channels are freed already */
    void *owner;                     /* the test program's */
};

enum { PAIR_NOTICES = 24 * 1024 };

struct parcel {
    struct pccl__transfer transfer;
    struct parcel *next;
    uint64_t seed;  /* of the content, from the key */
    uint8_t *block; /* guard, memory, guard */
    uint8_t *after; /* a receive's memory at completion */
    int completions;
    int end;
    bool posted;
};

struct end {
    struct pccl__channel *channel;
    bool dead, closed;
    struct pccl__notice *notices[PAIR_NOTICES]; /* in order of arrival */
    uint32_t notices_count;
};

struct pair {
    struct pair_driver *driver;
    void *state;
    struct end ends[2];
    struct parcel *parcels;
    uint64_t random;
    uint32_t next_number; /* of keys */
};

void pair_new(struct pair *pair, struct pair_driver *driver, uint64_t seed, bool open_both);
/* Closes what is open, checks that every posted parcel completed once and all memory is as it should be, frees. */
void pair_free(struct pair *pair);

/* A key of `epoch` that no other call gave. */
struct pccl__key pair_key(struct pair *pair, uint64_t epoch);
/* A parcel, not posted yet. Sends hold the content that belongs to `key`, receives poison. The pair frees it. */
struct parcel *pair_parcel(struct pair *pair, int end, bool is_send, struct pccl__key key, uint32_t bytes);
/* What `sender` sends for `key`, for tests that speak for an end themselves. */
void pair_content(uint8_t *memory, uint32_t bytes, const struct pccl__key *key, int sender);
/* Posts; simulated lack of memory is retried. */
pccl_status pair_post(struct pair *pair, struct parcel *parcel);
struct parcel *pair_send(struct pair *pair, int end, struct pccl__key key, uint32_t bytes);
struct parcel *pair_recv(struct pair *pair, int end, struct pccl__key key, uint32_t bytes);
void pair_notice(struct pair *pair, int end, uint32_t kind, const struct pccl__key *key, uint32_t number);
void pair_cancel(struct pair *pair, struct parcel *parcel, pccl_status why);
void pair_close(struct pair *pair, int end, pccl_status why);
void pair_expect(struct pair *pair, uint64_t epoch); /* both ends */

/* One round: runs the ready channels, else lets something happen. False: nothing will happen any more. */
bool pair_step(struct pair *pair);
/* The same for at most `rounds`, without waiting for anything: perhaps nothing is under way. */
void pair_nudge(struct pair *pair, uint32_t rounds);
/* Runs until the parcel has completed; fails the test if it never does. */
void pair_await(struct pair *pair, const struct parcel *parcel, pccl_status status);
/* Runs until all that is posted has completed. */
void pair_await_all(struct pair *pair);
/* Runs until `end` has got `count` notices of `kind`. */
void pair_await_notices(struct pair *pair, int end, uint32_t kind, uint32_t count);
uint32_t pair_count_notices(const struct pair *pair, int end, uint32_t kind);
const struct pccl__notice *pair_find_notice(const struct pair *pair, int end, uint32_t kind, const struct pccl__key *);
/* Runs until what was sent before has had every chance to arrive: large and small transfers and notices have passed
 * both ways. */
void pair_settle(struct pair *pair);
/* The receive's memory still is what it was before anything arrived. */
bool parcel_untouched(const struct parcel *parcel);
unsigned long pair_expectations(void);
/* What is tested now; printed if the program ends before the next call. NULL: nothing any more. */
void pair_context(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
