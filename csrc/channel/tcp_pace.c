/* SPDX-License-Identifier: MIT
 *
 * tcp_pace.c - see tcp_pace.h.
 */
#include "channel/tcp_pace.h"

#include "base/bits.h"

void pccl__tcp_pace_full(struct tcp_pace *pace, uint64_t now_ns) {
    if (pace->striding) {
        if (pace->bytes < TCP_PACE_STRIDE_BYTES) return;
        double took_ns = (double)max_u64(now_ns - pace->since_ns, 1);
        pace->bytes_per_s[pace->count++ % TCP_PACE_STRIDES] = (uint64_t)((double)pace->bytes * 1e9 / took_ns);
    }
    pace->striding = true;
    pace->since_ns = now_ns;
    pace->bytes = 0;
}

uint64_t pccl__tcp_pace_bytes_per_s(const struct tcp_pace *pace) {
    if (pace->count < TCP_PACE_ENOUGH) return 0;
    uint32_t kept = (uint32_t)min_u64(pace->count, TCP_PACE_STRIDES);
    uint64_t sorted[TCP_PACE_STRIDES];
    for (uint32_t i = 0; i < kept; i++) {
        uint32_t at = i;
        for (; at > 0 && sorted[at - 1] > pace->bytes_per_s[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = pace->bytes_per_s[i];
    }
    return sorted[(kept - 1) / 2];
}
