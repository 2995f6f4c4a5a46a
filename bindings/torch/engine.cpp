/* SPDX-License-Identifier: MIT */
#include "engine.h"

#include <pthread.h>

#include <chrono>
#include <map>

#include "failure.h"

namespace pccl_torch {

Api api;

namespace {

constexpr std::chrono::seconds PATIENCE{1}; /* threads leave at once when the engine was halted */

std::atomic<unsigned> generation{0}; /* forks between the first process and this one */

struct Registry {
    std::mutex mutex;
    std::map<pccl_engine *, std::shared_ptr<Engine>> engines;
};

Registry &registry() {
    static auto *made = [] {
        pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1); });
        return new Registry;
    }();
    return *made;
}

} // namespace

/* ---------------------------------------------------------------- worker */

bool Worker::prepare() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) return false;
    if (!running_) thread_ = std::thread([this] { work(); });
    running_ = true;
    return true;
}

bool Worker::push(Job *job) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!running_) return false;
    job->next = nullptr;
    (last_ ? last_->next : first_) = job;
    last_ = job;
    news_.notify_one();
    return true;
}

void Worker::work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        news_.wait(lock, [this] { return first_ || stopping_; });
        if (!first_) break;
        Job *job = first_;
        first_ = job->next;
        if (!first_) last_ = nullptr;
        lock.unlock();
        job->run(job);
        lock.lock();
    }
    running_ = false; /* under the lock: whoever pushes from now on keeps the job */
}

bool Worker::stop() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = true;
        news_.notify_one();
    }
    if (!thread_.joinable()) return true;
    bool ours = thread_.get_id() == std::this_thread::get_id();
    if (ours)
        thread_.detach();
    else
        thread_.join();
    return !ours;
}

/* ---------------------------------------------------------------- engine */

Engine::Engine(pccl_engine *engine) : engine_(engine), generation_(generation.load()) {}

std::shared_ptr<Engine> Engine::at(pccl_engine *engine) {
    Registry &known = registry();
    std::lock_guard<std::mutex> lock(known.mutex);
    std::shared_ptr<Engine> &found = known.engines[engine];
    if (!found || found->foreign()) {
        if (found) new std::shared_ptr<Engine>(found); /* its threads and locks are the parent's: it cannot end here */
        found = std::make_shared<Engine>(engine);
    }
    return found;
}

bool Engine::close(pccl_engine *engine) {
    std::shared_ptr<Engine> found;
    {
        Registry &known = registry();
        std::lock_guard<std::mutex> lock(known.mutex);
        auto at = known.engines.find(engine);
        if (at == known.engines.end() || at->second->foreign()) return true;
        found = at->second;
        known.engines.erase(at);
    }
    return shut(found);
}

bool Engine::foreign() const { return generation_ != generation.load(std::memory_order_relaxed); }

/* Who comes in says so before it looks whether it may; who closes looks who is inside after it has said so. */
void Engine::enter() {
    if (foreign()) fail(PCCL_CLOSED, "this communicator belongs to the parent process");
    inside_.fetch_add(1);
    if (!closed_.load()) return;
    leave();
    fail(PCCL_CLOSED, "the communicator is closed");
}

void Engine::leave() {
    if (inside_.fetch_sub(1) != 1 || !closed_.load()) return;
    std::lock_guard<std::mutex> lock(mutex_);
    left_.notify_all();
}

bool Engine::shut(const std::shared_ptr<Engine> &engine) {
    engine->closed_.store(true);
    api.pccl_engine_halt(engine->engine_, PCCL_CLOSED, "the communicator was closed");
    {
        std::unique_lock<std::mutex> lock(engine->mutex_);
        if (!engine->left_.wait_for(lock, PATIENCE, [&] { return engine->inside_.load() == 0; })) return false;
    }
    bool lane_ended = engine->lane.stop(), completer_ended = engine->completer.stop();
    if (!lane_ended || !completer_ended) new std::shared_ptr<Engine>(engine); /* for good */
    return true;
}

} // namespace pccl_torch
