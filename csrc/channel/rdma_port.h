/* SPDX-License-Identifier: MIT
 *
 * rdma_port.h - which port of which RDMA device leads where a link goes, opened.
 *
 * Must not know: links, queues. The idea: a link's TCP connection shows the way. On Ethernet (RoCE) a port has the
 * addresses of its network interface for GIDs, so the one with the connection's own address is the port, and of its
 * GIDs that of RoCE v2. On InfiniBand an address belongs to an interface (IPoIB), and the system says whose that is. A
 * device that is asked for by name need not have the address.
 */
#ifndef PCCL_CHANNEL_RDMA_PORT_H
#define PCCL_CHANNEL_RDMA_PORT_H

#include <sys/socket.h>

#include "channel/verbs.h"

enum { RDMA_NAME_BYTES = 64, RDMA_WHY_BYTES = 200 };

struct rdma_port {
    struct verbs verbs;
    struct verbs_context *context; /* NULL: not open */
    struct verbs_domain *domain;
    char device[RDMA_NAME_BYTES];
    uint8_t number, gid_index, layer, mtu; /* of the port; mtu as in verbs.h */
    uint8_t gid[VERBS_GID_BYTES];
    uint16_t lid;
    uint32_t requests, reads; /* of one queue: that wait at a time; reads: that are under way */
};

/* How a port is looked for. */
struct rdma_wish {
    const char *library;                  /* NULL: as the system finds it */
    const char *device;                   /* NULL: any */
    const struct sockaddr_storage *local; /* of the link, this side */
};

/* Opens the port that fits. May take milliseconds. False: `why` says what is missing; nothing is open. */
bool pccl__rdma_port_open(struct rdma_port *port, const struct rdma_wish *wish, char why[RDMA_WHY_BYTES]);
/* All that was made on it is gone. Harmless when it is not open. */
void pccl__rdma_port_close(struct rdma_port *port);
/* The GID that stands for an address: IPv4 mapped into IPv6. */
void pccl__rdma_gid_of(const struct sockaddr_storage *address, uint8_t gid[VERBS_GID_BYTES]);

#endif
