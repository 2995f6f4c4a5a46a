/* SPDX-License-Identifier: MIT */
#include "work.h"

#include <algorithm>

#include "failure.h"

namespace pccl_torch {

using std::chrono::milliseconds;

Work::Work(Flight *flight, std::shared_ptr<const Group> group, c10d::OpType type, const char *title, uint64_t sequence,
           const std::optional<std::vector<at::Tensor>> &inputs)
    : c10d::Work(static_cast<int>(group->index), type, title, inputs), flight_(flight), group_(std::move(group)),
      sequence_(sequence) {
    if (recordFunctionEndCallback_) flight_->told = std::move(recordFunctionEndCallback_);
}

Work::~Work() { flight_->leave(); }

bool Work::isCompleted() {
    if (!flight_->ended()) return false;
    flight_->outcome();
    return true;
}

bool Work::isSuccess() const { return flight_->ended() && !flight_->outcome(); }

std::exception_ptr Work::exception() const { return flight_->ended() ? flight_->outcome() : nullptr; }

int Work::sourceRank() const {
    if (!isSuccess()) fail(PCCL_INVALID, "the source is known once the receive has succeeded");
    auto found = std::find(group_->ranks.begin(), group_->ranks.end(), flight_->source());
    return found == group_->ranks.end() ? -1 : static_cast<int>(found - group_->ranks.begin());
}

std::vector<at::Tensor> Work::result() { return flight_->outputs; }

void Work::synchronize() { wait(kNoTimeout); }

bool Work::wait(milliseconds timeout) {
    if (!flight_->ended() && !flight_->wait(timeout == kNoTimeout ? milliseconds(-1) : timeout))
        fail(PCCL_TIMEOUT, "not ended within " + std::to_string(timeout.count()) + " ms: " + flight_->describe());
    if (std::exception_ptr how = flight_->outcome()) std::rethrow_exception(how);
    return true;
}

void Work::abort() { fail(PCCL_UNSUPPORTED, "a single operation cannot be aborted: abort its group"); }

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() { return flight_->future(); }

uint64_t Work::getSequencenumber() const { return sequence_; }

/* ---------------------------------------------------------------- several */

Works::Works(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works)
    : c10d::Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}

bool Works::isCompleted() {
    return std::all_of(works_.begin(), works_.end(), [](const auto &work) { return work->isCompleted(); });
}

bool Works::isSuccess() const {
    return std::all_of(works_.begin(), works_.end(), [](const auto &work) { return work->isSuccess(); });
}

std::exception_ptr Works::exception() const {
    for (const auto &work : works_)
        if (std::exception_ptr how = work->exception()) return how;
    return nullptr;
}

std::vector<at::Tensor> Works::result() {
    std::vector<at::Tensor> all;
    for (const auto &work : works_)
        for (at::Tensor &tensor : work->result()) all.push_back(std::move(tensor));
    return all;
}

void Works::synchronize() {
    for (const auto &work : works_) work->synchronize();
}

bool Works::wait(milliseconds timeout) {
    auto deadline = std::chrono::steady_clock::now() + timeout;
    for (const auto &work : works_) {
        milliseconds left = timeout;
        if (timeout != kNoTimeout)
            left =
                std::max(milliseconds(1), std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now()));
        work->wait(left);
    }
    return true;
}

c10::intrusive_ptr<c10::ivalue::Future> Works::getFuture() {
    c10::List<c10::intrusive_ptr<c10::ivalue::Future>> futures(c10::FutureType::create(c10::ListType::ofTensors()));
    for (const auto &work : works_) futures.push_back(work->getFuture());
    return c10::collectAll(futures)->then(
        [results = result()](c10::ivalue::Future &all) {
            for (const c10::IValue &each : all.value().toListRef()) each.toFuture()->value(); /* throws its failure */
            return c10::IValue(c10::List<at::Tensor>(results));
        },
        c10::ListType::ofTensors());
}

} // namespace pccl_torch
