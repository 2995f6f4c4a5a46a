/* SPDX-License-Identifier: MIT */
#include "engine/prices.h"

#include <stdio.h>

/* A latency that was measured is that of the path. Who waits at its end must be woken, too, and that is all that a
 * round through shared memory takes. */
enum { WAKING_NS = 15000 };

/* Where nothing was measured. Inside: shared memory, by the tables of all_reduce in docs/performance.md; a byte has its
 * arithmetic with it. Peers with a core each are quicker at all of it. Between: a local network of 10 Gbit/s, and what
 * a frame costs who sends it through the kernel. */
static const pccl_price inside = {.latency_ns = 3000, .transfer_ns = 2000, .bytes_per_s = 2000000000};
static const pccl_price between = {.latency_ns = 250000, .transfer_ns = 3000, .bytes_per_s = 1000000000};

static pccl_price known(pccl_price measured, pccl_price assumed) {
    if (measured.latency_ns) assumed.latency_ns = measured.latency_ns + WAKING_NS;
    if (measured.transfer_ns) assumed.transfer_ns = measured.transfer_ns;
    if (measured.bytes_per_s) assumed.bytes_per_s = measured.bytes_per_s;
    return assumed;
}

static struct pccl__link_model model(pccl_price price) {
    return (struct pccl__link_model){.latency_ns = (double)price.latency_ns,
                                     .overhead_ns = (double)price.transfer_ns,
                                     .bytes_per_ns = (double)price.bytes_per_s / 1e9};
}

struct pccl__link_models pccl__prices_models(const pccl_prices *prices, bool one_host) {
    struct pccl__link_model here = model(known(prices->inside, inside));
    return (struct pccl__link_models){.inside = here,
                                      .between = one_host ? here : model(known(prices->between, between))};
}

/* " (measured)" where latency and bandwidth are, " (assumed)" where neither is. */
static int price_text(pccl_price price, pccl_price assumed, const char *where, char *text, size_t text_bytes) {
    bool latency = price.latency_ns, bandwidth = price.bytes_per_s;
    const char *how = latency && bandwidth ? "measured"
                      : latency            ? "latency measured"
                      : bandwidth          ? "bandwidth measured"
                                           : "assumed";
    price = known(price, assumed);
    char delay[32];
    pccl__duration_text((double)price.latency_ns, delay, sizeof delay);
    return snprintf(text, text_bytes, "%s and %.3g GB/s %s (%s)", delay, (double)price.bytes_per_s / 1e9, where, how);
}

void pccl__prices_text(const pccl_prices *prices, bool one_host, char *text, size_t text_bytes) {
    int used = price_text(prices->inside, inside, one_host ? "a link" : "inside a host", text, text_bytes);
    if (one_host || used < 0 || (size_t)used + 2 >= text_bytes) return;
    text[used++] = ',';
    text[used++] = ' ';
    price_text(prices->between, between, "between hosts", text + used, text_bytes - (size_t)used);
}
