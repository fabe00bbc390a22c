// The A-step: passes of exact pairwise steps over the blocks, with the coupling M fixed.
//
// The dual variables of a block are a point of a simplex, whose vertex 0 means "no violation" and has slack 0. Mass
// moves from the occupied vertex with the smallest slack to the vertex with the largest, as far as the concave
// quadratic between them rises; a visit takes a few such steps. The slacks of the block are updated by columns of its
// small problem (ConstraintColumns); Z changes once, at the end of the visit. Twin: tests/reference/joint_dual.py.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "simd/random_order.hpp"
#include "tree/blocks.hpp"
#include "tree/state.hpp"

namespace widemargin {

// By how much a unit of mass at one constraint of a block lowers the slacks of all of them: columns of
//
//     H = E P Eᵀ,     E_c = κ_c (e_winner − e_c),   P = M⁻¹
//
// over the local nodes of a label. Blocks of the same label share H, which changes only with the coupling. Columns are
// computed when a step needs them. They are kept for all labels while there is room, and otherwise for one visit.

constexpr int64_t COLUMN_NUMBERS = int64_t(1) << 20;  // for all labels together: 8 MB

class ConstraintColumns {
  public:
    explicit ConstraintColumns(const TreeProblem &problem) : labels_(problem.tree.m) {}

    // Call it before `get`, with the working set of the block loaded.
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
    // H[:, c]; valid until the next call if labels share their room
    const double *get(int32_t c, WorkingSet &set) {
        if (now_->place[c] < 0) add(c, set);
        return now_->columns.data() + now_->place[c];
    }

  private:
    struct Label {
        int64_t version = -1;
        int32_t n_columns = 0;
        std::vector<int64_t> place;  // of a column, −1 if absent
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

// Steps of a visit end where the slacks differ by this share of their first difference: other blocks will move them by
// more. CPU times on four trees that no table reports, 36 fits each, over those with steps until rounding, to 1e-2 and
// 1e-3: .88 and .92; with .01: .93 and .97; with .1: .94 and 1.00. Not in double: to 1e-6, times were .6 to 1.3 of
// those before, and 1.5 on CCAT, which then needs more passes.
template <typename T>
constexpr double rise_share() {
    return sizeof(T) == sizeof(float) ? 1e-3 : 0.0;
}
constexpr int PAIRWISE_STEPS = 8;  // per visit, at least; a single step needs two to three times as many passes
// A step makes two slacks equal up to rounding; such ties go to the lower index, on every machine alike.
constexpr double SLACK_TIE = 1e-12;
constexpr double MASS_NOISE = 1e-14;  // rounding error in the mass of vertex 0, not worth a step
// Visits without a change after which a block sleeps; with 1, the same fits took .97 and 1.02 of the time, single ones
// up to 1.4.
constexpr int STILL_VISITS = 2;
// Slacks closer than this count as equal: the rounding error of scores around 1.
template <typename T>
constexpr double slack_noise() {
    return sizeof(T) == sizeof(float) ? 2e-7 : 1e-14;
}

// z += γ step for every level, times the row of the block; `changes` holds one level at a time
template <typename T>
void add_step(TreeState<T> &state, int64_t block, const WorkingSet &set, std::vector<T> &changes) {
    const int64_t row = state.problem.blocks.row[block];
    const double cost = state.problem.blocks.cost[block];
    for (int32_t level = 0; level < set.n_levels; ++level) {
        const int32_t first = set.level_start[level], width = set.level_start[level + 1] - first;
        changes.assign(width + STRIP, T(0));
        for (int32_t u : set.touched) {
            if (u >= first && u < first + width) changes[u - first] = T(cost * set.step[u]);
        }
        state.kernels->add_own(state.table(set.group[level]), width, state.places(block, level),
                               state.X.values + state.X.start[row], state.X.length(row), changes.data());
    }
}

// State holds z and has score_loaded() and add_step().
template <typename T, typename State = TreeState<T>>
class BlockAscent {
  public:
    explicit BlockAscent(State &state) : state_(state), set_(state.problem), columns_(state.problem) {}

