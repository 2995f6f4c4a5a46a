/* SPDX-License-Identifier: MIT
 *
 * shared_conform.c - see shared_conform.h. What is checked at each completion, in every case, stands in shared_pair.h.
 */
#include "shared_conform.h"

#include <string.h>

#include "base/bits.h"
#include "base/prng.h"
#include "channel/inbox.h"
#include "check.h"

enum {
    SMALL = 100,
    LARGE = 300000,
    KIND = PCCL__NOTICE_OWNER + 1,
    OVERFULL = PCCL__EAGER_WINDOW / PCCL__EAGER_BYTES + 16 /* this many of PCCL__EAGER_BYTES overflow the window */
};

static const uint32_t sizes[] = {0, 1, SMALL, PCCL__EAGER_BYTES, PCCL__EAGER_BYTES + 1, LARGE};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* ---------------------------------------------------------------- moving bytes */

static void send_then_receive(struct pair *pair) {
    for (int i = 0; i < SIZES; i++) {
        struct pccl__key key = pair_key(pair, 1);
        struct parcel *send = pair_send(pair, 0, key, sizes[i]);
        pair_settle(pair);
        /* Small ones are copied, so they end at once; large ones wait for the receiver. */
        EXPECT(send->completions == (sizes[i] <= PCCL__EAGER_BYTES), "%u bytes", sizes[i]);
        struct parcel *recv = pair_recv(pair, 1, key, sizes[i]);
        EXPECT(recv->completions == 0, "completed inside post");
        pair_await(pair, recv, PCCL_OK);
        pair_await(pair, send, PCCL_OK);
    }
}

static void receive_then_send(struct pair *pair) {
    for (int i = 0; i < SIZES; i++) {
        struct pccl__key key = pair_key(pair, 1);
        struct parcel *recv = pair_recv(pair, 0, key, sizes[i]);
        pair_settle(pair);
        EXPECT(recv->completions == 0);
        struct parcel *send = pair_send(pair, 1, key, sizes[i]);
        pair_await(pair, recv, PCCL_OK);
        pair_await(pair, send, PCCL_OK);
    }
    EXPECT(pair_count_notices(pair, 0, PCCL__NOTICE_ARRIVED) == 0, "a receive was posted for each");
}

static void same_key_both_ways(struct pair *pair) {
    for (int i = 0; i < SIZES; i++) {
        struct pccl__key key = pair_key(pair, 1);
        for (int end = 0; end < 2; end++) {
            pair_send(pair, end, key, sizes[i]);
            pair_recv(pair, end, key, sizes[i]);
        }
        pair_await_all(pair);
    }
}

static void largest(struct pair *pair) {
    struct pccl__key key = pair_key(pair, 1);
    pair_send(pair, 0, key, PCCL__TRANSFER_BYTES);
    pair_recv(pair, 1, key, PCCL__TRANSFER_BYTES);
    pair_await_all(pair);
}

static void too_large(struct pair *pair) {
    for (int is_send = 0; is_send < 2; is_send++) {
        struct parcel *parcel = pair_parcel(pair, 0, is_send, pair_key(pair, 1), PCCL__TRANSFER_BYTES + 1);
        EXPECT(pair_post(pair, parcel) == PCCL_INVALID);
    }
}

static uint32_t random_size(struct pair *pair) {
    static const uint32_t most[] = {1, 16, 2000, PCCL__EAGER_BYTES, 200000};
    return prng_below(&pair->random, most[prng_below(&pair->random, 5)] + 1);
}

/* 2 x 150 transfers, both halves of each posted at unrelated moments. */
static void many_in_flight(struct pair *pair) {
    enum { COUNT = 150 };
    struct pccl__key keys[COUNT];
    uint32_t bytes[COUNT], posts[4 * COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        keys[i] = pair_key(pair, 1);
        if (i % 3 == 2) keys[i] = keys[i - 1];
        if (i % 3 == 2) keys[i].epoch = i % 2 ? 0 : 2; /* the same but for the epoch */
        bytes[i] = random_size(pair);
    }
    for (uint32_t i = 0; i < 4 * COUNT; i++) {
        uint32_t j = prng_below(&pair->random, i + 1); /* inside-out shuffle */
        posts[i] = posts[j];
        posts[j] = i;
    }
    for (uint32_t i = 0; i < 4 * COUNT; i++) {
        uint32_t which = posts[i] % COUNT, role = posts[i] / COUNT;
        (role & 1 ? pair_send : pair_recv)(pair, (int)(role >> 1), keys[which], bytes[which]);
        pair_nudge(pair, prng_below(&pair->random, 3));
    }
    pair_await_all(pair);
}

