/* SPDX-License-Identifier: MIT */
#include "errand.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "failure.h"

namespace pccl_torch {

using std::chrono::milliseconds;

struct Errand::Job : Worker::Job {
    c10::intrusive_ptr<Errand> errand;
    std::function<void()> steps;
};

namespace {

std::vector<c10::Device> devices_of(c10::Device device) {
    return device.is_cpu() ? std::vector<c10::Device>() : std::vector<c10::Device>{device};
}

} // namespace

Errand::Errand(std::shared_ptr<const Standing> standing, int rank, c10d::OpType type, const char *title,
               uint64_t sequence, std::vector<at::Tensor> outputs, c10::Device device)
    : c10d::Work(rank, type, title), standing_(std::move(standing)), outputs_(std::move(outputs)), sequence_(sequence),
      device_(device), future_(c10::make_intrusive<Future>(c10::ListType::ofTensors(), devices_of(device))) {}

c10::intrusive_ptr<Errand> Errand::send(Worker &worker, c10::intrusive_ptr<Errand> errand,
                                        std::function<void()> steps) {
    Engine::Visit visit(*errand->standing_->engine); /* while we are inside, the thread is not stopped */
    auto job = std::make_unique<Job>();
    job->run = done;
    job->errand = errand;
    job->steps = std::move(steps);
    if (!worker.prepare() || !worker.push(job.get())) fail(PCCL_CLOSED, "the communicator is closed");
    job.release();
    return errand;
}

void Errand::done(Worker::Job *taken) {
    std::unique_ptr<Job> job(static_cast<Job *>(taken));
    std::exception_ptr how;
    try {
        job->steps();
    } catch (...) {
        how = std::current_exception();
    }
    job->errand->part_ended(how);
}

void Errand::part_begins(c10::intrusive_ptr<c10d::Work> part) {
    parts_.fetch_add(1);
    std::lock_guard<std::mutex> lock(how_mutex_);
    part_ = std::move(part);
}

void Errand::part_ended(std::exception_ptr how) {
    if (how) {
        std::lock_guard<std::mutex> lock(how_mutex_);
        if (!how_) how_ = how;
    }
    if (parts_.fetch_sub(1) == 1) finished();
}

/* By whoever ended the last part. */
void Errand::finished() {
    c10::OptionalStreamGuard guard;
    if (stream) guard.reset_stream(*stream); /* the future's own event is recorded there, too */
    try {
        if (last && !how_) last();
        if (stream && !how_) {
            event_.emplace(device_.type());
            event_->record(*stream);
        }
    } catch (...) {
        how_ = std::current_exception();
    }
    last = nullptr;
    finish(how_);
    if (how_)
        future_->setError(how_);
    else
        future_->markCompleted(c10::List<at::Tensor>(outputs_));
}

int Errand::sourceRank() const {
    std::lock_guard<std::mutex> lock(how_mutex_);
    return part_ ? part_->sourceRank() : -1;
}

bool Errand::wait(milliseconds timeout) {
    constexpr milliseconds SLICE{200};
    auto deadline = std::chrono::steady_clock::now() + timeout;
    std::unique_lock<std::mutex> lock(mutex_);
    while (
        !cv_.wait_for(lock, timeout == kNoTimeout ? SLICE : std::min(SLICE, timeout), [this] { return completed_; })) {
        if (standing_->aborted.load()) fail(PCCL_ABORTED, "the group was aborted");
        if (timeout != kNoTimeout && std::chrono::steady_clock::now() >= deadline)
            fail(PCCL_TIMEOUT, "not ended within " + std::to_string(timeout.count()) + " ms");
    }
    if (exception_) std::rethrow_exception(exception_);
    lock.unlock();
    synchronize();
    return true;
}

void Errand::synchronize() {
    if (event_) event_->block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

} // namespace pccl_torch
