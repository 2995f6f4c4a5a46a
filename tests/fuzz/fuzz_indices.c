/* SPDX-License-Identifier: MIT
 *
 * fuzz_indices.c - whatever bytes come: they are refused, or are sorted indices that survive encoding.
 *
 * The first bytes say how many indices are expected and below what; the rest is what a peer sent.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "pccl_sparse.h"
#include "shared_fuzz.h"

enum { MOST = 700 };

static void survives(const uint64_t *indices, uint64_t count, uint64_t length) {
    uint64_t again[MOST], bytes, room = pccl_indices_bytes(count, length);
    uint8_t *wire = malloc(room + 1);
    CHECK(wire);
    CHECK(pccl_indices_encode(indices, count, length, wire, &bytes, NULL) == PCCL_OK && bytes <= room);
    CHECK(pccl_indices_decode(wire, bytes, length, again, count, NULL) == PCCL_OK);
    CHECK(memcmp(indices, again, count * sizeof *again) == 0);
    free(wire);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct fuzz_input input = {data, bytes};
    uint64_t indices[MOST + 1], count = fuzz_pick(&input, 6) ? fuzz_byte(&input) % 40u : fuzz_u32(&input) % (MOST + 1);
    uint64_t length = (UINT64_C(1) << fuzz_pick(&input, 58)) + fuzz_byte(&input);
    uint8_t *exact = malloc(input.left + 1); /* sanitizers see what is read beyond */
    CHECK(exact);
    if (input.left) memcpy(exact, input.data, input.left);
    indices[count] = 0xa5;
    pccl_status status = pccl_indices_decode(exact, input.left, length, indices, count, NULL);
    free(exact);
    CHECK(indices[count] == 0xa5);
    if (length > PCCL_INDICES_LENGTH_MAX) CHECK(status == PCCL_INVALID);
    if (status != PCCL_OK) return 0;
    for (uint64_t i = 0; i < count; i++) CHECK(indices[i] < length && (i == 0 || indices[i] > indices[i - 1]));
    survives(indices, count, length);
    return 0;
}
