/* SPDX-License-Identifier: MIT
 *
 * check.h - CHECK stays on in release: our own bugs crash. No peer, wire, disk or allocator may reach one.
 */
#ifndef PCCL_BASE_CHECK_H
#define PCCL_BASE_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (__builtin_expect(!(condition), 0)) {                                                                       \
            fprintf(stderr, "pccl: %s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#ifdef NDEBUG
#define DCHECK(condition) ((void)sizeof(condition))
#else
#define DCHECK(condition) CHECK(condition)
#endif

#endif
