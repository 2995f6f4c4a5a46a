/* SPDX-License-Identifier: MIT
 *
 * rdma_port.c - see rdma_port.h.
 */
#include "channel/rdma_port.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"

void pccl__rdma_gid_of(const struct sockaddr_storage *address, uint8_t gid[VERBS_GID_BYTES]) {
    memset(gid, 0, VERBS_GID_BYTES);
    if (address->ss_family == AF_INET6) {
        memcpy(gid, &((const struct sockaddr_in6 *)address)->sin6_addr, VERBS_GID_BYTES);
    } else if (address->ss_family == AF_INET) {
        gid[10] = gid[11] = 0xff;
        memcpy(gid + 12, &((const struct sockaddr_in *)address)->sin_addr, 4);
    }
}

/* ---------------------------------------------------------------- GIDs */

static bool mapped_v4(const uint8_t *gid) {
    static const uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return memcmp(gid, prefix, sizeof prefix) == 0;
}

static bool link_local(const uint8_t *gid) { return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80; }

/* False: none at that index, or one of RoCE v1, which routers do not pass. Libraries that do not tell kinds list that
 * of an address after the one of v1. */
static bool read_gid(const struct rdma_port *port, int index, uint8_t *gid) {
    static const uint8_t none[VERBS_GID_BYTES];
    if (port->verbs.query_gid_ex) {
        struct verbs_gid entry = {0};
        if (port->verbs.query_gid_ex(port->context, port->number, (uint32_t)index, &entry, 0, sizeof entry))
            return false;
        if (port->layer == VERBS_ETHERNET && entry.type != VERBS_GID_ROCE_V2) return false;
        memcpy(gid, entry.bytes, sizeof entry.bytes);
    } else if (port->verbs.query_gid(port->context, port->number, index, gid)) {
        return false;
    }
    return memcmp(gid, none, sizeof none) != 0;
}

/* The GID of the link's own address; of a device that was named, else, any that may be routed, of the same family if
 * possible. */
static bool choose_gid(struct rdma_port *port, int count, const struct rdma_wish *wish) {
    uint8_t own[VERBS_GID_BYTES], gid[VERBS_GID_BYTES];
    pccl__rdma_gid_of(wish->local, own);
    int best = 0;
    for (int index = 0; index < count && index <= UINT8_MAX; index++) {
        if (!read_gid(port, index, gid)) continue;
        int fit = memcmp(gid, own, sizeof own) == 0 ? 4 : !wish->device ? 0 : link_local(gid) ? 1 : 2;
        if (fit == 2 && mapped_v4(gid) == mapped_v4(own)) fit = 3;
        if (fit < best || fit == 0 || (fit == best && port->verbs.query_gid_ex)) continue;
        best = fit;
        port->gid_index = (uint8_t)index;
        memcpy(port->gid, gid, sizeof gid);
    }
    return best > 0;
}

/* ---------------------------------------------------------------- InfiniBand */

/* Whose interface has this address? */
static bool interface_of(const struct sockaddr_storage *local, char name[RDMA_NAME_BYTES]) {
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) < 0) return false;
    uint8_t own[VERBS_GID_BYTES], other[VERBS_GID_BYTES];
    pccl__rdma_gid_of(local, own);
    bool found = false;
    for (const struct ifaddrs *each = all; each && !found; each = each->ifa_next) {
        if (!each->ifa_addr || each->ifa_addr->sa_family != local->ss_family) continue;
        struct sockaddr_storage address = {0};
        size_t bytes = local->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        memcpy(&address, each->ifa_addr, bytes);
        pccl__rdma_gid_of(&address, other);
        found = memcmp(own, other, sizeof own) == 0;
        if (found) snprintf(name, RDMA_NAME_BYTES, "%s", each->ifa_name);
    }
    freeifaddrs(all);
    return found;
}

