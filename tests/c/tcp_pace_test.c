/* SPDX-License-Identifier: MIT
 *
 * tcp_pace_test.c - many strides tell a pace, few do not, and neither pauses nor bursts change it.
 */
#include "channel/tcp_pace.h"

#include "base/clock.h"
#include "check.h"

enum { BYTES = TCP_PACE_STRIDE_BYTES };

/* `count` times: full, `bytes` go within `took_ns`, and full again. */
static void stride(struct tcp_pace *pace, uint64_t *now_ns, uint32_t count, uint64_t bytes, uint64_t took_ns) {
    for (uint32_t i = 0; i < count; i++) {
        pccl__tcp_pace_took(pace, bytes);
        pccl__tcp_pace_full(pace, *now_ns += took_ns);
    }
}

static struct tcp_pace full_at(uint64_t now_ns) {
    struct tcp_pace pace = {0};
    pccl__tcp_pace_took(&pace, 5 * BYTES); /* into an empty socket: nobody knows how many of them left it */
    pccl__tcp_pace_full(&pace, now_ns);
    return pace;
}

static void a_few_strides_tell_nothing(void) {
    uint64_t now_ns = 77;
    struct tcp_pace pace = full_at(now_ns);
    stride(&pace, &now_ns, TCP_PACE_ENOUGH - 1, BYTES, NS_PER_MS);
    EXPECT(pccl__tcp_pace_bytes_per_s(&pace) == 0);
    stride(&pace, &now_ns, 1, BYTES, NS_PER_MS);
    EXPECT(pccl__tcp_pace_bytes_per_s(&pace) == BYTES * UINT64_C(1000));
}

static void pauses_and_bursts_do_not_count(void) {
    uint64_t now_ns = 77;
    struct tcp_pace pace = full_at(now_ns);
    for (uint32_t round = 0; round < 10; round++) {
        stride(&pace, &now_ns, 2, BYTES, 0);
        stride(&pace, &now_ns, 3, BYTES, NS_PER_MS);
        stride(&pace, &now_ns, 2, BYTES, 1000 * NS_PER_MS);
    }
    EXPECT(pccl__tcp_pace_bytes_per_s(&pace) == BYTES * UINT64_C(1000));
}

static void what_is_new_replaces_what_is_old(void) {
    uint64_t now_ns = 77;
    struct tcp_pace pace = full_at(now_ns);
    stride(&pace, &now_ns, 1000, BYTES, NS_PER_MS);
    stride(&pace, &now_ns, TCP_PACE_STRIDES, BYTES, 4 * NS_PER_MS);
    EXPECT(pccl__tcp_pace_bytes_per_s(&pace) == BYTES * UINT64_C(250));
}

/* What goes while there is not always more, goes as quickly as it comes. */
static void an_idle_socket_ends_a_stride(void) {
    uint64_t now_ns = 77;
    struct tcp_pace pace = full_at(now_ns);
    for (uint32_t i = 0; i < 3 * TCP_PACE_ENOUGH; i++) {
        pccl__tcp_pace_took(&pace, BYTES);
        pccl__tcp_pace_dry(&pace);
        pccl__tcp_pace_full(&pace, now_ns += 1000 * NS_PER_MS);
    }
    EXPECT(pccl__tcp_pace_bytes_per_s(&pace) == 0);
    stride(&pace, &now_ns, TCP_PACE_ENOUGH, BYTES, NS_PER_MS);
    EXPECT(pccl__tcp_pace_bytes_per_s(&pace) == BYTES * UINT64_C(1000));
}

static void short_strides_are_put_together(void) {
    uint64_t now_ns = 77;
    struct tcp_pace pace = full_at(now_ns);
    stride(&pace, &now_ns, 4 * TCP_PACE_ENOUGH, BYTES / 4, NS_PER_MS / 4);
    EXPECT(pccl__tcp_pace_bytes_per_s(&pace) == BYTES * UINT64_C(1000));
}

int main(void) {
    a_few_strides_tell_nothing();
    pauses_and_bursts_do_not_count();
    what_is_new_replaces_what_is_old();
    an_idle_socket_ends_a_stride();
    short_strides_are_put_together();
    FINISH();
}
