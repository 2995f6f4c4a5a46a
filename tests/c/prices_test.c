/* SPDX-License-Identifier: MIT
 *
 * prices_test.c - what was measured counts, what was not is assumed, and the text tells which is which.
 */
#include "engine/prices.h"

#include <string.h>

#include "check.h"

static const char *text_of(pccl_prices prices, bool one_host) {
    static char text[200];
    pccl__prices_text(&prices, one_host, text, sizeof text);
    return text;
}

static void measured_counts(void) {
    const pccl_prices none = {{0}, {0}}, some = {.between = {.latency_ns = 30000000, .bytes_per_s = 12500000}};
    struct pccl__link_models assumed = pccl__prices_models(&none, false), models = pccl__prices_models(&some, false);
    EXPECT(models.between.latency_ns == 30e6 + 15e3 && models.between.bytes_per_ns == 0.0125, "and who waits is woken");
    EXPECT(models.between.overhead_ns == assumed.between.overhead_ns && assumed.between.overhead_ns > 0);
    EXPECT(memcmp(&models.inside, &assumed.inside, sizeof models.inside) == 0);
    EXPECT(assumed.inside.latency_ns < assumed.between.latency_ns && assumed.inside.bytes_per_ns > 0);
}

static void one_host_has_no_way_out(void) {
    const pccl_prices slow = {.between = {.latency_ns = 30000000, .transfer_ns = 1, .bytes_per_s = 1}};
    struct pccl__link_models models = pccl__prices_models(&slow, true);
    EXPECT(memcmp(&models.inside, &models.between, sizeof models.inside) == 0);
    EXPECT(!strstr(text_of(slow, true), "hosts"), "%s", text_of(slow, true));
}

static void says_what_it_knows(void) {
    pccl_prices prices = {.inside = {.latency_ns = 2000, .bytes_per_s = 4000000000}};
    EXPECT(strcmp(text_of(prices, true), "17 us and 4 GB/s a link (measured)") == 0, "%s", text_of(prices, true));
    prices.between.latency_ns = 30000000;
    const char *text = text_of(prices, false);
    EXPECT(strstr(text, "17 us and 4 GB/s inside a host (measured), 30 ms and ") == text &&
               strstr(text, " GB/s between hosts (latency measured)"),
           "%s", text);
    for (size_t bytes = 1; bytes < 100; bytes++) {
        char cut[100];
        memset(cut, 'x', sizeof cut);
        pccl__prices_text(&prices, false, cut, bytes);
        EXPECT(memchr(cut, '\0', bytes) && cut[bytes] == 'x');
    }
}

int main(void) {
    measured_counts();
    one_host_has_no_way_out();
    says_what_it_knows();
    FINISH();
}
