/* SPDX-License-Identifier: MIT
 *
 * check.h - all that the C tests need: EXPECT ends the program with the place and the values; a test program prints
 * how many expectations held.
 */
#ifndef PCCL_TESTS_CHECK_H
#define PCCL_TESTS_CHECK_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned long expectations;

#define EXPECT(condition, ...)                                                                                         \
    do {                                                                                                               \
        __atomic_fetch_add(&expectations, 1, __ATOMIC_RELAXED); /* threads expect too */                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: EXPECT(%s) failed:", __FILE__, __LINE__, #condition);                              \
            fprintf(stderr, " " __VA_ARGS__);                                                                          \
            fprintf(stderr, "\n");                                                                                     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* For the end of main. A test that expected nothing has failed. */
#define FINISH()                                                                                                       \
    do {                                                                                                               \
        printf("%lu expectations held\n", expectations);                                                               \
        return expectations ? 0 : 1;                                                                                   \
    } while (0)

#endif
