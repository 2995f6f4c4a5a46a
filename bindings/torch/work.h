/* SPDX-License-Identifier: MIT
 *
 * work.h - a c10d::Work: what the user holds of a flight.
 *
 * Waiting drives the engine in the calling thread. Nothing is done for a future that nobody asks for.
 */
#ifndef PCCL_TORCH_WORK_H
#define PCCL_TORCH_WORK_H

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "flight.h"

namespace pccl_torch {

/* How one torch group looks to its works. */
struct Group {
    std::string name;            /* torch's */
    std::string key;             /* what its tags are made of */
    std::vector<uint32_t> ranks; /* of the view */
    uint32_t index;              /* our own in `ranks` */
    uint64_t epoch, scope, tag;
    uint32_t timeout_ms, flags;
    bool elastic = false;             /* its members may change */
    pccl_quantization quantization{}; /* of its calls, as pccl_call says; so are `errors`, undefined for nobody */
    at::Tensor errors;

    uint32_t size() const { return static_cast<uint32_t>(ranks.size()); }
};

class Work : public c10d::Work {
  public:
    /* Takes the user's share of `flight`. */
    Work(Flight *flight, std::shared_ptr<const Group> group, c10d::OpType type, const char *title, uint64_t sequence,
         const std::optional<std::vector<at::Tensor>> &inputs);
    ~Work() override;

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    int sourceRank() const override;
    std::vector<at::Tensor> result() override;
    void synchronize() override;
    bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
    void abort() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    uint64_t getSequencenumber() const override;

    Flight &flight() { return *flight_; }

  private:
    Flight *const flight_;
    const std::shared_ptr<const Group> group_;
    const uint64_t sequence_;
};

/* Several as one; its result is that of all. */
class Works : public c10d::Work {
  public:
    Works(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works);

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    std::vector<at::Tensor> result() override;
    void synchronize() override;
    bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

  private:
    const std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

} // namespace pccl_torch

#endif
