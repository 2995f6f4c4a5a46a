/* SPDX-License-Identifier: MIT
 *
 * tcp_path_test.c - over loopback there is a round trip; where there is no connection there is none.
 */
#include "channel/tcp_path.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

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
    char byte = 'x';
    int client, server;
    connect_pair(&client, &server);
    for (int i = 0; i < 100; i++) EXPECT(send(client, &byte, 1, 0) == 1 && recv(server, &byte, 1, 0) == 1);
    uint64_t rtt_ns = pccl__tcp_path_rtt_ns(client);
#ifdef __linux__
    EXPECT(rtt_ns >= 1000, "%llu: the kernel counts microseconds", (unsigned long long)rtt_ns);
#endif
    EXPECT(rtt_ns < UINT64_C(10000000000), "%llu", (unsigned long long)rtt_ns);
    close(client);
    close(server);
}

static void of_nothing(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT(pccl__tcp_path_rtt_ns(fd) == 0, "not connected");
    close(fd);
    EXPECT(pccl__tcp_path_rtt_ns(fd) == 0, "closed");
}

int main(void) {
    of_a_connection();
    of_nothing();
    FINISH();
}
