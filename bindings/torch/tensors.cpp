/* SPDX-License-Identifier: MIT */
#include "tensors.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>

#include "failure.h"

namespace pccl_torch {

namespace {

bool known(at::ScalarType type, pccl_dtype *dtype) {
    switch (type) {
    case at::kChar:
        *dtype = PCCL_INT8;
        return true;
    case at::kByte:
        *dtype = PCCL_UINT8;
        return true;
    case at::kShort:
        *dtype = PCCL_INT16;
        return true;
    case at::kUInt16:
        *dtype = PCCL_UINT16;
        return true;
    case at::kInt:
        *dtype = PCCL_INT32;
        return true;
    case at::kUInt32:
        *dtype = PCCL_UINT32;
        return true;
    case at::kLong:
        *dtype = PCCL_INT64;
        return true;
    case at::kUInt64:
        *dtype = PCCL_UINT64;
        return true;
    case at::kHalf:
        *dtype = PCCL_FLOAT16;
        return true;
    case at::kBFloat16:
        *dtype = PCCL_BFLOAT16;
        return true;
    case at::kFloat:
        *dtype = PCCL_FLOAT32;
        return true;
    case at::kDouble:
        *dtype = PCCL_FLOAT64;
        return true;
    case at::kBool:
        *dtype = PCCL_BOOL;
        return true;
    case at::kComplexFloat:
        *dtype = PCCL_COMPLEX64;
        return true;
    case at::kComplexDouble:
        *dtype = PCCL_COMPLEX128;
        return true;
    case at::kFloat8_e4m3fn:
        *dtype = PCCL_FLOAT8_E4M3FN;
        return true;
    case at::kFloat8_e5m2:
        *dtype = PCCL_FLOAT8_E5M2;
        return true;
    default:
        return false;
    }
}

bool bytes_only(pccl_dtype dtype) { return dtype == PCCL_FLOAT8_E4M3FN || dtype == PCCL_FLOAT8_E5M2; }

std::string text_of(at::ScalarType type) { return c10::toString(type); }

} // namespace

Kind kind_of(at::ScalarType type) {
    pccl_dtype dtype;
    if (known(type, &dtype)) return {dtype, 1};
    return {PCCL_UINT8, c10::elementSize(type)};
}

void check_reducible(const at::Tensor &tensor) {
    pccl_dtype dtype;
    if (!known(tensor.scalar_type(), &dtype) || bytes_only(dtype))
        fail_type("a tensor has dtype " + text_of(tensor.scalar_type()) + ", which can be moved but not reduced");
}

pccl_reduce_op reduction(const c10d::ReduceOp &op, double *factor) {
    switch (op.op_) {
    case c10d::ReduceOp::SUM:
        return PCCL_SUM;
    case c10d::ReduceOp::AVG:
        return PCCL_AVG;
    case c10d::ReduceOp::PRODUCT:
        return PCCL_PROD;
    case c10d::ReduceOp::MIN:
        return PCCL_MIN;
    case c10d::ReduceOp::MAX:
        return PCCL_MAX;
    case c10d::ReduceOp::BAND:
        return PCCL_BAND;
    case c10d::ReduceOp::BOR:
        return PCCL_BOR;
    case c10d::ReduceOp::BXOR:
        return PCCL_BXOR;
    case c10d::ReduceOp::PREMUL_SUM: {
        const auto *given = static_cast<const c10d::NCCLPreMulSumSupplement *>(op.supplement_.get());
        if (!given) fail(PCCL_INVALID, "PREMUL_SUM has no factor");
        *factor = given->tensor_factor.defined() ? given->tensor_factor.item<double>() : given->double_factor;
        return PCCL_PREMUL_SUM;
    }
    default:
        fail(PCCL_INVALID, "there is no reduction " + std::to_string(static_cast<int>(op.op_)));
    }
}

bool is_plain(const at::Tensor &tensor, const char *name) {
    if (!tensor.defined()) fail(PCCL_INVALID, std::string(name) + " is no tensor");
    if (tensor.layout() != at::kStrided || tensor.is_quantized() || tensor.is_nested())
        fail(PCCL_INVALID, std::string(name) + " is not a plain dense tensor");
    if (tensor.is_meta()) fail(PCCL_INVALID, std::string(name) + " is a meta tensor, which has no memory");
    return tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_neg() && !tensor.is_conj();
}

at::Tensor source(const at::Tensor &tensor, const char *name) {
    if (is_plain(tensor, name)) return tensor;
    return tensor.detach().resolve_conj().resolve_neg().to(at::kCPU).contiguous();
}

void check_target(const at::Tensor &tensor, const char *name) {
    if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes)
        fail(PCCL_INVALID,
             std::string(name) + " has elements that share memory (it was expanded), but would be written to");
}

void check_alike(const at::Tensor &output, const at::Tensor &input) {
    if (output.scalar_type() != input.scalar_type())
        fail(PCCL_INVALID, "the input has dtype " + text_of(input.scalar_type()) + " and the output " +
                               text_of(output.scalar_type()));
}

void check_one_dtype(const std::vector<at::Tensor> &tensors, const char *name) {
    for (size_t i = 0; i < tensors.size(); i++)
        if (tensors[i].scalar_type() != tensors[0].scalar_type())
            fail(PCCL_INVALID, std::string(name) + "[" + std::to_string(i) + "] has dtype " +
                                   text_of(tensors[i].scalar_type()) + " and the first one " +
                                   text_of(tensors[0].scalar_type()));
}

bool same_counts(const std::vector<uint64_t> &counts) {
    for (uint64_t count : counts)
        if (count != counts[0]) return false;
    return true;
}

bool adjoin(const std::vector<at::Tensor> &tensors) {
    const char *next = nullptr;
    for (const at::Tensor &tensor : tensors) {
        if (tensor.numel() == 0) continue;
        const char *here = static_cast<const char *>(tensor.const_data_ptr());
        if (!is_plain(tensor, "a tensor") || !tensor.is_alias_of(tensors[0]) || (next && here != next)) return false;
        next = here + tensor.nbytes();
    }
    return true;
}

} // namespace pccl_torch
