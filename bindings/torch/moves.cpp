/* SPDX-License-Identifier: MIT
 *
 * moves.cpp - the operations of the backend that only move values.
 */
#include <ATen/ATen.h>

#include "device.h"
#include "failure.h"

namespace pccl_torch {

using std::chrono::milliseconds;

namespace {

void check_list(const Tensors &tensors, const char *name, const Group &group) {
    if (tensors.size() != group.size())
        fail(PCCL_INVALID, std::string(name) + " has " + std::to_string(tensors.size()) +
                               " tensors, but the group has " + std::to_string(group.size()) + " ranks");
}

const at::Tensor &only(const Tensors &tensors) {
    if (tensors.size() != 1) fail(PCCL_INVALID, "one tensor is expected, not " + std::to_string(tensors.size()));
    return tensors[0];
}

/* Elements for each rank, of splits in rows of the first dimension; none: equal ones. */
Counts rows_of(const at::Tensor &tensor, const std::vector<int64_t> &splits, const char *name, uint32_t size) {
    int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 1, sum = 0;
    uint64_t width = rows > 0 ? kind_of(tensor.scalar_type()).count(tensor) / static_cast<uint64_t>(rows) : 0;
    if (splits.empty()) {
        if (rows % size != 0)
            fail(PCCL_INVALID, std::string(name) + " has " + std::to_string(rows) +
                                   " rows, which do not split evenly among " + std::to_string(size) + " ranks");
        return Counts(size, static_cast<uint64_t>(rows / size) * width);
    }
    Counts counts;
    for (int64_t split : splits) {
        if (split < 0) fail(PCCL_INVALID, std::string(name) + ": a split of " + std::to_string(split) + " rows");
        sum += split;
        counts.push_back(static_cast<uint64_t>(split) * width);
    }
    if (splits.size() != size || sum != rows)
        fail(PCCL_INVALID, std::string(name) + " has " + std::to_string(rows) + " rows for " + std::to_string(size) +
                               " ranks, but " + std::to_string(splits.size()) + " splits of " + std::to_string(sum) +
                               " rows in all");
    return counts;
}

/* The engine's tag of torch's `tag` between two ranks. */
uint64_t pair_tag(const Group &group, int tag) {
    std::string text = group.key + '\0';
    auto value = static_cast<uint64_t>(static_cast<int64_t>(tag));
    for (int i = 0; i < 8; i++) text += static_cast<char>(value >> (8 * i) & 0xFF);
    return tag_of(text);
}

pccl_call pair_call(const Draft &draft, pccl_collective collective, const at::Tensor &tensor, int tag) {
    Kind kind = kind_of(tensor.scalar_type());
    pccl_call call = draft.call(collective);
    call.scope = 0;
    call.tag = pair_tag(draft.group(), tag);
    call.dtype = kind.dtype;
    call.count = kind.count(tensor);
    return call;
}

uint32_t peer(const Group &group, int rank, const char *name) {
    if (rank < 0 || rank >= static_cast<int>(group.size()))
        fail(PCCL_INVALID, std::string(name) + " must be a rank from 0 to " + std::to_string(group.size() - 1) +
                               ", not " + std::to_string(rank));
    return group.ranks[static_cast<size_t>(rank)];
}

} // namespace

uint64_t tag_of(const std::string &text) {
    uint8_t digest[16];
    api.pccl_hash128(text.data(), text.size(), digest);
    uint64_t first = 0;
    for (int i = 0; i < 8; i++) first = first << 8 | digest[i];
    return first >> 1;
}

WorkPointer Backend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) {
    if (auto device = device_of(tensors)) return carry_broadcast(tensors, options, *device);
    Draft draft = this->draft(c10d::OpType::BROADCAST, "pccl:broadcast", options.timeout, tensors);
    for (const at::Tensor &tensor : tensors) {
        check_target(tensor, "the tensor"); /* at the root, too: all ranks get the same answer */
        Kind kind = kind_of(tensor.scalar_type());
        pccl_call call = draft.call(PCCL_BROADCAST);
        call.root = static_cast<uint32_t>(options.rootRank);
        call.dtype = kind.dtype;
        call.count = kind.count(tensor);
        if (call.root == draft.group().index) {
            call.input = draft.reads(tensor, "the tensor");
            call.output = const_cast<void *>(call.input); /* in place: nothing is written */
        } else {
            call.output = draft.writes(tensor, "the tensor");
        }
        draft.add(call);
    }
    draft.outputs() = tensors;
    return launch(draft, options.asyncOp);
}

/* ---------------------------------------------------------------- all gather */

