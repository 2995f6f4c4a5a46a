/* SPDX-License-Identifier: MIT
 *
 * fuzz_core.c - one core whose two other members say whatever the fuzzer likes: transfers and notices of any key, stamp
 * and content (aborts, announcements, mismatches, refusals, wishes for shared state), while it runs operations, serves,
 * fetches, freezes, reports and changes epochs. The master talks nonsense, too: views that are none.
 *
 * Whatever comes, each operation ends once, with a text that is one; buffers are not written outside; a view that is
 * none changes nothing; all memory comes back. That a result is right cannot be asked here: members that lie can spoil
 * a sum.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "channel/sim.h"
#include "engine/core.h"
#include "engine/piece.h"
#include "shared_fuzz.h"

enum { OTHERS = 2, OPERATIONS = 6, SENDS = 16, COUNT = 20000, BYTES = 4 * COUNT, GUARD = 16, STATE_BYTES = 70000 };

struct call {
    pccl_operation *op;
    int32_t *block; /* guard, buffer, guard */
};

struct world {
    struct fuzz_input input;
    struct pccl__sim_network *network;
    struct pccl__transport *transport[1 + OTHERS];
    struct pccl__core *core;
    struct pccl__channel *other[OTHERS]; /* their ends of the links to the core */
    struct pccl__transfer transfers[SENDS];
    struct call calls[OPERATIONS];
    uint64_t now_ns, epoch;
};

static uint8_t bytes[STATE_BYTES];

static pccl_peer_id id_of(uint32_t rank) { return (pccl_peer_id){{(uint8_t)(rank + 1)}}; }

static const uint32_t team[] = {1, 0};

/* Ours is rank 0 at first. */
static uint64_t pick_scope(struct fuzz_input *in) {
    uint32_t how = fuzz_pick(in, 9);
    if (how == 8) return pccl__scope_of_ranks(team, 2);
    return how < 4 ? 0 : how < 6 ? pccl_scope(1 + how % 2, 0) : how == 6 ? pccl_scope(0, 1) : fuzz_byte(in);
}

/* Near what an operation of this epoch uses, so that some of it fits. */
static struct pccl__key pick_key(struct world *w) {
    uint32_t a = fuzz_byte(&w->input), b = fuzz_byte(&w->input);
    uint32_t finish = a >> 5 == 7 ? PCCL__FINISH_STEP : 0;
    return (struct pccl__key){.epoch = a % 8 == 7 ? 0 : w->epoch + (a % 8 == 6) - (a % 8 == 5),
                              .tag = a >> 3 & 3,
                              .scope = pick_scope(&w->input),
                              .sequence = b & 3,
                              .step = (b >> 2 & 7) + finish,
                              .segment = b >> 5 & 1};
}

static struct pccl__stamp pick_stamp(struct world *w) {
    pccl_call call = {.collective = (pccl_collective)fuzz_pick(&w->input, PCCL_COLLECTIVE_COUNT),
                      .dtype = PCCL_INT32,
                      .count = fuzz_pick(&w->input, 2) ? COUNT : 8};
    uint64_t begins[2 + OTHERS] = {0, call.count, 2 * call.count, 2 * call.count};
    struct pccl__layout layout = {.collective = call.collective,
                                  .size = 1 + OTHERS,
                                  .count = call.count,
                                  .uneven = pccl__in_parts(call.collective) && fuzz_pick(&w->input, 2),
                                  .input_begins = begins};
    struct pccl__stamp stamp =
        pccl__stamp_pack(&call, &layout, (pccl_algorithm)fuzz_pick(&w->input, PCCL_ALGORITHM_COUNT));
    bool straight = layout.uneven && pccl__parts_are_private(call.collective) && fuzz_pick(&w->input, 2);
    if (straight) pccl__stamp_part(&stamp, call.count);
    uint32_t noise = fuzz_byte(&w->input);
    if (noise % 4 == 3) stamp.bytes[noise >> 2 & 15] = (uint8_t)fuzz_byte(&w->input);
    return stamp;
}

/* ---------------------------------------------------------------- the others */

static void drain(struct pccl__channel *channel, uint64_t now_ns) {
    struct pccl__done done;
    pccl__done_init(&done);
    channel->ops->progress(channel, now_ns, &done);
    for (struct list *node; (node = list_pop_front(&done.transfers));)
        LIST_ENTRY(node, struct pccl__transfer, link)->state = PCCL__IDLE;
    for (struct list *node; (node = list_pop_front(&done.notices));)
        pccl__notice_free(LIST_ENTRY(node, struct pccl__notice, link));
}

