/* SPDX-License-Identifier: MIT
 *
 * status.h - filling a caller's pccl_error.
 */
#ifndef PCCL_BASE_STATUS_H
#define PCCL_BASE_STATUS_H

#include "pccl.h"

/* Returns `status`, so that `return pccl__fail(error, PCCL_INVALID, "count %d ...", n);` is one line. For PCCL_SYSTEM
 * errno is stored and its text appended. `error` may be NULL. */
pccl_status pccl__fail(pccl_error *error, pccl_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
