/* SPDX-License-Identifier: MIT
 *
 * tcp_test.c - the TCP channel passes the conformance suite, with one stripe and several, over IPv4 and IPv6. With
 * --bench [stripes] it measures instead.
 */
#include <string.h>

#include "check.h"
#include "shared_conform.h"
#include "shared_tcp.h"

static void test_conformance(const char *address, uint32_t stripes, bool apart) {
    struct tcp_setup setup = {.address = address, .stripes = stripes, .apart = apart};
    struct pair_driver driver = tcp_driver(&setup);
    expectations += conform_run(&driver, stripes, stripes == 4 ? CONFORM_THOROUGH : CONFORM_QUICK);
}

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "--bench") == 0) {
        tcp_bench(count > 2 ? (uint32_t)atoi(arguments[2]) : 0);
        return 0;
    }
    test_conformance("127.0.0.1", 1, false);
    test_conformance("127.0.0.1", 4, true);
    if (tcp_has_ipv6()) test_conformance("::1", 2, false);
    FINISH();
}
