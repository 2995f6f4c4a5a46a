/* SPDX-License-Identifier: MIT
 *
 * tcp_path.h - what the kernel has measured of a connection's path. Only some kernels tell.
 */
#ifndef PCCL_CHANNEL_TCP_PATH_H
#define PCCL_CHANNEL_TCP_PATH_H

#include <stdbool.h>
#include <stdint.h>

struct tcp_path {
    uint64_t rtt_ns;      /* the shortest round trip of the last minutes */
    uint64_t bytes_per_s; /* how quick the other side took what was sent, when there always was more to send; 0: there
                             seldom was */
};

/* False: this kernel does not tell, or nothing was sent yet. */
bool pccl__tcp_path_measure(int fd, struct tcp_path *path);

#endif
