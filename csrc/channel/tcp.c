/* SPDX-License-Identifier: MIT
 *
 * tcp.c - the TCP transport: where channels come from. How the parts fit together is in tcp_channel.h.
 */
#include "channel/tcp.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/prng.h"
#include "base/status.h"
#include "channel/tcp_channel.h"

struct tcp_channel *pccl__tcp_find(struct tcp_transport *transport, const pccl_peer_id *peer) {
    for (struct list *node = transport->channels.next; node != &transport->channels; node = node->next) {
        struct tcp_channel *channel = LIST_ENTRY(node, struct tcp_channel, link);
        if (!channel->closed && memcmp(&channel->base.peer, peer, sizeof *peer) == 0) return channel;
    }
    return NULL;
}

static pccl_status open_channel(struct pccl__transport *base, const pccl_member *peer, struct pccl__channel **result) {
    struct tcp_transport *transport = tcp_transport_of(base);
    pccl_status status = pccl__tcp_channel_new(transport, peer, result);
    if (status != PCCL_OK) return status;
    struct tcp_channel *channel = tcp_channel_of(*result);
    do {
        channel->instance = prng_next(&transport->instances);
    } while (channel->instance == 0);
    list_push_back(&transport->channels, &channel->link);
    return PCCL_OK;
}

static void progress(struct pccl__transport *base, uint64_t now_ns) {
    pccl__tcp_listener_progress(tcp_transport_of(base), now_ns);
}

static void free_transport(struct pccl__transport *base) {
    struct tcp_transport *transport = tcp_transport_of(base);
    CHECK(list_empty(&transport->channels));
    pccl__tcp_listener_close(transport);
    pccl__tcp_fabric_end(transport);
    free(transport);
}

static const struct pccl__transport_ops operations = {
    .name = "tcp",
    .open = open_channel,
    .progress = progress,
    .look = pccl__tcp_medium_look,
    .guess = pccl__tcp_medium_guess,
    .free = free_transport,
};

/* Instances need only differ; where the system gives no random bytes, time and address do. */
static uint64_t random_seed(const void *address) {
    uint64_t seed = 0;
    if (getentropy(&seed, sizeof seed) == 0) return seed;
    return clock_now_ns() ^ (uint64_t)(uintptr_t)address;
}

pccl_status pccl__tcp_transport_new(const struct pccl__tcp_options *options, struct pccl__poll *poll,
                                    struct pccl__transport **result, pccl_error *error) {
    const char *listen_address = options->listen_address ? options->listen_address : "127.0.0.1";
    struct tcp_address address;
    if (!pccl__tcp_address_parse(&address, listen_address, options->listen_port))
        return pccl__fail(error, PCCL_INVALID, "\"%s\" is not a numeric IPv4 or IPv6 address", listen_address);
    struct tcp_transport *transport = calloc(1, sizeof *transport);
    if (!transport) return pccl__fail(error, PCCL_NO_MEMORY, "out of memory");
    transport->base.ops = &operations;
    transport->base.deadline_ns = NEVER_NS;
    transport->poll = poll;
    transport->id = options->id;
    memcpy(transport->secret, options->run_secret, sizeof transport->secret);
    transport->host_id = options->host_id;
    transport->stripes = options->stripes;
    transport->connect_timeout_ns = (options->connect_timeout_ms ? options->connect_timeout_ms : 10000) * NS_PER_MS;
    transport->checksum = options->checksum;
    transport->sharing = transport->pulling = !options->no_sharing;
    transport->process = (uint32_t)getpid();
    transport->ring_bytes = options->ring_bytes ? options->ring_bytes : TCP_RING_BYTES;
    transport->instances = random_seed(transport);
    for (int at = 0; at < SHM_PROOF_BYTES; at += 8)
        put_u64(transport->proof.bytes + at, prng_next(&transport->instances));
    transport->arena = options->arena;
    if (transport->arena) pccl__arena_prove(transport->arena, transport->proof.bytes);
    list_init(&transport->channels);
    list_init(&transport->rings);
    list_init(&transport->sockets);
    if (!pccl__tcp_fabric_begin(transport, options, &address.storage)) {
        (void)pccl__fail(error, PCCL_UNSUPPORTED, "RDMA is required, but %s", transport->fabric.why);
        free(transport);
        return PCCL_UNSUPPORTED;
    }
    pccl_status status = pccl__tcp_listener_open(transport, &address);
    if (status != PCCL_OK) {
        pccl__tcp_fabric_end(transport);
        free(transport);
        return pccl__fail(error, status, "cannot listen on %s", address.text);
    }
    *result = &transport->base;
    return PCCL_OK;
}

uint16_t pccl__tcp_transport_port(const struct pccl__transport *transport) {
    return pccl__tcp_socket_port(((const struct tcp_transport *)transport)->listener);
}
