/* SPDX-License-Identifier: MIT
 *
 * named.h - a process group that is of one backend of ours alone.
 *
 * Torch up to 2.13 calls all groups of third parties "custom", asks none of them for sequence numbers, and takes rank
 * and size for constant. And its dispatcher, in any version, gives a backend copies of tensors whose negation or
 * conjugation is still to be done, so that results in them are lost. This group hands such outputs to the backend
 * itself, which stages them.
 */
#ifndef PCCL_TORCH_NAMED_H
#define PCCL_TORCH_NAMED_H

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/version.h>

#include "backend.h"

#define PCCL_TORCH_SINCE_2_13 (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13)

namespace pccl_torch {

class Named : public c10d::ProcessGroup {
  public:
    Named(const c10::intrusive_ptr<c10d::Store> &store, c10::intrusive_ptr<Backend> backend);
    /* With its name and description, for the devices that `plain` has. */
    Named(c10d::ProcessGroup &plain, c10::intrusive_ptr<Backend> backend);

    const std::string getBackendName() const override { return backend_->getBackendName(); }
    int getRank() const override { return backend_->getRank(); }
    int getSize() const override { return backend_->getSize(); }
    uint64_t getSequenceNumberForGroup() override { return backend_->getSequenceNumberForGroup(); }
#ifndef C10D_BACKEND_HAS_RECONFIGURE
    void setSequenceNumberForGroup() override {}
#endif

    c10::intrusive_ptr<c10d::ProcessGroup>
    splitGroup(const std::vector<int> &ranks, const std::optional<std::chrono::milliseconds> &timeout,
               const std::optional<c10::intrusive_ptr<c10d::Backend::Options>> &options,
               const std::optional<std::string> &name, const std::optional<std::string> &description
#if PCCL_TORCH_SINCE_2_13
               ,
               const std::optional<std::vector<c10::Device>> &devices
#endif
               ) override;

    WorkPointer allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) override;
    WorkPointer allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options) override;
    WorkPointer reduce(Tensors &tensors, const c10d::ReduceOptions &options) override;
    WorkPointer reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                               const c10d::ReduceScatterOptions &options) override;
    WorkPointer _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                     const c10d::ReduceScatterOptions &options) override;
    WorkPointer reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                const c10d::ReduceScatterOptions &options) override;
    WorkPointer broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) override;
    WorkPointer allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                          const c10d::AllgatherOptions &options) override;
    WorkPointer _allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &options) override;
    WorkPointer allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                    const c10d::AllgatherOptions &options) override;
    WorkPointer allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                const c10d::AllgatherOptions &options) override;
    WorkPointer gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &options) override;
    WorkPointer scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &options) override;
    WorkPointer alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                              std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &options) override;
    WorkPointer alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options) override;
    WorkPointer recv(Tensors &tensors, int from, int tag) override;
    WorkPointer recvAnysource(Tensors &tensors, int tag) override;
#if PCCL_TORCH_SINCE_2_13 /* its names for what has another one above */
    WorkPointer reduce_scatter_single(at::Tensor &output, at::Tensor &input,
                                      const c10d::ReduceScatterOptions &options) override;
    WorkPointer reduce_scatter_single_coalesced(Tensors &outputs, Tensors &inputs,
                                                const c10d::ReduceScatterOptions &options) override;
    WorkPointer all_gather_single(at::Tensor &output, at::Tensor &input,
                                  const c10d::AllgatherOptions &options) override;
    WorkPointer all_gather_single_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::AllgatherOptions &options) override;
    WorkPointer all_to_all_single(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                                  std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &options) override;
#endif

  private:
    using Torch = c10d::ProcessGroup;

    const c10::intrusive_ptr<Backend> backend_;
};

} // namespace pccl_torch

#endif
