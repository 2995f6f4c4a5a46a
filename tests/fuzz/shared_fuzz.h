/* SPDX-License-Identifier: MIT
 *
 * shared_fuzz.h - reads a fuzzer's bytes as a program: small choices, one byte each. Past the end everything is 0.
 */
#ifndef PCCL_TESTS_SHARED_FUZZ_H
#define PCCL_TESTS_SHARED_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fuzz_input {
    const uint8_t *data;
    size_t left;
};

static inline uint32_t fuzz_byte(struct fuzz_input *input) {
    if (input->left == 0) return 0;
    input->left--;
    return *input->data++;
}

/* 0..bound-1 */
static inline uint32_t fuzz_pick(struct fuzz_input *input, uint32_t bound) { return fuzz_byte(input) % bound; }

static inline uint32_t fuzz_u32(struct fuzz_input *input) {
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) value = value << 8 | fuzz_byte(input);
    return value;
}

/* libFuzzer's entry. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#endif
