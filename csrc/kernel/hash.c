/* SPDX-License-Identifier: MIT
 *
 * hash.c - content hashes of shared state.
 */
#define XXH_INLINE_ALL
#include <xxhash/xxhash.h>

#include "pccl.h"

void pccl_hash128(const void *data, size_t bytes, uint8_t digest[16]) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, bytes));
    memcpy(digest, canonical.digest, sizeof canonical.digest);
}
