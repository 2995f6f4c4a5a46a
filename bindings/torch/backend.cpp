/* SPDX-License-Identifier: MIT */
#include "backend.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "device.h"
#include "failure.h"

namespace pccl_torch {

using std::chrono::milliseconds;

namespace {

std::string new_handle() {
    std::random_device random;
    std::string made = "pccl";
    for (int i = 0; i < 4; i++) made += "-" + std::to_string(random());
    return made;
}

} // namespace

Backend::Backend(std::shared_ptr<Engine> engine, Group group, Wishes wishes)
    : c10d::Backend(static_cast<int>(group.index), static_cast<int>(group.size())), wishes_(std::move(wishes)),
      handle_(new_handle()), standing_(std::make_shared<Standing>()),
      group_(std::make_shared<const Group>(std::move(group))) {
    standing_->engine = std::move(engine);
}

Backend::Backend(std::shared_ptr<Standing> standing, std::shared_ptr<const Group> group)
    : c10d::Backend(static_cast<int>(group->index), static_cast<int>(group->size())), standing_(std::move(standing)),
      group_(std::move(group)) {}

c10::intrusive_ptr<Backend> Backend::quantized(const pccl_quantization &quantization, at::Tensor errors) {
    check_open();
    auto group = std::make_shared<Group>(*this->group());
    group->quantization = quantization;
    group->errors = std::move(errors);
    auto made = c10::make_intrusive<Backend>(standing(), std::move(group));
    made->sequence_ = sequence_;
    return made;
}

/* Torch up to 2.13 takes rank and size for constant, and asks its own copy in the ProcessGroup, for which `renumber`
 * in module.cpp cares. */
void Backend::rebind(std::shared_ptr<Engine> engine, Group group) {
    const_cast<int &>(rank_) = static_cast<int>(group.index);
    const_cast<int &>(size_) = static_cast<int>(group.size());
    std::lock_guard<std::mutex> lock(mutex_);
    if (engine != standing_->engine) {
        standing_ = std::make_shared<Standing>();
        standing_->engine = std::move(engine);
    }
    group_ = std::make_shared<const Group>(std::move(group));
}

std::shared_ptr<Standing> Backend::standing() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return standing_;
}

std::shared_ptr<const Group> Backend::group() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return group_;
}

c10::intrusive_ptr<Backend::Options> Backend::getBackendOptions() {
    std::shared_ptr<const Group> group = this->group();
    auto options = c10::make_intrusive<Options>("pccl", milliseconds(group->timeout_ms));
    options->group_name = group->name;
    return options;
}

void Backend::setTimeout(milliseconds timeout) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto changed = std::make_shared<Group>(*group_);
    changed->timeout_ms = static_cast<uint32_t>(timeout.count());
    group_ = std::move(changed);
}

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store> &, const std::vector<int> &ranks,
                                                 const c10::intrusive_ptr<Options> &options) {
    check_open();
    std::shared_ptr<const Group> group = this->group();
    Group part;
    part.name = options->group_name;
    part.timeout_ms = static_cast<uint32_t>(options->timeout.count());
    std::set<int> seen;
    for (int rank : ranks) {
        if (rank < 0 || rank >= getSize() || !seen.insert(rank).second)
            fail(PCCL_INVALID,
                 std::to_string(rank) + " is no rank of a group of " + std::to_string(getSize()) + ", or there twice");
        part.ranks.push_back(group->ranks[rank]);
    }
    if (!seen.count(getRank())) return nullptr;
    part.key = group->key + ":split:"; /* as pccl/torch/group.py says: torch's name depends on the rank */
    for (size_t i = 0; i < ranks.size(); i++) part.key += (i ? "," : "") + std::to_string(ranks[i]);
    {
        std::lock_guard<std::mutex> lock(mutex_);
        part.key += ":" + std::to_string(splits_[ranks]++);
    }
    return wishes_.split(part);
}

#ifdef C10D_BACKEND_HAS_RECONFIGURE
c10d::ReconfigureHandle Backend::get_reconfigure_handle() const {
    if (!group()->elastic) fail(PCCL_UNSUPPORTED, "the members of this group do not change: make it with elastic=True");
    return handle_;
}

WorkPointer Backend::reconfigure(const c10d::ReconfigureOptions &options) {
    const auto *ordered = std::get_if<std::vector<c10d::ReconfigureHandle>>(&options.handles);
    std::vector<c10d::ReconfigureHandle> handles;
    if (ordered)
        handles = *ordered;
    else
        for (const auto &handle : std::get<0>(options.handles)) handles.push_back(handle);
    auto own = std::find(handles.begin(), handles.end(), get_reconfigure_handle());
    if (own == handles.end()) fail(PCCL_INVALID, "the handle of this rank is not among those that were given");
    wishes_.meet(handles.size(), ordered ? own - handles.begin() : -1);
    return c10::make_intrusive<Works>(getRank(), std::vector<WorkPointer>());
}
#endif

/* ---------------------------------------------------------------- its end */

