/* SPDX-License-Identifier: MIT
 *
 * core.h - the data plane of one peer, single-threaded: operations, commit protocol, views.
 *
 * Must not know: threads, descriptors, the clock (now_ns is an argument). engine.c puts a lock around it; the tests run
 * many cores in one thread over the sim transport.
 *
 * Life of an operation (ARCHITECTURE.md): start -> data phase (exec.c) -> finish phase -> ended. When anything breaks
 * the epoch is frozen: nothing more is sent, applied or returned for it; the owner fetches the report, tells the
 * master, and brings the next view with the verdicts (settle.c).
 */
#ifndef PCCL_ENGINE_CORE_H
#define PCCL_ENGINE_CORE_H

#include "base/heap.h"
#include "engine/event.h"
#include "engine/exec.h"
#include "engine/operation.h"
#include "engine/recorder.h"
#include "engine/scope.h"
#include "engine/unseen.h"
#include "engine/urgency.h"
#include "engine/wait.h"

enum {
    PCCL__NOTICE_ABORT = PCCL__NOTICE_OWNER,
    PCCL__NOTICE_MISMATCH, /* key of the operation; data: rank a, rank b u32; stamp a, stamp b */
    PCCL__NOTICE_ANNOUNCE, /* key and stamp of an operation that waits */
    PCCL__NOTICE_REFUSED,  /* answers WANTED: no such range is served */
    PCCL__NOTICE_STARTED,  /* of an operation that waits somewhere; data, also of ANNOUNCE: who has started it (wait.c)
                            */
    PCCL__NOTICE_GREETING  /* nothing but a reason to make the link */
};

struct pccl__core_options {
    pccl_peer_id id;
    uint32_t min_world_size, segment_bytes, operation_timeout_ms, stall_ms;
    struct pccl__arena *arena; /* outlives the core; NULL: none */
    uint32_t lend_least;       /* bytes of a piece that is sent from there; 0: more than channels copy anyhow */
};

enum {
    PCCL__STOPPED_MAX = 16,
    PCCL__RETURNED_MAX = 256,
    PCCL__CAUSES_MAX = 4,
    PCCL__OWED_MAX = 1024,
    PCCL__CAUSE_TEXT = 400
};

/* The step of deferred operations that PCCL_COMMIT settles. */
struct pccl__deferred {
    bool open;        /* something was started since the last commit */
    bool broken;      /* ... and the epoch has changed: to be repeated */
    uint32_t started; /* deferred operations so far; tells whether any came after a commit was called */
};

/* What was called under a name. */
struct pccl__returned {
    pccl_operation_name name;
    struct pccl__stamp stamp;
};

/* Why an epoch has ended. */
struct pccl__cause {
    uint64_t epoch;
    char text[PCCL__CAUSE_TEXT];
};

struct pccl__core {
    struct pccl__core_options options;
    struct pccl__transport *transport;
    struct pccl__group group; /* epoch 0: no view yet */
    struct pccl__pool pool;
    struct pccl__exec exec;
    struct pccl__tags tags;
    struct pccl__deferred deferred;
    struct pccl__unseen unseen;
    struct pccl__urgency urgency;
    struct list open;        /* operations in UNMATCHED, DATA or FINISH, fetches too */
    struct list queued;      /* wait for the next epoch */
    struct list unmatched;   /* match.c: those of `open` that wait for a send, in the order of their calls */
    struct list early_sends; /* match.c: notices of sends in an epoch to come */
    struct list leaving;     /* ended, still borrowed by channels */
    struct list held;        /* ended and only held by the caller's handle */
    struct list failed;      /* mismatches met or owed: struct mismatch */
    uint32_t failed_count;
    struct pccl__returned returned[PCCL__RETURNED_MAX]; /* the last deferred operations of this epoch that succeeded */
    uint32_t returned_count;                            /* so far */
    struct list served;                                 /* state.c: struct served, oldest first */
    uint64_t stopped[PCCL__STOPPED_MAX]; /* the sync ids that were served last: late wishes are refused */
    uint32_t stopped_next;
    struct pccl__events events;
    struct pccl__recorder recorder;
    struct list asked; /* wait.c: struct asked, oldest first */
    uint64_t now_ns;
    uint64_t newest_epoch;
    uint32_t fetches; /* so far; tells their keys apart */
    uint32_t open_fetches;
    uint32_t open_calls;  /* operations in open or queued */
    uint32_t ended_count; /* rises whenever an operation ends; the engine watches it */
    struct heap timers;   /* of operations that may have waited too long: pccl_operation.timer */
    uint64_t stalls_checked_ns;
    uint64_t refused_told, next_refused_ns;
    bool unshared_told, detour_told;
    uint64_t early_abort;                 /* an epoch that others froze before we installed it */
    const struct pccl_operation *awaited; /* progress ends early when this has ended; NULL: nothing is awaited */
    const atomic_uint *callers; /* ... and as soon as it says that others wait for us; NULL: nobody ever does */
    bool frozen;
    bool restoring;     /* what operations that cannot succeed any more have overwritten */
    pccl_status halted; /* PCCL_OK: not */
    char halt_text[PCCL_MESSAGE_BYTES];
    char cause_text[PCCL_MESSAGE_BYTES];         /* of the last view change, for broken steps */
    struct pccl__cause causes[PCCL__CAUSES_MAX]; /* of the last ones, for calls that are for an epoch before */
    uint32_t causes_next;
};

