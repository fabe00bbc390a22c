// Threads over tasks and rows: every piece of work is done once, errors are passed on, and failing to start threads
// does no harm. Work in the background: waiting times out, the waiting thread gets the error, and the destructor joins.
#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "check.hpp"
#include "simd/threads.hpp"

namespace {

using namespace widemargin;

// A system that starts one thread and refuses the next.
struct ScarceThread {
    static inline int n_left = 1;
    std::thread thread;
    explicit ScarceThread(std::function<void()> work) {
        if (n_left-- <= 0) throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
        thread = std::thread(std::move(work));
    }
    void join() { thread.join(); }
};

void work_is_done_by_the_threads_that_there_are() {
    std::atomic<int64_t> next{0};
    std::vector<std::atomic<int>> runs(100);
    run_in_threads<ScarceThread>(4, [&](int) {
        for (int64_t i = next++; i < 100; i = next++) ++runs[i];
    });
    for (auto &count : runs) CHECK(count == 1);
}

void threads_are_joined_when_an_error_passes() {
    std::atomic<bool> ended{false};
    try {
        ThreadGroup<> group;
        CHECK(group.start([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            ended = true;
        }));
        throw std::runtime_error("on the way");
    } catch (const std::runtime_error &) {
    }
    CHECK(ended);
}

void row_blocks_cover_every_row_once_and_pass_errors_on() {
    std::vector<std::atomic<int>> runs(101);
    std::atomic<int> n_workers{0};
    for_each_row_block(101, 7, 3, [&] {
        ++n_workers;
        return [&](int64_t first, int64_t last) {
            for (int64_t i = first; i < last; ++i) ++runs[i];
        };
    });
    for (auto &count : runs) CHECK(count == 1);
    CHECK(n_workers >= 1 && n_workers <= 3);
    bool caught = false;
    try {
        for_each_row_block(101, 7, 3, [] {
            return [](int64_t first, int64_t) {
                if (first == 70) throw std::runtime_error("seventy");
            };
        });
    } catch (const std::runtime_error &) {
        caught = true;
    }
    CHECK(caught);
}

void nothing_to_do_is_done() {
    parallel_for(0, 4, [](int, int64_t) { CHECK(false); });
    for_each_row_block(0, 7, 3, [] { return [](int64_t, int64_t) { CHECK(false); }; });
}

void background_work_is_waited_for() {
    std::atomic<bool> stop{false};
    std::atomic<int> ended{0};
    {
        Background background;
        CHECK(background.wait(0));  // nothing was started
        background.start([&] {
            while (!stop) std::this_thread::yield();
            ++ended;
        });
        CHECK(!background.wait(0.01));
        stop = true;
        while (!background.wait(0.01)) {
        }
        CHECK(ended == 1);
        background.start([] { throw std::runtime_error("no"); });
        bool thrown = false;
        try {
            while (!background.wait(0.01)) {
            }
        } catch (const std::runtime_error &) {
            thrown = true;
        }
        CHECK(thrown);
        CHECK(background.wait(0));  // an error is reported once
        background.start([&] { ++ended; });
    }
    CHECK(ended == 2);
}

}  // namespace

int main() {
    work_is_done_by_the_threads_that_there_are();
    threads_are_joined_when_an_error_passes();
    row_blocks_cover_every_row_once_and_pass_errors_on();
    nothing_to_do_is_done();
    background_work_is_waited_for();
    return 0;
}
