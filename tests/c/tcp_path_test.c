/* SPDX-License-Identifier: MIT
 *
 * tcp_path_test.c - over loopback there is a round trip, and a bandwidth once much was sent; where there is no
 * connection there is neither.
 */
#include "channel/tcp_path.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

enum { PIECE = 1 << 16, PIECES = 256 };

static void connect_pair(int *client, int *server) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 1) == 0);
    EXPECT(getsockname(listener, (struct sockaddr *)&address, &bytes) == 0);
    *client = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT(connect(*client, (struct sockaddr *)&address, sizeof address) == 0);
    *server = accept(listener, NULL, NULL);
    EXPECT(*server >= 0);
    close(listener);
}

static void of_a_connection(void) {
    static char piece[PIECE];
    struct tcp_path path;
    int client, server;
    connect_pair(&client, &server);
    for (int i = 0; i < PIECES; i++) {
        EXPECT(send(client, piece, PIECE, 0) == PIECE);
        EXPECT(recv(server, piece, PIECE, MSG_WAITALL) == PIECE);
    }
    if (pccl__tcp_path_measure(client, &path)) {
        EXPECT(path.rtt_ns >= 1000 && path.rtt_ns < UINT64_C(10000000000), "%llu", (unsigned long long)path.rtt_ns);
        EXPECT(path.bytes_per_s == 0 || path.bytes_per_s > 1000, "%llu", (unsigned long long)path.bytes_per_s);
    }
    close(client);
    close(server);
}

static void of_nothing(void) {
    struct tcp_path path;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT(!pccl__tcp_path_measure(fd, &path), "not connected");
    close(fd);
    EXPECT(!pccl__tcp_path_measure(fd, &path), "closed");
}

int main(void) {
    of_a_connection();
    of_nothing();
    FINISH();
}