static void before_the_other_side_opens(struct pair *pair) {
    pair->ends[0].channel->ops->expect(pair->ends[0].channel, 1);
    for (int i = 0; i < SIZES; i++) {
        pair_send(pair, 0, (struct pccl__key){.epoch = 1, .tag = 1000 + (uint64_t)i}, sizes[i]);
        pair_recv(pair, 0, (struct pccl__key){.epoch = 1, .tag = 2000 + (uint64_t)i}, sizes[i]);
    }
    pair_notice(pair, 0, KIND, NULL, 0);
    pair_nudge(pair, 20);
    pair->driver->open(pair, 1);
    pair->ends[1].channel->ops->expect(pair->ends[1].channel, 1);
    for (int i = 0; i < SIZES; i++) {
        pair_recv(pair, 1, (struct pccl__key){.epoch = 1, .tag = 1000 + (uint64_t)i}, sizes[i]);
        pair_send(pair, 1, (struct pccl__key){.epoch = 1, .tag = 2000 + (uint64_t)i}, sizes[i]);
    }
    pair_await_all(pair);
    pair_await_notices(pair, 1, KIND, 1);
}

/* ---------------------------------------------------------------- flow control */

/* Half of the window can be used, by sends that nobody receives. */
static void expect_window(struct pair *pair, uint64_t epoch) {
    struct pccl__key keys[OVERFULL / 2];
    for (int i = 0; i < OVERFULL / 2; i++) {
        keys[i] = pair_key(pair, epoch);
        struct parcel *send = pair_send(pair, 0, keys[i], PCCL__EAGER_BYTES / 2);
        pair_await(pair, send, PCCL_OK);
    }
    for (int i = 0; i < OVERFULL / 2; i++) pair_recv(pair, 1, keys[i], PCCL__EAGER_BYTES / 2);
    pair_await_all(pair);
}

static void full_window_blocks_no_other(struct pair *pair) {
    struct pccl__key keys[OVERFULL];
    for (int i = 0; i < OVERFULL; i++) {
        keys[i] = pair_key(pair, 1);
        pair_send(pair, 0, keys[i], PCCL__EAGER_BYTES);
    }
    pair_settle(pair); /* moves small and large transfers both ways, all outside epochs */
    for (int i = 0; i < SIZES; i++) {
        struct pccl__key key = pair_key(pair, 1);
        pair_send(pair, 0, key, sizes[i]);
        struct parcel *recv = pair_recv(pair, 1, key, sizes[i]);
        pair_await(pair, recv, PCCL_OK);
    }
    uint32_t waiting = 0;
    for (const struct parcel *parcel = pair->parcels; parcel; parcel = parcel->next) waiting += !parcel->completions;
    EXPECT(waiting >= OVERFULL - PCCL__EAGER_WINDOW / PCCL__EAGER_BYTES, "only %u wait: the window has no bound",
           waiting);
    for (int i = OVERFULL - 1; i >= 0; i--) pair_recv(pair, 1, keys[i], PCCL__EAGER_BYTES);
    pair_await_all(pair);

    pair_settle(pair);
    expect_window(pair, 1);
}

/* What comes to posted receives uses up no window either. */
static void window_comes_back(struct pair *pair) {
    for (int i = 0; i < 2 * OVERFULL; i++) {
        struct pccl__key key = pair_key(pair, 1);
        pair_recv(pair, 1, key, PCCL__EAGER_BYTES);
        pair_send(pair, 0, key, PCCL__EAGER_BYTES);
        if (i % 16 == 0) pair_await_all(pair);
    }
    pair_await_all(pair);
    pair_settle(pair);
    expect_window(pair, 1);
}

