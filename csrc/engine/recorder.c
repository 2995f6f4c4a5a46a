/* SPDX-License-Identifier: MIT */
#include "engine/recorder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "engine/core.h"

_Static_assert(sizeof(struct pccl__record) <= 128, "two cache lines");
_Static_assert((int)PCCL_RECORD_WAITS == (int)PCCL_EVENT_RANKS, "a wait is noted whole");

pccl_status pccl__recorder_init(struct pccl__recorder *recorder) {
    *recorder = (struct pccl__recorder){.records = calloc(PCCL_RECORD_OPERATIONS, sizeof *recorder->records),
                                        .notes = calloc(PCCL_RECORD_NOTES, sizeof *recorder->notes)};
    if (recorder->records && recorder->notes) return PCCL_OK;
    pccl__recorder_free(recorder);
    return PCCL_NO_MEMORY;
}

void pccl__recorder_free(struct pccl__recorder *recorder) {
    free(recorder->records);
    free(recorder->notes);
    *recorder = (struct pccl__recorder){0};
}

/* ---------------------------------------------------------------- writing */

static struct pccl__note *next_note(struct pccl__recorder *recorder) {
    struct pccl__note *note = &recorder->notes[recorder->notes_written++ % PCCL_RECORD_NOTES];
    memset(note, 0, offsetof(struct pccl__note, text));
    return note;
}

static void note_waits(struct pccl__note *note, const struct pccl__wait *wait) {
    if (!wait) return;
    note->waits_count = wait->count;
    note->absent = wait->absent;
    for (uint32_t i = 0; i < wait->count && i < PCCL_RECORD_WAITS; i++)
        note->waits[i] = (pccl_record_wait){.rank = wait->ranks[i], .heard_ns = wait->heard_ns[i]};
}

/* What an operation knows of itself while it runs and when it has just ended. */
static void describe(struct pccl__record *record, const struct pccl_operation *op) {
    *record = (struct pccl__record){.called_ns = op->called_ns,
                                    .started_ns = op->started ? op->started_ns : 0,
                                    .data_done_ns = op->data_done_ns,
                                    .epoch = op->info.epoch,
                                    .tag = op->call.tag,
                                    .scope = op->name.scope,
                                    .count = op->call.count,
                                    .tx_bytes = op->info.tx_bytes,
                                    .rx_bytes = op->info.rx_bytes,
                                    .last_peer = op->last_peer,
                                    .sequence = op->name.sequence,
                                    .world_size = op->info.world_size,
                                    .rank = op->team ? op->team->members[op->team->rank] : op->info.rank,
                                    .collective = (uint8_t)op->call.collective,
                                    .dtype = (uint8_t)op->call.dtype,
                                    .op = (uint8_t)op->call.op,
                                    .algorithm = (uint8_t)op->algorithm,
                                    .status = PCCL_PENDING,
                                    .deferred = op->call.flags & PCCL_DEFERRED};
}

void pccl__record_operation(struct pccl__recorder *recorder, const struct pccl_operation *op) {
    struct pccl__record *record = &recorder->records[recorder->next_record];
    recorder->next_record = recorder->next_record + 1 < PCCL_RECORD_OPERATIONS ? recorder->next_record + 1 : 0;
    recorder->records_written++;
    describe(record, op);
    record->ended_ns = op->core->now_ns;
    record->status = (uint8_t)op->status;
    if (op->status == PCCL_OK && !op->wait) return;
    struct pccl__note *note = next_note(recorder);
    note->kind = PCCL_RECORD_OPERATION;
    note_waits(note, op->wait);
    snprintf(note->text, sizeof note->text, "%.*s", PCCL_RECORD_TEXT - 1, op->status == PCCL_OK ? "" : op->text);
    record->note = recorder->notes_written;
}

void pccl__record_note(struct pccl__core *core, pccl_record_kind kind, pccl_status status, const pccl_peer_id *peer,
                       const char *text) {
    struct pccl__note *note = next_note(&core->recorder);
    note->kind = kind;
    note->status = status;
    note->at_ns = core->now_ns;
    note->epoch = core->group.epoch;
    note->world_size = core->group.size;
    note->rank = peer ? pccl__group_rank_of(&core->group, peer) : core->group.rank;
    if (peer) note->peer = *peer;
    snprintf(note->text, sizeof note->text, "%.*s", PCCL_RECORD_TEXT - 1, text);
}

/* ---------------------------------------------------------------- reading */

struct reader {
    pccl_record *records;
    size_t capacity, count;
};

/* The next place, cleared; one that is thrown away when all are taken. */
static pccl_record *place(struct reader *reader, pccl_record *beyond) {
    pccl_record *record = reader->count < reader->capacity ? &reader->records[reader->count] : beyond;
    reader->count++;
    memset(record, 0, sizeof *record);
    return record;
}

/* The number of the oldest entry that a ring of `places` still has. */
static uint64_t oldest(uint64_t written, uint64_t places) { return written - min_u64(written, places); }