/* It keeps the contract with its own channel: one transfer of a key and direction at a time. */
static void other_posts(struct world *w, uint32_t which) {
    uint32_t slot = which * (SENDS / OTHERS) + fuzz_pick(&w->input, SENDS / OTHERS);
    struct pccl__transfer *transfer = &w->transfers[slot];
    struct pccl__key key = pick_key(w);
    bool is_send = fuzz_pick(&w->input, 2);
    if (transfer->state != PCCL__IDLE) return;
    for (uint32_t i = which * (SENDS / OTHERS); i < (which + 1) * (SENDS / OTHERS); i++)
        if (w->transfers[i].state == PCCL__POSTED && pccl__key_equal(&w->transfers[i].key, &key)) return;
    static const uint32_t sizes[] = {0, 4, 32, 26668, STATE_BYTES, PCCL__LENGTH_BYTES};
    static const uint64_t lengths[] = {0, 8, COUNT, UINT64_MAX};
    static uint8_t sink[SENDS][STATE_BYTES];
    uint32_t size = sizes[fuzz_pick(&w->input, 6)];
    const void *data = size == PCCL__LENGTH_BYTES ? (const void *)&lengths[fuzz_pick(&w->input, 4)] : bytes;
    *transfer = (struct pccl__transfer){
        .key = key, .stamp = pick_stamp(w), .data = is_send ? (void *)(uintptr_t)data : sink[slot], .bytes = size};
    pccl_status status = is_send ? w->other[which]->ops->post_send(w->other[which], transfer)
                                 : w->other[which]->ops->post_recv(w->other[which], transfer);
    if (status != PCCL_OK) transfer->state = PCCL__IDLE;
}

static void other_notifies(struct world *w, uint32_t which) {
    static const uint32_t kinds[] = {PCCL__NOTICE_ABORT, PCCL__NOTICE_MISMATCH, PCCL__NOTICE_ANNOUNCE,
                                     PCCL__NOTICE_REFUSED, PCCL__NOTICE_REFUSED + 1};
    uint8_t data[PCCL__NOTICE_BYTES];
    uint32_t kind = kinds[fuzz_pick(&w->input, 5)], count = fuzz_byte(&w->input);
    if (kind == PCCL__NOTICE_MISMATCH && count % 4) count = 8 + 2 * PCCL__STAMP_BYTES;
    for (uint32_t i = 0; i < count; i++) data[i] = (uint8_t)(i < 64 ? fuzz_byte(&w->input) : 'x');
    struct pccl__key key = pick_key(w);
    struct pccl__stamp stamp = pick_stamp(w);
    (void)w->other[which]->ops->post_notice(w->other[which], kind, &key, &stamp, data, count);
}

static void open_other(struct world *w, uint32_t which) {
    pccl_member member = {.id = id_of(0), .address = "127.0.0.1", .port = 1};
    struct pccl__transport *transport = w->transport[1 + which];
    CHECK(transport->ops->open(transport, &member, &w->other[which]) == PCCL_OK);
    w->other[which]->ops->expect(w->other[which], w->epoch);
}

static void close_other(struct world *w, uint32_t which) {
    w->other[which]->ops->close(w->other[which], PCCL_CLOSED);
    drain(w->other[which], w->now_ns);
    w->other[which]->ops->free(w->other[which]);
}

/* ---------------------------------------------------------------- the core */

static void look_at(struct call *call) {
    if (!call->op || !call->op->ended) return;
    CHECK(memchr(call->op->text, 0, sizeof call->op->text));
    CHECK(call->op->status == PCCL_OK || call->op->text[0]);
    CHECK(call->op->status >= PCCL_OK && call->op->status <= PCCL_PENDING);
    for (int i = 0; i < GUARD; i++) CHECK(call->block[i] == -1 && call->block[GUARD + 3 * COUNT + i] == -1);
    pccl__core_handle_free(call->op);
    free(call->block);
    *call = (struct call){0};
}

static struct call *pick_call(struct world *w) {
    struct call *call = &w->calls[fuzz_pick(&w->input, OPERATIONS)];
    if (call->op) return NULL;
    call->block = malloc((3 * COUNT + 2 * GUARD) * sizeof *call->block);
    CHECK(call->block);
    memset(call->block, -1, (3 * COUNT + 2 * GUARD) * sizeof *call->block);
    return call;
}