/* ---- core.c */
pccl_status pccl__core_new(const struct pccl__core_options *options, struct pccl__transport *transport,
                           struct pccl__core **core);
/* Ends everything with CLOSED, frees the channels and the core (not the transport). */
void pccl__core_free(struct pccl__core *core);
/* Runs what is ready and what is due; call after poll dispatch, and after every start or view. */
void pccl__core_progress(struct pccl__core *core, uint64_t now_ns);
/* As progress, each channel once at most: for who only started something. What is left, the deadline says. */
void pccl__core_step(struct pccl__core *core, uint64_t now_ns);
/* When progress wants to run without news; NEVER_NS. */
uint64_t pccl__core_deadline(const struct pccl__core *core);
void pccl__core_handle_free(struct pccl_operation *operation);
uint32_t pccl__core_pending(const struct pccl__core *core);
/* Anything under way that needs progress? */
bool pccl__core_busy(const struct pccl__core *core);

/* ---- start.c */
pccl_status pccl__core_start(struct pccl__core *core, const pccl_call *call, uint64_t now_ns,
                             struct pccl_operation **operation, pccl_error *error);
/* `coding` as in choice.h. */
pccl_status pccl__core_explain(struct pccl__core *core, const pccl_call *call, double coding, char *text,
                               size_t text_bytes, pccl_error *error);
/* Starts an operation in the current epoch (it is new or was queued). May end it. */
void pccl__core_launch(struct pccl__core *core, struct pccl_operation *operation);
/* Begins an operation that has been launched, now that it knows its peers. May end it. */
void pccl__core_begin(struct pccl__core *core, struct pccl_operation *operation);

/* ---- settle.c */
pccl_status pccl__core_install(struct pccl__core *core, const pccl_view *view, uint64_t now_ns, pccl_error *error);
/* Stops the current epoch; `suspect` may be NULL. No effect without an epoch or when frozen. */
void pccl__core_freeze(struct pccl__core *core, pccl_status reason, const pccl_peer_id *suspect, const char *text);
/* Brings back some of what was overwritten. True: there is more. */
bool pccl__core_restore(struct pccl__core *core);
/* Another member stopped its epoch: so do we, and tell the others what it told. */
void pccl__core_abort_notice(struct pccl__core *core, const struct pccl__notice *notice);
void pccl__core_halt(struct pccl__core *core, pccl_status status, const char *text);
pccl_status pccl__core_report(const struct pccl__core *core, uint64_t epoch, pccl_report_line *lines, size_t capacity,
                              size_t *count);
int pccl__core_has_started(const struct pccl__core *core, uint64_t epoch, pccl_operation_name name);

/* ---- link.c */
/* After channels ran: tells what has become of links, and stops the epoch if an operation may need one that broke. */
void pccl__core_check_links(struct pccl__core *core);
/* Makes the link to a member, and tells when it is there. */
void pccl__core_dial(struct pccl__core *core, uint64_t epoch, const pccl_peer_id *peer);

/* ---- mismatch.c */
void pccl__core_mismatch(struct pccl__core *core, struct pccl_operation *operation, const struct pccl__stamp *own,
                         uint32_t other_rank, const struct pccl__stamp *other);
/* A deferred operation has succeeded here, which says nothing of what others call: it is compared with that later. */
void pccl__core_remember(struct pccl__core *core, const struct pccl_operation *operation);
/* Who sends more for an operation than we have taken, or waits for more than we have sent, called something else. */
void pccl__core_compare(struct pccl__core *core, uint32_t rank, const struct pccl__key *key,
                        const struct pccl__stamp *stamp);
/* Something of an operation that is over here: it goes to nowhere. */
void pccl__core_arrived(struct pccl__core *core, uint32_t rank, const struct pccl__key *key);
/* operation->coding.unfit says what of ours cannot be quantized. */
void pccl__core_unfit(struct pccl__core *core, struct pccl_operation *operation);
void pccl__core_announced(struct pccl__core *core, uint32_t rank, const struct pccl__key *key,
                          const struct pccl__stamp *stamp);