/* Is it the interface of this port? The system counts an interface's port from 0. */
static bool leads_there(const struct rdma_port *port, const struct sockaddr_storage *local) {
    char name[RDMA_NAME_BYTES], path[256];
    if (!interface_of(local, name)) return false;
    snprintf(path, sizeof path, "/sys/class/net/%s/device/infiniband/%s", name, port->device);
    if (access(path, F_OK) < 0) return false;
    snprintf(path, sizeof path, "/sys/class/net/%s/dev_port", name);
    FILE *file = fopen(path, "re");
    unsigned number = 0;
    bool told = file && fscanf(file, "%u", &number) == 1;
    if (file) fclose(file);
    return !told || number + 1 == port->number;
}

/* ---------------------------------------------------------------- devices */

static bool fits(struct rdma_port *port, const struct rdma_wish *wish) {
    struct verbs_port about = {0};
    if (port->verbs.query_port(port->context, port->number, &about) || about.state != VERBS_PORT_ACTIVE) return false;
    port->layer = about.layer;
    port->mtu = (uint8_t)about.mtu;
    port->lid = about.lid;
    if (about.layer == VERBS_ETHERNET) return choose_gid(port, about.gids, wish);
    port->layer = VERBS_INFINIBAND;
    if (!wish->device && !leads_there(port, wish->local)) return false;
    port->gid_index = 0;
    return read_gid(port, 0, port->gid);
}

/* The first of its ports that fits. */
static bool try_device(struct rdma_port *port, struct verbs_device *device, const struct rdma_wish *wish) {
    snprintf(port->device, sizeof port->device, "%s", port->verbs.get_device_name(device));
    if (wish->device && strcmp(wish->device, port->device) != 0) return false;
    port->context = port->verbs.open_device(device);
    if (!port->context) return false;
    struct verbs_limits limits = {0};
    int ports = port->verbs.query_device(port->context, &limits) == 0 ? limits.ports : 0;
    port->requests = (uint32_t)limits.requests;
    port->reads = (uint32_t)(limits.reads_out < limits.reads_in ? limits.reads_out : limits.reads_in);
    for (int number = 1; number <= ports; number++) {
        port->number = (uint8_t)number;
        if (fits(port, wish) && (port->domain = port->verbs.alloc_pd(port->context))) return true;
    }
    pccl__rdma_port_close(port);
    return false;
}

void pccl__rdma_port_close(struct rdma_port *port) {
    if (port->domain) port->verbs.dealloc_pd(port->domain);
    if (port->context) port->verbs.close_device(port->context);
    port->domain = NULL;
    port->context = NULL;
}

/* A system without devices is asked no further: to load the library takes a while. */
static bool system_has_devices(void) { return access("/sys/class/infiniband_verbs/abi_version", F_OK) == 0; }

bool pccl__rdma_port_open(struct rdma_port *port, const struct rdma_wish *wish, char why[RDMA_WHY_BYTES]) {
    *port = (struct rdma_port){0};
    char reason[VERBS_WHY_BYTES];
    if (!wish->library && !system_has_devices()) {
        snprintf(why, RDMA_WHY_BYTES, "this host has no RDMA device");
        return false;
    }
    if (!pccl__verbs_load(&port->verbs, wish->library, reason)) {
        snprintf(why, RDMA_WHY_BYTES, "the library libibverbs cannot be used: %s", reason);
        return false;
    }
    int count = 0;
    struct verbs_device **devices = port->verbs.get_device_list(&count);
    bool found = false;
    for (int i = 0; devices && i < count && !found; i++) found = try_device(port, devices[i], wish);
    if (devices) port->verbs.free_device_list(devices);
    if (found) return true;
    if (count == 0)
        snprintf(why, RDMA_WHY_BYTES, "this host has no RDMA device that libibverbs can use");
    else if (wish->device)
        snprintf(why, RDMA_WHY_BYTES, "the RDMA device \"%s\" is not there or has no active port", wish->device);
    else
        snprintf(why, RDMA_WHY_BYTES, "none of %d RDMA devices has an active port with this link's own address", count);
    return false;
}