void Backend::end(pccl_status why) {
    int open = PCCL_OK;
    if (!why_.compare_exchange_strong(open, why)) return;
    std::shared_ptr<Standing> standing = this->standing();
    if (why == PCCL_ABORTED) standing->aborted.store(true);
    if (wishes_.ended && !standing->engine->foreign()) wishes_.ended(why == PCCL_ABORTED);
}

void Backend::check_open() const {
    auto why = static_cast<pccl_status>(why_.load(std::memory_order_relaxed));
    if (why != PCCL_OK) fail(why, why == PCCL_ABORTED ? "the group was aborted" : "the group was destroyed");
}

/* ---------------------------------------------------------------- start */

Draft Backend::draft(c10d::OpType type, const char *title, milliseconds timeout, const Tensors &inputs) {
    check_open();
    return Draft(standing(), group(), type, title, sequence_->fetch_add(1) + 1, timeout, inputs);
}

WorkPointer Backend::launch(Draft &draft, bool async) {
    std::unique_lock<std::mutex> lock(mutex_);
    bool now = !async && !coalescing_;
    lock.unlock();
    return batched(draft.launch(now));
}

WorkPointer Backend::batched(WorkPointer work) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (coalescing_) batch_.push_back(work);
    return work;
}

void Backend::startCoalescing() {
    std::lock_guard<std::mutex> lock(mutex_);
    coalescing_ = true;
    batch_.clear();
}

WorkPointer Backend::endCoalescing() {
    std::lock_guard<std::mutex> lock(mutex_);
    coalescing_ = false;
    std::vector<WorkPointer> batch;
    batch.swap(batch_);
    return c10::make_intrusive<Works>(rank_, std::move(batch));
}

/* ---------------------------------------------------------------- what reduces */

WorkPointer Backend::all_reduce(Tensors &tensors, const c10d::AllreduceOptions &options, c10d::OpType type,
                                const char *title) {
    if (auto device = device_of(tensors)) return carry_all_reduce(tensors, options, *device);
    Draft draft = this->draft(type, title, options.timeout, tensors);
    pccl_call call = draft.call(PCCL_ALL_REDUCE);
    call.op = reduction(options.reduceOp, &call.factor);
    draft.outputs() = tensors;
    std::map<at::ScalarType, Tensors> alike; /* one operation for each dtype */
    for (const at::Tensor &tensor : tensors) check_reducible(tensor);
    if (tensors.size() == 1) {
        draft.add_all_reduce(call, tensors);
        return launch(draft, options.asyncOp);
    }
    for (const at::Tensor &tensor : tensors) alike[tensor.scalar_type()].push_back(tensor);
    for (const auto &each : alike) draft.add_all_reduce(call, each.second);
    return launch(draft, options.asyncOp);
}

WorkPointer Backend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) {
    if (tensors.size() == 1 && tensors[0].is_sparse()) return allreduce_sparse(tensors, options);
    return all_reduce(tensors, options, c10d::OpType::ALLREDUCE, "pccl:all_reduce");
}

WorkPointer Backend::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options) {
    return all_reduce(tensors, options, c10d::OpType::ALLREDUCE_COALESCED, "pccl:all_reduce_coalesced");
}

WorkPointer Backend::reduce(Tensors &tensors, const c10d::ReduceOptions &options) {
    if (auto device = device_of(tensors)) return carry_reduce(tensors, options, *device);
    Draft draft = this->draft(c10d::OpType::REDUCE, "pccl:reduce", options.timeout, tensors);
    for (const at::Tensor &tensor : tensors) {
        check_reducible(tensor);
        check_target(tensor, "the tensor"); /* not at the root alone: all ranks get the same answer */
        pccl_call call = draft.call(PCCL_REDUCE);
        call.op = reduction(options.reduceOp, &call.factor);
        call.root = static_cast<uint32_t>(options.rootRank);
        Kind kind = kind_of(tensor.scalar_type());
        call.dtype = kind.dtype;
        call.count = kind.count(tensor);
        if (call.root == draft.group().index)
            call.input = call.output = draft.writes(tensor, "the tensor", true);
        else
            call.input = draft.reads(tensor, "the tensor");
        draft.add(call);
    }
    draft.outputs() = tensors;
    return launch(draft, options.asyncOp);
}

void Backend::draft_reduce_scatter(Draft &draft, const at::Tensor &output, const at::Tensor &input,
                                   const c10d::ReduceOp &op) {
    check_reducible(input);
    check_alike(output, input);
    Kind kind = kind_of(output.scalar_type());
    pccl_call call = draft.call(PCCL_REDUCE_SCATTER);
    call.op = reduction(op, &call.factor);
    call.dtype = kind.dtype;
    call.count = kind.count(output);
    if (kind.count(input) != call.count * draft.group().size())
        fail(PCCL_INVALID, "the input has " + std::to_string(input.numel()) + " elements, but the output " +
                               std::to_string(output.numel()) + " for each of " + std::to_string(draft.group().size()) +
                               " ranks");
    call.input = draft.reads(input, "the input");
    call.output = draft.writes(output, "the output");
    draft.add(call);
    draft.outputs().push_back(output);
}

