/* SPDX-License-Identifier: MIT */
#include "failure.h"

#include <c10/util/Exception.h>

namespace pccl_torch {

namespace {

/* As OVER in pccl/torch/errors.py. */
const char over[] = " - this process group has ended: destroy it and make another one (an elastic run: reconfigure)";

} // namespace

std::exception_ptr failure(pccl_status status, const std::string &text) {
    const c10::SourceLocation here{__func__, "pccl", 0};
    std::string whole = std::string("pccl: ") + api.pccl_status_string(status) + ": " + text;
    if (status == PCCL_PEER_LOST || status == PCCL_EXPELLED || status == PCCL_MASTER_LOST) whole += over;
    if (status == PCCL_INVALID) return std::make_exception_ptr(c10::ValueError(here, std::move(whole)));
    if (status == PCCL_UNSUPPORTED) return std::make_exception_ptr(c10::NotImplementedError(here, std::move(whole)));
    return std::make_exception_ptr(c10::DistBackendError(here, std::move(whole)));
}

void fail(pccl_status status, const std::string &text) { std::rethrow_exception(failure(status, text)); }

void fail_type(const std::string &text) {
    throw c10::TypeError(c10::SourceLocation{__func__, "pccl", 0},
                         std::string("pccl: ") + api.pccl_status_string(PCCL_INVALID) + ": " + text);
}

} // namespace pccl_torch