/* One side is further ahead than the other keeps in mind: it waits, and nothing breaks. Whatever is received first. */
static void far_ahead(struct pair *pair) {
    enum { COUNT = OVERFULL + PCCL__EAGER_BYTES / PCCL__EAGER_OVERHEAD + PCCL__AHEAD_MAX + 1000 };
    static struct pccl__key keys[COUNT];
    bool backwards = prng_below(&pair->random, 2);
    for (int i = 0; i < COUNT; i++) {
        keys[i] = pair_key(pair, 1);
        pair_send(pair, 0, keys[i], i < OVERFULL ? PCCL__EAGER_BYTES : 0);
    }
    pair_settle(pair);
    uint32_t told = pair_count_notices(pair, 1, PCCL__NOTICE_ARRIVED);
    EXPECT(told > PCCL__AHEAD_MAX && told < COUNT - 500, "told of %u of %d", told, COUNT);
    for (int k = 0; k < COUNT; k++) {
        int i = backwards ? COUNT - 1 - k : k;
        pair_recv(pair, 1, keys[i], i < OVERFULL ? PCCL__EAGER_BYTES : 0);
    }
    pair_await_all(pair);
    EXPECT(pair_count_notices(pair, 1, PCCL__NOTICE_ARRIVED) < COUNT);
    pair_settle(pair);
    expect_window(pair, 1);
}

/* Nobody sweeps up what is left behind there, so nothing is sent before it is asked for. */
static void outside_epochs_nothing_is_early(struct pair *pair) {
    for (int i = 0; i < SIZES; i++) {
        struct pccl__key key = pair_key(pair, 0);
        struct parcel *send = pair_send(pair, 0, key, sizes[i]);
        pair_settle(pair);
        EXPECT(send->completions == 0, "%u bytes", sizes[i]);
        pair_recv(pair, 1, key, sizes[i]);
        pair_await_all(pair);
    }
}

static void arrived_is_told_once(struct pair *pair) {
    uint32_t told[] = {0, SMALL, PCCL__EAGER_BYTES, LARGE};
    struct pccl__key keys[4];
    for (int i = 0; i < 4; i++) {
        keys[i] = pair_key(pair, 1);
        pair_send(pair, 0, keys[i], told[i]);
    }
    pair_await_notices(pair, 1, PCCL__NOTICE_ARRIVED, 4);
    for (int i = 0; i < 4; i++) {
        const struct pccl__notice *notice = pair_find_notice(pair, 1, PCCL__NOTICE_ARRIVED, &keys[i]);
        EXPECT(notice && notice->stamp.bytes[0] == 42);
        pair_recv(pair, 1, keys[i], told[i]);
    }
    pair_await_all(pair);
    EXPECT(pair_count_notices(pair, 1, PCCL__NOTICE_ARRIVED) == 4);
}

static void wanted_is_told(struct pair *pair) {
    for (int i = 0; i < SIZES; i++) {
        struct pccl__key key = pair_key(pair, 0);
        pair_recv(pair, 0, key, sizes[i]);
        pair_await_notices(pair, 1, PCCL__NOTICE_WANTED, (uint32_t)i + 1);
        const struct pccl__notice *notice = pair_find_notice(pair, 1, PCCL__NOTICE_WANTED, &key);
        EXPECT(notice && notice->bytes == 4 && get_u32(notice->data) == sizes[i]);
        pair_send(pair, 1, key, sizes[i]);
        pair_await_all(pair);
    }
    pair_recv(pair, 0, pair_key(pair, 1), LARGE);
    uint32_t before = pair_count_notices(pair, 1, PCCL__NOTICE_WANTED);
    pair_notice(pair, 0, KIND, NULL, 0);
    pair_await_notices(pair, 1, KIND, 1);
    EXPECT(pair_count_notices(pair, 1, PCCL__NOTICE_WANTED) == before, "only outside epochs");
}

/* ---------------------------------------------------------------- epochs */