    // One visit; returns the previous gap of the block, γ (loss − Σ_c a_c slack_c).
    double visit(int64_t block) {
        const double gap = find_step(block);
        end_visit(block, changed_);
        return gap;
    }
    // The first half of a visit, which changes nothing yet; returns the previous gap, as above.
    double find_step(int64_t block) {
        const TreeBlocks &blocks = state_.problem.blocks;
        const int64_t row = blocks.row[block];
        set_.load(block, state_.factor);
        score_loaded(state_, block, sums_, set_);
        set_.update_slacks();
        const double gap = blocks.cost[block] * load_masses(state_.duals[block]);
        changed_ = false;
        const double weight = blocks.cost[block] * state_.squared_norms[row];
        columns_.begin(blocks.node[block], set_, state_.factor.version);
        const int most = std::max<int>(PAIRWISE_STEPS, 2 * int(vertices_.size()));
        least_rise_ = slack_noise<T>();
        for (int k = 0; k < most && pairwise_step(weight); ++k) changed_ = true;
        return gap;
    }
    // The second half: takes the step or discards it.
    void end_visit(int64_t block, bool takes_step) {
        if (takes_step) commit(block);
        for (int32_t c : vertices_) set_.mass[c] = 0.0;
    }
    bool changed() const { return changed_; }

    // Sets the dual variables to a + share (a − before), projected back onto their simplex; `before` gets a.
    void extrapolate(int64_t block, double share, TreeDuals &before) {
        TreeDuals &duals = state_.duals[block];
        if (same(duals, before)) return;
        set_.load(block, state_.factor);
        vertices_.clear();
        for (const TreeDual &dual : duals) move_mass(dual.loser, (1.0 + share) * dual.value, false);
        for (const TreeDual &dual : before) move_mass(dual.loser, -share * dual.value, false);
        double sum = 0.0;
        for (int32_t c : vertices_) sum += set_.mass[c] = std::max(set_.mass[c], 0.0);
        for (int32_t c : vertices_) set_.mass[c] /= std::max(sum, 1.0);
        before = duals;
        commit(block);
        for (int32_t c : vertices_) set_.mass[c] = 0.0;
    }

  private:
    State &state_;
    WorkingSet set_;
    ConstraintColumns columns_;
    std::vector<T> sums_;
    std::vector<int32_t> vertices_;  // that have or had mass, except vertex 0
    std::vector<T> changes_;
    double mass_of_0_ = 1.0;
    double least_rise_ = 0.0;  // difference of slacks that is worth a step
    bool changed_ = false;

    // Masses of the vertices; returns loss − Σ a slack.
    double load_masses(const TreeDuals &duals) {
        vertices_.clear();
        mass_of_0_ = 1.0;
        double sum = 0.0;
        for (const TreeDual &dual : duals) {
            vertices_.push_back(dual.loser);
            set_.mass[dual.loser] = dual.value;
            mass_of_0_ -= dual.value;
            sum += dual.value * set_.slack[dual.loser];
        }
        if (mass_of_0_ < MASS_NOISE) mass_of_0_ = 0.0;
        return set_.largest_slack() - sum;
    }

    static bool same(const TreeDuals &a, const TreeDuals &b) {
        return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](TreeDual x, TreeDual y) {
                   return x.loser == y.loser && x.value == y.value;
               });
    }

