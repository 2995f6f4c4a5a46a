/* SPDX-License-Identifier: MIT
 *
 * verbs.h - the part of libibverbs' binary interface that is used here, and how the library is found at run time.
 *
 * Must not know: who talks to whom. Building needs no header of the library, and running needs no library: where there
 * is none, loading says so and RDMA is off. The structs below are laid out as the interface says (it has been stable
 * since version 1.1); what is not used of them has a name that says no more than its place, or is left out at the end.
 */
#ifndef PCCL_CHANNEL_VERBS_H
#define PCCL_CHANNEL_VERBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VERBS_WHY_BYTES = 120 };

struct verbs_device; /* opaque here */

struct verbs_context;
struct verbs_channel {
    struct verbs_context *context;
    int fd;
    int references;
};
struct verbs_domain {
    struct verbs_context *context;
    uint32_t handle;
};
struct verbs_memory {
    struct verbs_context *context;
    struct verbs_domain *domain;
    void *at;
    size_t bytes;
    uint32_t handle, local_key, remote_key;
};
struct verbs_completions {
    struct verbs_context *context;
    struct verbs_channel *channel;
    void *owner;
    uint32_t handle;
    int entries;
};
struct verbs_pair {
    struct verbs_context *context;
    void *owner;
    struct verbs_domain *domain;
    struct verbs_completions *sends, *receives;
    void *shared_receives;
    uint32_t handle, number;
    uint32_t state, type;
};

enum verbs_opcode { VERBS_WRITE = 0, VERBS_WRITE_NOTED = 1, VERBS_READ = 4 };
enum verbs_send_flag { VERBS_FENCE = 1, VERBS_SIGNALED = 2, VERBS_INLINE = 8 };
enum verbs_access { VERBS_LOCAL_WRITE = 1, VERBS_REMOTE_WRITE = 2, VERBS_REMOTE_READ = 4 };

struct verbs_piece {
    uint64_t at;
    uint32_t bytes;
    uint32_t local_key;
};
struct verbs_send {
    uint64_t id;
    struct verbs_send *next;
    struct verbs_piece *pieces;
    int pieces_count;
    uint32_t opcode, flags;
    uint32_t note; /* big-endian */
    uint64_t remote_at;
    uint32_t remote_key;
    uint64_t others[9];
};
struct verbs_receive {
    uint64_t id;
    struct verbs_receive *next;
    struct verbs_piece *pieces;
    int pieces_count;
};

enum verbs_status { VERBS_OK = 0, VERBS_FLUSHED = 5, VERBS_RETRIES_EXCEEDED = 12, VERBS_NOT_READY_EXCEEDED = 13 };
enum { VERBS_COMPLETED_RECEIVE = 128 /* set in `opcode` of what a receive completed with */ };
struct verbs_completion {
    uint64_t id;
    uint32_t status, opcode, vendor_error, bytes;
    uint32_t note; /* big-endian */
    uint32_t pair, source_pair, flags;
    uint16_t key_index, source_lid;
    uint8_t service, path_bits;
};

enum verbs_layer { VERBS_INFINIBAND = 1, VERBS_ETHERNET = 2 };
enum { VERBS_PORT_ACTIVE = 4, VERBS_GID_BYTES = 16, VERBS_GID_ROCE_V2 = 2 };
struct verbs_port {
    uint32_t state, most_mtu, mtu; /* mtu: 1 is 256 bytes, each step doubles it */
    int gids;
    uint32_t capabilities, message_most, bad_keys, bad_queue_keys;
    uint16_t keys, lid, manager_lid;
    uint8_t lid_mask, lanes, service, timeout, reply, width, speed, physical, layer, flags;
    uint16_t capabilities2;
    uint8_t spare[64]; /* newer libraries may tell more */
};
struct verbs_gid {
    uint8_t bytes[VERBS_GID_BYTES];
    uint32_t index, port, type, interface;
};
struct verbs_limits {
    char firmware[64];
    uint64_t node, system, memory_most, page_sizes;
    uint32_t vendor, part, version;
    int pairs, requests;
    uint32_t capabilities;
    int pieces, read_pieces, completions, entries, memories, domains, reads_in, others, resources, reads_out;
    int rest[16];
    uint16_t keys;
    uint8_t delay, ports;
    uint8_t spare[64];
};

