"""Draw the picture of README.md: three questions that a fitted model answers, on embedded data.

    python tools/make_readme_picture.py            # writes docs/pictures/readme.svg

Lines and text use a grey that is readable on white and on black, and nothing is filled: the page may be light or dark.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from widemargin import OneVsAllClassifier, TopKClassifier, datasets
from widemargin.displays import ConvergenceDisplay, PrecisionByFrequencyDisplay, TopKAccuracyDisplay

OUT = Path(__file__).parents[1] / "docs" / "pictures" / "readme.svg"
INK = "#6e7781"  # contrast 4.5 on white, 4.2 on GitHub's black
STYLE = {
    "font.size": 9,
    "svg.hashsalt": "widemargin",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 8,
    "legend.frameon": False,
    **dict.fromkeys(
        ("axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "text.color", "xtick.color", "ytick.color"), INK
    ),
}


def draw(out: Path) -> None:
    """Train small models and draw three panels."""
    animals, packages = datasets.load_wordnet_animals(), datasets.load_debian_tags()
    rows = slice(0, 3000)
    tags = OneVsAllClassifier(prune=0.01, n_jobs=-1).fit(packages.X_train[rows], packages.y_train[rows])
    kinds = {k: TopKClassifier(k=k, random_state=0).fit(animals.X_train, animals.y_train) for k in (1, 5)}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, 2.9), layout="constrained")
        bounds, ranks, labels = figure.subplots(1, 3)
        ConvergenceDisplay.from_estimator(kinds[5], ax=bounds)
        bounds.set_title("How far from the optimum?")
        for k, model in kinds.items():
            name = f"trained for the top {k}"
            TopKAccuracyDisplay.from_estimator(model, animals.X_test, animals.y_test, max_k=10, ax=ranks, name=name)
        ranks.set_title("Is it in the top few?")
        PrecisionByFrequencyDisplay.from_estimator(tags, packages.X_test, packages.y_test, ax=labels)
        labels.set_title("What about rare labels?")
        labels.set_xlabel("training rows per label, at least (labels)")
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=OUT, help="the file to write")
    draw(parser.parse_args().out)
