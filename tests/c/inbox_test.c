/* SPDX-License-Identifier: MIT
 *
 * inbox_test.c - inbox and outbox by themselves: what a broken or hostile other side may send, repeated frames, and
 * redirections in the middle of a frame. The ordinary ways are in the conformance suite.
 */
#include "channel/inbox.h"

#include <string.h>

#include "channel/outbox.h"
#include "check.h"

static struct pccl__inbox inbox;
static struct pccl__outbox outbox;
static struct list completed, notices;

static void begin(void) {
    list_init(&completed);
    list_init(&notices);
    pccl__inbox_init(&inbox, &completed, &notices);
    pccl__outbox_init(&outbox, &notices);
}

static uint32_t take_notices(void) {
    uint32_t count = 0;
    struct list *node;
    for (; (node = list_pop_front(&notices)); count++) pccl__notice_free(LIST_ENTRY(node, struct pccl__notice, link));
    return count;
}

static void end(void) {
    pccl__inbox_fail(&inbox, PCCL_CLOSED);
    pccl__outbox_clear(&outbox);
    take_notices();
    EXPECT(list_empty(&inbox.landings) && inbox.held_bytes == 0 && inbox.kept_count == 0 && outbox.grants_count == 0);
}

static struct pccl__transfer *taken(void) {
    struct list *node = list_pop_front(&completed);
    return node ? LIST_ENTRY(node, struct pccl__transfer, link) : NULL;
}

static struct pccl__key key_of(uint64_t epoch, uint32_t step) {
    return (struct pccl__key){.epoch = epoch, .tag = 3, .sequence = 4, .step = step};
}

static struct pccl__arrival eager(uint32_t step, uint32_t bytes) {
    return (struct pccl__arrival){.key = key_of(1, step), .bytes = bytes, .payload_bytes = bytes, .eager = true};
}

static struct pccl__arrival part(uint32_t step, uint32_t bytes, uint32_t offset, uint32_t payload_bytes) {
    return (struct pccl__arrival){
        .key = key_of(1, step), .bytes = bytes, .offset = offset, .payload_bytes = payload_bytes};
}

static struct pccl__transfer transfer_of(uint32_t step, void *data, uint32_t bytes) {
    return (struct pccl__transfer){.key = key_of(1, step), .data = data, .bytes = bytes};
}

static bool post(struct pccl__transfer *transfer) {
    bool go;
    EXPECT(pccl__inbox_post(&inbox, transfer, &go) == PCCL_OK && transfer->state != PCCL__IDLE);
    return go;
}

static void land(struct pccl__arrival arrival, struct pccl__landing *landing) {
    EXPECT(pccl__inbox_land(&inbox, &arrival, landing) == PCCL_OK);
}

/* ---------------------------------------------------------------- headers that no sound sender makes */

static void refuses_bad_headers(void) {
    begin();
    struct pccl__arrival bad[] = {
        part(1, PCCL__TRANSFER_BYTES + 1, 0, 1),
        part(1, 100, 101, 0),
        part(1, 100, 50, 51),
        part(1, 100, UINT32_MAX, 2),
        part(1, 100, 50, UINT32_MAX),
        eager(1, PCCL__EAGER_BYTES + 1),
        eager(1, 100),
    };
    bad[6].payload_bytes = 99; /* eager is whole */
    struct pccl__landing landing;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        EXPECT(pccl__inbox_land(&inbox, &bad[i], &landing) == PCCL_PROTOCOL, "header %zu", i);
    bool go;
    struct pccl__key key = key_of(1, 1);
    struct pccl__stamp stamp = {0};
    EXPECT(pccl__inbox_offer(&inbox, &key, &stamp, PCCL__TRANSFER_BYTES + 1, &go) == PCCL_PROTOCOL);
    EXPECT(list_empty(&inbox.landings) && inbox.kept_count == 0);
    end();
}

