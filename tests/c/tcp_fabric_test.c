/* SPDX-License-Identifier: MIT
 *
 * tcp_fabric_test.c - links whose bytes go over RDMA, as the library that stands in for libibverbs does it: the
 * conformance suite; agreeing, or going on without; a queue that fails; the last words of a peer that closed. With
 * --devices NAME NAME the suite alone, between two true devices of this host.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "shared_conform.h"
#include "shared_fake.h"
#include "shared_tcp.h"

static void test_conformance(uint32_t stripes, uint32_t ring_bytes, int thoroughness) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = stripes, .ring_bytes = ring_bytes, .rdma = true};
    struct pair_driver driver = tcp_driver(&setup);
    uint64_t before = fake_find()->written_bytes;
    expectations += conform_run(&driver, stripes, thoroughness);
    EXPECT(fake_find()->written_bytes > before, "it went that way");
    fake_expect_clean();
}

/* A device that is slow, tells late and shows nothing now and then. */
static void test_slow_device(void) {
    struct fake_verbs *fake = fake_find();
    fake->requests_a_poll = 1;
    fake->polls_between = 3;
    fake->partial = 4;
    test_conformance(2, 64 * 1024, CONFORM_QUICK);
    fake->requests_a_poll = fake->polls_between = fake->partial = 0;
}

static void no_fault(struct tcp_transport *transport, int end) { (void)transport, (void)end; }
static void one_is_off(struct tcp_transport *transport, int end) {
    if (end == 0) transport->fabric.mode = TCP_RDMA_OFF;
}
static void other_is_off(struct tcp_transport *transport, int end) {
    if (end == 1) transport->fabric.mode = TCP_RDMA_OFF;
}
static void no_library(struct tcp_transport *transport, int end) {
    if (end == 0) transport->fabric.library = "/nowhere/libibverbs.so";
}
static void no_device(struct tcp_transport *transport, int end) {
    if (end == 1) transport->fabric.device = "fake9";
}
static void little_memory(struct tcp_transport *transport, int end) {
    (void)transport, (void)end;
    fake_find()->lock_bytes = 3 * TCP_RING_BYTES; /* enough for one end */
}
static void no_queue(struct tcp_transport *transport, int end) {
    (void)transport, (void)end;
    fake_find()->refuse_pairs = 4;
}
static void no_path(struct tcp_transport *transport, int end) {
    (void)transport, (void)end;
    fake_find()->refuse_connects = 1;
}
static void other_layer(struct tcp_transport *transport, int end) {
    if (end == 0) transport->fabric.device = "fake2";
}

/* Whoever lacks something gets a link over sockets, at both ends, and says what that is. */
static void test_agreement(void (*fault)(struct tcp_transport *, int end), const char *words) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 1, .rdma = true};
    struct pair_driver driver = tcp_driver(&setup);
    for (int swapped = 0; swapped < 2; swapped++) {
        setup.swapped = swapped;
        struct pair pair;
        int descriptors = tcp_count_descriptors();
        pair_new(&pair, &driver, 1, true);
        for (int end = 0; end < 2; end++)
            fault(tcp_transport_of(((struct tcp_world *)pair.state)->transports[end]), end);
        pair_settle(&pair);
        const char *told = NULL;
        for (int end = 0; end < 2; end++) {
            struct tcp_channel *channel = tcp_end(&pair, end);
            bool rdma = fault == no_fault;
            EXPECT(strcmp(channel->base.medium, rdma ? "rdma" : "tcp") == 0);
            EXPECT((channel->stripes[0]->medium.stream != NULL) == rdma);
            EXPECT(channel->transport->base.looks == rdma && channel->transport->base.sockets == !rdma);
            if (channel->transport->base.detour) told = channel->transport->base.detour;
        }
        EXPECT(words ? told && strstr(told, words) : !told, "%s", told);
        pair_free(&pair);
        EXPECT(tcp_count_descriptors() == descriptors);
        fake_find()->lock_bytes = 0;
        fake_find()->refuse_pairs = fake_find()->refuse_connects = 0;
        fake_expect_clean();
    }
}

/* Where it is required a link without it is broken, and says why. */
static void require(struct pair *pair, int end) {
    tcp_transport_of(((struct tcp_world *)pair->state)->transports[end])->fabric.mode = TCP_RDMA_REQUIRED;
}

