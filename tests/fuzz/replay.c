/* SPDX-License-Identifier: MIT
 *
 * replay.c - runs a fuzz target without libFuzzer: on files, or on random bytes from seeds.
 *
 *     fuzz_TARGET FILE...
 *     fuzz_TARGET --seeds COUNT [FIRST]
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "shared_fuzz.h"

enum { INPUT_BYTES = 64 * 1024, RANDOM_BYTES = 600 };

static uint8_t input[INPUT_BYTES];
static uint64_t running;

static void name_seed(void) { fprintf(stderr, "with --seeds 1 %" PRIu64 "\n", running); }

static void name_seed_of_abort(int signal_number) {
    (void)signal_number;
    name_seed();
}

/* There only in sanitized builds. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static int run_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    size_t bytes = fread(input, 1, sizeof input, file);
    fclose(file);
    return LLVMFuzzerTestOneInput(input, bytes);
}

/* Half of the inputs have many small bytes: most choices of a target are between a few. */
static void run_seed(uint64_t seed) {
    uint64_t random = running = seed;
    size_t bytes = prng_below(&random, RANDOM_BYTES);
    bool small = prng_below(&random, 2);
    for (size_t i = 0; i < bytes; i++) {
        uint64_t draw = prng_next(&random);
        input[i] = (uint8_t)(small && draw % 4 ? draw >> 8 & 7 : draw >> 8);
    }
    LLVMFuzzerTestOneInput(input, bytes);
}

int main(int count, char **arguments) {
    if (count < 2) {
        fprintf(stderr, "usage: %s FILE... | --seeds COUNT [FIRST]\n", arguments[0]);
        return 2;
    }
    if (strcmp(arguments[1], "--seeds") != 0) {
        for (int i = 1; i < count; i++)
            if (run_file(arguments[i])) return 1;
        printf("%d inputs\n", count - 1);
        return 0;
    }
    signal(SIGABRT, name_seed_of_abort);
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(name_seed);
    uint64_t seeds = count > 2 ? strtoull(arguments[2], NULL, 0) : 1000;
    uint64_t first = count > 3 ? strtoull(arguments[3], NULL, 0) : 1;
    for (uint64_t seed = first; seed < first + seeds; seed++) run_seed(seed);
    printf("%" PRIu64 " inputs from seed %" PRIu64 "\n", seeds, first);
    return 0;
}
