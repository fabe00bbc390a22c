/* The C interface of widemargin: predict with a stored model, without Python.
 *
 *     wm_model *model;
 *     if (wm_open("model.wm", 0, &model) != WM_OK) { fprintf(stderr, "%s\n", wm_error_message()); exit(1); }
 *     int64_t labels[5];
 *     double scores[5];
 *     size_t n;
 *     if (wm_predict_text(model, "fresh bread", 11, 5, labels, scores, &n) == WM_OK) ...
 *     wm_close(model);
 *
 * Models: one-vs-all, top-k and trees with linear weights, sparse, dense or compressed, with or without a vectoriser.
 * Kernels and output codes are refused. Scores are those of predict_topk in Python, bit for bit; those of texts agree
 * to 1e-6. Every function returns a wm_status; no exception leaves the library and it never prints or exits.
 *
 * Threads: after wm_open, any number of threads may use a model at once, until one of them calls wm_close.
 * Memory: the files of the model are mapped, not read. They must not be changed while the model is open (the Python
 * package never changes a file of a model; it replaces it). Strings are UTF-8. */
#ifndef WIDEMARGIN_H
#define WIDEMARGIN_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) && defined(WM_BUILDS_LIBRARY)
#define WM_API __attribute__((visibility("default")))
#else
#define WM_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* An open model. */
typedef struct wm_model wm_model;

typedef enum wm_status {
    WM_OK = 0,
    WM_ERROR_ARGUMENT = 1, /* a null pointer, an index out of range, a number that is not finite, text not in UTF-8 */
    WM_ERROR_FILE = 2,     /* the file or folder is missing or cannot be read */
    WM_ERROR_FORMAT = 3,   /* it is damaged, or no model */
    WM_ERROR_UNSUPPORTED = 4, /* a valid model that only the Python package can predict with */
    WM_ERROR_MEMORY = 5,      /* there is not enough memory */
    WM_ERROR_INTERNAL = 6     /* a bug in this library */
} wm_status;

/* Flags of wm_open. */
#define WM_VERIFY 1u /* read all bytes once and compare their SHA-256, as load does in Python */

/* What the last failed call in this thread says is wrong and what to do about it. Valid until the next call that fails
 * in this thread; empty before the first. */
WM_API const char *wm_error_message(void);

/* Open a file written by `widemargin pack`, or a model folder. A file is ready at once; for a folder with sparse
 * weights and without an index by feature, the index is built here, in memory. Without WM_VERIFY only the structure is
 * checked: a damaged model may then give wrong scores, but never reads or writes outside its arrays. *model is NULL on
 * failure. */
WM_API wm_status wm_open(const char *path, unsigned flags, wm_model **model);

/* Release a model and its mapping; NULL is allowed. */
WM_API void wm_close(wm_model *model);

/* The number of labels, of features, and whether the model takes texts (1) or only rows (0). Any of the pointers may be
 * NULL. */
WM_API wm_status wm_describe(const wm_model *model, int64_t *n_labels, int64_t *n_features, int *takes_texts);

/* The name of a label, from 0 on; numbers are written as Python writes them. The string belongs to the model and has no
 * null character at its end. */
WM_API wm_status wm_label_name(const wm_model *model, int64_t label, const char **name, size_t *length);

/* The same for a feature: its term, its name, or its number. */
WM_API wm_status wm_feature_name(const wm_model *model, int64_t feature, const char **name, size_t *length);

/* The top k labels of a row, best first; of equal scores the lower label comes first. `labels` and `scores` have room
 * for k each; *n_found is at most k, and less if the model has fewer labels.
 *
 * A sparse row has n_values features, from 0 on, in any order; features that occur twice are added up. A dense row has
 * as many values as the model has features. A text has `length` bytes. */
WM_API wm_status wm_predict_sparse(const wm_model *model, const int64_t *features, const double *values,
                                   size_t n_values, size_t k, int64_t *labels, double *scores, size_t *n_found);
WM_API wm_status wm_predict_dense(const wm_model *model, const double *values, size_t n_values, size_t k,
                                  int64_t *labels, double *scores, size_t *n_found);
WM_API wm_status wm_predict_text(const wm_model *model, const char *text, size_t length, size_t k, int64_t *labels,
                                 double *scores, size_t *n_found);

/* What one feature adds to a score. */
typedef struct wm_contribution {
    int64_t feature;
    double value;        /* of the feature in the row, as the model sees it */
    double contribution; /* value times weight */
} wm_contribution;

/* The score of a label as a sum: *score = *intercept + the contributions, up to rounding. Contributions that are not 0
 * are written largest first, at most `capacity` of them; *n_found is their number, which may be larger. On a tree, the
 * score of a path is a sum along it, or the lead of its weakest node over the best sibling, as in Python. `intercept`
 * and `score` may be NULL. */
WM_API wm_status wm_explain_sparse(const wm_model *model, const int64_t *features, const double *values,
                                   size_t n_values, int64_t label, size_t capacity, wm_contribution *contributions,
                                   size_t *n_found, double *intercept, double *score);
WM_API wm_status wm_explain_dense(const wm_model *model, const double *values, size_t n_values, int64_t label,
                                  size_t capacity, wm_contribution *contributions, size_t *n_found, double *intercept,
                                  double *score);
WM_API wm_status wm_explain_text(const wm_model *model, const char *text, size_t length, int64_t label, size_t capacity,
                                 wm_contribution *contributions, size_t *n_found, double *intercept, double *score);

#ifdef __cplusplus
}
#endif

#endif
