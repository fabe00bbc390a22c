"""`compare` on four data sets, each within a budget; writes docs/reproductions/comparison.md.

    WIDEMARGIN_DATA=data PYTHONPATH=benchmarks python benchmarks/compare_methods.py [--budget 600] [--sets letter …]

Goal: every comparison finishes within its budget, and the recommended method is within the interval of the best one.
Results are kept in benchmarks/results/comparison.json so that a single data set can be run again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from _common import describe_machine, find_data, format_table, write_text
from _multiclass import SETS
from _trees import rcv1_task
from widemargin import Taxonomy, compare, read_xmc

RESULTS = Path(__file__).parent / "results" / "comparison.json"
LEAST_MEMORY = 5e5  # smaller growth only means that the fit reused memory freed by earlier fits
PAGE = Path(__file__).parent.parent / "docs" / "reproductions" / "comparison.md"


def ccat():
    """The subtree CCAT of RCV1-v2: rows with one path in it, training and test part."""
    folder = find_data("rcv1v2-subsets/labels.txt").parent
    taxonomy = Taxonomy.from_tsv(folder / "hierarchy.tsv").subtree("CCAT")
    parts = [rcv1_task(folder, "CCAT", part) for part in ("train", "test")]
    names = np.array(taxonomy.nodes)
    train, test = ((part.X, names[part.labels]) for part in parts)
    return {"X": train[0], "y": train[1], "X_test": test[0], "y_test": test[1], "taxonomy": taxonomy}


def debian_tags():
    """Tags of Debian packages, several per row."""
    folder = find_data("debian-tags/tags_train.txt.gz").parent
    (X, Y), (X_test, Y_test) = (read_xmc(folder / f"tags_{part}.txt.gz") for part in ("train", "test"))
    return {"X": X, "y": Y, "X_test": X_test, "y_test": Y_test, "normalize": True}


def silhouettes():
    """Caltech-101 silhouettes, training rows, cross-validated."""
    X, y = SETS["caltech101-silhouettes"][0]()
    return {"X": X, "y": y}


def letters():
    """Letter, 16,000 rows scaled to [−1, 1], cross-validated."""
    X, y = SETS["letter"][0]()
    return {"X": X, "y": y}


LOADERS = {
    "rcv1v2-subsets CCAT": ccat,
    "debian-tags": debian_tags,
    "caltech101-silhouettes": silhouettes,
    "letter": letters,
}


def describe(name, found):
    """The section of a data set."""
    metric, others = found["metric"], [m for m in found["methods"][0]["quality"] if m != found["metric"]]
    columns = ["method", "chosen", metric, *others, "gap", "CPU s", "memory", "model", "µs per row"]
    rows = []
    for method in found["methods"]:
        quality = method["quality"]
        first = quality[metric]
        values = "; ".join(
            f"{key} {', '.join(f'{v:g}' for v in dict.fromkeys(chosen))}"
            for key, chosen in method["parameters"].items()
        )
        rows.append(
            [
                method["method"] + (" *" if method["stopped"] else ""),
                values,
                f"{first['mean']:.4f} ± {first['high'] - first['mean']:.4f}",
                *(f"{quality[m]['mean']:.4f}" for m in others),
                f"{max(method['relative_gap'], 0.0):.0e}",
                f"{method['cpu_s']:.2f}",
                f"{method['memory_bytes'] / 1e6:.0f} MB" if method["memory_bytes"] >= LEAST_MEMORY else "?",
                f"{method['model_bytes'] / 1e6:.2f} MB",
                f"{1e6 * method['prediction_s']:.0f}",
            ]
        )
    held_out = "test rows" if found["folds"] == 1 and name in ("rcv1v2-subsets CCAT", "debian-tags") else "folds"
    how = (
        f"{found['held_out_rows']:,} held-out rows ({held_out}: {found['folds']})"
        if held_out == "folds"
        else (f"{found['held_out_rows']:,} test rows")
    )
    about = (
        f"{found['rows']:,} rows, {found['labels']:,} labels, {how}; {found['seconds']:.0f} s of a budget of "
        f"{found['budget_s']:.0f} s"
        + (f"; {found['share_of_rows']:.0%} of the rows." if found["share_of_rows"] < 1 else ".")
    )
    left_out = [f"{method}: {why}." for method, why in found["not_tried"].items()]
    parts = [f"## {name}", about, format_table(columns, rows), f"> {found['recommendation']}", *left_out]
    return "\n\n".join([*parts, found["machine"]])


def write_page(results):
    introduction = """# Comparisons

This page shows the output of `widemargin compare` for four data sets: quality with 95 % intervals on rows that were not
used to choose parameters, certified gap, CPU seconds and memory of the fit (? if it reused memory freed by earlier
fits), size of the model on disk, and CPU time of a prediction. `compare` recommends the best method, unless a method
that is equally good within chance saves half of the CPU time and at least one second.
\\* marks methods with a fit that the budget stopped. Accuracy is exact, on the tree CCAT as well. There, hierarchical
F1 and tree loss are shown too, and methods that predict a path are also run with `stop=True`. One command writes this
page: `PYTHONPATH=benchmarks python benchmarks/compare_methods.py`."""
    sections = [describe(name, results[name]) for name in LOADERS if name in results]
    write_text(PAGE, "\n\n".join([introduction, *sections]) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=600.0, help="seconds per data set")
    parser.add_argument("--sets", nargs="+", default=list(LOADERS), choices=list(LOADERS))
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in options.sets:
        found = compare(
            **LOADERS[name](),
            budget=options.budget,
            report=lambda what, gone, whole, name=name: print(
                f"{name}: {what}; {gone:.0f} of about {whole:.0f} s", flush=True
            ),
        )
        results[name] = found.to_dict() | {"machine": describe_machine()}
        write_text(RESULTS, json.dumps(results, indent=1) + "\n")
        write_page(results)
        print(found.recommendation)


if __name__ == "__main__":
    main()
