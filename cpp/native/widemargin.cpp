// The C interface over native/model.hpp: arguments are checked, and every exception becomes a code and a message.
#define WM_BUILDS_LIBRARY
#include "widemargin.h"

#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "native/model.hpp"

struct wm_model {
    widemargin::Model model;
};

namespace {

using widemargin::Explanation;
using widemargin::Failure;
using widemargin::Model;

// Of a fixed size: noting a failure must not need memory.
thread_local char last_message[1024] = "";

wm_status note(wm_status code, const char *message) noexcept {
    std::strncpy(last_message, message, sizeof(last_message) - 1);
    size_t end = std::strlen(last_message);
    // A character that was cut in the middle is left out.
    if (end == sizeof(last_message) - 1)
        while (end > 0 && (static_cast<unsigned char>(last_message[end - 1]) & 0x80) != 0) --end;
    last_message[end] = '\0';
    return code;
}

template <class Body>
wm_status guarded(Body body) noexcept {
    try {
        body();
        return WM_OK;
    } catch (const Failure &failure) {
        return note(failure.code, failure.message.c_str());
    } catch (const std::bad_alloc &) {
        return note(WM_ERROR_MEMORY, "there is not enough memory");
    } catch (const std::length_error &) {
        return note(WM_ERROR_MEMORY, "there is not enough memory");
    } catch (const std::exception &error) {
        return note(WM_ERROR_INTERNAL, error.what());
    } catch (...) {
        return note(WM_ERROR_INTERNAL, "an unknown failure");
    }
}

void need(bool holds, const char *message) {
    if (!holds) throw Failure{WM_ERROR_ARGUMENT, message};
}

constexpr const char *NO_POINTER = "a pointer that must not be NULL is NULL";

void give_name(std::string_view found, const char **name, size_t *length) {
    *name = found.data();
    *length = found.size();
}

void check_prediction(const wm_model *model, const void *row, size_t n, const int64_t *labels, const double *scores,
                      const size_t *n_found) {
    need(model != nullptr && (row != nullptr || n == 0) && labels != nullptr && scores != nullptr && n_found != nullptr,
         NO_POINTER);
}

void check_explanation(const wm_model *model, const void *row, size_t n, int64_t label, size_t capacity,
                       const wm_contribution *contributions, const size_t *n_found) {
    need(model != nullptr && (row != nullptr || n == 0) && (contributions != nullptr || capacity == 0) &&
             n_found != nullptr,
         NO_POINTER);
    need(label >= 0 && label < model->model.n_labels(), "the label is out of range");
}

void give(const Explanation &found, size_t capacity, wm_contribution *contributions, size_t *n_found, double *intercept,
          double *score) {
    std::copy_n(found.parts.begin(), std::min(capacity, found.parts.size()), contributions);
    *n_found = found.parts.size();
    if (intercept != nullptr) *intercept = found.intercept;
    if (score != nullptr) *score = found.score;
}

}  // namespace

extern "C" {

const char *wm_error_message(void) { return last_message; }

wm_status wm_open(const char *path, unsigned flags, wm_model **model) {
    return guarded([&] {
        need(model != nullptr, NO_POINTER);
        *model = nullptr;
        need(path != nullptr, NO_POINTER);
        need((flags & ~WM_VERIFY) == 0, "wm_open was called with an unknown flag");
        *model = new wm_model{{path, (flags & WM_VERIFY) != 0}};
    });
}

void wm_close(wm_model *model) { delete model; }

wm_status wm_describe(const wm_model *model, int64_t *n_labels, int64_t *n_features, int *takes_texts) {
    return guarded([&] {
        need(model != nullptr, NO_POINTER);
        if (n_labels != nullptr) *n_labels = model->model.n_labels();
        if (n_features != nullptr) *n_features = model->model.n_features();
        if (takes_texts != nullptr) *takes_texts = model->model.takes_texts();
    });
}

wm_status wm_label_name(const wm_model *model, int64_t label, const char **name, size_t *length) {
    return guarded([&] {
        need(model != nullptr && name != nullptr && length != nullptr, NO_POINTER);
        need(label >= 0 && label < model->model.n_labels(), "the label is out of range");
        give_name(model->model.label_name(label), name, length);
    });
}

wm_status wm_feature_name(const wm_model *model, int64_t feature, const char **name, size_t *length) {
    return guarded([&] {
        need(model != nullptr && name != nullptr && length != nullptr, NO_POINTER);
        need(feature >= 0 && feature < model->model.n_features(), "the feature is out of range");
        give_name(model->model.feature_name(feature), name, length);
    });
}

wm_status wm_predict_sparse(const wm_model *model, const int64_t *features, const double *values, size_t n_values,
                            size_t k, int64_t *labels, double *scores, size_t *n_found) {
    return guarded([&] {
        check_prediction(model, values, n_values, labels, scores, n_found);
        need(features != nullptr || n_values == 0, NO_POINTER);
        *n_found = model->model.predict(model->model.sparse_row(features, values, n_values), k, labels, scores);
    });
}

wm_status wm_predict_dense(const wm_model *model, const double *values, size_t n_values, size_t k, int64_t *labels,
                           double *scores, size_t *n_found) {
    return guarded([&] {
        check_prediction(model, values, n_values, labels, scores, n_found);
        *n_found = model->model.predict(model->model.dense_row(values, n_values), k, labels, scores);
    });
}

wm_status wm_predict_text(const wm_model *model, const char *text, size_t length, size_t k, int64_t *labels,
                          double *scores, size_t *n_found) {
    return guarded([&] {
        check_prediction(model, text, length, labels, scores, n_found);
        *n_found = model->model.predict(model->model.row_of_text({text, length}), k, labels, scores);
    });
}

wm_status wm_explain_sparse(const wm_model *model, const int64_t *features, const double *values, size_t n_values,
                            int64_t label, size_t capacity, wm_contribution *contributions, size_t *n_found,
                            double *intercept, double *score) {
    return guarded([&] {
        check_explanation(model, values, n_values, label, capacity, contributions, n_found);
        need(features != nullptr || n_values == 0, NO_POINTER);
        give(model->model.explain(model->model.sparse_row(features, values, n_values), label), capacity, contributions,
             n_found, intercept, score);
    });
}

wm_status wm_explain_dense(const wm_model *model, const double *values, size_t n_values, int64_t label, size_t capacity,
                           wm_contribution *contributions, size_t *n_found, double *intercept, double *score) {
    return guarded([&] {
        check_explanation(model, values, n_values, label, capacity, contributions, n_found);
        const auto row = Model::non_zeros(model->model.dense_row(values, n_values));
        give(model->model.explain(row, label), capacity, contributions, n_found, intercept, score);
    });
}

wm_status wm_explain_text(const wm_model *model, const char *text, size_t length, int64_t label, size_t capacity,
                          wm_contribution *contributions, size_t *n_found, double *intercept, double *score) {
    return guarded([&] {
        check_explanation(model, text, length, label, capacity, contributions, n_found);
        give(model->model.explain(model->model.row_of_text({text, length}), label), capacity, contributions, n_found,
             intercept, score);
    });
}

}  // extern "C"
