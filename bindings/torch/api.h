/* SPDX-License-Identifier: MIT
 *
 * api.h - the C API, through addresses that Python hands over once.
 *
 * One copy of the library, one state: csrc is linked into the Python extension, and this object calls it there.
 */
#ifndef PCCL_TORCH_API_H
#define PCCL_TORCH_API_H

#include "pccl.h"

namespace pccl_torch {

/* In the order in which Python gives the addresses. */
#define PCCL_TORCH_FUNCTIONS(FUNCTION)                                                                                 \
    FUNCTION(pccl_start)                                                                                               \
    FUNCTION(pccl_wait)                                                                                                \
    FUNCTION(pccl_run)                                                                                                 \
    FUNCTION(pccl_done)                                                                                                \
    FUNCTION(pccl_operation_free)                                                                                      \
    FUNCTION(pccl_describe)                                                                                            \
    FUNCTION(pccl_engine_halt)                                                                                         \
    FUNCTION(pccl_engine_freeze)                                                                                       \
    FUNCTION(pccl_hash128)                                                                                             \
    FUNCTION(pccl_status_string)

struct Api {
#define FIELD(name) decltype(&::name) name;
    PCCL_TORCH_FUNCTIONS(FIELD)
#undef FIELD
};

/* Set before any engine is known here, and never again. */
extern Api api;

} // namespace pccl_torch

#endif
