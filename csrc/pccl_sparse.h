/* SPDX-License-Identifier: MIT
 *
 * pccl_sparse.h - the public interface for vectors of `length` elements of which few are given: by sorted, distinct
 * indices below `length`. Conventions are those of pccl.h. The functions here are pure: memory is the caller's, nothing
 * is kept, nothing waits.
 */
#ifndef PCCL_SPARSE_H
#define PCCL_SPARSE_H

#ifndef PCCL_CFFI
#include "pccl.h"
#ifdef __cplusplus
extern "C" {
#endif
#endif

enum { PCCL_INDICES_LENGTH_BITS = 56 };
#define PCCL_INDICES_LENGTH_MAX 0x100000000000000u

/* The most that `count` such indices take when they are encoded; both within 2^56. */
uint64_t pccl_indices_bytes(uint64_t count, uint64_t length);

/* Writes `indices` to `wire`, which has room for pccl_indices_bytes: `*bytes` of it. Indices that are spread evenly
 * take 11.7 bits each where one in a thousand is given, 8.3 of one in a hundred, 4.9 of one in ten, 2.1 of every second
 * one; those that stand together take less. Errors: INVALID (not sorted, not distinct, not below `length`, or that is
 * more than 2^56); `wire` holds anything then. */
pccl_status pccl_indices_encode(const uint64_t *indices, uint64_t count, uint64_t length, void *wire, uint64_t *bytes,
                                pccl_error *error);

/* The inverse, of exactly `bytes` bytes. Whatever these are: what is returned with PCCL_OK is sorted, distinct and
 * below `length`. Errors: PROTOCOL (they are no `count` such indices; `indices` holds anything then), INVALID (`length`
 * is more than 2^56). */
pccl_status pccl_indices_decode(const void *wire, uint64_t bytes, uint64_t length, uint64_t *indices, uint64_t count,
                                pccl_error *error);

/* The indices of one such vector, and a value for each. */
typedef struct pccl_sparse {
    const uint64_t *indices;
    const void *values; /* at any address */
    uint64_t count;
} pccl_sparse;

/* Adds up vectors: writes all indices of any of them, sorted, and for each the sum of its values, in the order of
 * `vectors`. Floats add up as in an all_reduce, but 16-bit ones in float32 with one rounding at the end. `indices` and
 * `values` have room for `capacity` entries, which as many as all vectors have together, or `length`, are enough for;
 * `*count` are written. Errors: INVALID (a dtype other than integers and floats of 16 bits and more, too little room,
 * indices that are not sorted and distinct), NO_MEMORY (some 130 KiB); the output holds anything then. */
pccl_status pccl_sparse_sum(pccl_dtype dtype, const pccl_sparse *vectors, uint32_t vectors_count, uint64_t *indices,
                            void *values, uint64_t capacity, uint64_t *count, pccl_error *error);

#ifndef PCCL_CFFI
#ifdef __cplusplus
}
#endif
#endif
#endif