void pccl__core_mismatch_notice(struct pccl__core *core, const struct pccl__notice *notice);
/* Did a mismatch of an operation that we had not started come in? Then it has been told, and `operation` was ended. */
bool pccl__core_owed_mismatch(struct pccl__core *core, struct pccl_operation *operation);
/* The epoch ends: forgets what was met, re-numbers what is owed for the next epoch; nothing is owed to a subgroup
 * unless that has the same members. Before the tags are cleared. */
void pccl__core_renew_mismatches(struct pccl__core *core, bool same_members);
void pccl__core_drop_mismatches(struct pccl__core *core);

/* ---- stall.c */
/* Sees that the operation is looked at when it may have waited too long in its present state. */
void pccl__core_watch(struct pccl_operation *operation);
/* The operation has ended in its epoch: takes back what was told of its waiting. */
void pccl__core_goes_on(struct pccl__core *core, const struct pccl_operation *operation);
uint64_t pccl__core_stall_deadline(const struct pccl__core *core);
void pccl__core_check_stalls(struct pccl__core *core);
/* What `operation` is, how long it has run, whom it waits for. */
void pccl__core_describe(struct pccl__core *core, struct pccl_operation *operation, uint64_t now_ns, char *text,
                         size_t bytes);

/* ---- state.c */
pccl_status pccl__core_serve(struct pccl__core *core, uint64_t sync_id, const pccl_region *regions, uint32_t count,
                             pccl_error *error);
/* Stops serving and fetching under an id; no memory given for it is touched afterwards. */
void pccl__core_stop_state(struct pccl__core *core, uint64_t sync_id);
pccl_status pccl__core_fetch(struct pccl__core *core, uint64_t sync_id, pccl_peer_id peer, uint32_t region,
                             uint64_t offset, uint64_t bytes, void *target, uint32_t timeout_ms, uint64_t now_ns,
                             struct pccl_operation **operation, pccl_error *error);
void pccl__core_wanted(struct pccl__core *core, struct pccl__channel *channel, const struct pccl__notice *notice);
void pccl__core_refused(struct pccl__core *core, struct pccl__channel *channel, const struct pccl__notice *notice);
/* The link to a peer goes: what it wished for and did not get yet is forgotten. */
void pccl__core_forget_wishes(struct pccl__core *core, const pccl_peer_id *peer);
/* A served piece was sent, or its link broke. */
void pccl__core_served(struct pccl__core *core, struct pccl__transfer *transfer);
/* Ends the fetches from a peer whose link broke or who left. */
void pccl__core_fail_fetches(struct pccl__core *core, const pccl_peer_id *peer, const char *text);
void pccl__core_drop_served(struct pccl__core *core);

/* ---- inside the core (core.c) */
/* With all that its end will need, so that it can always end. NULL: no memory. */
struct pccl_operation *pccl__operation_new(struct pccl__core *core, const pccl_call *call);
/* Ends it: sets the outcome, tells waiters, cancels what it still has posted, sheds memory when channels let go. */
void pccl__operation_end(struct pccl_operation *operation, pccl_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* For texts: "all_reduce(float32[8], ...) tag 0 #3 of epoch 7". */
void pccl__operation_text(const struct pccl_operation *operation, char *text, size_t bytes);
/* As pccl__operation_end, for failures that the end of `epoch` brings. */
void pccl__operation_lost(struct pccl_operation *operation, uint64_t epoch, pccl_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* What fails before it has a number is lost with the epoch before at the latest: who looks at it knows nothing yet of
 * what the end of this one will fail. */
static inline uint64_t pccl__core_past_epoch(const struct pccl__core *core) { return core->group.epoch - 1; }
static inline bool pccl__is_stepwise(const struct pccl_operation *operation) {
    return (operation->call.flags & PCCL_DEFERRED) || operation->call.collective == PCCL_COMMIT;
}
/* Moves an operation on as far as its transfers allow. */
void pccl__operation_advance(struct pccl_operation *operation);
/* A local failure (no memory) or a broken link while posting. */
void pccl__operation_failed(struct pccl_operation *operation, pccl_status status);
/* `operation` succeeded. If it is a commit, its step is over, unless operations of the next one were called by now. */
void pccl__core_step_settled(struct pccl__core *core, const struct pccl_operation *operation);
/* Runs a channel once and takes what it hands over. */
void pccl__core_run_channel(struct pccl__core *core, struct pccl__channel *channel);
/* Closes, drains and frees a channel; NULL is allowed. */
void pccl__core_retire(struct pccl__core *core, struct pccl__channel **channel);
/* Sends a notice to the members next to us, of those who take part. Whoever hears of news passes it on once, so that it
 * reaches all. */
void pccl__core_notify(struct pccl__core *core, uint32_t kind, const struct pccl__key *key,
                       const struct pccl__stamp *stamp, const void *data, uint32_t bytes);

#endif