static void fill_operation(pccl_record *record, const struct pccl__record *from) {
    record->kind = PCCL_RECORD_OPERATION;
    record->status = (pccl_status)from->status;
    record->epoch = from->epoch;
    record->peer = from->last_peer;
    record->world_size = from->world_size;
    record->rank = from->rank;
    record->name = (pccl_operation_name){.tag = from->tag, .scope = from->scope, .sequence = from->sequence};
    record->collective = (pccl_collective)from->collective;
    record->dtype = (pccl_dtype)from->dtype;
    record->op = (pccl_reduce_op)from->op;
    record->algorithm = (pccl_algorithm)from->algorithm;
    record->deferred = from->deferred;
    record->count = from->count;
    record->tx_bytes = from->tx_bytes;
    record->rx_bytes = from->rx_bytes;
    record->called_ns = from->called_ns;
    record->started_ns = from->started_ns;
    record->data_done_ns = from->data_done_ns;
    record->at_ns = from->ended_ns;
}

static void fill_note(pccl_record *record, const struct pccl__note *note) {
    record->waits_count = note->waits_count;
    record->absent = note->absent;
    memcpy(record->waits, note->waits, sizeof record->waits);
    memcpy(record->text, note->text, sizeof record->text);
}

static void read_ended(const struct pccl__recorder *recorder, struct reader *reader, pccl_record *beyond) {
    for (uint64_t i = oldest(recorder->records_written, PCCL_RECORD_OPERATIONS); i < recorder->records_written; i++) {
        const struct pccl__record *from = &recorder->records[i % PCCL_RECORD_OPERATIONS];
        pccl_record *record = place(reader, beyond);
        fill_operation(record, from);
        if (from->note && from->note + PCCL_RECORD_NOTES > recorder->notes_written)
            fill_note(record, &recorder->notes[(from->note - 1) % PCCL_RECORD_NOTES]);
    }
}

static void read_open(struct pccl__core *core, const struct list *list, struct reader *reader, pccl_record *beyond) {
    uint8_t *waits = pccl__pool_take(&core->pool, max_u64(core->group.size, 1));
    for (struct list *node = list->next; node != list; node = node->next) {
        struct pccl_operation *op = LIST_ENTRY(node, struct pccl_operation, link);
        if (op->is_fetch) continue;
        struct pccl__record from;
        describe(&from, op);
        pccl_record *record = place(reader, beyond);
        fill_operation(record, &from);
        if (waits && !core->frozen && op->state != PCCL__QUEUED && pccl__exec_waits_for(&core->exec, op, waits))
            pccl__wait_note(core, op, waits);
        struct pccl__note note = {.kind = PCCL_RECORD_OPERATION};
        note_waits(&note, op->wait);
        fill_note(record, &note);
    }
    pccl__pool_put(&core->pool, waits, max_u64(core->group.size, 1));
}

static void read_notes(const struct pccl__recorder *recorder, struct reader *reader, pccl_record *beyond) {
    for (uint64_t i = oldest(recorder->notes_written, PCCL_RECORD_NOTES); i < recorder->notes_written; i++) {
        const struct pccl__note *note = &recorder->notes[i % PCCL_RECORD_NOTES];
        if (note->kind == PCCL_RECORD_OPERATION) continue; /* its operation has it */
        pccl_record *record = place(reader, beyond);
        record->kind = note->kind;
        record->status = note->status;
        record->epoch = note->epoch;
        record->peer = note->peer;
        record->world_size = note->world_size;
        record->rank = note->rank;
        record->at_ns = note->at_ns;
        fill_note(record, note);
    }
}

static void read_links(const struct pccl__core *core, struct reader *reader, pccl_record *beyond) {
    for (uint32_t rank = 0; rank < core->group.size; rank++) {
        struct pccl__channel *channel = core->group.channels[rank];
        if (!channel) continue;
        if (channel->ops->measure) channel->ops->measure(channel);
        pccl_record *record = place(reader, beyond);
        record->kind = PCCL_RECORD_LINK;
        record->status = channel->broken    ? (channel->ended ? PCCL_PEER_DIED : PCCL_PEER_LOST)
                         : channel->doubted ? PCCL_TIMEOUT
                                            : PCCL_OK;
        record->epoch = core->group.epoch;
        record->peer = channel->peer;
        record->world_size = core->group.size;
        record->rank = rank;
        record->at_ns = core->now_ns;
        record->started_ns = channel->heard_ns;
        record->rtt_ns = channel->rtt_ns;
        record->bytes_per_s = channel->bytes_per_s;
        snprintf(record->text, sizeof record->text, "%s: %.*s", channel->medium ? channel->medium : channel->ops->name,
                 PCCL_RECORD_TEXT - 16, record->status == PCCL_OK ? "" : channel->error.message);
    }
}

size_t pccl__recorder_read(struct pccl__core *core, uint64_t now_ns, pccl_record *records, size_t capacity) {
    core->now_ns = now_ns;
    pccl_record beyond;
    struct reader reader = {.records = records, .capacity = capacity};
    read_ended(&core->recorder, &reader, &beyond);
    read_open(core, &core->open, &reader, &beyond);
    read_open(core, &core->queued, &reader, &beyond);
    read_notes(&core->recorder, &reader, &beyond);
    read_links(core, &reader, &beyond);
    return reader.count;
}
