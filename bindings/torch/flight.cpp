/* SPDX-License-Identifier: MIT */
#include "flight.h"

#include "failure.h"

namespace pccl_torch {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds SLICE{200}; /* how long an abort may go unnoticed by who waits */

c10::IValue value_of(const std::vector<at::Tensor> &outputs) { return c10::List<at::Tensor>(outputs); }

} // namespace

Flight::Flight(std::shared_ptr<const Standing> standing) : standing_(std::move(standing)) { run = completed; }

Flight::~Flight() {
    if (standing_->engine->foreign()) return; /* the engine is the parent's */
    for (pccl_operation *operation : operations_) api.pccl_operation_free(operation);
}

/* ---------------------------------------------------------------- what the engine tells */

void Flight::operation_ended(void *flight) {
    static_cast<Flight *>(flight)->ends_.fetch_add(1);
    static_cast<Flight *>(flight)->one_ended();
}

void Flight::one_ended() {
    if (open_.fetch_sub(1) != 1) return;
    bool wanted = state_.fetch_or(ENDED) & WANTED;
    if (wanted && standing_->engine->completer.push(this)) return;
    if (owners_.fetch_sub(1) == 1) standing_->engine->completer.push(this);
}

/* On the completer. */
void Flight::completed(Job *job) {
    auto *flight = static_cast<Flight *>(job);
    if (flight->owners_.load() > 0) { /* a future waits */
        flight->complete();
        flight->drop();
        return;
    }
    flight->settle(); /* nobody asked, but results that are staged are to arrive */
    delete flight;
}

void Flight::drop() {
    if (owners_.fetch_sub(1) != 1) return;
    settle();
    delete this;
}

void Flight::leave() {
    if (!ended() && !standing_->engine->foreign()) standing_->engine->completer.prepare();
    drop();
}

/* ---------------------------------------------------------------- start and wait */

void Flight::start(pccl_call call, bool now) {
    Engine::Visit visit(*standing_->engine);
    pccl_operation *operation = nullptr;
    pccl_error error;
    call.ended = operation_ended;
    call.context = this;
    operations_.reserve(operations_.size() + 1);
    int ends = ends_.load();
    open_.fetch_add(1);
    pccl_engine *engine = standing_->engine->get();
    pccl_status status = now ? api.pccl_run(engine, &call, SLICE.count(), &operation, &info_, &error)
                             : api.pccl_start(engine, &call, &operation, &error);
    if (operation) operations_.push_back(operation);
    if (status == PCCL_OK) return;
    if (status == PCCL_PENDING) {
        wait_for(operation, Clock::time_point::max());
        return;
    }
    if (ends_.load() == ends) open_.fetch_sub(1); /* there is no operation: the last one open is the seal */
    fail(status, error.message);
}

void Flight::sealed() { one_ended(); }

bool Flight::wait_for(pccl_operation *operation, Clock::time_point deadline) {
    while (!api.pccl_done(operation)) {
        if (standing_->aborted.load()) fail(PCCL_ABORTED, "the group was aborted");
        Clock::time_point now = Clock::now();
        if (now >= deadline) return false;
        milliseconds left = deadline - now < SLICE ? std::chrono::ceil<milliseconds>(deadline - now) : SLICE;
        Engine::Visit visit(*standing_->engine);
        api.pccl_wait(operation, left.count(), nullptr, nullptr);
    }
    return true;
}

bool Flight::wait(milliseconds timeout) {
    Clock::time_point deadline = timeout.count() < 0 ? Clock::time_point::max() : Clock::now() + timeout;
    for (pccl_operation *operation : operations_)
        if (!wait_for(operation, deadline)) return false;
    return true;
}

std::string Flight::describe() {
    char text[PCCL_MESSAGE_BYTES];
    for (pccl_operation *operation : operations_) {
        if (api.pccl_done(operation)) continue;
        Engine::Visit visit(*standing_->engine);
        api.pccl_describe(operation, text, sizeof text);
        return text;
    }
    return "it has ended by now";
}

/* ---------------------------------------------------------------- outcome */

void Flight::settle() {
    std::vector<at::Tensor> lent; /* freed without the lock: that may need Python's */
    std::function<void()> done, tell;
    std::unique_lock<std::mutex> lock(mutex_);
    if (settled_) return;
    for (pccl_operation *operation : operations_) {
        pccl_error error;
        pccl_status status = api.pccl_wait(operation, 0, &info_, &error);
        if (status != PCCL_OK && !exception_) exception_ = failure(status, error.message);
    }
    lent.swap(borrowed);
    done.swap(finish);
    tell.swap(told);
    try {
        if (done && !exception_) done();
    } catch (...) {
        exception_ = std::current_exception();
    }
    settled_ = true;
    lock.unlock();
    if (tell) tell();
}

std::exception_ptr Flight::outcome() {
    settle();
    std::lock_guard<std::mutex> lock(mutex_);
    return exception_;
}

void Flight::complete() {
    std::exception_ptr how = outcome();
    if (how)
        future_->setError(how);
    else
        future_->markCompleted(value_of(outputs));
}

c10::intrusive_ptr<Flight::Future> Flight::future() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (future_) return future_;
        future_ = c10::make_intrusive<Future>(c10::ListType::ofTensors());
    }
    standing_->engine->completer.prepare();
    if (state_.fetch_or(WANTED) & ENDED) complete();
    return future_;
}

} // namespace pccl_torch
