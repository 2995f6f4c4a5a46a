/* SPDX-License-Identifier: MIT
 *
 * status.c - strings of the status list, and the one way to fill a caller's pccl_error.
 */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const phrases[] = {
    [PCCL_OK] = "success",
    [PCCL_INVALID] = "invalid argument",
    [PCCL_NO_MEMORY] = "out of memory",
    [PCCL_SYSTEM] = "system call failed",
    [PCCL_TIMEOUT] = "timeout without progress",
    [PCCL_PEER_LOST] = "peer lost",
    [PCCL_MISMATCH] = "collective mismatch",
    [PCCL_CALL_MISMATCH] = "joint calls do not match",
    [PCCL_TOO_FEW_PEERS] = "too few peers",
    [PCCL_EXPELLED] = "expelled from the run",
    [PCCL_MASTER_LOST] = "master lost",
    [PCCL_ABORTED] = "aborted",
    [PCCL_PROTOCOL] = "protocol violated by the other side",
    [PCCL_UNSUPPORTED] = "unsupported",
    [PCCL_CLOSED] = "closed",
    [PCCL_STATE] = "shared state error",
    [PCCL_PENDING] = "still running",
    [PCCL_PEER_DIED] = "peer died",
    [PCCL_QUANTIZATION] = "cannot be quantized",
};

const char *pccl_status_string(pccl_status status) {
    size_t index = (size_t)status;
    return index < sizeof phrases / sizeof *phrases ? phrases[index] : "unknown status";
}

pccl_status pccl__fail(pccl_error *error, pccl_status status, const char *format, ...) {
    int saved = status == PCCL_SYSTEM ? errno : 0;
    if (!error) return status;
    error->status = status;
    error->system_errno = saved;
    error->epoch = 0;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    if (saved && length >= 0 && (size_t)length < sizeof error->message)
        snprintf(error->message + length, sizeof error->message - (size_t)length, ": %s", strerror(saved));
    return status;
}
