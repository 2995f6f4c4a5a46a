/* SPDX-License-Identifier: MIT */
#include "device.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace pccl_torch {

namespace {

constexpr int64_t PIECE_BYTES = 4 * 1024 * 1024;

c10::impl::VirtualGuardImpl guard_of(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()); }

} // namespace

std::optional<c10::Device> device_of(const Tensors &tensors) {
    for (const at::Tensor &tensor : tensors)
        if (tensor.defined() && !tensor.is_cpu() && !tensor.is_meta() && !tensor.is_sparse()) return tensor.device();
    return std::nullopt;
}

Tensors flat(const std::vector<Tensors> &lists) {
    Tensors all;
    for (const Tensors &list : lists) all.insert(all.end(), list.begin(), list.end());
    return all;
}

Transit::Transit(c10::intrusive_ptr<Errand> errand, c10::Device device)
    : errand_(std::move(errand)), device_(device), out_(guard_of(device).getStreamFromGlobalPool(device)),
      in_(guard_of(device).getStreamFromGlobalPool(device)), called_(device.type()) {
    called_.record(guard_of(device).getStream(device));
    errand_->stream = in_;
}

at::Tensor Transit::host(const at::Tensor &tensor, bool input) {
    at::Tensor made = at::empty(tensor.sizes(), tensor.options().device(at::kCPU).pinned_memory(true));
    if (!input) return made;
    c10::StreamGuard guard(out_);
    called_.block(out_);
    made.copy_(tensor.detach(), true);
    return made;
}

Tensors Transit::host(const Tensors &tensors, bool input) {
    Tensors made;
    for (const at::Tensor &tensor : tensors) made.push_back(host(tensor, input));
    return made;
}

std::vector<Tensors> Transit::host(const std::vector<Tensors> &lists, bool input) {
    std::vector<Tensors> made;
    for (const Tensors &list : lists) made.push_back(host(list, input));
    return made;
}

void Transit::arrive() {
    c10::Event copied(device_.type());
    copied.record(out_);
    copied.synchronize();
}

void Transit::back(const WorkPointer &work, Tensors targets, Tensors hosts) {
    errand_->part_begins(work);
    work->getFuture()->addCallback([self = shared_from_this(), targets = std::move(targets),
                                    hosts = std::move(hosts)](c10::ivalue::Future &ended) {
        std::exception_ptr how = ended.hasError() ? ended.exception_ptr() : nullptr;
        try {
            c10::StreamGuard guard(self->in_);
            self->called_.block(self->in_);
            for (size_t i = 0; i < targets.size() && !how; i++) targets[i].detach().copy_(hosts[i], true);
        } catch (...) {
            how = std::current_exception();
        }
        self->errand_->part_ended(how);
    });
}

/* The cuts depend on the length alone, as all members must cut alike: a tensor that is not contiguous is copied into
 * one that is first, on its device. */
void Transit::in_pieces(const at::Tensor &tensor, bool input, bool output,
                        const std::function<WorkPointer(Tensors &)> &start) {
    at::Tensor whole = tensor.detach();
    if (!whole.is_contiguous()) {
        c10::StreamGuard guard(out_);
        called_.block(out_);
        whole = whole.contiguous();
        if (output)
            errand_->last = [before = std::move(errand_->last), tensor, whole] {
                if (before) before();
                tensor.detach().copy_(whole, true);
            };
    }
    whole = whole.view({-1});
    int64_t step = std::max<int64_t>(1, PIECE_BYTES / static_cast<int64_t>(whole.element_size()));
    Tensors pieces = whole.numel() > step ? whole.split(step) : Tensors{whole}, hosts;
    std::vector<c10::Event> copied;
    for (const at::Tensor &piece : pieces) {
        hosts.push_back(host(piece, input));
        copied.emplace_back(device_.type());
        copied.back().record(out_);
    }
    for (size_t i = 0; i < pieces.size(); i++) {
        copied[i].synchronize();
        Tensors one{hosts[i]};
        back(start(one), output ? Tensors{pieces[i]} : Tensors(), output ? Tensors{hosts[i]} : Tensors());
    }
}

/* ---------------------------------------------------------------- the operations */

WorkPointer Backend::carry(c10d::OpType type, const char *title, Tensors outputs, c10::Device device,
                           std::function<void(Backend &, Transit &)> steps) {
    check_open();
    auto group = std::make_shared<Group>(*this->group());
    group->key += " device";
    group->tag = tag_of(group->key);
    std::shared_ptr<Standing> standing = this->standing();
    auto host = c10::make_intrusive<Backend>(standing, std::move(group));
    uint64_t sequence = sequence_->fetch_add(1) + 1;
    auto errand = c10::make_intrusive<Errand>(standing, rank_, type, title, sequence, std::move(outputs), device);
    auto transit = std::make_shared<Transit>(errand, device);
    return batched(Errand::send(standing->engine->carrier, errand,
                                [host, transit, steps = std::move(steps)] { steps(*host, *transit); }));
}

WorkPointer Backend::carry_all_reduce(const Tensors &tensors, const c10d::AllreduceOptions &options,
                                      c10::Device device) {
    return carry(c10d::OpType::ALLREDUCE, "pccl:all_reduce", tensors, device,
                 [tensors, options = asynchronous(options)](Backend &host, Transit &transit) {
                     for (const at::Tensor &tensor : tensors)
                         transit.in_pieces(tensor, true, true,
                                           [&](Tensors &piece) { return host.allreduce(piece, options); });
                 });
}

WorkPointer Backend::carry_reduce(const Tensors &tensors, const c10d::ReduceOptions &options, c10::Device device) {
    bool output = options.rootRank == rank_;
    return carry(c10d::OpType::REDUCE, "pccl:reduce", tensors, device,
                 [tensors, options = asynchronous(options), output](Backend &host, Transit &transit) {
                     for (const at::Tensor &tensor : tensors)
                         transit.in_pieces(tensor, true, output,
                                           [&](Tensors &piece) { return host.reduce(piece, options); });
                 });
}

WorkPointer Backend::carry_broadcast(const Tensors &tensors, const c10d::BroadcastOptions &options,
                                     c10::Device device) {
    bool root = options.rootRank == rank_;
    return carry(c10d::OpType::BROADCAST, "pccl:broadcast", tensors, device,
                 [tensors, options = asynchronous(options), root](Backend &host, Transit &transit) {
                     for (const at::Tensor &tensor : tensors)
                         transit.in_pieces(tensor, root, !root,
                                           [&](Tensors &piece) { return host.broadcast(piece, options); });
                 });
}

} // namespace pccl_torch
