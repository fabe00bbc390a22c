// Runs task(thread_index, task_index) for every task, handing tasks to threads by one shared counter. Tasks must be
// independent of each other; then results do not depend on the number of threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace widemargin {

template <class F>
void parallel_for(int64_t n_tasks, int n_threads, F task) {
    std::atomic<int64_t> next{0};
    std::vector<std::exception_ptr> errors(n_threads > 1 ? n_threads : 1);
    auto work = [&](int thread_index) {
        try {
            for (int64_t i = next++; i < n_tasks; i = next++) task(thread_index, i);
        } catch (...) {
            errors[thread_index] = std::current_exception();
        }
    };
    std::vector<std::thread> threads;
    for (int t = 1; t < n_threads && t < n_tasks; ++t) threads.emplace_back(work, t);
    work(0);
    for (auto &thread : threads) thread.join();
    for (auto &error : errors) {
        if (error) std::rethrow_exception(error);
    }
}

}  // namespace widemargin
