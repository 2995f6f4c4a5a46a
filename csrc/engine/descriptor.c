/* SPDX-License-Identifier: MIT */
#include "engine/descriptor.h"

#include <stdio.h>
#include <string.h>

#include "base/bits.h"

/* Layout: collective u8, dtype u8, op u8, algorithm u8, root u32, count u64, size u32, deferred u32. */
struct pccl__stamp pccl__stamp_pack(const pccl_call *call, pccl_algorithm algorithm, uint32_t size) {
    struct pccl__stamp stamp = {{0}};
    uint8_t *b = stamp.bytes;
    bool reduces = call->collective == PCCL_ALL_REDUCE || call->collective == PCCL_REDUCE_SCATTER;
    bool has_data = call->collective != PCCL_BARRIER && call->collective != PCCL_COMMIT;
    b[0] = (uint8_t)call->collective;
    b[1] = has_data ? (uint8_t)call->dtype : 0;
    b[2] = reduces ? (uint8_t)call->op : 0;
    b[3] = (uint8_t)algorithm;
    put_u32(b + 4, call->collective == PCCL_BROADCAST ? call->root : 0);
    put_u64(b + 8, has_data ? call->count : 0);
    put_u32(b + 16, size);
    put_u32(b + 20, call->flags & PCCL_DEFERRED ? 1 : 0);
    return stamp;
}

void pccl__stamp_text(const struct pccl__stamp *stamp, char text[PCCL__DESCRIPTOR_TEXT]) {
    const uint8_t *b = stamp->bytes;
    pccl_collective collective = (pccl_collective)b[0];
    const char *commit = get_u32(b + 20) ? ", commit=deferred" : "";
    if (collective == PCCL_BARRIER || collective == PCCL_COMMIT) {
        snprintf(text, PCCL__DESCRIPTOR_TEXT, "%s()", pccl_collective_name(collective));
        return;
    }
    char detail[48] = "";
    if (collective == PCCL_ALL_REDUCE || collective == PCCL_REDUCE_SCATTER)
        snprintf(detail, sizeof detail, ", op=%s", pccl_reduce_op_name((pccl_reduce_op)b[2]));
    else if (collective == PCCL_BROADCAST)
        snprintf(detail, sizeof detail, ", root=%u", get_u32(b + 4));
    snprintf(text, PCCL__DESCRIPTOR_TEXT, "%s(%s[%llu]%s, algorithm=%s%s)", pccl_collective_name(collective),
             pccl_dtype_name((pccl_dtype)b[1]), (unsigned long long)get_u64(b + 8), detail,
             pccl_algorithm_name((pccl_algorithm)b[3]), commit);
}

uint64_t pccl__stamp_fingerprint(const struct pccl__stamp *stamp) {
    uint8_t digest[16];
    pccl_hash128(stamp->bytes, sizeof stamp->bytes, digest);
    return get_u64(digest);
}

bool pccl__stamp_equal(const struct pccl__stamp *a, const struct pccl__stamp *b) {
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}
