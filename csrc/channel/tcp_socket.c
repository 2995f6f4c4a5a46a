/* SPDX-License-Identifier: MIT
 *
 * tcp_socket.c - socket options in one place.
 *
 * Buffer sizes are left to the kernel: fixing them would turn its autotuning off, which a fat long link needs.
 */
#include "channel/tcp_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A machine that vanished is noticed by unanswered data or probes after this time. It must exceed what a wireless or
 * transatlantic path needs to come back; stopped processes answer probes and are the heartbeat's business. */
enum { LOST_MS = 10000, PROBE_AFTER_S = 5, PROBE_EVERY_S = 1, PROBES = 5 };

/* Unsent bytes in the kernel, on long paths: enough that a connection does not run dry between two wake-ups (100 us at
 * 10 Gbit/s), and no more, since nothing overtakes them. */
enum { UNSENT_BYTES = 128 * 1024, LOCAL_QUEUE_BYTES = 128 * 1024 };

bool pccl__tcp_address_parse(struct tcp_address *address, const char *numeric, uint16_t port) {
    memset(address, 0, sizeof *address);
    struct sockaddr_in *v4 = (struct sockaddr_in *)&address->storage;
    if (inet_pton(AF_INET, numeric, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        address->bytes = sizeof *v4;
        snprintf(address->text, sizeof address->text, "%s:%u", numeric, port);
        return true;
    }
    char host[INET6_ADDRSTRLEN];
    const char *scope = strchr(numeric, '%');
    size_t length = scope ? (size_t)(scope - numeric) : strlen(numeric);
    if (length >= sizeof host) return false;
    memcpy(host, numeric, length);
    host[length] = 0;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address->storage;
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) != 1) return false;
    if (scope) {
        v6->sin6_scope_id = if_nametoindex(scope + 1);
        if (v6->sin6_scope_id == 0) v6->sin6_scope_id = (uint32_t)strtoul(scope + 1, NULL, 10);
        if (v6->sin6_scope_id == 0) return false;
    }
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    address->bytes = sizeof *v6;
    snprintf(address->text, sizeof address->text, "[%s]:%u", numeric, port);
    return true;
}

static void close_keeping_errno(int fd) {
    int saved = errno;
    close(fd);
    errno = saved;
}

#ifdef SOCK_CLOEXEC
static int socket_new(int family) { return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }
static int socket_accept(int listener) { return accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC); }
#else
static int with_flags(int fd) {
    if (fd < 0) return -1;
    int status = fcntl(fd, F_GETFL);
    if (status >= 0 && fcntl(fd, F_SETFL, status | O_NONBLOCK) >= 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) >= 0) return fd;
    close_keeping_errno(fd);
    return -1;
}

static int socket_new(int family) { return with_flags(socket(family, SOCK_STREAM, 0)); }
static int socket_accept(int listener) { return with_flags(accept(listener, NULL, NULL)); }
#endif

static void set_option(int fd, int level, int name, int value) {
    /* None of these is needed for correctness, and some systems lack some. */
    (void)setsockopt(fd, level, name, &value, sizeof value);
}

static void set_options(int fd) {
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
#ifdef TCP_KEEPIDLE
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, PROBE_AFTER_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, PROBE_EVERY_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, PROBES);
#endif
#ifdef TCP_USER_TIMEOUT
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, LOST_MS);
#endif
#ifdef SO_NOSIGPIPE
    set_option(fd, SOL_SOCKET, SO_NOSIGPIPE, 1);
#endif
}

int pccl__tcp_socket_listen(const struct tcp_address *address) {
    int fd = socket_new(address->storage.ss_family);
    if (fd < 0) return -1;
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (address->storage.ss_family == AF_INET6) set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    if (bind(fd, (const struct sockaddr *)&address->storage, address->bytes) < 0 || listen(fd, SOMAXCONN) < 0) {
        close_keeping_errno(fd);
        return -1;
    }
    return fd;
}

uint16_t pccl__tcp_socket_port(int fd) {
    struct sockaddr_storage storage;
    socklen_t bytes = sizeof storage;
    if (getsockname(fd, (struct sockaddr *)&storage, &bytes) < 0) return 0;
    if (storage.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)&storage)->sin6_port);
    return ntohs(((struct sockaddr_in *)&storage)->sin_port);
}

int pccl__tcp_socket_dial(const struct tcp_address *address) {
    int fd = socket_new(address->storage.ss_family);
    if (fd < 0) return -1;
    set_options(fd);
    if (connect(fd, (const struct sockaddr *)&address->storage, address->bytes) == 0 || errno == EINPROGRESS) return fd;
    close_keeping_errno(fd);
    return -1;
}

int pccl__tcp_socket_accept(int listener) {
    int fd = socket_accept(listener);
    if (fd >= 0) set_options(fd);
    return fd;
}

void pccl__tcp_socket_be_patient(int fd, uint64_t ms) {
#ifdef TCP_USER_TIMEOUT /* keepalive's probes heed it, too */
    if (ms > LOST_MS) set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, ms > INT_MAX ? INT_MAX : (int)ms);
#else
    (void)fd, (void)ms;
#endif
}

void pccl__tcp_socket_stay_in_cache(int fd) { set_option(fd, SOL_SOCKET, SO_SNDBUF, LOCAL_QUEUE_BYTES); }

void pccl__tcp_socket_queue_little(int fd) {
#ifdef TCP_NOTSENT_LOWAT
    set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_BYTES);
#else
    (void)fd;
#endif
}

int pccl__tcp_socket_error(int fd) {
    int error = 0;
    socklen_t bytes = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) < 0 ? errno : error;
}
