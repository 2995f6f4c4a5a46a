/* SPDX-License-Identifier: MIT
 *
 * recorder.h - the flight recorder: the last operations and the last events of one engine, in memory of a fixed size.
 *
 * Must not know: files, formats, who reads it.
 *
 * The idea: an operation is recorded once, when it ends, from what it knows of itself; those still open are read where
 * they are. So recording is a copy of two cache lines into a ring, without allocation, system call, clock or lock of
 * its own. What is rare and long (why something failed, whom it waited for, changes of epoch and of links) goes to a
 * second ring, the notes; a failed operation's record names its note.
 *
 * Memory: RECORDS * 128 bytes and NOTES * 400 bytes, about 230 KiB, from the engine's start to its end.
 */
#ifndef PCCL_ENGINE_RECORDER_H
#define PCCL_ENGINE_RECORDER_H

#include <stdbool.h>

#include "pccl.h"

struct pccl__core;
struct pccl_operation;

/* One operation that has ended. */
struct pccl__record {
    uint64_t called_ns, started_ns, data_done_ns, ended_ns; /* 0: it never came to that */
    uint64_t epoch, tag, scope, count, tx_bytes, rx_bytes;
    pccl_peer_id last_peer;
    uint32_t sequence, world_size, rank;
    uint8_t collective, dtype, op, algorithm, status;
    bool deferred;
    uint64_t note; /* 1 + the number of its note; 0: none */
};

struct pccl__note {
    pccl_record_kind kind;
    pccl_status status;
    uint64_t at_ns, epoch;
    pccl_peer_id peer;
    uint32_t world_size, rank;
    uint32_t waits_count;
    bool absent;
    pccl_record_wait waits[PCCL_RECORD_WAITS];
    char text[PCCL_RECORD_TEXT];
};

struct pccl__recorder {
    struct pccl__record *records; /* [PCCL_RECORD_OPERATIONS], a ring */
    struct pccl__note *notes;     /* [PCCL_RECORD_NOTES], a ring */
    uint64_t records_written, notes_written;
    uint32_t next_record; /* records_written modulo the ring, without a division */
};

/* Takes all memory it will ever need. Errors: NO_MEMORY. */
pccl_status pccl__recorder_init(struct pccl__recorder *recorder);
void pccl__recorder_free(struct pccl__recorder *recorder);

/* `operation` has just ended; it still has its wait. */
void pccl__record_operation(struct pccl__recorder *recorder, const struct pccl_operation *operation);
/* Something happened to the epoch or to the link to `peer` (NULL: to none). */
void pccl__record_note(struct pccl__core *core, pccl_record_kind kind, pccl_status status, const pccl_peer_id *peer,
                       const char *text);
/* Copies up to `capacity` of what is known, in the order that pccl_engine_trace promises; returns the full number. */
size_t pccl__recorder_read(struct pccl__core *core, uint64_t now_ns, pccl_record *records, size_t capacity);

#endif