void Backend::draft_all_gather(Draft &draft, const at::Tensor &output, const at::Tensor &input) {
    check_alike(output, input);
    Kind kind = kind_of(input.scalar_type());
    pccl_call call = draft.call(PCCL_ALL_GATHER);
    call.dtype = kind.dtype;
    call.count = kind.count(input);
    if (kind.count(output) != call.count * draft.group().size())
        fail(PCCL_INVALID, "the output has " + std::to_string(output.numel()) + " elements, but the input " +
                               std::to_string(input.numel()) + ", and there are " +
                               std::to_string(draft.group().size()) + " ranks");
    call.input = draft.reads(input, "the input");
    call.output = draft.writes(output, "the output");
    draft.add(call);
    draft.outputs().push_back(output);
}

void Backend::draft_all_gather_list(Draft &draft, const Tensors &outputs, const at::Tensor &input) {
    const Group &group = draft.group();
    check_list(outputs, "tensor_list", group);
    check_alike(outputs[0], input);
    Kind kind = kind_of(input.scalar_type());
    const Counts &counts = draft.counts(outputs);
    pccl_call call = draft.call(PCCL_ALL_GATHER);
    call.dtype = kind.dtype;
    call.count = kind.count(input);
    if (call.count != counts[group.index])
        fail(PCCL_INVALID, "the input has " + std::to_string(input.numel()) +
                               " elements, but the output for this rank " +
                               std::to_string(outputs[group.index].numel()));
    call.input = draft.reads(input, "the input");
    call.output = draft.writes_all(outputs, "tensor_list");
    if (!same_counts(counts)) {
        call.flags |= PCCL_UNEVEN;
        call.output_counts = counts.data();
    }
    draft.add(call);
    draft.outputs().insert(draft.outputs().end(), outputs.begin(), outputs.end());
}

WorkPointer Backend::allgather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &options) {
    if (auto device = device_of(inputs))
        return carry_moves(c10d::OpType::ALLGATHER, "pccl:all_gather", outputs, inputs, *device,
                           [options = asynchronous(options)](Backend &host, auto &to, auto &from) mutable {
                               return host.allgather(to, from, options);
                           });
    if (outputs.size() != inputs.size()) fail(PCCL_INVALID, "there are not as many inputs as lists of outputs");
    Draft draft = this->draft(c10d::OpType::ALLGATHER, "pccl:all_gather", options.timeout, inputs);
    for (size_t i = 0; i < inputs.size(); i++) draft_all_gather_list(draft, outputs[i], inputs[i]);
    return launch(draft, options.asyncOp);
}

/* Torch has these outputs by rank. */
WorkPointer Backend::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                         const c10d::AllgatherOptions &options) {
    if (auto device = device_of(inputs))
        return carry_moves(c10d::OpType::ALLGATHER_COALESCED, "pccl:all_gather_coalesced", outputs, inputs, *device,
                           [options = asynchronous(options)](Backend &host, auto &to, auto &from) mutable {
                               return host.allgather_coalesced(to, from, options);
                           });
    Draft draft = this->draft(c10d::OpType::ALLGATHER_COALESCED, "pccl:all_gather_coalesced", options.timeout, inputs);
    for (size_t i = 0; i < inputs.size(); i++) {
        Tensors by_rank;
        for (const Tensors &of_rank : outputs) {
            if (of_rank.size() != inputs.size())
                fail(PCCL_INVALID, "each rank needs as many outputs as there are inputs");
            by_rank.push_back(of_rank[i]);
        }
        draft_all_gather_list(draft, by_rank, inputs[i]);
    }
    return launch(draft, options.asyncOp);
}

WorkPointer Backend::_allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &options) {
    if (auto device = device_of(Tensors{input}))
        return carry_moves(c10d::OpType::_ALLGATHER_BASE, "pccl:all_gather_into_tensor", Tensors{output},
                           Tensors{input}, *device,
                           [options = asynchronous(options)](Backend &host, auto &to, auto &from) mutable {
                               return host._allgather_base(to[0], from[0], options);
                           });
    Draft draft = this->draft(c10d::OpType::_ALLGATHER_BASE, "pccl:all_gather_into_tensor", options.timeout, {input});
    draft_all_gather(draft, output, input);
    return launch(draft, options.asyncOp);
}

