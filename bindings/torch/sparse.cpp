/* SPDX-License-Identifier: MIT
 *
 * sparse.cpp - the sum of sparse tensors: all ranks tell how many entries they have, then gather all entries, and add
 * them up.
 *
 * Three operations, one after the other, on a tag of their own (that of pccl/torch/sparse.py), so that nothing else of
 * the group can come between them.
 */
#include <ATen/ATen.h>

#include "backend.h"
#include "errand.h"
#include "failure.h"

namespace pccl_torch {

namespace {

struct Steps {
    std::shared_ptr<const Standing> standing;
    std::shared_ptr<const Group> group;
    std::chrono::milliseconds timeout;

    Draft draft() const { return Draft(standing, group, c10d::OpType::UNKNOWN, nullptr, 0, timeout, {}); }

    std::vector<int64_t> lengths(int64_t own) const {
        Draft draft = this->draft();
        std::vector<int64_t> all(group->size());
        pccl_call call = draft.call(PCCL_ALL_GATHER);
        call.dtype = PCCL_INT64;
        call.count = 1;
        call.input = &own;
        call.output = all.data();
        draft.add(call);
        draft.launch(true);
        return all;
    }

    /* The rows of all ranks, which have so many each. */
    at::Tensor rows(const at::Tensor &own, const std::vector<int64_t> &lengths, int64_t sum) const {
        Draft draft = this->draft();
        std::vector<int64_t> shape = own.sizes().vec();
        shape[0] = sum;
        at::Tensor all = at::empty(shape, own.options());
        uint64_t width = 1;
        for (size_t i = 1; i < shape.size(); i++) width *= static_cast<uint64_t>(shape[i]);
        Counts counts;
        for (int64_t length : lengths) counts.push_back(static_cast<uint64_t>(length) * width);
        Kind kind = kind_of(own.scalar_type());
        pccl_call call = draft.call(PCCL_ALL_GATHER);
        call.flags |= PCCL_UNEVEN;
        call.dtype = kind.dtype;
        call.count = kind.count(own);
        call.input = draft.reads(own, "the entries");
        call.output = draft.writes(all, "all entries");
        call.output_counts = draft.counts(std::move(counts)).data();
        draft.add(call);
        draft.launch(true);
        return all;
    }

    void operator()(at::Tensor tensor) const {
        at::Tensor own = tensor.detach().coalesce();
        std::vector<int64_t> lengths = this->lengths(own._nnz());
        int64_t sum = 0;
        for (int64_t length : lengths) sum += length;
        at::Tensor indices = rows(own.indices().t().contiguous().to(at::kCPU), lengths, sum);
        at::Tensor values = rows(own.values().contiguous().to(at::kCPU), lengths, sum);
        at::Tensor summed = at::sparse_coo_tensor(indices.t(), values, tensor.sizes()).coalesce();
        at::NoGradGuard no_grad;
        tensor.copy_(summed);
    }
};

} // namespace

WorkPointer Backend::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &options) {
    check_open();
    double factor;
    if (reduction(options.reduceOp, &factor) != PCCL_SUM)
        fail(PCCL_INVALID, "sparse tensors can be summed, and nothing else");
    if (tensors.size() != 1 || tensors[0].layout() != at::kSparse)
        fail(PCCL_INVALID, "one sparse tensor in coordinates is expected");
    check_reducible(tensors[0]);
    auto group = std::make_shared<Group>(*this->group());
    group->tag = tag_of(group->key + " sparse");
    uint64_t sequence = sequence_->fetch_add(1) + 1;
    std::shared_ptr<Standing> standing = this->standing();
    auto errand = c10::make_intrusive<Errand>(standing, rank_, c10d::OpType::_ALLREDUCE_SPARSE,
                                              "pccl:all_reduce_sparse", sequence, tensors, at::kCPU);
    Steps steps{standing, group, options.timeout};
    at::Tensor tensor = tensors[0]; /* not its alias: a copy replaces the parts of a sparse tensor */
    return Errand::send(standing->engine->lane, std::move(errand), [steps, tensor] { steps(tensor); });
}

} // namespace pccl_torch
