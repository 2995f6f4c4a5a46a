/* SPDX-License-Identifier: MIT */
#include "named.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace pccl_torch {

namespace {

bool lazy(const at::Tensor &tensor) { return tensor.defined() && (tensor.is_neg() || tensor.is_conj()); }

bool lazy(const Tensors &tensors) {
    return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor &it) { return lazy(it); });
}

bool lazy(const std::vector<Tensors> &lists) {
    return std::any_of(lists.begin(), lists.end(), [](const Tensors &it) { return lazy(it); });
}

} // namespace

Named::Named(const c10::intrusive_ptr<c10d::Store> &store, c10::intrusive_ptr<Backend> backend)
    : c10d::ProcessGroup(store, backend->getRank(), backend->getSize()), backend_(std::move(backend)) {
    setBackend(c10::DeviceType::CPU, BackendType::CUSTOM, backend_);
    setBackend(c10::DeviceType::CUDA, BackendType::CUSTOM, backend_);
    setDefaultBackend(BackendType::CUSTOM);
}

Named::Named(c10d::ProcessGroup &plain, c10::intrusive_ptr<Backend> backend)
    : c10d::ProcessGroup(plain.getStore(), backend->getRank(), backend->getSize()), backend_(std::move(backend)) {
    for (c10::Device device : plain.getDeviceTypes()) setBackend(device.type(), BackendType::CUSTOM, backend_);
    setDefaultBackend(BackendType::CUSTOM);
    setGroupName(plain.getGroupName());
    setGroupDesc(plain.getGroupDesc());
}

/* Torch's own makes a plain group around a part of the backend. */
c10::intrusive_ptr<c10d::ProcessGroup>
Named::splitGroup(const std::vector<int> &ranks, const std::optional<std::chrono::milliseconds> &timeout,
                  const std::optional<c10::intrusive_ptr<c10d::Backend::Options>> &options,
                  const std::optional<std::string> &name, const std::optional<std::string> &description
#if PCCL_TORCH_SINCE_2_13
                  ,
                  const std::optional<std::vector<c10::Device>> &devices) {
    auto plain = Torch::splitGroup(ranks, timeout, options, name, description, devices);
#else
) {
    auto plain = Torch::splitGroup(ranks, timeout, options, name, description);
#endif
    if (!plain) return plain;
    auto part = c10::dynamic_intrusive_pointer_cast<Backend>(plain->getBackend(plain->getDeviceTypes().at(0).type()));
    if (!part) return plain;
    return c10::make_intrusive<Named>(*plain, std::move(part));
}

/* ---------------------------------------------------------------- what reduces */

WorkPointer Named::allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) {
    return lazy(tensors) ? backend_->allreduce(tensors, options) : Torch::allreduce(tensors, options);
}

WorkPointer Named::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options) {
    return lazy(tensors) ? backend_->allreduce_coalesced(tensors, options)
                         : Torch::allreduce_coalesced(tensors, options);
}

WorkPointer Named::reduce(Tensors &tensors, const c10d::ReduceOptions &options) {
    return lazy(tensors) ? backend_->reduce(tensors, options) : Torch::reduce(tensors, options);
}

WorkPointer Named::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                  const c10d::ReduceScatterOptions &options) {
    return lazy(outputs) ? backend_->reduce_scatter(outputs, inputs, options)
                         : Torch::reduce_scatter(outputs, inputs, options);
}

WorkPointer Named::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                        const c10d::ReduceScatterOptions &options) {
    return lazy(output) ? backend_->_reduce_scatter_base(output, input, options)
                        : Torch::_reduce_scatter_base(output, input, options);
}

WorkPointer Named::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                   const c10d::ReduceScatterOptions &options) {
    return lazy(outputs) ? backend_->reduce_scatter_tensor_coalesced(outputs, inputs, options)
                         : Torch::reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

/* ---------------------------------------------------------------- what moves */

WorkPointer Named::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) {
    return lazy(tensors) ? backend_->broadcast(tensors, options) : Torch::broadcast(tensors, options);
}

WorkPointer Named::allgather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &options) {
    return lazy(outputs) ? backend_->allgather(outputs, inputs, options) : Torch::allgather(outputs, inputs, options);
}

WorkPointer Named::_allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &options) {
    return lazy(output) ? backend_->_allgather_base(output, input, options)
                        : Torch::_allgather_base(output, input, options);
}

WorkPointer Named::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                       const c10d::AllgatherOptions &options) {
    return lazy(outputs) ? backend_->allgather_coalesced(outputs, inputs, options)
                         : Torch::allgather_coalesced(outputs, inputs, options);
}

WorkPointer Named::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                   const c10d::AllgatherOptions &options) {
    return lazy(outputs) ? backend_->allgather_into_tensor_coalesced(outputs, inputs, options)
                         : Torch::allgather_into_tensor_coalesced(outputs, inputs, options);
}

WorkPointer Named::gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &options) {
    return lazy(outputs) ? backend_->gather(outputs, inputs, options) : Torch::gather(outputs, inputs, options);
}

WorkPointer Named::scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &options) {
    return lazy(outputs) ? backend_->scatter(outputs, inputs, options) : Torch::scatter(outputs, inputs, options);
}

WorkPointer Named::alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                                 std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &options) {
    return lazy(output) ? backend_->alltoall_base(output, input, output_splits, input_splits, options)
                        : Torch::alltoall_base(output, input, output_splits, input_splits, options);
}

WorkPointer Named::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options) {
    return lazy(outputs) ? backend_->alltoall(outputs, inputs, options) : Torch::alltoall(outputs, inputs, options);
}

WorkPointer Named::recv(Tensors &tensors, int from, int tag) {
    return lazy(tensors) ? backend_->recv(tensors, from, tag) : Torch::recv(tensors, from, tag);
}

WorkPointer Named::recvAnysource(Tensors &tensors, int tag) {
    return lazy(tensors) ? backend_->recvAnysource(tensors, tag) : Torch::recvAnysource(tensors, tag);
}

#if PCCL_TORCH_SINCE_2_13
WorkPointer Named::reduce_scatter_single(at::Tensor &output, at::Tensor &input,
                                         const c10d::ReduceScatterOptions &options) {
    return lazy(output) ? backend_->_reduce_scatter_base(output, input, options)
                        : Torch::reduce_scatter_single(output, input, options);
}

WorkPointer Named::reduce_scatter_single_coalesced(Tensors &outputs, Tensors &inputs,
                                                   const c10d::ReduceScatterOptions &options) {
    return lazy(outputs) ? backend_->reduce_scatter_tensor_coalesced(outputs, inputs, options)
                         : Torch::reduce_scatter_single_coalesced(outputs, inputs, options);
}

WorkPointer Named::all_gather_single(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &options) {
    return lazy(output) ? backend_->_allgather_base(output, input, options)
                        : Torch::all_gather_single(output, input, options);
}

WorkPointer Named::all_gather_single_coalesced(Tensors &outputs, Tensors &inputs,
                                               const c10d::AllgatherOptions &options) {
    return lazy(outputs) ? backend_->allgather_into_tensor_coalesced(outputs, inputs, options)
                         : Torch::all_gather_single_coalesced(outputs, inputs, options);
}

WorkPointer Named::all_to_all_single(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                                     std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &options) {
    return lazy(output) ? backend_->alltoall_base(output, input, output_splits, input_splits, options)
                        : Torch::all_to_all_single(output, input, output_splits, input_splits, options);
}
#endif

} // namespace pccl_torch
