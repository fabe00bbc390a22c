"""Write the models of fuzz/corpus/native, which fuzz/fuzz_native.cpp damages: one for each form of weights.

python fuzz/make_native_corpus.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer

from widemargin import HierarchicalClassifier, OneVsAllClassifier, TextPipeline, TopKClassifier, pack
from widemargin.model_io import read_model, write_packed
from widemargin.problems.compressed import CompressedWeights

CORPUS = Path(__file__).parent / "corpus" / "native"
TEXTS = ["Fresh bread and cäke", "cake with cream", "the old engine", "an engine and gearbox", "ΟΔΟΣ 北京 😀"]
LABELS = ["food", "food", "cars", "cars", "é😀"]


def main() -> None:
    """Train and pack."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(24, 6)) * (rng.random((24, 6)) < 0.6)
    y = np.array([f"{a}/{b}" for a in "ab" for b in "pqr"])[np.arange(24) % 6]
    sets = [{"a"} if i % 2 else {"b", "c"} for i in range(24)]
    words = TextPipeline([("t", TfidfVectorizer(dtype=np.float32)), ("m", OneVsAllClassifier(prune=0.01))])
    pairs = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 2), strip_accents="unicode", sublinear_tf=True)
    letters = TextPipeline([("t", pairs), ("m", OneVsAllClassifier())])
    CORPUS.mkdir(parents=True, exist_ok=True)
    for name, model in {
        "words": words.fit(TEXTS, LABELS),
        "letters": letters.fit(TEXTS, LABELS),
        "sparse": OneVsAllClassifier(prune=0.1, rank_scale=0.2).fit(sp.csr_array(X), sets),
        "two": OneVsAllClassifier(normalize=True).fit(X, np.arange(24) % 2 == 0),
        "dense": TopKClassifier(k=2).fit(X, y),
        "tree": HierarchicalClassifier(prune=0.02).fit(X, y),
        "beam": HierarchicalClassifier(decision="beam", beam_width=2).fit(X, y),
        "factored": HierarchicalClassifier(memory_limit_mb=0.0001).fit(X, y),
    }.items():
        pack(model, CORPUS / f"{name}.wm")
    state = read_model(CORPUS / "sparse.wm")
    coef = CompressedWeights.of(state.arrays["coef"], 8)
    kept = {name: array for name, array in state.arrays.items() if not name.startswith(("coef", "feature_index"))}
    arrays = kept | {f"compressed_{name}": getattr(coef, name) for name in CompressedWeights.ARRAYS}
    facts = {"bits": 8, "labels_per_block": coef.labels_per_block}
    attributes = {**state.attributes, "compression": facts}
    attributes.pop("feature_index")
    packed = state.__class__(**vars(state) | {"arrays": arrays, "attributes": attributes})
    write_packed(CORPUS / "compressed.wm", packed)


if __name__ == "__main__":
    main()
