/* SPDX-License-Identifier: MIT
 *
 * pccl.h - the public interface of the data plane. Beside it, pccl_sparse.h is all that a binding reads.
 *
 * One `pccl_engine` is one peer's data plane: its listening port, its links to the other members of its
 * group, its operations. Membership (who is in the group) comes from outside: `pccl_engine_install` gives the
 * engine a view, `pccl_engine_next_event` tells the owner what the engine noticed. The engine never talks to
 * a master itself. A program that knows its peers can therefore use pccl with this header alone
 * (examples/allreduce.c).
 *
 * Conventions: every function may be called from any thread unless it says otherwise. Results go through the
 * last pointers and are written only when PCCL_OK is returned. `error` may be NULL; it is written only when
 * something else than PCCL_OK is returned. Nothing here calls back into the caller but `ended` of a pccl_call. C99.
 */
#ifndef PCCL_H
#define PCCL_H

#ifndef PCCL_CFFI
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#endif

#define PCCL_VERSION_MAJOR 0
#define PCCL_VERSION_MINOR 1

/* ---------------------------------------------------------------- status */

/* The one list of outcomes; strings and the Python exception classes come from it. */
typedef enum pccl_status {
    PCCL_OK = 0,
    PCCL_INVALID = 1, /* the caller's arguments are wrong; nothing happened */
    PCCL_NO_MEMORY = 2,
    PCCL_SYSTEM = 3,        /* a system call failed: `system_errno` */
    PCCL_TIMEOUT = 4,       /* no progress within the operation's timeout */
    PCCL_PEER_LOST = 5,     /* a member left the group; input intact; the next epoch is installed: retry */
    PCCL_MISMATCH = 6,      /* members called different things under one operation name */
    PCCL_CALL_MISMATCH = 7, /* joint calls that can never meet */
    PCCL_TOO_FEW_PEERS = 8, /* the group is smaller than min_world_size */
    PCCL_EXPELLED = 9,      /* this peer was removed from the run */
    PCCL_MASTER_LOST = 10,  /* the master did not come back within master_timeout */
    PCCL_ABORTED = 11,      /* cancelled by the caller or by close */
    PCCL_PROTOCOL = 12,     /* the other side broke the wire protocol */
    PCCL_UNSUPPORTED = 13,
    PCCL_CLOSED = 14,
    PCCL_STATE = 15,       /* shared state could not be agreed or fetched */
    PCCL_PENDING = 16,     /* pccl_wait ran out of time; the operation goes on */
    PCCL_PEER_DIED = 17,   /* of events only: as PEER_LOST, and the kernel says that the member's process has ended */
    PCCL_QUANTIZATION = 18 /* a value of some member cannot be quantized: it is no number, or too large */
} pccl_status;

enum { PCCL_MESSAGE_BYTES = 1024 };

typedef struct pccl_error {
    pccl_status status;
    int system_errno; /* 0 where none belongs to it */
    uint64_t epoch;   /* of a failure that calls stand behind (pccl_release_tag): the newest epoch whose end it may be
                         due to; else 0 */
    char message[PCCL_MESSAGE_BYTES];
} pccl_error;

/* A static English phrase, "unknown status" for numbers outside the list. */
const char *pccl_status_string(pccl_status status);

/* ---------------------------------------------------------------- words */

typedef enum pccl_dtype {
    PCCL_INT8 = 0,
    PCCL_UINT8 = 1,
    PCCL_INT16 = 2,
    PCCL_UINT16 = 3,
    PCCL_INT32 = 4,
    PCCL_UINT32 = 5,
    PCCL_INT64 = 6,
    PCCL_UINT64 = 7,
    PCCL_FLOAT16 = 8,
    PCCL_BFLOAT16 = 9,
    PCCL_FLOAT32 = 10,
    PCCL_FLOAT64 = 11,
    PCCL_BOOL = 12,      /* a byte, 0 or 1; any other counts as 1 */
    PCCL_COMPLEX64 = 13, /* two float32: real part, imaginary part */
    PCCL_COMPLEX128 = 14,
    PCCL_FLOAT8_E4M3FN = 15, /* both float8 can be moved, not reduced */
    PCCL_FLOAT8_E5M2 = 16,
    PCCL_DTYPE_COUNT = 17
} pccl_dtype;

/* Which exist for a dtype:
 *   integers   all but PREMUL_SUM
 *   float16 to float64, bfloat16  SUM, AVG, PROD, MIN, MAX, PREMUL_SUM
 *   complex    SUM, AVG, PROD, PREMUL_SUM
 *   bool       SUM, MAX, BOR: or. PROD, MIN, BAND: and. BXOR: exclusive or
 *   float8     none
 * Others are INVALID. */
