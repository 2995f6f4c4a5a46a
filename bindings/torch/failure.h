/* SPDX-License-Identifier: MIT
 *
 * failure.h - outcomes of the C API as the exceptions that torch hands on to Python.
 *
 * The text begins as pccl/torch/errors.py wants it, which finds the typed error again by it.
 */
#ifndef PCCL_TORCH_FAILURE_H
#define PCCL_TORCH_FAILURE_H

#include <exception>
#include <string>

#include "api.h"

namespace pccl_torch {

/* Wrong arguments become a ValueError, what cannot be done a NotImplementedError, all else a DistBackendError. */
std::exception_ptr failure(pccl_status status, const std::string &text);
[[noreturn]] void fail(pccl_status status, const std::string &text);
/* A dtype for which there is no arithmetic: a TypeError. */
[[noreturn]] void fail_type(const std::string &text);

} // namespace pccl_torch

#endif
