/* SPDX-License-Identifier: MIT
 *
 * tcp_path.c - Linux has it in TCP_INFO. In a file of its own: its header and <netinet/tcp.h> exclude each other.
 */
#include "channel/tcp_path.h"

#if defined(__linux__)
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

/* The kernel knows no round trip yet. */
static const uint32_t UNKNOWN_US = UINT32_MAX;

bool pccl__tcp_path_measure(int fd, struct tcp_path *path) {
    struct tcp_info info;
    memset(&info, 0, sizeof info);
    socklen_t bytes = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) < 0) return false;
    if (bytes < offsetof(struct tcp_info, tcpi_delivery_rate) + sizeof info.tcpi_delivery_rate) return false;
    if (info.tcpi_min_rtt == 0 || info.tcpi_min_rtt == UNKNOWN_US) return false;
    bool bulk = !info.tcpi_delivery_rate_app_limited;
    *path = (struct tcp_path){.rtt_ns = info.tcpi_min_rtt * UINT64_C(1000),
                              .bytes_per_s = bulk ? info.tcpi_delivery_rate : 0};
    return true;
}
#else
bool pccl__tcp_path_measure(int fd, struct tcp_path *path) {
    (void)fd, (void)path;
    return false;
}
#endif
