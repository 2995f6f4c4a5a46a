/* SPDX-License-Identifier: MIT
 *
 * engine.h - one pccl_engine as all backends over it see it: who is inside, and threads, made when they are needed.
 *
 * Must not know: torch's collectives. Python makes the engine and frees it; it closes this door first, so nobody can
 * meet a freed one. Nothing here is destroyed when the process exits: threads may still run then.
 */
#ifndef PCCL_TORCH_ENGINE_H
#define PCCL_TORCH_ENGINE_H

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "api.h"

namespace pccl_torch {

/* Does jobs on a thread of its own, in their order. With `spare` there is another thread whenever one may be needed:
 * jobs may wait for what later jobs do. Jobs must not throw. */
class Worker {
  public:
    /* What a job is kept in; it may be part of something else. `run` may free it. */
    struct Job {
        Job *next = nullptr;
        void (*run)(Job *) = nullptr;
    };

    explicit Worker(bool spare) : state_(std::make_shared<State>(spare)) {}
    /* Starts a thread, if there is none. False once it was stopped. */
    bool prepare();
    /* Never blocks for long, so also under the engine's lock. False: stopped, or never prepared; the job is the
     * caller's. */
    bool push(Job *job);
    /* Later jobs are refused. Waits a while until all jobs are done, unless it is one of them that calls. */
    void stop();

  private:
    /* Outlives the worker where a job does not end. */
    struct State {
        explicit State(bool may_spare) : spare(may_spare) {}
        const bool spare;
        std::mutex mutex;
        std::condition_variable news, gone;
        Job *first = nullptr, *last = nullptr;
        int threads = 0, idle = 0;
        bool stopping = false;
    };

    static void begin(const std::shared_ptr<State> &state);
    static void work(const std::shared_ptr<State> &state);

    const std::shared_ptr<State> state_;
};

class Engine {
  public:
    /* Of the pccl_engine at this address: the same one each time, until it is closed. */
    static std::shared_ptr<Engine> at(pccl_engine *engine);
    /* Ends all operations of the engine, waits for threads inside, and ends the own ones. No effect on one that nobody
     * asked for. False: a thread does not leave. */
    static bool close(pccl_engine *engine);

    /* Whoever calls the C API holds one. Throws what says that the engine is closed, or another process'. */
    class Visit {
      public:
        explicit Visit(Engine &engine) : engine_(engine) { engine.enter(); }
        ~Visit() { engine_.leave(); }
        Visit(const Visit &) = delete;
        Visit &operator=(const Visit &) = delete;

      private:
        Engine &engine_;
    };

    explicit Engine(pccl_engine *engine);
    pccl_engine *get() const { return engine_; }
    /* This process is a fork's child: nothing here is its own. */
    bool foreign() const;

    Worker completer{true}; /* ends futures, whose callbacks may wait for others; frees what nobody holds any more */
    Worker lane{false};     /* makes calls that take several operations */
    Worker carrier{false};  /* brings tensors from devices */

  private:
    void enter();
    void leave();
    bool shut();

    pccl_engine *const engine_;
    const unsigned generation_;
    std::atomic<bool> closed_{false};
    std::atomic<int> inside_{0};
    std::mutex mutex_;
    std::condition_variable left_;
};

} // namespace pccl_torch

#endif