static void test_required(void) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 1, .rdma = true};
    struct pair_driver driver = tcp_driver(&setup);
    for (int end = 0; end < 2; end++) {
        struct pair pair;
        pair_new(&pair, &driver, 1, true);
        tcp_transport_of(((struct tcp_world *)pair.state)->transports[!end])->fabric.mode = TCP_RDMA_OFF;
        require(&pair, end);
        struct parcel *send = pair_parcel(&pair, end, true, pair_key(&pair, 1), 100);
        EXPECT(pair_post(&pair, send) == PCCL_OK);
        while (!pair.ends[end].channel->broken) EXPECT(pair_step(&pair));
        EXPECT(strstr(pair.ends[end].channel->error.message, "RDMA is required"), "%s",
               pair.ends[end].channel->error.message);
        pair_free(&pair);
    }
    struct pccl__tcp_options options = {.rdma = TCP_RDMA_REQUIRED, .rdma_library = FAKE_VERBS, .rdma_device = "mlx5_7"};
    struct pccl__poll *poll;
    struct pccl__transport *transport;
    pccl_error error;
    EXPECT(pccl__poll_new(&poll) == PCCL_OK);
    EXPECT(pccl__tcp_transport_new(&options, poll, &transport, &error) == PCCL_UNSUPPORTED);
    EXPECT(strstr(error.message, "\"mlx5_7\""), "%s", error.message);
    options.rdma_device = NULL;
    EXPECT(pccl__tcp_transport_new(&options, poll, &transport, &error) == PCCL_OK);
    transport->ops->free(transport);
    pccl__poll_free(poll);
    fake_expect_clean();
}

/* A request that the device fails is the end of the link, for both sides. */
static void test_failed_request(uint64_t after, uint32_t status) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 1, .rdma = true};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pair_new(&pair, &driver, 1, true);
    pair_settle(&pair);
    struct parcel *recv = pair_recv(&pair, 1, pair_key(&pair, 1), 1000 * 1000);
    fake_find()->fail_after = fake_find()->requests + after;
    fake_find()->fail_status = status;
    struct parcel *send = pair_parcel(&pair, 0, true, recv->transfer.key, 1000 * 1000);
    EXPECT(pair_post(&pair, send) == PCCL_OK);
    pair_await(&pair, send, PCCL_PEER_LOST);
    pair_await(&pair, recv, PCCL_PEER_LOST);
    pair_free(&pair);
    fake_expect_clean();
}

/* What was sent before a peer closed arrives, however slow the device is. */
static void test_last_words(void) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 1, .rdma = true};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pair_new(&pair, &driver, 2, true);
    pair_settle(&pair);
    struct parcel *recv = pair_recv(&pair, 1, pair_key(&pair, 1), 1000);
    fake_find()->polls_between = 20;
    struct parcel *send = pair_parcel(&pair, 0, true, recv->transfer.key, 1000);
    EXPECT(pair_post(&pair, send) == PCCL_OK);
    pair_close(&pair, 0, PCCL_CLOSED);
    pair_await(&pair, recv, PCCL_OK);
    fake_find()->polls_between = 0;
    pair_free(&pair);
    fake_expect_clean();
}

static void test_devices(char **names) {
    struct tcp_setup setup = {.address = "127.0.0.1", .stripes = 1, .devices = {names[0], names[1]}};
    struct pair_driver driver = tcp_driver(&setup);
    struct pair pair;
    pair_new(&pair, &driver, 1, true);
    pair_settle(&pair);
    EXPECT(strcmp(pair.ends[0].channel->medium, "rdma") == 0, "%s", tcp_end(&pair, 0)->transport->base.detour);
    pair_free(&pair);
    expectations += conform_run(&driver, 1, CONFORM_QUICK);
    setup.ring_bytes = RDMA_RING_LEAST;
    expectations += conform_run(&driver, 2, CONFORM_QUICK);
}

int main(int count, char **arguments) {
    if (count == 4 && strcmp(arguments[1], "--devices") == 0) {
        test_devices(arguments + 2);
        FINISH();
    }
    test_conformance(1, RDMA_RING_LEAST, CONFORM_QUICK);
    test_conformance(1, 0, CONFORM_THOROUGH);
    test_conformance(3, 64 * 1024, CONFORM_QUICK);
    test_slow_device();
    test_agreement(no_fault, NULL);
    test_agreement(one_is_off, NULL);
    test_agreement(other_is_off, NULL);
    test_agreement(no_library, "/nowhere/libibverbs.so");
    test_agreement(no_device, "\"fake9\"");
    test_agreement(little_memory, "lock memory");
    test_agreement(no_queue, "make a queue");
    test_agreement(no_path, "cannot connect");
    test_agreement(other_layer, "cannot connect");
    test_required();
    for (uint64_t after = 0; after < 5; after++) test_failed_request(after, VERBS_RETRIES_EXCEEDED);
    test_failed_request(3, VERBS_FLUSHED);
    test_last_words();
    FINISH();
}
