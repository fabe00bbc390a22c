// Work in the background: waiting ends in time, errors come to the one who waits, the end joins.
#include <atomic>
#include <stdexcept>
#include <thread>

#include "background.hpp"
#include "check.hpp"

using namespace widemargin;

int main() {
    std::atomic<bool> stop{false};
    std::atomic<int> ended{0};
    {
        Background background;
        CHECK(background.wait(0));  // nothing was begun
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
        CHECK(background.wait(0));  // an error is told once
        background.start([&] { ++ended; });
    }
    CHECK(ended == 2);
    return 0;
}
