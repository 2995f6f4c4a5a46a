/* SPDX-License-Identifier: MIT */
#include "errand.h"

#include "failure.h"

namespace pccl_torch {

struct Errand::Job : Worker::Job {
    c10::intrusive_ptr<Errand> errand;
    std::function<void()> steps;
};

Errand::Errand(int rank, c10d::OpType type, const char *title, uint64_t sequence, std::vector<at::Tensor> outputs)
    : c10d::Work(rank, type, title), outputs_(std::move(outputs)), sequence_(sequence),
      future_(c10::make_intrusive<Future>(c10::ListType::ofTensors())) {}

c10::intrusive_ptr<Errand> Errand::send(Engine &engine, c10::intrusive_ptr<Errand> errand,
                                        std::function<void()> steps) {
    Engine::Visit visit(engine); /* while we are inside, the thread is not stopped */
    auto job = std::make_unique<Job>();
    job->run = done;
    job->errand = errand;
    job->steps = std::move(steps);
    if (!engine.lane.prepare() || !engine.lane.push(job.get())) fail(PCCL_CLOSED, "the communicator is closed");
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
    job->errand->finish(how);
    if (how)
        job->errand->future_->setError(how);
    else
        job->errand->future_->markCompleted(c10::List<at::Tensor>(job->errand->outputs_));
}

} // namespace pccl_torch