static void future_epoch_is_kept(struct pair *pair) {
    struct pccl__key keys[SIZES];
    pair->ends[0].channel->ops->expect(pair->ends[0].channel, 8);
    for (int i = 0; i < SIZES; i++) pair_send(pair, 0, keys[i] = pair_key(pair, 8), sizes[i]);
    pair_settle(pair);
    pair->ends[1].channel->ops->expect(pair->ends[1].channel, 8);
    for (int i = 0; i < SIZES; i++) pair_recv(pair, 1, keys[i], sizes[i]);
    pair_await_all(pair);
}

/* Receives of an old epoch are still posted, early data of it is still kept, GOs are under way: nothing may come of
 * them once the epoch has moved on, and the window is free again. */
static void stale_epoch_is_dropped(struct pair *pair) {
    struct parcel *recvs[2 * SIZES], *sends[2 * SIZES];
    for (int i = 0; i < OVERFULL; i++) pair_send(pair, 0, pair_key(pair, 1), PCCL__EAGER_BYTES);
    pair_settle(pair);
    pair->ends[1].channel->ops->expect(pair->ends[1].channel, 2);
    for (int i = 0; i < 2 * SIZES; i++) {
        struct pccl__key key = pair_key(pair, 1);
        recvs[i] = pair_recv(pair, 1, key, sizes[i % SIZES]);
        sends[i] = pair_send(pair, 0, key, sizes[i % SIZES]);
    }
    pair_settle(pair);
    for (int i = 0; i < 2 * SIZES; i++) EXPECT(!recvs[i]->completions && parcel_untouched(recvs[i]));
    pair->ends[0].channel->ops->expect(pair->ends[0].channel, 2);
    for (struct parcel *parcel = pair->parcels; parcel; parcel = parcel->next)
        if (!parcel->completions) pair_cancel(pair, parcel, PCCL_ABORTED);
    for (int i = 0; i < 2 * SIZES; i++) {
        pair_await(pair, recvs[i], PCCL_ABORTED);
        pair_await(pair, sends[i], sizes[i % SIZES] > PCCL__EAGER_BYTES ? PCCL_ABORTED : sends[i]->transfer.status);
        EXPECT(parcel_untouched(recvs[i]));
    }
    pair_settle(pair);
    expect_window(pair, 2);
    /* The same names again, in the new epoch. */
    for (int i = 0; i < 2 * SIZES; i++) {
        struct pccl__key key = recvs[i]->transfer.key;
        key.epoch = 2;
        pair_send(pair, 0, key, sizes[i % SIZES]);
        pair_recv(pair, 1, key, sizes[i % SIZES]);
    }
    pair_await_all(pair);
}

/* The epoch moves on while a transfer is half received. */
static void epoch_ends_in_the_middle(struct pair *pair) {
    struct pccl__key key = pair_key(pair, 1);
    struct parcel *send = pair_send(pair, 0, key, pair->driver->bulk_bytes);
    struct parcel *recv = pair_recv(pair, 1, key, pair->driver->bulk_bytes);
    while (recv->transfer.moved == 0 && !recv->completions) EXPECT(pair_step(pair));
    pair->ends[1].channel->ops->expect(pair->ends[1].channel, 2);
    uint8_t *before = malloc(recv->transfer.bytes);
    EXPECT(before);
    memcpy(before, recv->transfer.data, recv->transfer.bytes);
    pair_settle(pair);
    EXPECT(memcmp(before, recv->transfer.data, recv->transfer.bytes) == 0, "an old epoch wrote");
    free(before);
    pair_cancel(pair, recv, PCCL_ABORTED);
    pair_cancel(pair, send, PCCL_ABORTED);
    pair_await_all(pair);
    pair->ends[0].channel->ops->expect(pair->ends[0].channel, 2);
    pair_settle(pair);
}

/* ---------------------------------------------------------------- cancel */

static void cancel_before_anything_came(struct pair *pair) {
    for (int i = 0; i < SIZES; i++) {
        struct pccl__key key = pair_key(pair, 1);
        struct parcel *recv = pair_recv(pair, 1, key, sizes[i]);
        if (i % 2) pair_settle(pair);
        pair_cancel(pair, recv, PCCL_TIMEOUT);
        pair_cancel(pair, recv, PCCL_ABORTED); /* the first reason stays */
        pair_await(pair, recv, PCCL_TIMEOUT);
        pair_send(pair, 0, key, sizes[i]); /* it waits, or it ends because it was copied or asked for */
        pair_settle(pair);
        EXPECT(parcel_untouched(recv));
    }
}