typedef enum pccl_reduce_op {
    PCCL_SUM = 0,
    PCCL_AVG = 1, /* sum, then divided by the world size; integers truncate towards zero */
    PCCL_PROD = 2,
    PCCL_MIN = 3, /* a NaN in any contribution gives NaN */
    PCCL_MAX = 4,
    PCCL_BAND = 5, /* bit by bit, as the two below */
    PCCL_BOR = 6,
    PCCL_BXOR = 7,
    PCCL_PREMUL_SUM = 8, /* each contribution is multiplied by its caller's `factor` first */
    PCCL_REDUCE_OP_COUNT = 9
} pccl_reduce_op;

typedef enum pccl_collective {
    PCCL_ALL_REDUCE = 0,
    PCCL_REDUCE_SCATTER = 1,
    PCCL_ALL_GATHER = 2,
    PCCL_BROADCAST = 3,
    PCCL_BARRIER = 4,
    PCCL_COMMIT = 5, /* settles all deferred operations since the last commit */
    PCCL_REDUCE = 6,
    PCCL_GATHER = 7,
    PCCL_SCATTER = 8,
    PCCL_ALL_TO_ALL = 9,
    PCCL_SCAN = 10,   /* rank r gets the reduction of ranks 0..r */
    PCCL_EXSCAN = 11, /* rank r gets the reduction of ranks 0..r-1; nothing is written at rank 0 */
    PCCL_SEND = 12,   /* to one member, which calls RECV: an operation of these two alone */
    PCCL_RECV = 13,
    PCCL_COLLECTIVE_COUNT = 14
} pccl_collective;

typedef enum pccl_algorithm {
    PCCL_AUTO = 0,
    PCCL_RING = 1,
    PCCL_DOUBLING = 2,
    PCCL_BINOMIAL = 3,
    PCCL_CHAIN = 4,
    PCCL_DISSEMINATION = 5,
    PCCL_TREE = 6,
    PCCL_STAR = 7,
    PCCL_PAIRWISE = 8,
    PCCL_BRUCK = 9,
    PCCL_HALVING = 10,
    PCCL_LINE = 11,
    PCCL_HIERARCHICAL = 12,
    PCCL_LEADERS = 13,
    PCCL_DIRECT = 14,
    PCCL_ALGORITHM_COUNT = 15
} pccl_algorithm;

/* Which links between members a group uses. */
typedef enum pccl_shape {
    PCCL_SHAPE_FULL = 0, /* any */
    PCCL_SHAPE_RING = 1, /* those between neighbours on the ring */
    PCCL_SHAPE_TREE = 2, /* those between parent and child */
    PCCL_SHAPE_COUNT = 3
} pccl_shape;

size_t pccl_dtype_bytes(pccl_dtype dtype);                    /* 0 for numbers outside the list */
const char *pccl_dtype_name(pccl_dtype dtype);                /* "float32"; "?" outside the list, as below */
const char *pccl_reduce_op_name(pccl_reduce_op op);           /* "sum" */
const char *pccl_collective_name(pccl_collective collective); /* "all_reduce" */
const char *pccl_algorithm_name(pccl_algorithm algorithm);    /* "ring" */

/* ---------------------------------------------------------------- quantized payloads */

/* What floats may become on the wire. All but casts come in blocks that have their own parameters. */
typedef enum pccl_format {
    PCCL_EXACT = 0,
    PCCL_TO_BFLOAT16 = 1,
    PCCL_TO_FLOAT16 = 2,
    PCCL_UINT8_MIN_MAX = 3,    /* 256 steps from the lowest to the highest value of a block, both exact */
    PCCL_INT8_MIN_MAX = 4,     /* the same, with codes that count from -128 */
    PCCL_UINT8_ZERO_POINT = 5, /* a step and which code is zero: zeros are exact */
    PCCL_INT8_ZERO_POINT = 6,
    PCCL_INT8_BLOCK = 7, /* codes -127 to 127 (-7 to 7, -1 to 1): the block's largest magnitude and zero are exact */
    PCCL_INT4_BLOCK = 8,
    PCCL_INT2_BLOCK = 9,
    PCCL_E4M3_BLOCK = 10, /* float8, scaled so that the block's largest magnitude is float8's, 448 or 57,344 */
    PCCL_E5M2_BLOCK = 11,
    PCCL_FORMAT_COUNT = 12
} pccl_format;

typedef struct pccl_quantization {
    pccl_format format;
    uint32_t block;     /* how many values share parameters: a multiple of 32, at most 65,536; 0 is 1,024. Of casts 0 */
    uint8_t stochastic; /* rounding: 0 to nearest even, 1 up or down at random, so that errors average out */
    uint8_t propagate;  /* what is not finite: 0 is an error, 1 makes its block (of casts: the value) NaN */
    uint8_t rotate;     /* 1: each block goes through a random Hadamard transform, which spreads outliers */
    uint64_t seed;      /* of the random choices; equal on all members */
} pccl_quantization;

