// The top k labels of a row, in a heap whose root is the worst of them: its score is the running threshold. Best first;
// ties go to the lower label. NaN ranks as -inf.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace widemargin {

constexpr double MINUS_INFINITY = -std::numeric_limits<double>::infinity();

struct ScoredLabel {
    double score;
    int64_t label;
};

inline bool is_better(const ScoredLabel &a, const ScoredLabel &b) {
    return a.score > b.score || (a.score == b.score && a.label < b.label);
}

// The heaps of a block of rows, with k places each.
class TopKHeaps {
  public:
    explicit TopKHeaps(int64_t k) : k_(k) {}

    void reset(int64_t n_rows) {
        sizes_.assign(n_rows, 0);
        places_.resize(n_rows * k_);
    }
    // A score below the threshold cannot enter; an equal one may, depending on its label.
    double threshold(int64_t row) const { return sizes_[row] < k_ ? MINUS_INFINITY : places_[row * k_].score; }
    bool can_enter(int64_t row, ScoredLabel c) const { return sizes_[row] < k_ || is_better(c, places_[row * k_]); }

    void offer(int64_t row, ScoredLabel c) {
        if (c.score != c.score) c.score = MINUS_INFINITY;
        ScoredLabel *heap = places_.data() + row * k_;
        int64_t &size = sizes_[row];
        if (size == k_) {
            if (!is_better(c, heap[0])) return;
            std::pop_heap(heap, heap + k_, is_better);
            heap[k_ - 1] = c;
        } else {
            heap[size++] = c;
        }
        std::push_heap(heap, heap + size, is_better);
    }

    // Offers labels first_label + j with scores[j], j < count. Eight comparisons at a time without branches, because
    // nearly all scores are below the threshold.
    void offer_all(int64_t row, const double *scores, int64_t count, int64_t first_label) {
        constexpr int64_t STEP = 8;
        if (sizes_[row] == 0 && count > 0 && (k_ == 1 || count <= FEW)) {
            k_ == 1 ? take_best(row, scores, count, first_label) : rank_few(row, scores, count, first_label);
            return;
        }
        for (int64_t j = 0; j < count; j += STEP) {
            const int64_t last = std::min(j + STEP, count);
            const double bar = threshold(row);
            bool any = bar == MINUS_INFINITY;
            for (int64_t i = j; i < last; ++i) any |= scores[i] >= bar;
            if (!any) continue;
            for (int64_t i = j; i < last; ++i) offer(row, {scores[i], first_label + i});
        }
    }

    // Writes the row, best first; the n_places - size places that no label fills get label -1 and score -inf.
    void write_sorted(int64_t row, int64_t n_places, int64_t *labels, double *scores) {
        ScoredLabel *heap = places_.data() + row * k_, *end = heap + sizes_[row];
        const bool worst_first = std::is_sorted(heap, end, [](auto &a, auto &b) { return is_better(b, a); });
        worst_first ? std::reverse(heap, end) : std::sort_heap(heap, end, is_better);
        for (int64_t j = 0; j < n_places; ++j) {
            const bool filled = j < sizes_[row];
            labels[j] = filled ? heap[j].label : -1;
            scores[j] = filled ? heap[j].score : MINUS_INFINITY;
        }
    }

  private:
    // A list of one label, without a branch. NaN is never above the best so far.
    void take_best(int64_t row, const double *scores, int64_t count, int64_t first_label) {
        ScoredLabel best{MINUS_INFINITY, 0};
        for (int64_t j = 0; j < count; ++j) {
            const bool above = scores[j] > best.score;
            best.score = above ? scores[j] : best.score;
            best.label = above ? j : best.label;
        }
        sizes_[row] = 1;
        places_[row] = {best.score, first_label + best.label};
    }

    // The whole list at once, without a branch per score: the place of a score is the number of scores above it. Equal
    // scores share a place and leave the next one empty; then each is also counted after its equals with lower labels.
    // (6 of 20 labels: a heap takes 0.45 µs, counting both from the start 0.23, this 0.07.)
    void rank_few(int64_t row, const double *given, int64_t count, int64_t first_label) {
        typedef double Two __attribute__((vector_size(16), may_alias));
        typedef int64_t TwoCounts __attribute__((vector_size(16)));
        alignas(16) double scores[FEW + 4];
        int64_t at_place[FEW];
        for (int64_t j = 0; j < count; ++j) scores[j] = given[j] == given[j] ? given[j] : MINUS_INFINITY;
        scores[count] = scores[count + 1] = scores[count + 2] = MINUS_INFINITY;
        const int64_t size = sizes_[row] = std::min(k_, count);
        std::fill_n(at_place, size, NO_LABEL);
        const Two *pairs = reinterpret_cast<const Two *>(scores);
        for (int64_t j = count - 1; j >= 0; --j) {  // of equal scores for the last place, the lower label gets it
            const Two score = Two{} + scores[j];
            TwoCounts even{}, odd{};
            for (int64_t i = 0; 2 * i < count; i += 2) {
                even -= pairs[i] > score;
                odd -= pairs[i + 1] > score;
            }
            even += odd;
            at_place[even[0] + even[1]] = j;
        }
        if (std::count(at_place, at_place + size, NO_LABEL) > 0) {
            for (int64_t j = 0; j < count; ++j) {
                int64_t place = 0;
                for (int64_t i = 0; i < count; ++i) place += scores[i] > scores[j] || (scores[i] == scores[j] && i < j);
                at_place[place] = j;
            }
        }
        ScoredLabel *last = places_.data() + row * k_ + size - 1;  // worst first, which is a heap
        for (int64_t place = 0; place < size; ++place) {
            last[-place] = {scores[at_place[place]], first_label + at_place[place]};
        }
    }

    static constexpr int64_t NO_LABEL = -1;
    static constexpr int64_t FEW = 32;
    int64_t k_;
    std::vector<int64_t> sizes_;
    std::vector<ScoredLabel> places_;
};

}  // namespace widemargin
