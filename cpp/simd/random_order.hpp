// The random order in which a solver visits rows; a seed gives the same order on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace widemargin {

// Uses splitmix64 (Steele, Lea, Flood 2014) and Lemire's multiplication to draw from a range.
class RandomOrder {
  public:
    explicit RandomOrder(uint64_t seed) : state_(seed) {}
    void shuffle(std::vector<int32_t> &order) {
        for (size_t n = order.size(); n > 1; --n) {
            const uint64_t at = (uint64_t(uint32_t(next())) * n) >> 32;
            std::swap(order[n - 1], order[at]);
        }
    }

  private:
    uint64_t next() {
        uint64_t z = state_ += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }
    uint64_t state_;
};

}  // namespace widemargin