static void core_starts(struct world *w) {
    struct call *call = pick_call(w);
    if (!call) return;
    int32_t *buffer = call->block + GUARD;
    uint32_t how = fuzz_byte(&w->input), shape = fuzz_byte(&w->input);
    uint64_t count = how & 128 ? COUNT : 8, counts[1 + OTHERS];
    for (uint32_t rank = 0; rank <= OTHERS; rank++) counts[rank] = shape >> rank & 1 ? count : 0;
    pccl_call what = {.collective = (pccl_collective)(how % PCCL_COLLECTIVE_COUNT),
                      .dtype = PCCL_INT32,
                      .algorithm = (pccl_algorithm)((shape >> 3 & 15) % PCCL_ALGORITHM_COUNT),
                      .count = count,
                      .tag = how >> 3 & 3,
                      .root = how >> 5 & 1,
                      .flags = how & 64 ? PCCL_NOTIFY | PCCL_DEFERRED : 0,
                      .input = buffer,
                      .output = buffer,
                      .input_counts = counts,
                      .output_counts = counts,
                      .timeout_ms = 1000};
    if (what.collective == PCCL_COMMIT || what.collective == PCCL_BARRIER) what.flags = 0;
    if (shape & 128 && pccl__in_parts(what.collective)) what.flags |= PCCL_UNEVEN;
    if (shape & 64 && what.collective == PCCL_RECV) what.root = PCCL_ANY_SOURCE;
    pccl_status of_team = pccl__group_scope(&w->core->group, team, how & 16 ? 2 : 1, &what.scope, NULL);
    if (of_team != PCCL_OK || !(shape & 32) || pccl__is_pair(what.collective) || what.collective == PCCL_COMMIT)
        what.scope = 0;
    else
        what.expected_epoch = w->epoch;
    if (pccl__core_start(w->core, &what, w->now_ns, &call->op, NULL) == PCCL_OK) return;
    free(call->block);
    *call = (struct call){0};
}

static void core_fetches(struct world *w) {
    struct call *call = pick_call(w);
    if (!call) return;
    uint32_t how = fuzz_byte(&w->input);
    if (pccl__core_fetch(w->core, how & 3, id_of(1 + (how >> 2 & 1)), how >> 3 & 1, how >> 4, how & 32 ? 32 : BYTES,
                         call->block + GUARD, 1000, w->now_ns, &call->op, NULL) == PCCL_OK)
        return;
    free(call->block);
    *call = (struct call){0};
}

static void core_serves(struct world *w) {
    pccl_region regions[2] = {{bytes, STATE_BYTES}, {bytes, 10}};
    uint32_t how = fuzz_byte(&w->input);
    if (how & 4)
        pccl__core_stop_state(w->core, how & 3);
    else
        (void)pccl__core_serve(w->core, how & 3, regions, how >> 3 & 1 ? 2 : 0, NULL);
}

/* Half of the views are as a master makes them. One of two members leaves the last one out. */
static void next_epoch(struct world *w) {
    struct fuzz_input *in = &w->input;
    uint32_t wild = fuzz_byte(in);
    pccl_member members[1 + OTHERS];
    for (uint32_t rank = 0; rank <= OTHERS; rank++)
        members[rank] = (pccl_member){
            .id = id_of(rank), .address = "127.0.0.1", .port = 1, .host_id = wild >> 6, .cores = wild >> 4};
    uint32_t ring[1 + OTHERS] = {0, 1, 2}, parents[1 + OTHERS] = {0, 0, wild >> 5 & 1};
    pccl_operation_name commits[2] = {{fuzz_pick(in, 4), pick_scope(in), fuzz_pick(in, 4)}, {fuzz_pick(in, 4), 0, 0}};
    pccl_view view = {.epoch = w->epoch + 1,
                      .size = wild & 16 ? OTHERS : 1 + OTHERS,
                      .members = members,
                      .ring = ring,
                      .shape = (pccl_shape)(wild >> 2 & 3),
                      .parents = parents,
                      .commits = commits,
                      .commits_count = 2,
                      .cause = (pccl_status)fuzz_pick(in, PCCL_PENDING)};
    if (view.shape == PCCL_SHAPE_COUNT) view.shape = PCCL_SHAPE_FULL;
    if (wild & 1) {
        for (uint32_t i = 0; i <= OTHERS; i++) ring[i] = fuzz_pick(in, 4);
        for (uint32_t i = 0; i <= OTHERS; i++) parents[i] = fuzz_pick(in, 4);
    }
    if (wild % 4 == 3) {
        view.shape = (pccl_shape)(fuzz_byte(in) - 1);
        view.size = fuzz_pick(in, 2 + OTHERS);
        view.epoch = w->epoch + 2 - fuzz_pick(in, 4);
        members[1 + fuzz_pick(in, OTHERS)].id = id_of(fuzz_pick(in, 4)); /* the peer found its own rank by its id */
    }
    uint64_t newest = w->core->newest_epoch;
    pccl_status status = pccl__core_install(w->core, &view, w->now_ns, NULL);
    CHECK(status == PCCL_OK || (status == PCCL_INVALID && wild & 1));
    if (status != PCCL_OK) return;
    CHECK(view.epoch > newest && w->core->group.size == view.size);
    w->epoch = view.epoch;
    for (uint32_t i = 0; i < OTHERS; i++) w->other[i]->ops->expect(w->other[i], w->epoch);
}

