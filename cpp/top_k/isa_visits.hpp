// Visits of rows: scores, projection, step. Included once per instruction set.

namespace widemargin {
namespace WIDEMARGIN_ISA_NAME {

constexpr int MAX_CHUNK = 8;  // vectors of scores held in registers
// Entries of a row. With all of them, and with sampled evaluations, 20newsgroups took 9 % less time and Debian's
// sections 8 %; the first two lines are enough where the weights are near (with all, digits took 4 % more).
constexpr int64_t PREFETCH_X = 512, NEAR_X = 32;
constexpr int PREFETCH_W = 6;  // features ahead; 12 and 20, or all lines of a feature, cost the same on 20newsgroups

// out[c] = Σ_f x_f W[f, group ids[c]] for CHUNK groups. With few groups, several features are taken at a time, because
// the additions of one feature would wait for each other.
template <typename T, int CHUNK, bool DENSE, bool PREFETCH>
WIDEMARGIN_INLINE void score_chunk_of(const DataRows<T> &X, int64_t i, const T *W, const WeightLayout &layout,
                                      const uint32_t *ids, Vec<T> *out) {
    constexpr int UNROLL = CHUNK <= 2 ? 4 : CHUNK <= 4 ? 2 : 1;
    const T *x = X.values + X.begin(i);
    const int32_t *cols = DENSE ? nullptr : X.cols + X.begin(i);
    const int64_t length = X.length(i);
    Vec<T> sums[UNROLL][CHUNK] = {};
    const auto add = [&](int u, T value, int64_t f) __attribute__((always_inline)) {
        const T *line = W + f * layout.feature_step;
        const Vec<T> v = splat<T>(value);
#pragma GCC unroll 8
        for (int c = 0; c < CHUNK; ++c) sums[u][c] += v * load(line + ids[c] * layout.group_step);
    };
    int64_t p = 0;
    if (PREFETCH) {
        for (; p + UNROLL + PREFETCH_W <= length; p += UNROLL) {
#pragma GCC unroll 4
            for (int u = 0; u < UNROLL; ++u) {
                __builtin_prefetch(W + layout.at(cols[p + u + PREFETCH_W], ids[0]));
                add(u, x[p + u], cols[p + u]);
            }
        }
    }
    for (; p + UNROLL <= length; p += UNROLL) {
#pragma GCC unroll 4
        for (int u = 0; u < UNROLL; ++u) add(u, x[p + u], DENSE ? p + u : cols[p + u]);
    }
    for (; p < length; ++p) add(0, x[p], DENSE ? p : cols[p]);
    if (X.bias != 0) add(UNROLL - 1, static_cast<T>(X.bias), X.n_cols);
    if (X.along != nullptr) {
        add(0, X.along[i], X.u_line());
        add(UNROLL - 1, T(1), X.q_line());
    }
#pragma GCC unroll 8
    for (int c = 0; c < CHUNK; ++c) {
        out[c] = sums[0][c];
#pragma GCC unroll 4
        for (int u = 1; u < UNROLL; ++u) out[c] += sums[u][c];
    }
}

// Weights of at most this size stay in the caches next to the core, and prefetches only cost instructions: a third of
// those of a visit on USPS (16 KB).
constexpr int64_t NEAR_BYTES = int64_t(1) << 18;

template <typename T>
WIDEMARGIN_INLINE bool is_far(const DataRows<T> &X, int64_t stride) {
    return X.n_lines() * stride * int64_t(sizeof(T)) > NEAR_BYTES;
}

template <typename T, int CHUNK>
WIDEMARGIN_INLINE void score_chunk(const DataRows<T> &X, int64_t i, const T *W, const WeightLayout &layout,
                                   const uint32_t *ids, bool far, Vec<T> *out) {
    if (X.cols == nullptr) return score_chunk_of<T, CHUNK, true, false>(X, i, W, layout, ids, out);
    if (far) return score_chunk_of<T, CHUNK, false, true>(X, i, W, layout, ids, out);
    score_chunk_of<T, CHUNK, false, false>(X, i, W, layout, ids, out);
}

// W[f, group ids[c]] += x_f step[c]
template <typename T, int CHUNK>
WIDEMARGIN_INLINE void step_chunk(const DataRows<T> &X, int64_t i, T *W, const WeightLayout &layout,
                                  const uint32_t *ids, const Vec<T> *step) {
    const T *x = X.values + X.begin(i);
    const int32_t *cols = X.cols == nullptr ? nullptr : X.cols + X.begin(i);
    Vec<T> held[CHUNK];
    int64_t at[CHUNK];
    for (int c = 0; c < CHUNK; ++c) held[c] = step[c], at[c] = ids[c] * layout.group_step;
    const int64_t feature_step = layout.feature_step;  // a copy: the stores below may alias the layout
    const auto add = [&](T value, int64_t f) __attribute__((always_inline)) {
        T *line = W + f * feature_step;
        const Vec<T> v = splat<T>(value);
#pragma GCC unroll 8
        for (int c = 0; c < CHUNK; ++c) store(line + at[c], load(line + at[c]) + v * held[c]);
    };
    const int64_t length = X.length(i);
    if (cols == nullptr) {
        for (int64_t p = 0; p < length; ++p) add(x[p], p);
    } else {
        for (int64_t p = 0; p < length; ++p) add(x[p], cols[p]);
    }
    if (X.bias != 0) add(static_cast<T>(X.bias), X.n_cols);
    if (X.along != nullptr) {
        add(T(1), X.u_line());
        add(X.along[i] - static_cast<T>(X.common_norm), X.q_line());
    }
}

// Calls chunk(first, size) with a size known at compile time until `count` groups are done.
template <typename F>
WIDEMARGIN_INLINE void in_chunks(int count, F chunk) {
    int first = 0;
    for (; count - first > MAX_CHUNK; first += MAX_CHUNK) chunk(first, std::integral_constant<int, MAX_CHUNK>());
    switch (count - first) {
        case 1:
            return chunk(first, std::integral_constant<int, 1>());
        case 2:
            return chunk(first, std::integral_constant<int, 2>());
        case 3:
            return chunk(first, std::integral_constant<int, 3>());
        case 4:
            return chunk(first, std::integral_constant<int, 4>());
        case 5:
            return chunk(first, std::integral_constant<int, 5>());
        case 6:
            return chunk(first, std::integral_constant<int, 6>());
        case 7:
            return chunk(first, std::integral_constant<int, 7>());
        case 8:
            return chunk(first, std::integral_constant<int, 8>());
        default:
            return;
    }
}

template <typename T>
WIDEMARGIN_INLINE void score_groups(const DataRows<T> &X, int64_t i, const T *W, const WeightLayout &layout,
                                    const uint32_t *ids, int count, bool far, Vec<T> *out) {
    in_chunks(count, [&](int first, auto size) __attribute__((always_inline)) {
        score_chunk<T, decltype(size)::value>(X, i, W, layout, ids + first, far, out + first);
    });
}

// The result of a visit, before anything is changed.
template <typename T>
struct VisitResult {
    ClassThresholds<T> thresholds;
    T sigma, change;  // new sum of the dual variables; largest change of one
};

template <typename T>
WIDEMARGIN_INLINE TopKTarget target_of(const TopKLoss &loss, const RowState<T> &row, double &curvature) {
    curvature = double(row.norm) + (loss.smoothing > 0.0 ? loss.smoothing / double(row.cost) : 0.0);
    return {loss.k, curvature * double(row.cost), double(row.norm) / curvature, loss.alpha};
}

// b = scores without the row's own part, then x = its projection; `step` becomes the change of a = (−x, at y: ⟨1,x⟩).
// b, old and new x, and step have one group per entry of `ids`; `y_lane` is the position of the true class among them.
template <typename T, int GROUPS>
WIDEMARGIN_INLINE VisitResult<T> project_visit(TopKState<T> &state, const RowState<T> &row, const uint32_t *ids,
                                               int count, int y_lane, Vec<T> *b, const Vec<T> *old_x, Vec<T> *new_x,
                                               Vec<T> *step) {
    constexpr int WIDTH = Lanes<T>::WIDTH;
    const int n = GROUPS ? GROUPS : count;
    double curvature;
    const TopKTarget target = target_of(state.loss, row, curvature);
    alignas(64) T stored[GROUPS ? GROUPS * WIDTH : 1];
    const T *scores = reinterpret_cast<const T *>(b);
    if (GROUPS) {
        std::memcpy(stored, b, sizeof(Vec<T>) * n);
        scores = stored;
    }
    const T base = T(1) - scores[y_lane] + row.norm * row.sigma;
    const Vec<T> y = splat<T>(T(row.y)), absent = splat<T>(T(ABSENT_SCORE));
    for (int g = 0; g < n; ++g) {
        const int64_t at = (GROUPS ? g : ids[g]) * WIDTH;
        const Vec<T> value = b[g] + splat<T>(row.norm) * old_x[g] + splat<T>(base) + load(&state.absent[at]);
        b[g] = select<T>(load(&state.lane_number[at]) == y, absent, value);
    }
    const bool lost = target.r <= LOST_RADIUS<T>;
    const ClassThresholds<T> found =
        lost ? choose_largest<T>(reinterpret_cast<const T *>(b), int64_t(n) * WIDTH, state.loss, row.cost, T(target.r),
                                 state.work, reinterpret_cast<T *>(new_x))
             : find_thresholds<T, GROUPS>(b, n, target, {row.t, row.hi}, state.work);
    const T inverse = T(1.0 / curvature);
    Vec<T> sum{}, change{};
    for (int g = 0; g < n; ++g) {
        if (!lost) {
            const Vec<T> above = larger<T>(b[g] - splat<T>(found.t), Vec<T>{});
            new_x[g] = smaller<T>(above, splat<T>(found.hi)) * inverse;
        }
        step[g] = old_x[g] - new_x[g];
        sum += new_x[g];
        change = larger<T>(change, magnitude<T>(step[g]));
    }
    return {found, sum_lanes(sum), max_lanes(change)};
}

template <typename T>
WIDEMARGIN_INLINE bool is_skipped(const RowState<T> &row, T change) {
    return double(change) <= SKIPPED_CHANGE<T> * double(row.cost) &&
           double(change) * double(row.norm) <= SKIPPED_CHANGE<T>;
}

// After a visit whose largest change was `change`: a negligible change sends the row to sleep, for twice as long as
// before.
template <typename T>
WIDEMARGIN_INLINE void schedule(TopKState<T> &state, RowState<T> &row, T change) {
    const double violation = double(row.cost) * double(row.norm) * double(change);
    row.level = violation <= state.still ? uint8_t(std::min(row.level + 1, MAX_SLEEP_LEVEL)) : uint8_t(0);
    row.next = state.epoch + (1 << row.level);
    if (!state.gains.empty())
        state.gains[&row - state.rows.data()] = double(row.norm) * double(change) * double(change);
}

// W += x_i' step, for the groups where the step is not 0.
template <typename T>
static void step_weights(TopKState<T> &state, int64_t i, const uint32_t *ids, int count, Vec<T> *step) {
    int n_changed = 0;
    for (int g = 0; g < count; ++g) {
        if (count_lanes(step[g] != Vec<T>{}) == 0) continue;
        state.changed[n_changed] = ids[g];
        step[n_changed++] = step[g];
    }
    in_chunks(n_changed, [&](int first, auto size) __attribute__((always_inline)) {
        step_chunk<T, decltype(size)::value>(state.X, i, state.W.get(), state.layout, state.changed.data() + first,
                                             step + first);
    });
}

// Few classes: scores, b and x stay in registers.
template <typename T, int GROUPS>
WIDEMARGIN_INLINE void visit_few(TopKState<T> &state, int64_t i) {
    constexpr int WIDTH = Lanes<T>::WIDTH;
    RowState<T> &row = state.rows[i];
    Vec<T> b[GROUPS], old_x[GROUPS], new_x[GROUPS], step[GROUPS];
    T *x = &state.dual[i * GROUPS * WIDTH];
    score_chunk<T, GROUPS>(state.X, i, state.W.get(), {GROUPS * WIDTH, WIDTH}, state.all_groups.data(),
                           is_far(state.X, state.stride()), b);
    for (int g = 0; g < GROUPS; ++g) old_x[g] = load(x + g * WIDTH);
    const VisitResult<T> found = project_visit<T, GROUPS>(state, row, nullptr, GROUPS, row.y, b, old_x, new_x, step);
    row.t = found.thresholds.t;
    row.hi = found.thresholds.hi;
    schedule(state, row, found.change);
    if (is_skipped(row, found.change)) return;
    const Vec<T> y = splat<T>(T(row.y)), rise = splat<T>(found.sigma - row.sigma);
    for (int g = 0; g < GROUPS; ++g) {
        store(x + g * WIDTH, new_x[g]);
        step[g] = select<T>(load(&state.lane_number[g * WIDTH]) == y, rise, step[g]);
    }
    row.sigma = found.sigma;
    step_weights<T>(state, i, state.all_groups.data(), GROUPS, step);
}

// The groups to look at from now on: those with a value near or above the threshold, of the true class, or of the old
// support.
template <typename T>
WIDEMARGIN_INLINE void relist(TopKState<T> &state, RowState<T> &row, ListedGroups<T> &groups, T t, const Vec<T> *b,
                              const Vec<T> *x) {
    constexpr int WIDTH = Lanes<T>::WIDTH;
    const Vec<T> floor = splat<T>(T(double(t) - state.drift));
    std::vector<uint32_t> ids;
    for (int g = 0; g < state.n_groups; ++g) {
        const Mask<T> needed = (b[g] > floor) | (x[g] != Vec<T>{});
        if (g == row.y / WIDTH || count_lanes(needed) > 0) ids.push_back(uint32_t(g));
    }
    if (ids.size() != groups.ids.size()) groups.lanes = aligned_array<T>(int64_t(ids.size()) * WIDTH);
    groups.ids.swap(ids);
    for (size_t g = 0; g < groups.ids.size(); ++g) store(&groups.lanes[g * WIDTH], x[groups.ids[g]]);
}

// Which groups a visit looks at, and the dual variables there.
template <typename T>
struct GroupsOfVisit {
    const uint32_t *ids;
    int count, y_lane;
    bool full;
    T *old_x;
};

template <typename T>
WIDEMARGIN_INLINE GroupsOfVisit<T> groups_of_visit(TopKState<T> &state, int64_t i, bool full) {
    constexpr int WIDTH = Lanes<T>::WIDTH;
    const int y = state.rows[i].y;
    if (!state.lists) {
        return {state.all_groups.data(), state.n_groups, y, true, &state.dual[i * state.stride()]};
    }
    ListedGroups<T> &groups = state.listed[i];
    const int count = int(groups.ids.size());
    if (!full) {
        const uint32_t *ids = groups.ids.data();
        const int y_group = int(std::find(ids, ids + count, uint32_t(y / WIDTH)) - ids);
        return {ids, count, y_group * WIDTH + y % WIDTH, false, groups.lanes.get()};
    }
    T *old_x = state.old_dual.get();
    std::fill_n(old_x, state.stride(), T(0));
    for (int g = 0; g < count; ++g) store(old_x + groups.ids[g] * WIDTH, load(&groups.lanes[g * WIDTH]));
    return {state.all_groups.data(), state.n_groups, y, true, old_x};
}

// A visit whose scores are in b, which is overwritten; W changes by `step` times x_i. Returns whether it changes.
template <typename T>
WIDEMARGIN_INLINE bool visit_scored(TopKState<T> &state, int64_t i, const GroupsOfVisit<T> &groups, Vec<T> *b,
                                    Vec<T> *step) {
    constexpr int WIDTH = Lanes<T>::WIDTH;
    RowState<T> &row = state.rows[i];
    const Vec<T> *old_x = reinterpret_cast<const Vec<T> *>(groups.old_x);
    Vec<T> *new_x = reinterpret_cast<Vec<T> *>(state.new_dual.get());
    const VisitResult<T> found =
        project_visit<T, 0>(state, row, groups.ids, groups.count, groups.y_lane, b, old_x, new_x, step);
    const bool changed = !is_skipped(row, found.change);
    if (state.lists) {
        state.drift += 0.01 * (std::abs(double(found.thresholds.t) - double(row.t)) + 1e-4 - state.drift);
        if (groups.full) relist(state, row, state.listed[i], found.thresholds.t, b, changed ? new_x : old_x);
    }
    row.t = found.thresholds.t;
    row.hi = found.thresholds.hi;
    schedule(state, row, found.change);
    if (!changed) return false;
    if (!(state.lists && groups.full)) std::copy_n(state.new_dual.get(), groups.count * WIDTH, groups.old_x);
    reinterpret_cast<T *>(step)[groups.y_lane] = found.sigma - row.sigma;
    row.sigma = found.sigma;
    return true;
}

// Many classes: most visits of a row with a list look only at the groups in it.
template <typename T>
static void visit_many(TopKState<T> &state, int64_t i) {
    RowState<T> &row = state.rows[i];
    const bool full = !state.lists || row.level >= FULL_VISIT_LEVEL || row.visits++ % FULL_VISIT_EVERY == 0;
    const GroupsOfVisit<T> groups = groups_of_visit(state, i, full);
    Vec<T> *b = reinterpret_cast<Vec<T> *>(state.scores.get());
    Vec<T> *step = reinterpret_cast<Vec<T> *>(state.step.get());
    score_groups<T>(state.X, i, state.W.get(), state.layout, groups.ids, groups.count, is_far(state.X, state.stride()),
                    b);
    if (visit_scored(state, i, groups, b, step)) step_weights<T>(state, i, groups.ids, groups.count, step);
}

// Visits n rows, given their scores (n, stride) at the weights W and their Gram matrix (n, n). The change of each visit
// is added to the scores of the rows after it, so W can be updated once, with all steps (n, stride).
template <typename T>
static void visit_block(TopKState<T> &state, const int32_t *order, int64_t n, const T *gram, T *scores, T *steps) {
    constexpr int WIDTH = Lanes<T>::WIDTH;
    const int64_t stride = state.stride();
    for (int64_t p = 0; p < n; ++p) {
        Vec<T> *step = reinterpret_cast<Vec<T> *>(steps + p * stride);
        const GroupsOfVisit<T> groups = groups_of_visit(state, order[p], true);
        if (!visit_scored(state, order[p], groups, reinterpret_cast<Vec<T> *>(scores + p * stride), step)) {
            std::fill_n(steps + p * stride, stride, T(0));
            continue;
        }
        int n_changed = 0;
        for (int g = 0; g < groups.count; ++g) {
            if (count_lanes(step[g] != Vec<T>{}) > 0) state.changed[n_changed++] = uint32_t(g);
        }
        for (int64_t q = p + 1; q < n; ++q) {
            const Vec<T> k = splat<T>(gram[p * n + q]);
            T *line = scores + q * stride;
            for (int c = 0; c < n_changed; ++c) {
                const int64_t at = state.changed[c] * WIDTH;
                store(line + at, load(line + at) + k * step[state.changed[c]]);
            }
        }
    }
}

// Prefetches what the next visits read first.
template <typename T>
WIDEMARGIN_INLINE void prefetch_row(const TopKState<T> &state, const int32_t *order, int64_t p, int64_t n) {
    if (p + 6 < n) {
        __builtin_prefetch(&state.rows[order[p + 6]]);
        if (state.X.start != nullptr) __builtin_prefetch(&state.X.start[order[p + 6]]);
    }
    const bool far = state.X.cols != nullptr && is_far(state.X, state.stride());
    if (p + 3 < n) {
        const int64_t next = order[p + 3], begin = state.X.begin(next);
        const int64_t length = far ? std::min(state.X.length(next), PREFETCH_X) : NEAR_X;
        for (int64_t e = 0; e < length; e += 64 / sizeof(T)) __builtin_prefetch(state.X.values + begin + e);
        if (state.X.cols != nullptr) {
            for (int64_t e = 0; e < length; e += 16) __builtin_prefetch(state.X.cols + begin + e);
        }
        if (!state.lists) __builtin_prefetch(&state.dual[next * state.stride()]);
    }
    if (p + 1 < n && far) {
        const int64_t next = order[p + 1], begin = state.X.begin(next), length = state.X.length(next);
        for (int64_t f = 0; f < std::min<int64_t>(length, 8); ++f) {
            __builtin_prefetch(&state.W[state.layout.at(state.X.cols[begin + f], 0)]);
        }
    }
}

template <typename T, int GROUPS>
static void visit_rows_of(TopKState<T> &state, const int32_t *order, int64_t n) {
    for (int64_t p = 0; p < n; ++p) {
        prefetch_row(state, order, p, n);
        if constexpr (GROUPS > 0) {
            visit_few<T, GROUPS>(state, order[p]);
        } else {
            visit_many<T>(state, order[p]);
        }
    }
}

// Visits the rows order[0 … n) one after another. The baseline set has few registers, so it has no special version for
// few classes.
template <typename T>
static void visit_rows(TopKState<T> &state, const int32_t *order, int64_t n) {
    if constexpr (WIDEMARGIN_ISA_WIDTH > 4) {
        switch (state.lists ? 0 : state.n_groups) {
            case 1:
                return visit_rows_of<T, 1>(state, order, n);
            case 2:
                return visit_rows_of<T, 2>(state, order, n);
            case 3:
                return visit_rows_of<T, 3>(state, order, n);
            case 4:
                return visit_rows_of<T, 4>(state, order, n);
            default:
                break;
        }
    }
    visit_rows_of<T, 0>(state, order, n);
}

}  // namespace WIDEMARGIN_ISA_NAME
}  // namespace widemargin