static void cancel_waiting_send(struct pair *pair) {
    struct pccl__key key = pair_key(pair, 1);
    struct parcel *send = pair_send(pair, 0, key, LARGE);
    if (prng_below(&pair->random, 2)) pair_settle(pair);
    pair_cancel(pair, send, PCCL_ABORTED);
    pair_await(pair, send, PCCL_ABORTED);
    struct parcel *recv = pair_recv(pair, 1, key, LARGE);
    pair_settle(pair);
    EXPECT(!recv->completions && parcel_untouched(recv));
    pair_cancel(pair, recv, PCCL_ABORTED);
    pair_await(pair, recv, PCCL_ABORTED);
    pair_cancel(pair, recv, PCCL_ABORTED); /* already handed over: nothing happens */
}

/* Either side gives up in the middle of a transfer, others go on unharmed. */
static void cancel_in_the_middle(struct pair *pair) {
    uint32_t bytes = pair->driver->bulk_bytes;
    for (int end = 0; end < 2; end++) {
        struct pccl__key key = pair_key(pair, 1), bystander = pair_key(pair, 1);
        struct parcel *halves[2] = {pair_send(pair, 0, key, bytes), pair_recv(pair, 1, key, bytes)};
        pair_send(pair, 0, bystander, bytes);
        struct parcel *other = pair_recv(pair, 1, bystander, bytes);
        uint32_t until = prng_below(&pair->random, bytes);
        while (halves[1]->transfer.moved < until && !halves[1]->completions) EXPECT(pair_step(pair));
        pair_cancel(pair, halves[end], PCCL_ABORTED);
        pair_await(pair, other, PCCL_OK);
        pair_settle(pair);
        EXPECT(halves[end]->completions == 1);
        for (int i = 0; i < 2; i++) pair_cancel(pair, halves[i], PCCL_ABORTED);
        pair_await_all(pair);
    }
}

/* ---------------------------------------------------------------- mismatch */

static void mismatch(struct pair *pair) {
    static const uint32_t other_bytes[][2] = {{SMALL, SMALL + 4}, {LARGE, SMALL}, {SMALL, LARGE},
                                              {LARGE, LARGE - 1}, {0, 1},         {SMALL, SMALL},
                                              {LARGE, LARGE},     {0, 0}}; /* from the sixth on: stamps differ */
    for (int order = 0; order < 2; order++) {
        for (int i = 0; i < 8; i++) {
            struct pccl__key key = pair_key(pair, i % 3 ? 1 : 0);
            struct parcel *send = pair_parcel(pair, 0, true, key, other_bytes[i][0]);
            struct parcel *recv = pair_parcel(pair, 1, false, key, other_bytes[i][1]);
            send->transfer.stamp.bytes[PCCL__STAMP_BYTES - 1] = 77;
            recv->transfer.stamp.bytes[PCCL__STAMP_BYTES - 1] = i < 5 ? 77 : 78;
            EXPECT(pair_post(pair, order ? send : recv) == PCCL_OK);
            if (prng_below(&pair->random, 2)) pair_settle(pair);
            EXPECT(pair_post(pair, order ? recv : send) == PCCL_OK);
            pair_await(pair, recv, PCCL_MISMATCH);
            EXPECT(memcmp(&recv->transfer.peer_stamp, &send->transfer.stamp, PCCL__STAMP_BYTES) == 0);
            EXPECT(parcel_untouched(recv));
            pair_cancel(pair, send, PCCL_ABORTED);
            pair_await_all(pair);
            pair_settle(pair);
            EXPECT(order || !pair_find_notice(pair, 1, PCCL__NOTICE_ARRIVED, &key), "its receive was posted");
        }
    }
}

/* ---------------------------------------------------------------- notices */

