/* SPDX-License-Identifier: MIT
 *
 * tcp_path.h - what the kernel has measured of a connection's path. Only some kernels tell.
 */
#ifndef PCCL_CHANNEL_TCP_PATH_H
#define PCCL_CHANNEL_TCP_PATH_H

#include <stdint.h>

/* The shortest round trip of the last minutes. 0: this kernel does not tell, or nothing was sent yet. */
uint64_t pccl__tcp_path_rtt_ns(int fd);

#endif
