/* SPDX-License-Identifier: MIT
 *
 * shared_tcp.h - drives a pair of ends (shared_pair.h) over TCP on the loopback device, or over shared memory between
 * dialled connections, both in this process.
 */
#ifndef PCCL_TESTS_SHARED_TCP_H
#define PCCL_TESTS_SHARED_TCP_H

#include "channel/tcp_channel.h"
#include "shared_pair.h"

struct tcp_setup {
    const char *address;
    uint32_t stripes;
    uint8_t checksum;
    uint32_t connect_timeout_ms; /* 0: 2000 */
    uint32_t ring_bytes;         /* 0: no shared memory */
    bool rdma;                   /* over the library that stands in for libibverbs, or else: */
    const char *devices[2];      /* over true devices, by name, one for each end */
    bool apart;                  /* as if on two hosts: checksums with `checksum` 0, short queues */
    bool swapped;                /* end 0 has the higher id */
    bool walled[2];              /* nobody can dial this end: its address leads to a closed port */
};

struct tcp_world {
    struct pccl__poll *poll;
    struct pccl__transport *transports[2];
    pccl_member members[2];
    int walls[2]; /* sockets that keep a closed port closed; -1 */
    uint32_t steps;
};

struct pair_driver tcp_driver(struct tcp_setup *setup);
/* Begins a pair whose end 1 is another process, which runs until it is killed: its id. The first transfer has come from
 * there. When it receives tcp_last_key (100 bytes), it sends tcp_word_key and ends. `together`: both processes have one
 * table of descriptors, so that none is closed when the other one ends. */
extern const struct pccl__key tcp_last_key, tcp_word_key;
pid_t tcp_fork_peer(struct pair *pair, struct pair_driver *driver, bool together);
struct tcp_channel *tcp_end(struct pair *pair, int end);
bool tcp_has_ipv6(void);
/* How many descriptors this process has open. */
int tcp_count_descriptors(void);
/* Prints latency and throughput of a channel between two processes, and of plain sockets. */
void tcp_bench(uint32_t stripes);

#endif