    // Moves mass between two vertices; false if no slack is worth it.
    bool pairwise_step(double weight) {
        double highest = set_.largest_slack(), lowest = mass_of_0_ > 0.0 ? 0.0 : 1e300;
        int32_t to = highest > SLACK_TIE ? set_.first_slack(highest - SLACK_TIE) : -1, from = -1;  // −1: vertex 0
        highest = to >= 0 ? set_.slack[to] : 0.0;
        for (int32_t c : vertices_) {
            if (!(set_.mass[c] > 0.0)) continue;
            const bool ties = c < from && set_.slack[c] <= lowest + SLACK_TIE;
            if (ties || set_.slack[c] < lowest - SLACK_TIE) lowest = set_.slack[c], from = c;
        }
        const double rise = highest - lowest;
        if (to == from || rise <= least_rise_) return false;
        least_rise_ = std::max(least_rise_, rise_share<T>() * rise);
        const double available = from >= 0 ? set_.mass[from] : mass_of_0_;
        const double curvature = weight * curvature_between(to, from);
        const double moved = curvature * available > rise ? rise / curvature : available;
        move_mass(from, -moved, moved == available);
        move_mass(to, moved, false);
        if (to >= 0) add_to_slacks(columns_.get(to, set_), -weight * moved);
        if (from >= 0) add_to_slacks(columns_.get(from, set_), weight * moved);
        return true;
    }
    // (E_to − E_from) P (E_to − E_from)ᵀ
    double curvature_between(int32_t to, int32_t from) {
        double sum = 0.0;
        if (to >= 0) sum += columns_.get(to, set_)[to];
        if (from >= 0) {
            const double *column = columns_.get(from, set_);
            sum += column[from];
            if (to >= 0) sum -= 2.0 * column[to];
        }
        return sum;
    }
    void add_to_slacks(const double *column, double factor) {
        double *slack = set_.slack.data();
        for (int32_t c = 0; c < set_.n; ++c) slack[c] += factor * column[c];
    }
    void move_mass(int32_t vertex, double change, bool to_zero) {
        if (vertex < 0) {
            mass_of_0_ = to_zero ? 0.0 : mass_of_0_ + change;
            return;
        }
        if (set_.mass[vertex] == 0.0 && std::find(vertices_.begin(), vertices_.end(), vertex) == vertices_.end()) {
            vertices_.push_back(vertex);
        }
        set_.mass[vertex] = to_zero ? 0.0 : set_.mass[vertex] + change;
    }

    // Z += γ L⁻¹(Σ_c change of a_c · κ_c (e_winner − e_c)) xᵀ, and rebuilds the list of duals.
    void commit(int64_t block) {
        TreeDuals &duals = state_.duals[block];
        set_.clear_step();
        for (size_t k = 0; k < vertices_.size(); ++k) {  // the first ones are in the list, in its order
            const double change = set_.mass[vertices_[k]] - (int32_t(k) < duals.size() ? duals[int32_t(k)].value : 0.0);
            if (change != 0.0) set_.add_constraint(vertices_[k], change);
        }
        duals.clear();
        for (int32_t c : vertices_) {
            if (set_.mass[c] > 0.0) duals.push_back({c, set_.mass[c]});
        }
        add_step(state_, block, set_, changes_);
        set_.clear_step();
    }
};

// Results of a pass, measured at each visit before its steps.
struct PassSummary {
    int64_t n_visits = 0;
    double gap = 0.0;
};

// The blocks to visit: in random order, except those that did not change in their last visits.
class BlockOrder {
  public:
    BlockOrder(int64_t n, const double *cost, uint64_t seed) : random_(seed), still_(n, 0) {
        for (int64_t b = 0; b < n; ++b) {
            if (cost[b] > 0.0) all_.push_back(int32_t(b));
        }
    }
    void wake_all() { std::fill(still_.begin(), still_.end(), uint8_t(0)); }
    void wake(int64_t block) { still_[block] = 0; }
    void begin_pass() {
        order_.clear();
        for (int32_t b : all_) {
            if (still_[b] < STILL_VISITS) order_.push_back(b);
        }
        random_.shuffle(order_);
        position_ = 0;
    }
    bool done() const { return position_ == int64_t(order_.size()); }
    int32_t next() { return order_[position_++]; }
    // The block of the k-th visit after the next one, or the last block.
    int32_t ahead(int64_t k) const { return order_[std::min<int64_t>(position_ + k, int64_t(order_.size()) - 1)]; }
    void note(int32_t block, bool changed) { still_[block] = changed ? 0 : uint8_t(std::min(still_[block] + 1, 255)); }
    int64_t n_active() const { return int64_t(order_.size()); }
    const std::vector<int32_t> &all() const { return all_; }

  private:
    RandomOrder random_;
    std::vector<uint8_t> still_;  // visits without a change
    std::vector<int32_t> all_, order_;
    int64_t position_ = 0;
};

}  // namespace widemargin