static void window_is_a_bound(void) {
    begin();
    struct pccl__landing landing;
    uint32_t count = 0;
    pccl_status status;
    for (;; count++) {
        struct pccl__arrival arrival = eager(count, PCCL__EAGER_BYTES);
        status = pccl__inbox_land(&inbox, &arrival, &landing);
        if (status != PCCL_OK) break;
        EXPECT(pccl__landing_end(&landing) == PCCL_OK && inbox.held_bytes <= PCCL__EAGER_WINDOW);
    }
    EXPECT(status == PCCL_PROTOCOL && count == PCCL__EAGER_WINDOW / (PCCL__EAGER_BYTES + PCCL__EAGER_OVERHEAD));
    EXPECT(inbox.released_bytes == 0);
    pccl__inbox_expect(&inbox, 2);
    EXPECT(inbox.held_bytes == 0 && inbox.released_bytes == count * pccl__eager_charge(PCCL__EAGER_BYTES));
    end();
}

/* Receives far ahead of their sends: beyond the bound no GO is sent, and the offer is answered. */
static void go_aheads_are_bounded(void) {
    begin();
    pccl__inbox_expect(&inbox, 1);
    pccl__outbox_expect(&outbox, 1);
    enum { COUNT = PCCL__AHEAD_MAX + 10, BYTES = PCCL__EAGER_BYTES + 1 };
    static struct pccl__transfer receives[COUNT];
    static uint8_t memory[BYTES];
    uint32_t gone = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        receives[i] = transfer_of(i, memory, BYTES);
        gone += post(&receives[i]);
    }
    EXPECT(gone == PCCL__AHEAD_MAX && inbox.gos_ahead == PCCL__AHEAD_MAX);
    bool go;
    struct pccl__stamp stamp = {0};
    EXPECT(pccl__inbox_offer(&inbox, &receives[COUNT - 1].key, &stamp, BYTES, &go) == PCCL_OK && go);
    pccl__inbox_cancel(&inbox, &receives[0], PCCL_ABORTED);
    EXPECT(inbox.gos_ahead == PCCL__AHEAD_MAX, "the other side still has it");
    struct pccl__landing landing;
    land(part(1, BYTES, 0, BYTES), &landing);
    EXPECT(pccl__landing_end(&landing) == PCCL_OK && receives[1].status == PCCL_OK);
    EXPECT(inbox.gos_ahead == PCCL__AHEAD_MAX - 1 && receives[1].state == PCCL__COMPLETED, "it was used");
    pccl__inbox_expect(&inbox, 2);
    EXPECT(inbox.gos_ahead == 0);
    end();
}

/* The offers of one epoch are bounded at their sender; a GO may pick one out of those that wait for their turn. */
static void offers_are_held_back(void) {
    begin();
    pccl__outbox_expect(&outbox, 1);
    enum { COUNT = PCCL__AHEAD_MAX + 3, BYTES = PCCL__EAGER_BYTES + 1 };
    static struct pccl__transfer sends[COUNT];
    struct pccl__transfer outside = transfer_of(0, NULL, BYTES), *send;
    for (uint32_t i = 0; i < COUNT; i++) {
        sends[i] = transfer_of(i, NULL, BYTES);
        enum pccl__way way = pccl__outbox_post(&outbox, &sends[i]);
        EXPECT(way == (i < PCCL__AHEAD_MAX ? PCCL__WAY_OFFER : PCCL__WAY_HOLD));
    }
    outside.key.epoch = 0;
    EXPECT(pccl__outbox_post(&outbox, &outside) == PCCL__WAY_OFFER, "no one keeps those");
    EXPECT(!pccl__outbox_next_offer(&outbox));
    EXPECT(pccl__outbox_go(&outbox, &sends[COUNT - 1].key, BYTES, &send) == PCCL_OK && send == &sends[COUNT - 1]);
    EXPECT(send->flags & PCCL__TRANSFER_HELD);
    list_remove(&send->link);
    EXPECT(!pccl__outbox_next_offer(&outbox), "that made no room");
    EXPECT(pccl__outbox_go(&outbox, &sends[5].key, BYTES, &send) == PCCL_OK && send == &sends[5]);
    EXPECT(pccl__outbox_next_offer(&outbox) == &sends[COUNT - 3] && !pccl__outbox_next_offer(&outbox));
    pccl__outbox_remove(&outbox, &sends[COUNT - 2]);
    list_remove(&sends[COUNT - 2].link);
    pccl__outbox_expect(&outbox, 2);
    EXPECT(!pccl__outbox_next_offer(&outbox) && outbox.offers == 0);
    end();
}