WorkPointer Backend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                     const c10d::AllgatherOptions &options) {
    if (auto device = device_of(inputs))
        return carry_moves(c10d::OpType::COALESCED, "pccl:all_gather_into_tensor_coalesced", outputs, inputs, *device,
                           [options = asynchronous(options)](Backend &host, auto &to, auto &from) mutable {
                               return host.allgather_into_tensor_coalesced(to, from, options);
                           });
    if (outputs.size() != inputs.size()) fail(PCCL_INVALID, "there are not as many inputs as outputs");
    Draft draft =
        this->draft(c10d::OpType::COALESCED, "pccl:all_gather_into_tensor_coalesced", options.timeout, inputs);
    for (size_t i = 0; i < inputs.size(); i++) draft_all_gather(draft, outputs[i], inputs[i]);
    return launch(draft, options.asyncOp);
}

/* ---------------------------------------------------------------- to one, from one, from each to each */

/* Only the two ends of a part know its length, so all members call these uneven. */
WorkPointer Backend::gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &options) {
    if (auto device = device_of(inputs))
        return carry_moves(c10d::OpType::GATHER, "pccl:gather", outputs, inputs, *device,
                           [options = asynchronous(options)](Backend &host, auto &to, auto &from) mutable {
                               return host.gather(to, from, options);
                           });
    Draft draft = this->draft(c10d::OpType::GATHER, "pccl:gather", options.timeout, inputs);
    const at::Tensor &input = only(inputs);
    Kind kind = kind_of(input.scalar_type());
    pccl_call call = draft.call(PCCL_GATHER);
    call.flags |= PCCL_UNEVEN;
    call.root = static_cast<uint32_t>(options.rootRank);
    call.dtype = kind.dtype;
    call.count = kind.count(input);
    if (call.root == draft.group().index) {
        if (outputs.size() != 1) fail(PCCL_INVALID, "the root of a gather needs one list of outputs");
        check_list(outputs[0], "gather_list", draft.group());
        check_alike(outputs[0][0], input);
        call.output_counts = draft.counts(outputs[0]).data();
        call.output = draft.writes_all(outputs[0], "gather_list");
        draft.outputs() = outputs[0];
    } else if (!outputs.empty() && !outputs[0].empty()) {
        fail(PCCL_INVALID, "only the root of a gather has outputs");
    }
    call.input = draft.reads(input, "the input");
    draft.add(call);
    return launch(draft, options.asyncOp);
}

WorkPointer Backend::scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &options) {
    if (auto device = device_of(outputs))
        return carry_moves(c10d::OpType::SCATTER, "pccl:scatter", outputs, inputs, *device,
                           [options = asynchronous(options)](Backend &host, auto &to, auto &from) mutable {
                               return host.scatter(to, from, options);
                           });
    Draft draft =
        this->draft(c10d::OpType::SCATTER, "pccl:scatter", options.timeout, inputs.empty() ? Tensors() : inputs[0]);
    const at::Tensor &output = only(outputs);
    Kind kind = kind_of(output.scalar_type());
    pccl_call call = draft.call(PCCL_SCATTER);
    call.flags |= PCCL_UNEVEN;
    call.root = static_cast<uint32_t>(options.rootRank);
    call.dtype = kind.dtype;
    call.count = kind.count(output);
    if (call.root == draft.group().index) {
        if (inputs.size() != 1) fail(PCCL_INVALID, "the root of a scatter needs one list of inputs");
        check_list(inputs[0], "scatter_list", draft.group());
        check_alike(output, inputs[0][0]);
        call.input_counts = draft.counts(inputs[0]).data();
        call.input = draft.reads_all(inputs[0], "scatter_list");
    } else if (!inputs.empty() && !inputs[0].empty()) {
        fail(PCCL_INVALID, "only the root of a scatter has inputs");
    }
    call.output = draft.writes(output, "the output");
    draft.add(call);
    draft.outputs() = outputs;
    return launch(draft, options.asyncOp);
}

WorkPointer Backend::alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                                   std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &options) {
    if (auto device = device_of(Tensors{input}))
        return carry_moves(c10d::OpType::ALLTOALL_BASE, "pccl:all_to_all_single", Tensors{output}, Tensors{input},
                           *device,
                           [options = asynchronous(options), output_splits, input_splits](Backend &host, auto &to,
                                                                                          auto &from) mutable {
                               return host.alltoall_base(to[0], from[0], output_splits, input_splits, options);
                           });
    Draft draft = this->draft(c10d::OpType::ALLTOALL_BASE, "pccl:all_to_all_single", options.timeout, {input});
    check_alike(output, input);
    pccl_call call = draft.call(PCCL_ALL_TO_ALL);
    call.flags |= PCCL_UNEVEN;
    call.dtype = kind_of(input.scalar_type()).dtype;
    call.input_counts = draft.counts(rows_of(input, input_splits, "the input", draft.group().size())).data();
    call.output_counts = draft.counts(rows_of(output, output_splits, "the output", draft.group().size())).data();
    call.input = draft.reads(input, "the input");
    call.output = draft.writes(output, "the output");
    draft.add(call);
    draft.outputs().push_back(output);
    return launch(draft, options.asyncOp);
}

