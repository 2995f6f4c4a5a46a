/* SPDX-License-Identifier: MIT
 *
 * errand.h - a Work that a thread of the engine carries out, step by step: for what takes several operations, or has to
 * be brought from a device first.
 *
 * It has ended when its steps are done and so are all *parts* that these have left behind. On a device it also has an
 * event, for which the streams of who waits are made to wait.
 */
#ifndef PCCL_TORCH_ERRAND_H
#define PCCL_TORCH_ERRAND_H

#include <c10/core/Event.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "flight.h"

namespace pccl_torch {

class Errand : public c10d::Work {
  public:
    using Future = c10::ivalue::Future;

    /* `device`: where the outputs lie. */
    Errand(std::shared_ptr<const Standing> standing, int rank, c10d::OpType type, const char *title, uint64_t sequence,
           std::vector<at::Tensor> outputs, c10::Device device);

    /* Has `steps` done on that thread, in the order of such calls; what they throw is how it ends. Throws when the
     * engine is closed. */
    static c10::intrusive_ptr<Errand> send(Worker &worker, c10::intrusive_ptr<Errand> errand,
                                           std::function<void()> steps);
    /* A part begins; `part_ended` says how it ended, null for success. */
    void part_begins(c10::intrusive_ptr<c10d::Work> part);
    void part_ended(std::exception_ptr how);

    /* Set before it is sent. On a device: the stream on which results are copied, and what is to be done there behind
     * all parts. */
    std::optional<c10::Stream> stream;
    std::function<void()> last;

    bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
    void synchronize() override;
    int sourceRank() const override;
    std::vector<at::Tensor> result() override { return outputs_; }
    c10::intrusive_ptr<Future> getFuture() override { return future_; }
    uint64_t getSequencenumber() const override { return sequence_; }

  private:
    struct Job;

    static void done(Worker::Job *job);
    void finished();

    const std::shared_ptr<const Standing> standing_;
    const std::vector<at::Tensor> outputs_;
    const uint64_t sequence_;
    const c10::Device device_;
    const c10::intrusive_ptr<Future> future_;
    std::atomic<int> parts_{1}; /* and one for the steps */
    mutable std::mutex how_mutex_;
    c10::intrusive_ptr<c10d::Work> part_; /* the newest */
    std::exception_ptr how_;              /* the first failure */
    std::optional<c10::Event> event_;
};

} // namespace pccl_torch

#endif