const char *pccl_format_name(pccl_format format); /* "int8_block"; "?" outside the list */

/* Errors: INVALID, also for PCCL_EXACT and where `dtype` is none of float16, bfloat16, float32, float64. */
pccl_status pccl_quantization_check(const pccl_quantization *quantization, pccl_dtype dtype, pccl_error *error);

/* Of the wire form of `count` values; 0 where there is none. */
uint64_t pccl_quantized_bytes(const pccl_quantization *quantization, uint64_t count);

/* What `count` values are on the wire (pccl_quantized_bytes of them), and back. Any alignment; may not overlap.
 * Errors: INVALID; QUANTIZATION where a value cannot be encoded: `wire` is then undefined. */
pccl_status pccl_quantize(const pccl_quantization *quantization, pccl_dtype dtype, const void *values, uint64_t count,
                          void *wire, pccl_error *error);
/* Any bytes decode to something. Errors: INVALID. */
pccl_status pccl_dequantize(const pccl_quantization *quantization, pccl_dtype dtype, const void *wire, uint64_t count,
                            void *values, pccl_error *error);

typedef struct pccl_peer_id {
    uint8_t bytes[16];
} pccl_peer_id;

/* ---------------------------------------------------------------- engine */

typedef struct pccl_engine pccl_engine;

enum { PCCL_ADDRESS_BYTES = 64 };

typedef struct pccl_options {
    pccl_peer_id id;               /* this peer; unique per process start */
    uint64_t host_id;              /* as in this peer's pccl_member */
    uint8_t run_secret[16];        /* equal on all peers of a run; other connections are refused */
    const char *listen_address;    /* numeric IPv4 or IPv6; NULL is 127.0.0.1 */
    uint16_t listen_port;          /* 0: the system chooses; pccl_engine_port tells */
    uint32_t stripes;              /* TCP connections per link; 0 chooses by the measured round trip */
    uint32_t min_world_size;       /* smaller groups give PCCL_TOO_FEW_PEERS; 0 is 2 */
    uint32_t segment_bytes;        /* 0 chooses; at most 16 MiB; equal on all peers */
    uint32_t connect_timeout_ms;   /* 0 is 10,000: a link that cannot be made is a lost peer */
    uint32_t operation_timeout_ms; /* 0 is 300,000: while nothing of any operation moves between this peer and those an
                                      operation waits for; ten times that without progress of its own */
    uint32_t stall_ms;             /* 0 is 100: when a waiting operation is reported */
    uint8_t checksum;              /* 0 auto (frames that leave the host), 1 always, 2 never */
    uint8_t shared_memory;         /* 0 auto (between peers of one host, where both can), 1 off */
    uint8_t rdma;                  /* 0 off, 1 auto (where both can and memory is not shared), 2 instead of TCP only */
    const char *rdma_device;       /* as ibv_devices names it; NULL or empty: the one with the link's own address */
} pccl_options;

/* Opens the listening port and starts the background thread. `options` is copied.
 * Errors: INVALID, NO_MEMORY, SYSTEM (for example the port is taken), UNSUPPORTED (RDMA is required: what it lacks). */
pccl_status pccl_engine_new(const pccl_options *options, pccl_engine **engine, pccl_error *error);

/* Ends all operations with PCCL_CLOSED, closes every link, joins the thread, frees. Blocks for less than a
 * second. No other call on this engine may run or follow; operations may be freed, meanwhile and later. NULL is
 * allowed. */
void pccl_engine_free(pccl_engine *engine);

/* To be called in a forked child instead of pccl_engine_free: closes the child's descriptors only and tells
 * nobody anything. The engine is unusable in the child: calls return PCCL_CLOSED. */
void pccl_engine_forked(pccl_engine *engine);

uint16_t pccl_engine_port(const pccl_engine *engine);

/* ---------------------------------------------------------------- views */

typedef struct pccl_member {
    pccl_peer_id id;
    char address[PCCL_ADDRESS_BYTES]; /* numeric IPv4 or IPv6, NUL-terminated */
    uint16_t port;
    uint64_t host_id; /* equal for peers of one host and boot */
    /* That it may run on; 0: not known, and taken for enough. Where a host has more members than the fewest cores that
     * one of them told, they are taken to share these. */
    uint32_t cores;
} pccl_member;

typedef struct pccl_operation_name {
    uint64_t tag;
    uint64_t scope;    /* who takes part: 0 the whole group, else pccl_scope or pccl_scope_of */
    uint32_t sequence; /* counts from 0 within an epoch, scope and tag */
} pccl_operation_name;

/* The scope of what rank `source` sends to rank `target`: (source + 1) * 2^32 + target + 1. */
uint64_t pccl_scope(uint32_t source, uint32_t target);

enum { PCCL_SCOPE_RANKS_BIT = 63 /* set in scopes of pccl_scope_of alone */ };

