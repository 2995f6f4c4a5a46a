/* SPDX-License-Identifier: MIT
 *
 * flight.h - what one torch call has under way: its operations of the engine and all that they borrow.
 *
 * It has two owners, the Work that the user holds and the engine, which may touch memory until the last operation has
 * ended. So a Work may be dropped at any time. The engine tells an end under its lock, where nothing may be freed and
 * nobody be called: if somebody must act on it (a future is to be completed, or nobody else is left to free this), the
 * completer does.
 */
#ifndef PCCL_TORCH_FLIGHT_H
#define PCCL_TORCH_FLIGHT_H

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <chrono>
#include <vector>

#include "engine.h"

namespace pccl_torch {

/* What all calls of one backend share with it, and outlives it. */
struct Standing {
    std::shared_ptr<Engine> engine;
    std::atomic<bool> aborted{false}; /* whoever waits is to stop waiting */
};

class Flight : private Worker::Job {
  public:
    using Future = c10::ivalue::Future;

    explicit Flight(std::shared_ptr<const Standing> standing);
    Flight(const Flight &) = delete;
    Flight &operator=(const Flight &) = delete;

    std::vector<at::Tensor> outputs;  /* what the Work gives as its result */
    std::vector<at::Tensor> borrowed; /* kept until the last operation has ended */
    std::function<void()> finish;     /* brings staged results to where they belong, once all has succeeded */
    std::function<void()> told;       /* by whoever finds out how it ended */

    /* Starts one more operation; `now` waits for it too. Throws what that brings: what was started before goes on. */
    void start(pccl_call call, bool now);
    /* No further operation comes. */
    void sealed();
    /* The Work is gone. */
    void leave();

    bool ended() const { return state_.load(std::memory_order_acquire) & ENDED; }
    /* False: out of time; negative waits for as long as it takes. Aborted or closed meanwhile: throws. */
    bool wait(std::chrono::milliseconds timeout);
    /* What runs and whom it waits for. */
    std::string describe();
    /* How it ended, null for success. Finishes it first, whoever comes first; only once it has ended. */
    std::exception_ptr outcome();
    /* Of a receive that has succeeded: the rank of the view that sent. */
    uint32_t source() const { return info_.peer; }
    c10::intrusive_ptr<Future> future();

  private:
    enum { ENDED = 1, WANTED = 2 };

    static void operation_ended(void *flight);
    static void completed(Job *job);
    ~Flight();
    void one_ended();
    void drop();
    void settle();
    void complete();
    bool wait_for(pccl_operation *operation, std::chrono::steady_clock::time_point deadline);

    const std::shared_ptr<const Standing> standing_;
    c10::SmallVector<pccl_operation *, 1> operations_;
    std::atomic<int> owners_{2}, open_{1}, ends_{0}; /* open: operations under way, and one until it is sealed */
    std::atomic<unsigned> state_{0};
    std::mutex mutex_; /* what follows */
    bool settled_ = false;
    std::exception_ptr exception_;
    c10::intrusive_ptr<Future> future_;
    pccl_info info_{};
};

} // namespace pccl_torch

#endif
