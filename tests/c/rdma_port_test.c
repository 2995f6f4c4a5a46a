/* SPDX-License-Identifier: MIT
 *
 * rdma_port_test.c - the port that a link's own address stands for, a device by its name, and what is missing where
 * there is none.
 */
#include "channel/rdma_port.h"

#include <arpa/inet.h>
#include <string.h>

#include "channel/tcp_socket.h"
#include "check.h"
#include "shared_fake.h"

static bool try(struct rdma_port *port, const char *numeric, const char *device, char *why) {
    struct tcp_address address;
    EXPECT(pccl__tcp_address_parse(&address, numeric, 1));
    struct rdma_wish wish = {.library = FAKE_VERBS, .device = device, .local = &address.storage};
    return pccl__rdma_port_open(port, &wish, why);
}

static void expect_port(const char *numeric, const char *device, const char *found, int gid_index) {
    struct rdma_port port;
    char why[RDMA_WHY_BYTES];
    EXPECT(try(&port, numeric, device, why), "%s", why);
    EXPECT(strcmp(port.device, found) == 0 && port.number == 1 && port.reads == 8);
    EXPECT(port.gid_index == gid_index, "%d", port.gid_index);
    pccl__rdma_port_close(&port);
    pccl__rdma_port_close(&port);
    fake_expect_clean();
}

static void expect_none(const char *numeric, const char *device, const char *words) {
    struct rdma_port port;
    char why[RDMA_WHY_BYTES];
    EXPECT(!try(&port, numeric, device, why) && strstr(why, words), "%s", why);
    EXPECT(!port.context && !port.domain);
    fake_expect_clean();
}

int main(void) {
    expect_port("127.0.0.1", NULL, "fake0", 3);
    expect_port("::1", NULL, "fake0", 5);
    expect_port("10.1.2.3", "fake0", "fake0", 3); /* of the same family rather than any */
    expect_port("fd00::1", "fake0", "fake0", 5);
    expect_port("10.1.2.3", "fake2", "fake2", 0);
    expect_none("10.1.2.3", NULL, "none of 3 RDMA devices");
    expect_none("127.0.0.1", "fake1", "\"fake1\"");
    expect_none("127.0.0.1", "mlx5_0", "\"mlx5_0\"");
    fake_find()->devices = 0;
    expect_none("127.0.0.1", NULL, "no RDMA device");
    fake_find()->devices = FAKE_DEVICES;
    FINISH();
}