/* The scope of operations that only these `ranks` of the view of `epoch` make, ours among them; their order is that of
 * parts in buffers, and `root` is an index. The same number on all that give the same ranks in the same order, at any
 * time; 0 for the whole group in order of ranks. Nothing is sent, and links are made by the operations that need them.
 * It holds as long as the view's members stay the same, in the same order. Where some links are down, operations of
 * ranks that the shape does not connect end with UNSUPPORTED. Errors: INVALID, PEER_LOST (the members of `epoch` are
 * not those of now), NO_MEMORY, CLOSED. */
pccl_status pccl_scope_of(pccl_engine *engine, uint64_t epoch, const uint32_t *ranks, uint32_t count, uint64_t *scope,
                          pccl_error *error);

/* The ranks of such a scope: copies up to `capacity` of them and returns how many there are; 0 for one that this peer
 * never asked for. */
size_t pccl_scope_ranks(pccl_engine *engine, uint64_t scope, uint32_t *ranks, size_t capacity);

/* What a link costs. 0: not known, so that a default is taken. */
typedef struct pccl_price {
    uint64_t latency_ns;  /* one way, of the path alone: to wake who waits comes on top */
    uint64_t transfer_ns; /* what each message costs who handles it */
    uint64_t bytes_per_s; /* one way */
} pccl_price;

/* Algorithms are chosen by these, so they are equal on all members. */
typedef struct pccl_prices {
    pccl_price inside;  /* between members of one host */
    pccl_price between; /* between hosts; all members of a host share its bandwidth */
} pccl_prices;

typedef struct pccl_view {
    uint64_t epoch; /* larger than any installed before */
    uint32_t size;
    uint32_t rank;              /* this peer's index in `members` */
    const pccl_member *members; /* in rank order */
    const uint32_t *ring;       /* `size` ranks in ring order; NULL is rank order */
    /* Which links operations may use; between other members there need not be any. Equal on all members. */
    pccl_shape shape;
    const uint32_t *parents; /* TREE: `size` places in `ring`, by place in `ring`: each one's parent. The tree is
                                numbered in preorder: place 0 is the root and its own parent, and what is below a place
                                stands right behind it */
    pccl_prices prices;      /* all zero: nothing was measured */
    /* The verdicts for the epoch before: operations not named here that have not returned are aborted. */
    const pccl_operation_name *commits;
    uint32_t commits_count;
    pccl_status cause;      /* what aborted operations end with (PCCL_PEER_LOST where a peer went) */
    const char *cause_text; /* goes into their errors; NULL is allowed */
} pccl_view;

/* Makes `view` the current one. Open operations of the epoch before are settled: committed ones publish
 * their result, the others leave their input as it was and end with `cause`. Links to members that stay and
 * are sound are kept; others are closed. Copies all it needs. Errors: INVALID (stale epoch, rank out of
 * range, ring not a permutation, parents no tree, bad address), NO_MEMORY; nothing changes then. */
pccl_status pccl_engine_install(pccl_engine *engine, const pccl_view *view, pccl_error *error);

/* Ends every operation, open or later, with `status` and `text` until a further view is installed
 * (EXPELLED, MASTER_LOST, CLOSED). */
void pccl_engine_halt(pccl_engine *engine, pccl_status status, const char *text);

/* Stops all operations of `epoch` (no effect if it is not the current one or already frozen): late frames
 * change nothing, nothing is returned, until a view or halt comes. A PCCL_EVENT_FROZEN follows. */
void pccl_engine_freeze(pccl_engine *engine, uint64_t epoch);

typedef enum pccl_operation_state {
    PCCL_NOT_STARTED = 0,
    PCCL_DATA_PHASE = 1,
    PCCL_DATA_DONE = 2,
    PCCL_RETURNED = 3
} pccl_operation_state;

/* One line of a report: in `scope` and `tag`, all operations below `returned_below` have returned success; beyond it
 * `sequence` is in `state`. A tag without open operations gives one line that says so: sequence =
 * returned_below, which is NOT_STARTED. Operations never named are NOT_STARTED too. `fingerprint` tells apart what was
 * called: an operation that is DATA_DONE on two members with different ones must not commit.
 *
 * An operation commits if all survivors that take part in it have its data done or better. Those of scope 0 all do; of
 * a subgroup, its ranks; of a send and its receive, the two, and without the one that receives nothing commits. */
typedef struct pccl_report_line {
    uint64_t tag;
    uint64_t scope;
    uint32_t returned_below;
    uint32_t sequence;
    pccl_operation_state state;
    uint64_t fingerprint; /* 0 where nothing is open */
} pccl_report_line;

/* Copies up to `capacity` lines of the frozen epoch's report; `*count` is the full number. Errors: INVALID
 * when `epoch` is not frozen here. */