struct verbs_capacities {
    uint32_t sends, receives, send_pieces, receive_pieces, inline_bytes;
};
enum { VERBS_RELIABLE = 2 };
struct verbs_pair_options {
    void *owner;
    struct verbs_completions *sends, *receives;
    void *shared_receives;
    struct verbs_capacities capacities;
    uint32_t type;
    int signal_all;
};
struct verbs_path {
    _Alignas(8) uint8_t gid[VERBS_GID_BYTES];
    uint32_t flow;
    uint8_t gid_index, hops, traffic_class;
    uint16_t lid;
    uint8_t service, path_bits, rate, global, port;
};
enum verbs_pair_state { VERBS_RESET = 0, VERBS_INIT = 1, VERBS_MAY_RECEIVE = 2, VERBS_MAY_SEND = 3, VERBS_ERROR = 6 };
enum verbs_attribute {
    VERBS_SET_STATE = 1 << 0,
    VERBS_SET_ACCESS = 1 << 3,
    VERBS_SET_KEY_INDEX = 1 << 4,
    VERBS_SET_PORT = 1 << 5,
    VERBS_SET_PATH = 1 << 7,
    VERBS_SET_MTU = 1 << 8,
    VERBS_SET_TIMEOUT = 1 << 9,
    VERBS_SET_RETRIES = 1 << 10,
    VERBS_SET_NOT_READY_RETRIES = 1 << 11,
    VERBS_SET_RECEIVE_START = 1 << 12,
    VERBS_SET_READS_OUT = 1 << 13,
    VERBS_SET_NOT_READY_TIMER = 1 << 15,
    VERBS_SET_SEND_START = 1 << 16,
    VERBS_SET_READS_IN = 1 << 17,
    VERBS_SET_TARGET = 1 << 20
};
struct verbs_pair_attributes {
    uint32_t state, current_state, mtu, migration, queue_key, receive_start, send_start, target;
    uint32_t access;
    struct verbs_capacities capacities;
    struct verbs_path path, other_path;
    uint16_t key_index, other_key_index;
    uint8_t notify, draining, reads_out, reads_in, not_ready_timer, port, timeout, retries, not_ready_retries;
    uint8_t other_port, other_timeout;
    uint32_t rate;
};

/* A context's own functions; `unused` are places of others. */
struct verbs_context {
    struct verbs_device *device;
    struct {
        void *unused[11];
        int (*poll)(struct verbs_completions *, int most, struct verbs_completion *);
        int (*arm)(struct verbs_completions *, int solicited_only);
        void *unused2[12];
        int (*send)(struct verbs_pair *, struct verbs_send *, struct verbs_send **bad);
        int (*receive)(struct verbs_pair *, struct verbs_receive *, struct verbs_receive **bad);
        void *unused3[5];
    } own;
    int command_fd, event_fd, vectors;
};

/* The library's functions by the names that are looked up: the sole list of what is needed. */
#define VERBS_FUNCTIONS(X)                                                                                             \
    X(struct verbs_device **, get_device_list, (int *count))                                                           \
    X(void, free_device_list, (struct verbs_device * *list))                                                           \
    X(const char *, get_device_name, (struct verbs_device * device))                                                   \
    X(struct verbs_context *, open_device, (struct verbs_device * device))                                             \
    X(int, close_device, (struct verbs_context * context))                                                             \
    X(int, query_device, (struct verbs_context * context, struct verbs_limits * limits))                               \
    X(int, query_port, (struct verbs_context * context, uint8_t port, struct verbs_port * attributes))                 \
    X(int, query_gid, (struct verbs_context * context, uint8_t port, int index, uint8_t *gid))                         \
    X(struct verbs_domain *, alloc_pd, (struct verbs_context * context))                                               \
    X(int, dealloc_pd, (struct verbs_domain * domain))                                                                 \
    X(struct verbs_memory *, reg_mr, (struct verbs_domain * domain, void *at, size_t bytes, int access))               \
    X(int, dereg_mr, (struct verbs_memory * memory))                                                                   \
    X(struct verbs_channel *, create_comp_channel, (struct verbs_context * context))                                   \
    X(int, destroy_comp_channel, (struct verbs_channel * channel))                                                     \
    X(struct verbs_completions *, create_cq,                                                                           \
      (struct verbs_context * context, int entries, void *owner, struct verbs_channel *channel, int vector))           \
    X(int, destroy_cq, (struct verbs_completions * completions))                                                       \
    X(int, get_cq_event, (struct verbs_channel * channel, struct verbs_completions * *completions, void **owner))      \
    X(void, ack_cq_events, (struct verbs_completions * completions, unsigned count))                                   \
    X(struct verbs_pair *, create_qp, (struct verbs_domain * domain, struct verbs_pair_options * options))             \
    X(int, modify_qp, (struct verbs_pair * pair, struct verbs_pair_attributes * attributes, int mask))                 \
    X(int, destroy_qp, (struct verbs_pair * pair))

struct verbs {
#define X(type, name, arguments) type(*name) arguments;
    VERBS_FUNCTIONS(X)
#undef X
    /* Since version 30; NULL in older ones. `flags` is 0, `bytes` the size of the entry. */
    int (*query_gid_ex)(struct verbs_context *, uint32_t port, uint32_t index, struct verbs_gid *, uint32_t flags,
                        size_t bytes);
};

/* Looks the library up under `path` (NULL: where the system finds it). It stays loaded for good, as what it loads
 * itself must. May take milliseconds. False: `why` says why not. */
bool pccl__verbs_load(struct verbs *verbs, const char *path, char why[VERBS_WHY_BYTES]);

#endif
