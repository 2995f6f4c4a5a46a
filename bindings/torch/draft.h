/* SPDX-License-Identifier: MIT
 *
 * draft.h - one torch call on its way to become operations of the engine.
 *
 * Collects what the C calls point to, stages what does not fit, and then starts them all: at once and to their end
 * where torch says that it will wait anyway. Whatever throws on the way leaves nothing behind.
 */
#ifndef PCCL_TORCH_DRAFT_H
#define PCCL_TORCH_DRAFT_H

#include <deque>

#include "tensors.h"
#include "work.h"

namespace pccl_torch {

using Tensors = std::vector<at::Tensor>;
using Counts = std::vector<uint64_t>;

class Draft {
  public:
    /* `inputs` are for the profiler. */
    Draft(std::shared_ptr<const Standing> standing, std::shared_ptr<const Group> group, c10d::OpType type,
          const char *title, uint64_t sequence, std::chrono::milliseconds timeout, const Tensors &inputs);

    const Group &group() const { return *group_; }
    Tensors &outputs() { return work_->flight().outputs; }

    /* A call of the group with nothing but its name and limits. */
    pccl_call call(pccl_collective collective) const;
    /* Where the engine reads `tensor`. */
    const void *reads(const at::Tensor &tensor, const char *name);
    /* Where it writes what becomes `tensor`; with `keep` it reads there first. */
    void *writes(const at::Tensor &tensor, const char *name, bool keep = false);
    /* The same for many, one behind the other. */
    const void *reads_all(const Tensors &tensors, const char *name);
    void *writes_all(const Tensors &tensors, const char *name);
    /* Elements of each, for as long as the draft lives. */
    const Counts &counts(const Tensors &tensors);
    const Counts &counts(Counts given);
    /* With the list that `tensors` are, in place. */
    void add_all_reduce(pccl_call call, const Tensors &tensors);
    void add(const pccl_call &call) { calls_.push_back(call); }

    c10::intrusive_ptr<c10d::Work> launch(bool now);

  private:
    void finally(std::function<void()> step);

    const std::shared_ptr<const Group> group_;
    const uint32_t timeout_ms_;
    c10::intrusive_ptr<Work> work_;
    c10::SmallVector<pccl_call, 1> calls_;
    std::deque<Counts> counts_;
    std::deque<std::vector<pccl_tensor>> lists_;
};

} // namespace pccl_torch

#endif