pccl_status pccl_engine_report(pccl_engine *engine, uint64_t epoch, pccl_report_line *lines, size_t capacity,
                               size_t *count);

/* Makes the link to `peer` now, if there is none: this side dials too. A PCCL_EVENT_LINKED follows once the other side
 * is heard. No effect if `epoch` is not the current one or `peer` no other member. */
void pccl_engine_dial(pccl_engine *engine, uint64_t epoch, pccl_peer_id peer);

/* Has this peer started operation `name` of `epoch`? 1, 0, or -1 when `epoch` is not the current one. */
int pccl_engine_has_started(pccl_engine *engine, uint64_t epoch, pccl_operation_name name);

/* Collectives that the caller started and that have not ended, plus 1 if deferred operations await a commit. State
 * fetches do not count: one that was given up may still be on its way out. */
uint32_t pccl_engine_pending(pccl_engine *engine);

/* ---------------------------------------------------------------- events */

typedef enum pccl_event_kind {
    PCCL_EVENT_FROZEN = 1,  /* operations of `epoch` stopped: fetch pccl_engine_report, tell the master.
                               `peer` is the suspect where there is one (all zero: none) */
    PCCL_EVENT_SUSPECT = 2, /* `peer` may be gone, `text` says why we think so. Reason PEER_LOST: its link broke while
                               no operation needed it; PEER_DIED: it is gone; TIMEOUT: its link cannot be made (it is
                               tried further); ABORTED: its link broke behind the failure that stopped the epoch */
    PCCL_EVENT_STALLED = 3, /* `name` has waited `waited_ms` for `ranks`; with `absent`, those have not started it.
                               `waited_ms` 0: it was told to wait, and has ended now */
    PCCL_EVENT_REFUSED = 5, /* connections came that are not of this run; `token` says how many since the start. At most
                               one such event in ten seconds: for a log line */
    PCCL_EVENT_UNSHARED = 6, /* a peer of this host is reached through TCP, since no memory can be shared with it:
                                `text` says why. Once: for a log line */
    PCCL_EVENT_DETOUR =
        8, /* links go over TCP since RDMA cannot be used: `text` says what it lacks. Once: for a log line */
    PCCL_EVENT_LINKED = 7 /* there is a link to `peer`: pccl_engine_dial or a SUSPECT for TIMEOUT was about it */
} pccl_event_kind;

enum { PCCL_EVENT_RANKS = 8 };

typedef struct pccl_event {
    pccl_event_kind kind;
    pccl_status reason;
    uint64_t epoch;
    pccl_peer_id peer;
    pccl_operation_name name;
    uint64_t token;
    uint32_t waited_ms;
    uint32_t ranks_count; /* how many are waited for; the first PCCL_EVENT_RANKS of them are in `ranks` */
    uint32_t ranks[PCCL_EVENT_RANKS];
    uint8_t absent;
    char text[PCCL_MESSAGE_BYTES];
} pccl_event;

/* A descriptor that polls readable while events wait, or tokens of operations that have ended: those within some
 * milliseconds, for many that end at a time are told together (pccl_prompt). Owned by the engine. */
int pccl_engine_event_fd(const pccl_engine *engine);

/* Takes the oldest event: 1 if there was one, else 0. Never blocks. */
int pccl_engine_next_event(pccl_engine *engine, pccl_event *event);

/* Takes the tokens of operations started with PCCL_NOTIFY that have ended, oldest end first: up to `capacity` of them.
 * Returns how many. Never blocks. */
size_t pccl_engine_take_ended(pccl_engine *engine, uint64_t *tokens, size_t capacity);

/* ---------------------------------------------------------------- operations */

typedef struct pccl_operation pccl_operation;

enum { PCCL_ANY_SOURCE = 0x7FFFFFFF /* the `root` of a recv */ };

enum {
    PCCL_DISCARD_INPUT = 1,  /* in place only: the input may be lost if the operation aborts (faster) */
    PCCL_DEFERRED = 2,       /* success means: the local data phase is done; PCCL_COMMIT settles it */
    PCCL_NOTIFY = 4,         /* when it has ended pccl_engine_take_ended gives its `token` */
    PCCL_HOLD_TAG = 8,       /* pccl_wait alone does not count as seeing a failure: pccl_release_tag does (below) */
    PCCL_UNEVEN = 16,        /* parts differ in length: `input_counts`, `output_counts`. All members set it, or none */
    PCCL_DETERMINISTIC = 32, /* what reduces does so in an order that depends on nothing but ranks and world size: the
                               same contributions give the same bits, whatever count, algorithm, ring order and root.
                               An algorithm that cannot is INVALID, a view whose shape is not FULL UNSUPPORTED. All
                               members set it, or none */
    /* Any epoch since `expected_epoch` will do, as long as ranks mean the same members. For those who call again what
     * an epoch's end has failed: who does not would have its next call matched with one that another makes for the
     * first time. */
    PCCL_SAME_MEMBERS = 64
};

