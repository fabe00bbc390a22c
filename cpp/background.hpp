// Work in a thread of its own, so that the caller can look up now and then, see to signals, and ask it to end.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace widemargin {

class Background {
  public:
    Background() = default;
    Background(const Background &) = delete;
    Background &operator=(const Background &) = delete;
    ~Background() { join(); }

    // One piece of work at a time: the one before must have ended.
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
            guarded();  // no thread is to be had
        }
    }

    // Whether the work has ended, after at most `seconds`; its error is thrown here, once.
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

}  // namespace widemargin