/* What the control thread asks for. */
static void look_inside(struct world *w) {
    enum { LINES = 64 };
    pccl_report_line lines[LINES];
    size_t count = 0, capacity = fuzz_pick(&w->input, LINES + 1);
    uint64_t epoch = w->epoch - fuzz_pick(&w->input, 2);
    if (pccl__core_report(w->core, epoch, lines, capacity, &count) == PCCL_OK)
        for (size_t i = 0; i < count && i < capacity; i++)
            CHECK(lines[i].state <= PCCL_RETURNED && lines[i].sequence >= lines[i].returned_below);
    pccl_operation_name name = {fuzz_pick(&w->input, 4), pick_scope(&w->input), fuzz_pick(&w->input, 4)};
    int started = pccl__core_has_started(w->core, epoch, name);
    CHECK(started >= -1 && started <= 1);
    static pccl_record records[256];
    capacity = fuzz_byte(&w->input);
    count = pccl__recorder_read(w->core, w->now_ns, records, capacity);
    for (size_t i = 0; i < count && i < capacity; i++) CHECK(memchr(records[i].text, 0, sizeof records[i].text));
    pccl_peer_id id = id_of(fuzz_pick(&w->input, 4));
    pccl__core_dial(w->core, epoch, &id);
}

static void run(struct world *w, uint64_t us) {
    for (uint64_t end_ns = w->now_ns + us * 1000; w->now_ns < end_ns; w->now_ns += us * 100) {
        pccl__sim_advance(w->network, w->now_ns);
        pccl__core_progress(w->core, w->now_ns);
        for (uint32_t i = 0; i < OTHERS; i++) drain(w->other[i], w->now_ns);
    }
    pccl_event event;
    while (pccl__events_take(&w->core->events, &event)) CHECK(memchr(event.text, 0, sizeof event.text));
    for (uint32_t i = 0; i < OPERATIONS; i++) look_at(&w->calls[i]);
}

static void step(struct world *w) {
    uint32_t what = fuzz_byte(&w->input), which = what >> 4 & 1;
    struct pccl__key key;
    switch (what % 16) {
    case 0:
    case 1:
        core_starts(w);
        break;
    case 2:
        core_fetches(w);
        break;
    case 3:
        core_serves(w);
        break;
    case 4:
        next_epoch(w);
        break;
    case 5:
        if (which)
            look_inside(w);
        else if (what & 128)
            pccl__core_halt(w->core, PCCL_MASTER_LOST, "the master is gone");
        else
            pccl__core_freeze(w->core, PCCL_ABORTED, NULL, "the master asks");
        break;
    case 6:
        run(w, 100000);
        break;
    case 7:
        if (fuzz_pick(&w->input, 4) == 3) {
            close_other(w, which);
            open_other(w, which);
        }
        break;
    case 8:
        key = pick_key(w);
        w->other[which]->ops->decline(w->other[which], &key);
        break;
    case 9:
    case 10:
    case 11:
        other_notifies(w, which);
        break;
    default:
        other_posts(w, which);
    }
    if (what & 64) run(w, 100);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count) {
    static const struct pccl__core_options options = {
        .min_world_size = 2, .operation_timeout_ms = 1000, .stall_ms = 100};
    struct world w = {.input = {data, count}, .epoch = 1};
    w.network = pccl__sim_network_new(1, (struct pccl__sim_faults){0});
    for (uint32_t i = 0; i <= OTHERS; i++) w.transport[i] = pccl__sim_transport_new(w.network, id_of(i));
    CHECK(pccl__core_new(&options, w.transport[0], &w.core) == PCCL_OK);
    for (uint32_t i = 0; i < OTHERS; i++) open_other(&w, i);
    next_epoch(&w);
    while (w.input.left > 0) step(&w);
    run(&w, 1000);
    pccl__core_halt(w.core, PCCL_CLOSED, "the end");
    run(&w, 1000);
    for (uint32_t i = 0; i < OPERATIONS; i++) CHECK(!w.calls[i].op);
    pccl__core_free(w.core);
    for (uint32_t i = 0; i < OTHERS; i++) close_other(&w, i);
    for (uint32_t i = 0; i <= OTHERS; i++) w.transport[i]->ops->free(w.transport[i]);
    pccl__sim_network_free(w.network);
    return 0;
}