enum { PCCL_PRIORITY_MIN = -3, PCCL_PRIORITY_MAX = 3 };

/* One of many that are reduced together. */
typedef struct pccl_tensor {
    const void *input;
    void *output;
    uint64_t count;
} pccl_tensor;

enum { PCCL_TENSORS_MAX = 65536 };

/* What to do. `count` is in elements, as in NCCL:
 *   all_reduce      input[count], output[count]
 *   reduce          input[count], output[count] at the root only
 *   scan, exscan    input[count], output[count]; exscan writes nothing at rank 0
 *   broadcast       input[count] at the root only, output[count]
 *   reduce_scatter  input[count * size], output[count]: rank r gets part r
 *   scatter         input[count * size] at the root only, output[count]: rank r gets part r
 *   all_gather      input[count], output[count * size]: part r is rank r's input
 *   gather          input[count], output[count * size] at the root only: part r is rank r's input
 *   all_to_all      input[count * size], output[count * size]: part r goes to rank r, part r comes from rank r
 *   barrier, commit no buffers
 *   send            input[count], to rank `root`
 *   recv            output[count], from rank `root`, or from whoever sends: PCCL_ANY_SOURCE. pccl_info tells
 * In place means that the output is the input, or where one is longer, that the shorter one is our own part of it
 * (all_gather: input == output + rank * count; reduce_scatter: output == input + rank * count). Any other overlap is
 * INVALID. Buffers are borrowed until the operation has ended; `output` is undefined after a failure, unless it is the
 * input.
 *
 * An all_reduce may take a list of `tensors` instead of `input`, `output` and `count`. It reduces all of them in one
 * operation, as if they stood behind one another in one vector; whatever is said of its buffers holds of each of them.
 * They may be of any lengths, empty ones too, and each is in place or not by itself; what one writes to may overlap
 * nothing else. All members give as many and of the same lengths, else it is a MISMATCH. The list is copied.
 *
 * With PCCL_UNEVEN a buffer of parts has `counts` elements for each rank, one part behind the other, and a buffer of
 * one part has ours. Those who have a buffer of parts give its counts; `count` is read where nobody gives any. All
 * members of an all_gather or reduce_scatter have the counts, so that a difference is a MISMATCH for all; in a gather,
 * scatter or all_to_all what one sends must be what the other expects. Who cannot be sure of the group's size says with
 * `expected_epoch` which one the counts are for: those of another are not read.
 *
 * Sends from one rank to another with one tag are received in the order of their calls, others in any order. As in MPI,
 * a send goes to the receive that was called first of those that fit it. Of the senders that a receive of any source
 * finds waiting, the one that has waited longest is taken, then the next. Where the view's shape has no link between
 * the two, both end with UNSUPPORTED. A receive of any source that nothing came for ends with TIMEOUT alone; any other
 * timeout stops the epoch. */
typedef struct pccl_call {
    pccl_collective collective;
    pccl_dtype dtype;
    pccl_reduce_op op;
    pccl_algorithm algorithm; /* AUTO, or a wish: where the view's shape lacks links that it needs, AUTO is taken.
                                 pccl_info tells */
    uint32_t root;            /* a rank; of send and recv, the other one's */
    uint32_t flags;
    uint64_t count;
    uint64_t tag; /* operations of one tag are matched in call order */
    const void *input;
    void *output;
    const uint64_t *input_counts, *output_counts; /* UNEVEN: [size], by rank; copied */
    const pccl_tensor *tensors;                   /* all_reduce: instead of `count`, `input` and `output`; else NULL */
    uint32_t tensors_count;
    uint64_t scope; /* 0: the whole group; else a pccl_scope_of: who calls. Not of send, recv and commit */
    uint64_t
        expected_epoch;  /* 0: any; else the call fails with PEER_LOST when another epoch runs it. A scope needs one */
    uint32_t timeout_ms; /* as operation_timeout_ms; 0: the engine's */
    int32_t priority;    /* PCCL_PRIORITY_MIN to MAX, 0 is ordinary: what is higher goes first over every link, as soon
                            as what the kernel holds already has gone. Changes no result. Members need not agree,
                            but each decides only about what it sends itself */
    uint64_t token;
    double factor; /* PREMUL_SUM: of our own contribution; members need not agree on it. The input stays as it is */
    /* EXACT, or what goes over the links, equal on all members: of all_reduce, reduce, reduce_scatter, all_gather,
     * all_to_all and broadcast. All end with the same bits, also who sends: what it has is what it sent. (What an
     * all_to_all leaves with its own rank stays exact.) A value that no code exists for ends the operation on all
     * members with QUANTIZATION, unless `propagate` is set. */
    pccl_quantization quantization;
    /* With a format, or NULL on all members: as long as the input (of a broadcast, as the root's), of all tensors
     * behind one another; may overlap neither input nor output. When the operation has succeeded, what encoding took
     * here: the value less what it was sent as, of each element that this rank sent or completed the sum of, else 0.
     * Over all ranks these add up to what the sum lacks, and who adds them to its next input has them made good. Of an
     * AVG they are those of its sum, of a PREMUL_SUM those of the scaled input. Undefined after a failure. */
    float *errors;
    /* Called once when the operation has ended, by whichever thread ended it, which may be the one that starts it. That
     * thread holds the engine's lock: it must not block, nor call anything here but pccl_done. Never after
     * pccl_operation_free has returned for an operation that had ended, nor where pccl_start or pccl_run fail without
     * an operation, nor in a forked child. NULL: nobody is called. */
    void (*ended)(void *context);
    void *context;
} pccl_call;

