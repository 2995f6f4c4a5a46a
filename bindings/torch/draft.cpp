/* SPDX-License-Identifier: MIT */
#include "draft.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <limits>

#include "failure.h"

namespace pccl_torch {

namespace {

uint32_t milliseconds_of(std::chrono::milliseconds timeout, const Group &group) {
    if (timeout.count() <= 0) return group.timeout_ms;
    return static_cast<uint32_t>(std::min<int64_t>(timeout.count(), std::numeric_limits<uint32_t>::max()));
}

} // namespace

Draft::Draft(std::shared_ptr<const Standing> standing, std::shared_ptr<const Group> group, c10d::OpType type,
             const char *title, uint64_t sequence, std::chrono::milliseconds timeout, const Tensors &inputs)
    : group_(std::move(group)), timeout_ms_(milliseconds_of(timeout, *group_)),
      work_(c10::make_intrusive<Work>(new Flight(std::move(standing)), group_, type, title, sequence,
                                      at::hasCallbacks() ? std::optional<Tensors>(inputs) : std::nullopt)) {
    if (group_->errors.defined()) work_->flight().borrowed.push_back(group_->errors);
}

pccl_call Draft::call(pccl_collective collective) const {
    pccl_call made{};
    made.collective = collective;
    made.flags = group_->flags;
    made.tag = group_->tag;
    made.scope = group_->scope;
    made.expected_epoch = group_->epoch;
    made.timeout_ms = timeout_ms_;
    made.quantization = group_->quantization;
    bool reduces = collective == PCCL_ALL_REDUCE || collective == PCCL_REDUCE || collective == PCCL_REDUCE_SCATTER;
    if (made.quantization.format != PCCL_EXACT && !reduces) made.flags &= ~PCCL_DETERMINISTIC; /* it has no order */
    if (group_->errors.defined()) made.errors = group_->errors.mutable_data_ptr<float>();
    return made;
}

/* ---------------------------------------------------------------- operands */

const void *Draft::reads(const at::Tensor &tensor, const char *name) {
    work_->flight().borrowed.push_back(source(tensor, name));
    return work_->flight().borrowed.back().const_data_ptr();
}

void *Draft::writes(const at::Tensor &tensor, const char *name, bool keep) {
    Flight &flight = work_->flight();
    if (is_plain(tensor, name)) {
        flight.borrowed.push_back(tensor);
        return tensor.mutable_data_ptr();
    }
    check_target(tensor, name);
    at::Tensor target = tensor.detach();
    at::Tensor staged = at::empty(target.sizes(), target.options().device(at::kCPU));
    if (keep) staged.copy_(target);
    finally([target, staged]() mutable { target.copy_(staged); });
    return staged.mutable_data_ptr();
}

const void *Draft::reads_all(const Tensors &tensors, const char *name) {
    check_one_dtype(tensors, name);
    if (tensors.size() == 1) return reads(tensors[0], name);
    Flight &flight = work_->flight();
    if (adjoin(tensors)) {
        flight.borrowed.insert(flight.borrowed.end(), tensors.begin(), tensors.end());
        for (const at::Tensor &tensor : tensors)
            if (tensor.numel() > 0) return tensor.const_data_ptr();
    }
    Tensors flat;
    for (const at::Tensor &tensor : tensors) flat.push_back(source(tensor, name).detach().reshape({-1}));
    flight.borrowed.push_back(at::cat(flat));
    return flight.borrowed.back().const_data_ptr();
}

void *Draft::writes_all(const Tensors &tensors, const char *name) {
    check_one_dtype(tensors, name);
    if (tensors.size() == 1) return writes(tensors[0], name);
    Flight &flight = work_->flight();
    int64_t elements = 0;
    for (const at::Tensor &tensor : tensors) {
        is_plain(tensor, name);
        check_target(tensor, name);
        elements += tensor.numel();
    }
    if (adjoin(tensors)) {
        flight.borrowed.insert(flight.borrowed.end(), tensors.begin(), tensors.end());
        for (const at::Tensor &tensor : tensors)
            if (tensor.numel() > 0) return tensor.mutable_data_ptr();
    }
    at::Tensor staged = at::empty({elements}, tensors[0].options().device(at::kCPU).layout(at::kStrided));
    Tensors targets;
    for (const at::Tensor &tensor : tensors) targets.push_back(tensor.detach());
    finally([targets, staged]() {
        int64_t at = 0;
        for (const at::Tensor &target : targets) {
            target.copy_(staged.narrow(0, at, target.numel()).view(target.sizes()));
            at += target.numel();
        }
    });
    return staged.mutable_data_ptr();
}

const Counts &Draft::counts(const Tensors &tensors) {
    Counts made;
    for (const at::Tensor &tensor : tensors) made.push_back(kind_of(tensor.scalar_type()).count(tensor));
    return counts(std::move(made));
}

const Counts &Draft::counts(Counts given) {
    counts_.push_back(std::move(given));
    return counts_.back();
}

void Draft::finally(std::function<void()> step) {
    Flight &flight = work_->flight();
    if (!flight.finish) {
        flight.finish = std::move(step);
        return;
    }
    flight.finish = [before = std::move(flight.finish), step = std::move(step)] {
        before();
        step();
    };
}

void Draft::add_all_reduce(pccl_call call, const Tensors &tensors) {
    Kind kind = kind_of(tensors[0].scalar_type());
    call.dtype = kind.dtype;
    if (tensors.size() == 1) {
        call.count = kind.count(tensors[0]);
        call.input = call.output = writes(tensors[0], "the tensor", true);
        add(call);
        return;
    }
    lists_.emplace_back();
    for (const at::Tensor &tensor : tensors) {
        void *memory = writes(tensor, "a tensor", true);
        lists_.back().push_back({memory, memory, kind.count(tensor)});
    }
    call.tensors = lists_.back().data();
    call.tensors_count = static_cast<uint32_t>(lists_.back().size());
    add(call);
}

/* ---------------------------------------------------------------- start */

c10::intrusive_ptr<c10d::Work> Draft::launch(bool now) {
    Flight &flight = work_->flight();
    try {
        for (const pccl_call &call : calls_) flight.start(call, now);
    } catch (...) {
        flight.sealed();
        throw;
    }
    flight.sealed();
    if (now && !calls_.empty())
        if (std::exception_ptr how = flight.outcome()) std::rethrow_exception(how);
    return work_;
}

} // namespace pccl_torch
