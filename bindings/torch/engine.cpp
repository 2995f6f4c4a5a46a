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

constexpr int IDLE_MOST = 2; /* threads that wait for jobs; those beyond end */

thread_local const void *works_for; /* the worker whose thread this is */

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
    std::lock_guard<std::mutex> lock(state_->mutex);
    if (!state_->stopping && state_->threads == 0) begin(state_);
    return !state_->stopping;
}

/* Under the lock. */
void Worker::begin(const std::shared_ptr<State> &state) {
    std::thread([state] { work(state); }).detach();
    state->threads++;
}

bool Worker::push(Job *job) {
    State &state = *state_;
    std::lock_guard<std::mutex> lock(state.mutex);
    if (state.threads == 0) return false;
    job->next = nullptr;
    (state.last ? state.last->next : state.first) = job;
    state.last = job;
    state.news.notify_one();
    return true;
}

void Worker::work(const std::shared_ptr<State> &state) {
    std::unique_lock<std::mutex> lock(state->mutex);
    works_for = state.get();
    for (;;) {
        state->idle++;
        state->news.wait(lock, [&] { return state->first || state->stopping || state->idle > IDLE_MOST; });
        state->idle--;
        Job *job = state->first;
        if (!job) break;
        state->first = job->next;
        if (!state->first) state->last = nullptr;
        if (state->spare && state->idle == 0) begin(state);
        lock.unlock();
        job->run(job);
        lock.lock();
    }
    state->threads--; /* under the lock: whoever pushes when none is left keeps the job */
    state->gone.notify_all();
}

void Worker::stop() {
    State &state = *state_;
    std::unique_lock<std::mutex> lock(state.mutex);
    state.stopping = true;
    state.news.notify_all();
    if (works_for == &state) return;
    state.gone.wait_for(lock, PATIENCE, [&] { return state.threads == 0; });
}

/* ---------------------------------------------------------------- engine */

Engine::Engine(pccl_engine *engine) : engine_(engine), generation_(generation.load()) {}

std::shared_ptr<Engine> Engine::at(pccl_engine *engine) {
    Registry &known = registry();
    std::lock_guard<std::mutex> lock(known.mutex);
    std::shared_ptr<Engine> &found = known.engines[engine];
    if (found && found->foreign()) new std::shared_ptr<Engine>(found); /* its locks are the parent's: it cannot end */
    if (!found || found->foreign()) found = std::make_shared<Engine>(engine);
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
    return found->shut();
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

bool Engine::shut() {
    closed_.store(true);
    api.pccl_engine_halt(engine_, PCCL_CLOSED, "the communicator was closed");
    {
        std::unique_lock<std::mutex> lock(mutex_);
        if (!left_.wait_for(lock, PATIENCE, [this] { return inside_.load() == 0; })) return false;
    }
    lane.stop();
    carrier.stop();
    completer.stop();
    return true;
}

} // namespace pccl_torch