/* What is outside epochs is neither kept nor waited for: no epoch sweeps it out. */
static void nothing_outside_epochs_is_kept(void) {
    begin();
    uint8_t memory[100] = {0};
    struct pccl__transfer transfer = transfer_of(1, memory, 100);
    transfer.key.epoch = 0;
    struct pccl__stamp stamp = {0};
    struct pccl__landing landing;
    struct pccl__arrival early = eager(1, 100), late = part(1, 100, 0, 100);
    early.key.epoch = late.key.epoch = 0;
    late.offered = true;
    bool go;
    EXPECT(pccl__inbox_land(&inbox, &early, &landing) == PCCL_PROTOCOL, "no sound sender does that");
    EXPECT(pccl__inbox_offer(&inbox, &transfer.key, &stamp, 100, &go) == PCCL_OK && !go && inbox.kept_count == 0);
    EXPECT(post(&transfer), "and it is asked for nevertheless");
    land(late, &landing);
    EXPECT(pccl__landing_end(&landing) == PCCL_OK && taken() == &transfer && transfer.status == PCCL_OK);
    end();
}

static void queues_are_bounded(void) {
    begin();
    struct pccl__stamp stamp = {0};
    struct pccl__transfer *send;
    bool go;
    for (uint32_t i = 0; i < PCCL__BOX_ENTRIES; i++) {
        struct pccl__key key = key_of(1, i);
        EXPECT(pccl__inbox_offer(&inbox, &key, &stamp, 100, &go) == PCCL_OK && !go);
        EXPECT(pccl__outbox_go(&outbox, &key, 100, &send) == PCCL_OK && !send);
        take_notices();
    }
    struct pccl__key key = key_of(1, PCCL__BOX_ENTRIES);
    EXPECT(pccl__inbox_offer(&inbox, &key, &stamp, 100, &go) == PCCL_PROTOCOL);
    EXPECT(pccl__outbox_go(&outbox, &key, 100, &send) == PCCL_PROTOCOL);
    pccl__inbox_expect(&inbox, 2);
    pccl__outbox_expect(&outbox, 2);
    EXPECT(inbox.kept_count == 0 && outbox.grants_count == 0);
    end();
}

static void more_than_a_transfer_holds(void) {
    begin();
    uint8_t memory[100] = {0};
    struct pccl__transfer transfer = transfer_of(1, memory, 100);
    post(&transfer);
    struct pccl__landing landing;
    land(part(1, 100, 0, 60), &landing);
    EXPECT(pccl__landing_end(&landing) == PCCL_OK && transfer.moved == 60);
    land(part(1, 100, 40, 60), &landing);
    EXPECT(pccl__landing_end(&landing) == PCCL_PROTOCOL && !taken());
    end();
    EXPECT(taken() == &transfer && transfer.status == PCCL_CLOSED);
}

/* ---------------------------------------------------------------- redirections in the middle */

/* The frame began before its receive was posted: what was read and what still comes both reach the receive. */
static void post_moves_a_landing_over(void) {
    begin();
    uint8_t memory[100];
    struct pccl__transfer transfer = transfer_of(1, memory, 100);
    struct pccl__landing landing;
    land(eager(1, 100), &landing);
    EXPECT(take_notices() == 1);
    memset(pccl__landing_memory(&landing), 7, 50);
    EXPECT(!post(&transfer) && pccl__landing_memory(&landing) == memory);
    memset(pccl__landing_memory(&landing) + 50, 8, 50);
    EXPECT(!taken() && pccl__landing_end(&landing) == PCCL_OK);
    EXPECT(taken() == &transfer && transfer.status == PCCL_OK && memory[0] == 7 && memory[49] == 7 && memory[50] == 8);
    EXPECT(inbox.released_bytes == pccl__eager_charge(100) && inbox.held_bytes == 0);
    end();
}

