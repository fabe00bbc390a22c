// What a unit of mass at one constraint of a block takes from the slacks of all of them: columns of
//
//     H = E P Eᵀ,     E_c = κ_c (e_winner − e_c),   P = M⁻¹
//
// over the local nodes of a label. Blocks of one label share H, which changes with the coupling only; columns are made
// when a step needs them and kept for all labels while there is room, and for one visit above that.
#pragma once

#include <cstdint>
#include <vector>

#include "tree_blocks.hpp"

namespace widemargin {

constexpr int64_t COLUMN_NUMBERS = int64_t(1) << 20;  // of all labels together: 8 MB

class ConstraintColumns {
  public:
    explicit ConstraintColumns(const TreeProblem &problem) : labels_(problem.tree.m) {}

    // To be called before the columns of a block, whose working set is loaded.
    void begin(int32_t label, const WorkingSet &set, int64_t version) {
        const int64_t size = int64_t(set.n) * set.n;
        Label &own = labels_[label];
        if (own.columns.empty() && used_ + size <= COLUMN_NUMBERS) {
            own.columns.resize(size);
            used_ += size;
        }
        now_ = int64_t(own.columns.size()) == size ? &own : &shared_;
        if (now_ == &shared_ || own.version != version) {
            now_->version = version;
            now_->place.assign(set.n, -1);
            now_->n_columns = 0;
        }
    }
    // H[:, c]; valid until the next call where labels share their room
    const double *get(int32_t c, WorkingSet &set) {
        if (now_->place[c] < 0) add(c, set);
        return now_->columns.data() + now_->place[c];
    }

  private:
    struct Label {
        int64_t version = -1;
        int32_t n_columns = 0;
        std::vector<int64_t> place;  // of a column, −1 if it is not there
        std::vector<double> columns;
    };
    std::vector<Label> labels_;
    Label shared_, *now_ = &shared_;
    int64_t used_ = 0;

    void add(int32_t c, WorkingSet &set) {
        const int64_t at = int64_t(now_->n_columns++) * set.n;
        if (int64_t(now_->columns.size()) < at + set.n) now_->columns.resize(at + set.n);
        set.read_column(c, now_->columns.data() + at);
        now_->place[c] = at;
    }
};

}  // namespace widemargin
