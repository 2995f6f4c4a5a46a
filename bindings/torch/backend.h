/* SPDX-License-Identifier: MIT
 *
 * backend.h - torch's backend interface over one group: what each operation of torch's means as calls of the engine.
 *
 * Must not know: how an engine came to be, Python. backend.cpp has what reduces and what it is, moves.cpp what moves.
 */
#ifndef PCCL_TORCH_BACKEND_H
#define PCCL_TORCH_BACKEND_H

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <map>

#include "draft.h"

namespace pccl_torch {

using WorkPointer = c10::intrusive_ptr<c10d::Work>;

/* The engine's tag of a text: as pccl/torch/group.py says. */
uint64_t tag_of(const std::string &text);

class Transit;

class Backend : public c10d::Backend {
  public:
    /* What only Python can do for it. Called with nothing locked. */
    struct Wishes {
        /* Called once, when the group is shut down or (true) aborted. */
        std::function<void(bool aborted)> ended;
        /* Makes a backend for a part that this process is in. Of `part`, name, key, ranks and timeout count. */
        std::function<c10::intrusive_ptr<Backend>(const Group &part)> split;
        /* Reconfigures the group to so many members, of which we are to be that one, or (-1) any. */
        std::function<void(size_t members, int64_t place)> meet;
    };

    Backend(std::shared_ptr<Engine> engine, Group group, Wishes wishes);
    /* Of another one, for what it carries from and to a device. */
    Backend(std::shared_ptr<Standing> standing, std::shared_ptr<const Group> group);
    /* The same group for one call that is quantized, in its turn among the calls of this one. `errors`, of float32 on
     * the host and as long as that call's input, may be undefined. Throws when the group has ended. */
    c10::intrusive_ptr<Backend> quantized(const pccl_quantization &quantization, at::Tensor errors);

    /* The same group in another epoch, perhaps with other members, or over another engine. Nothing is under way. */
    void rebind(std::shared_ptr<Engine> engine, Group group);

    const std::string getBackendName() const override { return "pccl"; }
    c10::intrusive_ptr<Options> getBackendOptions() override;
    void setTimeout(std::chrono::milliseconds timeout) override;
    void setSequenceNumberForGroup() override {} /* they count from 0 */
    uint64_t getSequenceNumberForGroup() override { return sequence_->load(); }
    void abort() override { end(PCCL_ABORTED); }
    void shutdown() override { end(PCCL_CLOSED); }
    bool supportsSplitting() const override { return true; }
    /* A part of this group, null where we are not in it. All members call it; nothing is sent. */
    c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store> &store, const std::vector<int> &ranks,
                                            const c10::intrusive_ptr<Options> &options) override;
    bool supportsCoalescing() const override { return true; }
    void startCoalescing() override;
    WorkPointer endCoalescing() override;

    WorkPointer allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) override;
    WorkPointer allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &options) override;
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
#ifdef C10D_BACKEND_HAS_RECONFIGURE /* torch 2.14; its other new names call the ones above */
    WorkPointer gather_into_tensor(at::Tensor &output, at::Tensor &input, const c10d::GatherOptions &options) override;
    c10d::ErrorType getError() override { return c10d::ErrorType::SUCCESS; }
    bool supportsReconfigure() const override { return group()->elastic; }
    c10d::ReconfigureHandle get_reconfigure_handle() const override;
    /* Blocks until all have called it. Throws where the members are others than was said. */
    WorkPointer reconfigure(const c10d::ReconfigureOptions &options) override;
#endif
    WorkPointer send(Tensors &tensors, int to, int tag) override;
    WorkPointer recv(Tensors &tensors, int from, int tag) override;
    WorkPointer recvAnysource(Tensors &tensors, int tag) override;
    WorkPointer barrier(const c10d::BarrierOptions &options) override;
    void monitoredBarrier(const c10d::BarrierOptions &options, bool wait_all_ranks) override;

  private:
    std::shared_ptr<const Group> group() const;
    std::shared_ptr<Standing> standing() const;
    /* A draft with the next sequence number. Throws when the group has ended. */
    Draft draft(c10d::OpType type, const char *title, std::chrono::milliseconds timeout, const Tensors &inputs);
    WorkPointer launch(Draft &draft, bool async);
    WorkPointer batched(WorkPointer work);
    void end(pccl_status why);
    void check_open() const;

    WorkPointer all_reduce(Tensors &tensors, const c10d::AllreduceOptions &options, c10d::OpType type,
                           const char *title);
    void draft_reduce_scatter(Draft &draft, const at::Tensor &output, const at::Tensor &input,
                              const c10d::ReduceOp &op);
    void draft_all_gather(Draft &draft, const at::Tensor &output, const at::Tensor &input);
    void draft_all_gather_list(Draft &draft, const Tensors &outputs, const at::Tensor &input);
    WorkPointer receive(Tensors &tensors, uint32_t from, int tag, c10d::OpType type, const char *title);

    /* device.cpp: `steps` gets a backend for copies on the host, and what makes them. */
    WorkPointer carry(c10d::OpType type, const char *title, Tensors outputs, c10::Device device,
                      std::function<void(Backend &, Transit &)> steps);
    template <typename Outputs, typename Inputs, typename Call>
    WorkPointer carry_moves(c10d::OpType type, const char *title, Outputs outputs, Inputs inputs, c10::Device device,
                            Call call);
    WorkPointer carry_all_reduce(const Tensors &tensors, const c10d::AllreduceOptions &options, c10::Device device);
    WorkPointer carry_reduce(const Tensors &tensors, const c10d::ReduceOptions &options, c10::Device device);
    WorkPointer carry_broadcast(const Tensors &tensors, const c10d::BroadcastOptions &options, c10::Device device);

    const Wishes wishes_;
    const std::string handle_; /* of this process, for who reconfigures */
    mutable std::mutex mutex_;
    std::shared_ptr<Standing> standing_; /* with mutex_, as what follows */
    std::shared_ptr<const Group> group_;
    std::map<std::vector<int>, uint64_t> splits_; /* how many parts of these ranks there were, with mutex_, too */
    std::shared_ptr<std::atomic<uint64_t>> sequence_ = std::make_shared<std::atomic<uint64_t>>(0);
    std::atomic<int> why_{PCCL_OK}; /* it has ended: a pccl_status */
    bool coalescing_ = false;       /* with mutex_, too */
    std::vector<WorkPointer> batch_;
};

} // namespace pccl_torch

#endif
