/* SPDX-License-Identifier: MIT
 *
 * tcp_socket.h - sockets as this transport wants them, and addresses. Nothing about what is said over them.
 */
#ifndef PCCL_CHANNEL_TCP_SOCKET_H
#define PCCL_CHANNEL_TCP_SOCKET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "pccl.h"

enum { TCP_TEXT_BYTES = 80 };

struct tcp_address {
    struct sockaddr_storage storage;
    socklen_t bytes;
    char text[TCP_TEXT_BYTES]; /* "127.0.0.1:4000", "[::1]:4000" */
};

/* `numeric` is IPv4 or IPv6, the latter with an optional %scope. False: it is neither. */
bool pccl__tcp_address_parse(struct tcp_address *address, const char *numeric, uint16_t port);
/* A listening socket, or -1 with errno. */
int pccl__tcp_socket_listen(const struct tcp_address *address);
uint16_t pccl__tcp_socket_port(int fd);
/* A socket that is connecting or connected, or -1 with errno. */
int pccl__tcp_socket_dial(const struct tcp_address *address);
/* The next incoming connection, or -1 with errno. */
int pccl__tcp_socket_accept(int listener);
/* The kernel gives a connection up when what was sent stays unanswered for 10 s, or for `ms` if that is longer. */
void pccl__tcp_socket_be_patient(int fd, uint64_t ms);
/* For a link within one host: bounds what the kernel holds between the two processes to what fits their caches.
 * Measured in docs/performance.md. */
void pccl__tcp_socket_stay_in_cache(int fd);
/* For long paths: the kernel takes little more than it can send, so that what is urgent need not wait behind megabytes
 * and every stripe takes only what it can carry. */
void pccl__tcp_socket_queue_little(int fd);
/* How a dial ended: 0 or the errno. */
int pccl__tcp_socket_error(int fd);

#endif