static void notices_in_order_ahead_of_data(struct pair *pair) {
    enum { BULKS = 4, COUNT = 50 };
    for (int i = 0; i < BULKS; i++) {
        struct pccl__key key = pair_key(pair, 1);
        pair_recv(pair, 1, key, pair->driver->bulk_bytes);
        pair_send(pair, 0, key, pair->driver->bulk_bytes);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        struct pccl__key key = {.epoch = i % 3, .tag = i}; /* older, current and newer ones */
        pair_notice(pair, 0, KIND + i % 2, &key, i);
    }
    struct end *end = &pair->ends[1];
    while (end->notices_count < COUNT) {
        EXPECT(pair_step(pair));
        uint32_t waiting = 0;
        for (const struct parcel *parcel = pair->parcels; parcel; parcel = parcel->next)
            waiting += parcel->end == 1 && !parcel->completions;
        EXPECT(waiting || end->notices_count == COUNT, "all the data came before the last notice");
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        const struct pccl__notice *notice = end->notices[i];
        EXPECT(notice->kind == KIND + i % 2 && notice->key.tag == i && notice->key.epoch == i % 3);
        EXPECT(notice->stamp.bytes[0] == 9);
        EXPECT(notice->bytes == (i % 2 ? 4 : PCCL__NOTICE_BYTES) && get_u32(notice->data) == i);
    }
    pair_await_all(pair);
}

/* A transfer moves the link at both ends; a notice, and whatever says that it came, is only heard. (Over some networks
 * time stands still meanwhile.) */
static void notices_move_nothing(struct pair *pair) {
    uint64_t began_ns = pair->driver->now_ns(pair);
    struct pccl__key key = pair_key(pair, 1);
    pair_send(pair, 0, key, LARGE);
    pair_recv(pair, 1, key, LARGE);
    pair_await_all(pair);
    struct pccl__channel *channels[] = {pair->ends[0].channel, pair->ends[1].channel};
    uint64_t moved_ns[] = {channels[0]->moved_ns, channels[1]->moved_ns};
    for (int end = 0; end < 2; end++) {
        EXPECT(moved_ns[end] >= began_ns, "end %d", end);
        pair_notice(pair, end, KIND, &key, 0);
        pair_await_notices(pair, !end, KIND, 1);
        EXPECT(channels[!end]->heard_ns >= moved_ns[!end], "end %d", !end);
    }
    for (int end = 0; end < 2; end++) EXPECT(channels[end]->moved_ns == moved_ns[end], "end %d", end);
}

/* ---------------------------------------------------------------- the end of a link */

/* Transfers in every stage, on both sides. */
static void post_a_mix(struct pair *pair) {
    pair_settle(pair); /* so that there is a link to end */
    for (int i = 0; i < 12; i++) {
        struct pccl__key key = pair_key(pair, i % 4 ? 1 : 0);
        int end = i % 2;
        if (i % 3 != 1) pair_send(pair, end, key, sizes[i % SIZES]);
        if (i % 3 != 2) pair_recv(pair, !end, key, sizes[i % SIZES]);
    }
    struct pccl__key key = pair_key(pair, 1);
    pair_send(pair, 0, key, pair->driver->bulk_bytes);
    pair_recv(pair, 1, key, pair->driver->bulk_bytes);
    pair_nudge(pair, prng_below(&pair->random, 60));
}

static void expect_broken(struct pair *pair, int end) {
    struct pccl__channel *channel = pair->ends[end].channel;
    EXPECT(channel->broken && channel->error.status == PCCL_PEER_LOST && channel->error.message[0] != '\0');
    for (int is_send = 0; is_send < 2; is_send++)
        EXPECT(pair_post(pair, pair_parcel(pair, end, is_send, pair_key(pair, 1), SMALL)) == PCCL_PEER_LOST);
    struct pccl__key key = pair_key(pair, 1);
    EXPECT(channel->ops->post_notice(channel, KIND, &key, NULL, NULL, 0) == PCCL_PEER_LOST);
}

/* Whatever did not end well ended with `why`. */
static void expect_ends(struct pair *pair, int end, pccl_status why) {
    for (struct parcel *parcel = pair->parcels; parcel; parcel = parcel->next) {
        if (parcel->end != end || !parcel->posted) continue;
        while (!parcel->completions) EXPECT(pair_step(pair), "never completes");
        EXPECT(parcel->transfer.status == PCCL_OK || parcel->transfer.status == why, "ended with \"%s\"",
               pccl_status_string(parcel->transfer.status));
    }
}

