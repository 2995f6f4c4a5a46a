/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "base/prng.h"
#include "check.h"
#include "kernel/kernel.h"

enum { MOST = 1000, ROOM = MOST + 256 };

int main(void) {
    static uint8_t source[ROOM], target[ROOM], expected[ROOM];
    uint64_t random = 1;
    for (size_t i = 0; i < ROOM; i++) source[i] = (uint8_t)prng_next(&random);
    for (size_t bytes = 0; bytes <= MOST; bytes++) {
        for (int trial = 0; trial < 20; trial++) {
            size_t from = prng_below(&random, 128), to = prng_below(&random, 128);
            memset(target, 0xa5, ROOM);
            memset(expected, 0xa5, ROOM);
            memcpy(expected + to, source + from, bytes);
            pccl__copy_stream(target + to, source + from, bytes);
            EXPECT(memcmp(target, expected, ROOM) == 0, "%zu bytes from %zu to %zu", bytes, from, to);
        }
    }
    FINISH();
}
