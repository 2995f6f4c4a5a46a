/* SPDX-License-Identifier: MIT
 *
 * tensors.h - torch's tensors as the engine takes them: dense, contiguous, on the CPU, of a dtype that it knows.
 *
 * The same rules as pccl/torch/tensors.py: what does not fit is staged, and refused where that would be wrong. What is
 * only moved may be of any dtype: it goes as bytes.
 */
#ifndef PCCL_TORCH_TENSORS_H
#define PCCL_TORCH_TENSORS_H

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "api.h"

namespace pccl_torch {

/* What the engine counts for a tensor. */
struct Kind {
    pccl_dtype dtype;
    uint64_t unit; /* its elements for one of the tensor's */

    uint64_t count(const at::Tensor &tensor) const { return static_cast<uint64_t>(tensor.numel()) * unit; }
};

Kind kind_of(at::ScalarType type);
/* Throws a TypeError unless there is arithmetic for it. */
void check_reducible(const at::Tensor &tensor);
pccl_reduce_op reduction(const c10d::ReduceOp &op, double *factor);

/* Has it memory that the engine can read and write as it is? Throws for what has none at all. */
bool is_plain(const at::Tensor &tensor, const char *name);
/* What a plain copy of it can be read from. */
at::Tensor source(const at::Tensor &tensor, const char *name);
/* Throws where writing to it beside and copying would be wrong. */
void check_target(const at::Tensor &tensor, const char *name);
void check_alike(const at::Tensor &output, const at::Tensor &input);
void check_one_dtype(const std::vector<at::Tensor> &tensors, const char *name);
bool same_counts(const std::vector<uint64_t> &counts);
/* Do they lie one behind the other, in one piece of memory? */
bool adjoin(const std::vector<at::Tensor> &tensors);

} // namespace pccl_torch

#endif