static void cancel_sends_a_landing_nowhere(void) {
    begin();
    uint8_t memory[100];
    struct pccl__transfer transfer = transfer_of(1, memory, 100);
    struct pccl__landing landing;
    post(&transfer);
    land(part(1, 100, 20, 80), &landing);
    EXPECT(pccl__landing_memory(&landing) == memory + 20);
    pccl__inbox_cancel(&inbox, &transfer, PCCL_ABORTED);
    EXPECT(pccl__landing_memory(&landing) == NULL && taken() == &transfer && transfer.status == PCCL_ABORTED);
    EXPECT(pccl__landing_end(&landing) == PCCL_OK);
    pccl__inbox_cancel(&inbox, &transfer, PCCL_TIMEOUT);
    EXPECT(!taken() && transfer.status == PCCL_ABORTED);
    end();
}

static void epoch_sends_landings_nowhere(void) {
    begin();
    uint8_t memory[100];
    struct pccl__transfer transfer = transfer_of(1, memory, 100);
    struct pccl__landing posted, kept;
    post(&transfer);
    land(part(1, 100, 0, 100), &posted);
    land(eager(2, 100), &kept);
    pccl__inbox_expect(&inbox, 2);
    EXPECT(!pccl__landing_memory(&posted) && !pccl__landing_memory(&kept) && inbox.held_bytes == 0);
    EXPECT(pccl__landing_end(&posted) == PCCL_OK && pccl__landing_end(&kept) == PCCL_OK && !taken());
    EXPECT(inbox.released_bytes == pccl__eager_charge(100));
    end();
}

/* ---------------------------------------------------------------- repeated frames */

/* A frame is half read when its stripe dies; it comes again on another. */
static void dropped_frame_lands_again(void) {
    begin();
    uint8_t memory[100] = {0};
    struct pccl__landing landing;
    for (int posted = 0; posted < 2; posted++) {
        struct pccl__transfer transfer = transfer_of((uint32_t)posted, memory, 100);
        if (posted) post(&transfer);
        land(eager((uint32_t)posted, 100), &landing);
        memset(pccl__landing_memory(&landing), 1, 30);
        pccl__landing_drop(&landing);
        EXPECT(inbox.held_bytes == 0);
        land(eager((uint32_t)posted, 100), &landing);
        memset(pccl__landing_memory(&landing), 2, 100);
        EXPECT(pccl__landing_end(&landing) == PCCL_OK);
        if (!posted) post(&transfer);
        EXPECT(taken() == &transfer && transfer.status == PCCL_OK && memory[0] == 2 && memory[99] == 2);
        EXPECT(take_notices() == !posted && inbox.held_bytes == 0);
    }
    EXPECT(inbox.released_bytes == 2 * pccl__eager_charge(100));
    end();
}

/* Both copies of a frame are under way at once; the later one ends up nowhere and is dropped. */
static void two_copies_at_once(void) {
    begin();
    uint8_t memory[100] = {0};
    for (int posted = 0; posted < 2; posted++) {
        struct pccl__transfer transfer = transfer_of((uint32_t)posted, memory, 100);
        struct pccl__landing first, second, third;
        if (posted) post(&transfer);
        land(eager((uint32_t)posted, 100), &first);
        land(eager((uint32_t)posted, 100), &second);
        EXPECT(pccl__landing_memory(&first) == pccl__landing_memory(&second));
        memset(pccl__landing_memory(&second), 5, 100);
        EXPECT(pccl__landing_end(&second) == PCCL_OK && pccl__landing_memory(&first) == NULL);
        pccl__landing_drop(&first);
        if (!posted) {
            land(eager(0, 100), &third); /* wholly late */
            EXPECT(pccl__landing_memory(&third) == NULL);
            pccl__landing_drop(&third);
            post(&transfer);
        }
        EXPECT(taken() == &transfer && memory[99] == 5);
    }
    EXPECT(inbox.released_bytes == 2 * pccl__eager_charge(100) && inbox.held_bytes == 0);
    end();
}

/* ---------------------------------------------------------------- offers and grants */