typedef struct pccl_info {
    uint64_t epoch;
    uint32_t world_size;
    uint32_t rank;
    pccl_algorithm algorithm;
    uint64_t tx_bytes; /* payload this peer sent and received for the operation */
    uint64_t rx_bytes;
    uint32_t peer; /* send and recv: the other one's rank; else 0 */
} pccl_info;

/* Starts an operation; never waits for others. Errors: INVALID, TOO_FEW_PEERS, NO_MEMORY, CLOSED, and what
 * pccl_engine_halt set. While an epoch is frozen, an operation whose tag has none open waits for the next
 * epoch; one behind an open operation of its tag shares that one's epoch and so is aborted with it. If no view comes,
 * either ends with TIMEOUT by its own timeout, and what was called behind it ends with it. */
pccl_status pccl_start(pccl_engine *engine, const pccl_call *call, pccl_operation **operation, pccl_error *error);

/* Waits until the operation has ended and gives its outcome; drives the engine meanwhile. timeout_ms < 0
 * waits without a limit of its own (the operation's no-progress timeout still holds). PENDING: not ended
 * yet, still running. May be called again; then it answers at once. */
pccl_status pccl_wait(pccl_operation *operation, int64_t timeout_ms, pccl_info *info, pccl_error *error);

/* pccl_start and pccl_wait in one, for callers that have nothing to do meanwhile: the calling thread drives from
 * start to end, nobody else is woken. Errors as both; when PENDING (out of time) the operation is in `*operation` and
 * goes on, else that is NULL. */
pccl_status pccl_run(pccl_engine *engine, const pccl_call *call, int64_t timeout_ms, pccl_operation **operation,
                     pccl_info *info, pccl_error *error);

/* When a change of epoch ends an operation, later calls of its tag (deferred ones: of any tag, and the commit) end with
 * PEER_LOST too, until the caller has seen such a failure: from pccl_wait, pccl_run, or by giving the handle back. Else
 * a call that was made in ignorance would take the number of a retry. The same when a call found no memory to begin.
 * For callers that fetch outcomes in the background (PCCL_HOLD_TAG) this function says that the user has seen a failure
 * of `tag` that has `epoch` in its error. What later epochs have failed since is not seen by that. */
void pccl_release_tag(pccl_engine *engine, uint64_t tag, uint64_t epoch);

/* The same for all tags: the user knows of every failure that the ends of epochs up to `epoch` have brought, and makes
 * all calls anew; a step that one of these broke is forgotten. */
void pccl_release_tags(pccl_engine *engine, uint64_t epoch);

/* What it is, how long it has run and whom it waits for, as text; for errors of waits that ran out of time. */
void pccl_describe(pccl_operation *operation, char *text, size_t text_bytes);

/* Somebody sleeps until it has ended: what PCCL_NOTIFY announces is announced at once. */
void pccl_prompt(pccl_operation *operation);

/* 1 once it has ended, else 0; never blocks. */
int pccl_done(pccl_operation *operation);

/* Gives the handle back. An operation that has not ended goes on; its buffers stay borrowed until its
 * end (PCCL_NOTIFY tells, or pccl_engine_free makes one). NULL is allowed. */
void pccl_operation_free(pccl_operation *operation);

/* Which algorithm would run now for this call, as text "ring: ..." with the reason. Errors: INVALID. */
pccl_status pccl_explain(pccl_engine *engine, const pccl_call *call, char *text, size_t text_bytes, pccl_error *error);

/* ---------------------------------------------------------------- flight recorder */

enum {
    PCCL_RECORD_OPERATIONS = 1000, /* that have ended, kept per engine */
    PCCL_RECORD_NOTES = 256,       /* events, and details of operations that failed or stalled */
    PCCL_RECORD_WAITS = 8,
    PCCL_RECORD_TEXT = 256
};

