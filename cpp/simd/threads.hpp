// Threads. parallel_for runs task(thread_index, task_index) for every task; threads take tasks from one shared counter.
// Tasks must be independent of each other, so results do not depend on the number of threads.
#pragma once

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace widemargin {

// Threads that are joined when the group goes out of scope, for whatever reason: a thread left joinable would terminate
// the program.
template <class Thread = std::thread>
class ThreadGroup {
  public:
    ThreadGroup() = default;
    ThreadGroup(const ThreadGroup &) = delete;
    ThreadGroup &operator=(const ThreadGroup &) = delete;
    ~ThreadGroup() {
        for (auto &thread : threads_) thread.join();
    }

    // Returns whether the system could start a thread.
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

// Calls body(thread_index) in up to n_threads threads, including this one. The system may start fewer, so bodies share
// their work through a counter. When all threads are done, the error of the lowest one is rethrown here.
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

// Calls worker(first, last) for every block of rows; make_worker() is called once per thread. Each worker owns its work
// arrays and writes disjoint rows, so results do not depend on the number of threads. An exception in any thread stops
// the others and is rethrown here.
template <typename MakeWorker>
void for_each_row_block(int64_t n_rows, int64_t rows_per_block, int64_t n_threads, MakeWorker make_worker) {
    std::atomic<int64_t> next{0};
    const int64_t n_blocks = (n_rows + rows_per_block - 1) / rows_per_block;
    run_in_threads(std::min(n_threads, n_blocks), [&](int) {
        try {
            auto worker = make_worker();
            for (int64_t first = next.fetch_add(rows_per_block); first < n_rows;
                 first = next.fetch_add(rows_per_block)) {
                worker(first, std::min(first + rows_per_block, n_rows));
            }
        } catch (...) {
            next = n_rows;
            throw;
        }
    });
}

// Rows per block, such that the work arrays fit in `work_bytes` and every thread gets some rows.
inline int64_t choose_rows_per_block(int64_t n_rows, int64_t most, int64_t n_threads, int64_t work_bytes,
                                     int64_t bytes_per_row) {
    const int64_t fitting = work_bytes / (n_threads * bytes_per_row);
    const int64_t fair = (n_rows + n_threads - 1) / n_threads;
    return std::max<int64_t>(1, std::min({most, fitting, fair}));
}

// Runs work in its own thread so that the caller can poll it, handle signals and ask it to stop.
class Background {
  public:
    Background() = default;
    Background(const Background &) = delete;
    Background &operator=(const Background &) = delete;
    ~Background() { join(); }

    // One piece of work at a time: the previous one must be done.
    template <class F>
    void start(F work) {
        join();
        finished_ = false;
        error_ = nullptr;
        auto guarded = [this, work] {
            try {
                work();
            } catch (...) {
                error_ = std::current_exception();
            }
            const std::lock_guard<std::mutex> guard(lock_);
            finished_ = true;
            changed_.notify_all();
        };
        try {
            thread_ = std::thread(guarded);
        } catch (const std::system_error &) {
            guarded();  // the system could not start a thread
        }
    }

    // Waits for at most `seconds` and returns whether the work is done. Rethrows its error, once.
    bool wait(double seconds) {
        {
            std::unique_lock<std::mutex> guard(lock_);
            const auto time = std::chrono::duration<double>(seconds);
            if (!changed_.wait_for(guard, time, [&] { return finished_; })) return false;
        }
        join();
        if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
        return true;
    }

    void join() {
        if (thread_.joinable()) thread_.join();
    }

  private:
    std::thread thread_;
    std::mutex lock_;
    std::condition_variable changed_;
    bool finished_ = true;
    std::exception_ptr error_;
};

// CPU time of the calling thread: the cost of a label, independent of the load of the machine.
inline double thread_seconds() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);  // POSIX: Linux and macOS
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace widemargin
