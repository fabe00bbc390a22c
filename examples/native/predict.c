/* Print the top labels of each line of standard input, and the term that adds most to the first one.
 *
 *     cc predict.c -I include -L build/native -lwidemargin -o predict
 *     echo "fresh bread" | ./predict model.wm
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "widemargin.h"

#define PLACES 3

static void check(wm_status status) {
    if (status == WM_OK) return;
    fprintf(stderr, "error %d: %s\n", (int)status, wm_error_message());
    exit(1);
}

static void print_name(const char *name, size_t length) { fwrite(name, 1, length, stdout); }

static void predict(const wm_model *model, const char *text) {
    int64_t labels[PLACES];
    double scores[PLACES];
    size_t n_found, length, n_terms;
    const char *name;
    wm_contribution most;
    check(wm_predict_text(model, text, strlen(text), PLACES, labels, scores, &n_found));
    for (size_t place = 0; place < n_found; ++place) {
        check(wm_label_name(model, labels[place], &name, &length));
        print_name(name, length);
        printf(" %.6g\n", scores[place]);
    }
    if (n_found == 0) return;
    check(wm_explain_text(model, text, strlen(text), labels[0], 1, &most, &n_terms, NULL, NULL));
    if (n_terms > 0) {
        check(wm_feature_name(model, most.feature, &name, &length));
        printf("  because of ");
        print_name(name, length);
        printf(" (%+.4g)\n", most.contribution);
    }
}

int main(int argc, char **argv) {
    wm_model *model;
    char line[65536];
    int64_t n_labels;
    if (argc != 2) {
        fprintf(stderr, "usage: predict MODEL < TEXTS\n");
        return 2;
    }
    check(wm_open(argv[1], WM_VERIFY, &model));
    check(wm_describe(model, &n_labels, NULL, NULL));
    printf("%" PRId64 " labels\n", n_labels);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        predict(model, line);
    }
    wm_close(model);
    return 0;
}