typedef enum pccl_record_kind {
    PCCL_RECORD_OPERATION = 1, /* ended at `at_ns`, or still open: PENDING, `at_ns` 0. `peer`: whose bytes came last */
    PCCL_RECORD_EPOCH = 2,     /* a view was installed; `status` and `text`: why the epoch before it ended */
    PCCL_RECORD_FROZEN = 3,    /* the epoch stopped; `peer` is the suspect, all zero for none */
    PCCL_RECORD_HALTED = 4,    /* everything stopped */
    PCCL_RECORD_LINK_UP = 5,   /* the first bytes came over a link to `peer` */
    PCCL_RECORD_LINK_DOWN = 6, /* it broke: `text` says why */
    PCCL_RECORD_FETCH = 7,     /* a pccl_state_fetch from `peer` failed */
    PCCL_RECORD_LINK = 8       /* not an event: a link as it is now. `text` begins with what it goes through ("tcp",
                                  "shm") and a colon; `started_ns` is when bytes last came, 0 for never. `rtt_ns`
                                  and `bytes_per_s` are what is known of it, 0 for nothing */
} pccl_record_kind;

typedef struct pccl_record_wait {
    uint64_t heard_ns; /* when bytes last came from it; 0: never */
    uint32_t rank;
} pccl_record_wait;

/* All times are nanoseconds of CLOCK_MONOTONIC; 0: it never came to that. */
typedef struct pccl_record {
    pccl_record_kind kind;
    pccl_status status;
    uint64_t at_ns;
    uint64_t epoch;
    pccl_peer_id peer;
    uint32_t world_size;
    uint32_t rank; /* of an operation, EPOCH, HALTED: our own; else that of `peer` */
    /* Operations. */
    pccl_operation_name name;
    pccl_collective collective;
    pccl_dtype dtype;
    pccl_reduce_op op;
    pccl_algorithm algorithm; /* AUTO: it never began */
    uint8_t deferred;
    uint8_t absent;       /* `waits` had not started it; else it waited for them itself */
    uint32_t waits_count; /* whom it waited for when it stalled, failed or was read; the first few are in `waits` */
    pccl_record_wait waits[PCCL_RECORD_WAITS];
    uint64_t count, tx_bytes, rx_bytes;
    uint64_t called_ns, started_ns, data_done_ns;
    uint64_t rtt_ns, bytes_per_s;
    char text[PCCL_RECORD_TEXT]; /* why it failed; empty for success */
} pccl_record;

/* What the engine remembers: operations that have ended (oldest end first), open ones, events (oldest first), links.
 * Copies up to `capacity` records and returns how many there are. Holds the engine's lock for some 0.1 ms. Recording
 * costs an operation a few nanoseconds and is always on. */
size_t pccl_engine_trace(pccl_engine *engine, pccl_record *records, size_t capacity);

/* From now on signal `number` writes a byte of that value to `fd` (non-blocking, kept open by the caller), and then
 * calls the handler that was there before, if any. One signal per process: a second call takes the first one back, and
 * `number` 0 only does that. Not thread-safe. Errors: INVALID (a signal that cannot be handled). */
pccl_status pccl_signal_pipe(int number, int fd, pccl_error *error);

/* ---------------------------------------------------------------- bulk state transfer */

/* Memory that other members may read during one shared-state synchronisation. */
typedef struct pccl_region {
    const void *data;
    uint64_t bytes;
} pccl_region;

/* Serves `regions` under `sync_id` until pccl_state_stop; the memory is borrowed and must not change. A
 * second call for the same id is INVALID. */
pccl_status pccl_state_serve(pccl_engine *engine, uint64_t sync_id, const pccl_region *regions, uint32_t count,
                             pccl_error *error);
/* Ends the serving under `sync_id`, and this peer's own fetches under it with ABORTED. Afterwards none of the
 * memory given for them is touched. No effect on an id that is not known. */
void pccl_state_stop(pccl_engine *engine, uint64_t sync_id);

/* Reads bytes [offset, offset + bytes) of a region that `peer` serves (or will serve: it waits for that) into
 * `target`. At most 16 MiB at a time, and 4,096 at once. Ends with PEER_LOST when the link to `peer` breaks,
 * INVALID when the peer serves no such range, PROTOCOL when it sends something else, TIMEOUT. Not tied to an epoch:
 * view changes do not disturb it while `peer` stays a member. pccl_wait works as for other operations. */
pccl_status pccl_state_fetch(pccl_engine *engine, uint64_t sync_id, pccl_peer_id peer, uint32_t region, uint64_t offset,
                             uint64_t bytes, void *target, uint32_t timeout_ms, pccl_operation **operation,
                             pccl_error *error);

/* XXH3, 128 bits, canonical (big-endian) byte order. https://github.com/Cyan4973/xxHash */
void pccl_hash128(const void *data, size_t bytes, uint8_t digest[16]);

#ifndef PCCL_CFFI
#ifdef __cplusplus
}
#endif
#endif
#endif