WorkPointer Backend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                          const c10d::ReduceScatterOptions &options) {
    if (auto device = device_of(Tensors{input}))
        return carry_moves(c10d::OpType::_REDUCE_SCATTER_BASE, "pccl:reduce_scatter_tensor", Tensors{output},
                           Tensors{input}, *device,
                           [options = asynchronous(options)](Backend &host, auto &to, auto &from) mutable {
                               return host._reduce_scatter_base(to[0], from[0], options);
                           });
    Draft draft =
        this->draft(c10d::OpType::_REDUCE_SCATTER_BASE, "pccl:reduce_scatter_tensor", options.timeout, {input});
    draft_reduce_scatter(draft, output, input, options.reduceOp);
    return launch(draft, options.asyncOp);
}

WorkPointer Backend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                     const c10d::ReduceScatterOptions &options) {
    if (auto device = device_of(inputs))
        return carry_moves(c10d::OpType::COALESCED, "pccl:reduce_scatter_tensor_coalesced", outputs, inputs, *device,
                           [options = asynchronous(options)](Backend &host, auto &to, auto &from) mutable {
                               return host.reduce_scatter_tensor_coalesced(to, from, options);
                           });
    if (outputs.size() != inputs.size()) fail(PCCL_INVALID, "there are not as many inputs as outputs");
    Draft draft = this->draft(c10d::OpType::COALESCED, "pccl:reduce_scatter_tensor_coalesced", options.timeout, inputs);
    for (size_t i = 0; i < outputs.size(); i++) draft_reduce_scatter(draft, outputs[i], inputs[i], options.reduceOp);
    return launch(draft, options.asyncOp);
}

WorkPointer Backend::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                    const c10d::ReduceScatterOptions &options) {
    if (auto device = device_of(outputs))
        return carry_moves(c10d::OpType::REDUCE_SCATTER, "pccl:reduce_scatter", outputs, inputs, *device,
                           [options = asynchronous(options)](Backend &host, auto &to, auto &from) mutable {
                               return host.reduce_scatter(to, from, options);
                           });
    if (outputs.size() != inputs.size()) fail(PCCL_INVALID, "there are not as many inputs as outputs");
    Draft draft = this->draft(c10d::OpType::REDUCE_SCATTER, "pccl:reduce_scatter", options.timeout,
                              inputs.empty() ? Tensors() : inputs[0]);
    for (size_t i = 0; i < outputs.size(); i++) {
        if (inputs[i].size() != draft.group().size())
            fail(PCCL_INVALID, "input_list has " + std::to_string(inputs[i].size()) + " tensors, but the group has " +
                                   std::to_string(draft.group().size()) + " ranks");
        check_reducible(outputs[i]);
        check_alike(outputs[i], inputs[i][0]);
        Kind kind = kind_of(outputs[i].scalar_type());
        const Counts &counts = draft.counts(inputs[i]);
        pccl_call call = draft.call(PCCL_REDUCE_SCATTER);
        call.op = reduction(options.reduceOp, &call.factor);
        call.dtype = kind.dtype;
        call.count = kind.count(outputs[i]);
        if (call.count != counts[draft.group().index])
            fail(PCCL_INVALID, "the output has " + std::to_string(outputs[i].numel()) +
                                   " elements, but the input for "
                                   "this rank " +
                                   std::to_string(inputs[i][draft.group().index].numel()));
        call.input = draft.reads_all(inputs[i], "input_list");
        call.output = draft.writes(outputs[i], "the output");
        if (!same_counts(counts)) {
            call.flags |= PCCL_UNEVEN;
            call.input_counts = counts.data();
        }
        draft.add(call);
    }
    draft.outputs() = outputs;
    return launch(draft, options.asyncOp);
}

/* ---------------------------------------------------------------- what meets */

WorkPointer Backend::barrier(const c10d::BarrierOptions &options) {
    Draft draft = this->draft(c10d::OpType::BARRIER, "pccl:barrier", options.timeout, {});
    draft.add(draft.call(PCCL_BARRIER));
    return launch(draft, options.asyncOp);
}

/* The error of a timeout names the ranks that have not come, all of them. With a timeout of zero it is certain, and
 * nothing is sent. */
void Backend::monitoredBarrier(const c10d::BarrierOptions &options, bool) {
    check_open();
    milliseconds patience = options.timeout;
    if (patience < milliseconds(0)) patience = milliseconds(group()->timeout_ms);
    std::string late = "Rank " + std::to_string(rank_) + " timed out in monitoredBarrier after " +
                       std::to_string(patience.count()) + " ms";
    if (patience == milliseconds(0)) fail(PCCL_TIMEOUT, late);
    Draft draft = this->draft(c10d::OpType::BARRIER, "pccl:monitored_barrier", patience, {});
    draft.add(draft.call(PCCL_BARRIER));
    try {
        draft.launch(true);
    } catch (const c10::Error &error) {
        std::string text = error.what_without_backtrace();
        if (text.find(api.pccl_status_string(PCCL_TIMEOUT)) == std::string::npos) throw;
        fail(PCCL_TIMEOUT, late + ": " + text);
    }
}

} // namespace pccl_torch
