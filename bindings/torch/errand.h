/* SPDX-License-Identifier: MIT
 *
 * errand.h - a Work that a thread of the engine carries out, step by step: for what takes several operations.
 */
#ifndef PCCL_TORCH_ERRAND_H
#define PCCL_TORCH_ERRAND_H

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "flight.h"

namespace pccl_torch {

class Errand : public c10d::Work {
  public:
    using Future = c10::ivalue::Future;

    Errand(int rank, c10d::OpType type, const char *title, uint64_t sequence, std::vector<at::Tensor> outputs);

    /* Has `steps` done on that thread, in the order of such calls; it ends with what they throw. Throws when the
     * engine is closed. */
    static c10::intrusive_ptr<Errand> send(Engine &engine, c10::intrusive_ptr<Errand> errand,
                                           std::function<void()> steps);

    std::vector<at::Tensor> result() override { return outputs_; }
    c10::intrusive_ptr<Future> getFuture() override { return future_; }
    uint64_t getSequencenumber() const override { return sequence_; }

  private:
    struct Job;

    static void done(Worker::Job *job);

    const std::vector<at::Tensor> outputs_;
    const uint64_t sequence_;
    const c10::intrusive_ptr<Future> future_;
};

} // namespace pccl_torch

#endif