static void close_while_posted(struct pair *pair) {
    post_a_mix(pair);
    struct parcel *lonely = pair_recv(pair, 0, pair_key(pair, 1), SMALL);
    struct parcel *bereft = pair_recv(pair, 1, pair_key(pair, 1), LARGE);
    pair_close(pair, 0, PCCL_ABORTED);
    EXPECT(lonely->completions == 0, "completed inside close");
    pair_await(pair, lonely, PCCL_ABORTED);
    pair_await(pair, bereft, PCCL_PEER_LOST);
    expect_ends(pair, 0, PCCL_ABORTED);
    expect_ends(pair, 1, PCCL_PEER_LOST);
    expect_broken(pair, 1);
}

static void killed_while_posted(struct pair *pair) {
    post_a_mix(pair);
    struct parcel *bereft = pair_recv(pair, 0, pair_key(pair, 1), LARGE);
    pair->driver->kill(pair, 1);
    pair->ends[1].dead = true;
    pair_await(pair, bereft, PCCL_PEER_LOST);
    expect_ends(pair, 0, PCCL_PEER_LOST);
    expect_broken(pair, 0);
}

static void killed_while_idle(struct pair *pair) {
    pair_settle(pair);
    pair->driver->kill(pair, 1);
    pair->ends[1].dead = true;
    while (!pair->ends[0].channel->broken) EXPECT(pair_step(pair), "the loss is never noticed");
    expect_broken(pair, 0);
}

/* After a break both sides open a fresh channel in its place, one of them earlier than the other. */
static void reopened(struct pair *pair) {
    post_a_mix(pair);
    pair_close(pair, 0, PCCL_CLOSED);
    pair_await_all(pair);
    for (int end = 0; end < 2; end++) {
        struct end *side = &pair->ends[end];
        if (!side->closed) pair_close(pair, end, PCCL_CLOSED);
        side->channel->ops->free(side->channel);
        pair->driver->open(pair, end);
        side->closed = false;
        side->channel->ops->expect(side->channel, 1);
    }
    pair_settle(pair);
}

/* ---------------------------------------------------------------- the table */

struct conform_case {
    const char *name;
    void (*run)(struct pair *pair);
    bool one_open, thorough;
};

#define CASE(function)                                                                                                 \
    { #function, function, false, false }

static const struct conform_case cases[] = {
    CASE(send_then_receive),
    CASE(receive_then_send),
    CASE(same_key_both_ways),
    {"largest", largest, false, true},
    {"too_large", too_large, false, true},
    CASE(many_in_flight),
    {"before_the_other_side_opens", before_the_other_side_opens, true, false},
    CASE(full_window_blocks_no_other),
    CASE(window_comes_back),
    {"far_ahead", far_ahead, false, true},
    CASE(outside_epochs_nothing_is_early),
    CASE(arrived_is_told_once),
    CASE(wanted_is_told),
    CASE(future_epoch_is_kept),
    CASE(stale_epoch_is_dropped),
    CASE(epoch_ends_in_the_middle),
    CASE(cancel_before_anything_came),
    CASE(cancel_waiting_send),
    CASE(cancel_in_the_middle),
    CASE(mismatch),
    CASE(notices_in_order_ahead_of_data),
    CASE(notices_move_nothing),
    CASE(close_while_posted),
    CASE(killed_while_posted),
    CASE(killed_while_idle),
    CASE(reopened),
};

unsigned long conform_run(struct pair_driver *driver, uint64_t seed, int thoroughness) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].thorough && thoroughness != CONFORM_THOROUGH) continue;
        struct pair pair;
        pair_context("%s, seed %" PRIu64 ", case %s", driver->name, seed, cases[i].name);
        pair_new(&pair, driver, seed, !cases[i].one_open);
        cases[i].run(&pair);
        pair_free(&pair);
    }
    pair_context(NULL);
    return pair_expectations() + expectations;
}