/* GO crossed the offer and the data came first: the receive waits for the offer, also to report a mismatch. */
static void late_offer_finds_its_receive(void) {
    for (int match = 0; match < 2; match++) {
        begin();
        static uint8_t memory[PCCL__EAGER_BYTES + 1];
        struct pccl__transfer transfer = transfer_of(1, memory, sizeof memory);
        struct pccl__stamp stamp = {{(uint8_t)!match}};
        struct pccl__arrival arrival = part(1, sizeof memory, 0, sizeof memory);
        arrival.stamp = stamp;
        arrival.offered = true;
        EXPECT(post(&transfer));
        struct pccl__landing landing;
        land(arrival, &landing);
        EXPECT((pccl__landing_memory(&landing) != NULL) == match);
        EXPECT(pccl__landing_end(&landing) == PCCL_OK && !taken());
        bool go;
        EXPECT(pccl__inbox_offer(&inbox, &transfer.key, &stamp, sizeof memory, &go) == PCCL_OK && !go);
        EXPECT(taken() == &transfer && transfer.status == (match ? PCCL_OK : PCCL_MISMATCH));
        EXPECT(take_notices() == 0 && inbox.kept_count == 0);
        end();
    }
}

static void grants_are_used_once(void) {
    begin();
    struct pccl__transfer send = transfer_of(1, NULL, 100), *waiting;
    EXPECT(pccl__outbox_go(&outbox, &send.key, 100, &waiting) == PCCL_OK && !waiting && outbox.grants_count == 1);
    EXPECT(pccl__outbox_go(&outbox, &send.key, 100, &waiting) == PCCL_OK && !waiting && outbox.grants_count == 1);
    EXPECT(take_notices() == 0, "only outside epochs");
    EXPECT(pccl__outbox_post(&outbox, &send) == PCCL__WAY_GRANTED && outbox.grants_count == 0);
    EXPECT(outbox.charged_bytes == 0);

    pccl__outbox_expect(&outbox, 2);
    EXPECT(pccl__outbox_go(&outbox, &send.key, 100, &waiting) == PCCL_OK && outbox.grants_count == 0, "stale");
    end();
}

static void window_counts_cannot_lie(void) {
    begin();
    struct pccl__transfer send = transfer_of(1, NULL, 100);
    EXPECT(pccl__outbox_post(&outbox, &send) == PCCL__WAY_EAGER);
    EXPECT(pccl__outbox_release(&outbox, pccl__eager_charge(100) + 1) == PCCL_PROTOCOL);
    EXPECT(pccl__outbox_release(&outbox, pccl__eager_charge(100)) == PCCL_OK);
    EXPECT(pccl__outbox_release(&outbox, 0) == PCCL_OK && outbox.released_bytes == pccl__eager_charge(100),
           "overtaken");
    end();
}

static void waiting_send_can_leave(void) {
    begin();
    struct pccl__transfer send = transfer_of(1, NULL, PCCL__EAGER_BYTES + 1), *waiting;
    EXPECT(pccl__outbox_post(&outbox, &send) == PCCL__WAY_OFFER);
    pccl__outbox_remove(&outbox, &send);
    pccl__outbox_remove(&outbox, &send);
    EXPECT(pccl__outbox_go(&outbox, &send.key, send.bytes, &waiting) == PCCL_OK && !waiting);
    end();
}

static void declined_grant_is_forgotten(void) {
    begin();
    struct pccl__transfer send = transfer_of(0, NULL, 10), *waiting;
    send.key.epoch = 0;
    for (int i = 0; i < 2; i++) {
        EXPECT(pccl__outbox_go(&outbox, &send.key, send.bytes, &waiting) == PCCL_OK && !waiting);
        EXPECT(outbox.grants_count == 1);
        pccl__outbox_decline(&outbox, &send.key);
        pccl__outbox_decline(&outbox, &send.key);
        EXPECT(outbox.grants_count == 0);
    }
    int wanted = 0;
    for (struct list *node; (node = list_pop_front(outbox.notices)); wanted++)
        pccl__notice_free(LIST_ENTRY(node, struct pccl__notice, link));
    EXPECT(wanted == 2, "a wish that was declined can be made again");
    end();
}

int main(void) {
    refuses_bad_headers();
    window_is_a_bound();
    queues_are_bounded();
    go_aheads_are_bounded();
    offers_are_held_back();
    nothing_outside_epochs_is_kept();
    more_than_a_transfer_holds();
    post_moves_a_landing_over();
    cancel_sends_a_landing_nowhere();
    epoch_sends_landings_nowhere();
    dropped_frame_lands_again();
    two_copies_at_once();
    late_offer_finds_its_receive();
    grants_are_used_once();
    window_counts_cannot_lie();
    waiting_send_can_leave();
    declined_grant_is_forgotten();
    FINISH();
}
