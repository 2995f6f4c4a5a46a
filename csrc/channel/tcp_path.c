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

uint64_t pccl__tcp_path_rtt_ns(int fd) {
    struct tcp_info info;
    memset(&info, 0, sizeof info);
    socklen_t bytes = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) < 0) return 0;
    if (bytes < offsetof(struct tcp_info, tcpi_min_rtt) + sizeof info.tcpi_min_rtt) return 0;
    return info.tcpi_min_rtt == UINT32_MAX ? 0 : info.tcpi_min_rtt * UINT64_C(1000); /* the former is: unknown */
}
#else
uint64_t pccl__tcp_path_rtt_ns(int fd) {
    (void)fd;
    return 0;
}
#endif
