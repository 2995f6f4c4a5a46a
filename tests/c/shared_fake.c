/* SPDX-License-Identifier: MIT
 *
 * shared_fake.c - see shared_fake.h.
 */
#include "shared_fake.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <string.h>

#include "check.h"

struct fake_verbs *fake_find(void) {
    static struct fake_verbs *fake;
    if (fake) return fake;
    void *library = dlopen(FAKE_VERBS, RTLD_NOW);
    EXPECT(library, "%s", dlerror());
    void *found = dlsym(library, "fake_verbs");
    EXPECT(found, "%s", dlerror());
    struct fake_verbs *(*find)(void);
    memcpy(&find, &found, sizeof find);
    return fake = find();
}

void fake_port(struct rdma_port *port) {
    struct sockaddr_storage local = {.ss_family = AF_INET};
    ((struct sockaddr_in *)&local)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct rdma_wish wish = {.library = FAKE_VERBS, .local = &local};
    char why[RDMA_WHY_BYTES];
    EXPECT(pccl__rdma_port_open(port, &wish, why), "%s", why);
}

void fake_streams(struct rdma_port *port, struct rdma_stream ends[2], uint64_t ring_bytes, uint64_t other_bytes) {
    const char *why;
    struct rdma_offer offers[2];
    for (int end = 0; end < 2; end++) {
        EXPECT(pccl__rdma_stream_open(&ends[end], port, end ? other_bytes : ring_bytes, 77, &why) == 0, "%s", why);
        pccl__rdma_stream_offer(&ends[end], &offers[end]);
    }
    for (int end = 0; end < 2; end++) EXPECT(pccl__rdma_stream_connect(&ends[end], &offers[!end]) == 0);
}

void fake_expect_clean(void) {
    const struct fake_verbs *fake = fake_find();
    EXPECT(!fake->contexts && !fake->domains && !fake->pairs && !fake->memories);
    EXPECT(!fake->completions && !fake->channels && !fake->locked_bytes);
    EXPECT(fake->not_ready == 0, "no note without a place");
    EXPECT(fake->fail_status == 0 && !fake->lock_bytes && !fake->refuse_pairs && !fake->refuse_connects);
}
