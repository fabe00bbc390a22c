// Runs task(thread_index, task_index) for every task, handing tasks to threads by one shared counter. Tasks must be
// independent of each other; then results do not depend on the number of threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace widemargin {

// Threads that are joined when they go out of scope, however that happens: one left joinable would end the program.
template <class Thread = std::thread>
class ThreadGroup {
  public:
    ThreadGroup() = default;
    ThreadGroup(const ThreadGroup &) = delete;
    ThreadGroup &operator=(const ThreadGroup &) = delete;
    ~ThreadGroup() {
        for (auto &thread : threads_) thread.join();
    }

    // Whether the system gave a thread.
    template <class F>
    bool start(F work) {
        try {
            threads_.emplace_back(std::move(work));
        } catch (const std::system_error &) {
            return false;
        }
        return true;
    }

  private:
    std::vector<Thread> threads_;
};

// Calls body(thread_index) in up to n_threads threads, this one included; fewer when the system gives no more, so
// bodies share their work by a counter. The error of the lowest thread is thrown again here when all have ended.
template <class Thread = std::thread, class F>
void run_in_threads(int64_t n_threads, F body) {
    std::vector<std::exception_ptr> errors(n_threads > 1 ? n_threads : 1);
    auto work = [&](int64_t thread_index) {
        try {
            body(static_cast<int>(thread_index));
        } catch (...) {
            errors[thread_index] = std::current_exception();
        }
    };
    {
        ThreadGroup<Thread> others;
        for (int64_t t = 1; t < n_threads; ++t) {
            if (!others.start([&work, t] { work(t); })) break;
        }
        work(0);
    }
    for (auto &error : errors) {
        if (error) std::rethrow_exception(error);
    }
}

template <class F>
void parallel_for(int64_t n_tasks, int n_threads, F task) {
    std::atomic<int64_t> next{0};
    run_in_threads(n_tasks < n_threads ? n_tasks : n_threads, [&](int thread_index) {
        for (int64_t i = next++; i < n_tasks; i = next++) task(thread_index, i);
    });
}

}  // namespace widemargin