WorkPointer Backend::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options) {
    if (auto device = device_of(inputs))
        return carry_moves(c10d::OpType::ALLTOALL, "pccl:all_to_all", outputs, inputs, *device,
                           [options = asynchronous(options)](Backend &host, auto &to, auto &from) mutable {
                               return host.alltoall(to, from, options);
                           });
    Draft draft = this->draft(c10d::OpType::ALLTOALL, "pccl:all_to_all", options.timeout, inputs);
    check_list(outputs, "output_tensor_list", draft.group());
    check_list(inputs, "input_tensor_list", draft.group());
    check_alike(outputs[0], inputs[0]);
    pccl_call call = draft.call(PCCL_ALL_TO_ALL);
    call.flags |= PCCL_UNEVEN;
    call.dtype = kind_of(inputs[0].scalar_type()).dtype;
    call.input_counts = draft.counts(inputs).data();
    call.output_counts = draft.counts(outputs).data();
    call.input = draft.reads_all(inputs, "input_tensor_list");
    call.output = draft.writes_all(outputs, "output_tensor_list");
    draft.add(call);
    draft.outputs() = outputs;
    return launch(draft, options.asyncOp);
}

#ifdef C10D_BACKEND_HAS_RECONFIGURE
WorkPointer Backend::gather_into_tensor(at::Tensor &output, at::Tensor &input, const c10d::GatherOptions &options) {
    std::vector<Tensors> outputs;
    Tensors inputs{input};
    if (options.rootRank == rank_) {
        if (output.numel() != input.numel() * size_)
            fail(PCCL_INVALID, "the output has " + std::to_string(output.numel()) + " elements, but the input " +
                                   std::to_string(input.numel()) + ", and there are " + std::to_string(size_) +
                                   " ranks");
        outputs.push_back(output.view({size_, -1}).unbind(0));
    }
    return gather(outputs, inputs, options);
}
#endif

/* ---------------------------------------------------------------- from one to another */

WorkPointer Backend::send(Tensors &tensors, int to, int tag) {
    if (auto device = device_of(tensors))
        return carry_moves(c10d::OpType::SEND, "pccl:send", Tensors(), tensors, *device,
                           [to, tag](Backend &host, auto &, auto &from) mutable { return host.send(from, to, tag); });
    Draft draft = this->draft(c10d::OpType::SEND, "pccl:send", c10d::kUnsetTimeout, tensors);
    const at::Tensor &tensor = only(tensors);
    pccl_call call = pair_call(draft, PCCL_SEND, tensor, tag);
    call.root = peer(draft.group(), to, "dst");
    call.input = draft.reads(tensor, "the tensor");
    draft.add(call);
    draft.outputs() = tensors;
    return launch(draft, true);
}

WorkPointer Backend::receive(Tensors &tensors, uint32_t from, int tag, c10d::OpType type, const char *title) {
    Draft draft = this->draft(type, title, c10d::kUnsetTimeout, tensors);
    const at::Tensor &tensor = only(tensors);
    pccl_call call = pair_call(draft, PCCL_RECV, tensor, tag);
    call.root = from;
    call.output = draft.writes(tensor, "the tensor");
    draft.add(call);
    draft.outputs() = tensors;
    return launch(draft, true);
}

WorkPointer Backend::recv(Tensors &tensors, int from, int tag) {
    if (auto device = device_of(tensors))
        return carry_moves(c10d::OpType::RECV, "pccl:recv", tensors, Tensors(), *device,
                           [from, tag](Backend &host, auto &to, auto &) { return host.recv(to, from, tag); });
    return receive(tensors, peer(*group(), from, "src"), tag, c10d::OpType::RECV, "pccl:recv");
}

WorkPointer Backend::recvAnysource(Tensors &tensors, int tag) {
    if (auto device = device_of(tensors))
        return carry_moves(c10d::OpType::RECVANYSOURCE, "pccl:recv_any_source", tensors, Tensors(), *device,
                           [tag](Backend &host, auto &to, auto &) { return host.recvAnysource(to, tag); });
    return receive(tensors, PCCL_ANY_SOURCE, tag, c10d::OpType::RECVANYSOURCE, "pccl:recv_any_source");
}

} // namespace pccl_torch
