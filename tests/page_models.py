"""Small text models of all kinds that a page can hold, and texts that are hard to analyse."""

from __future__ import annotations

import functools
import warnings

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from widemargin import HierarchicalClassifier, OneVsAllClassifier, Taxonomy, TextPipeline, TopKClassifier
from widemargin.estimators.compression import compress

__all__ = ["MODELS", "TEXTS", "make_model"]

WORDS = [
    "bread", "cake", "Crème", "brûlée", "Straße", "engine", "gearbox", "ΟΔΥΣΣΕΥΣ", "ΣΊΣΥΦΟΣ", "İstanbul", "naïve",
    "日本語", "한국어", "the", "and", "of", "ﬁsh", "½", "e\u0301clair", "x²", "snake_case", "über", "ÜBER", "🍞",
    "pâté",
]  # fmt: skip
TREE = ["food/baked/bread", "food/baked/cake", "food/fish", "cars/new", "cars/old", "alone"]
TEXTS = [
    "",
    "   \n\t ",
    "Fresh BREAD, cake & crème brûlée!",
    "nothing that the model knows: qwertz",
    "ΟΔΥΣΣΕΥΣ και ΣΊΣΥΦΟΣ. ΑΣ͏Α ΑΣ' Σ ΣΣ",
    "İstanbul ISTANBUL ıi İİ",
    "Straße STRASSE ẞ ﬁsh FISH ½ x² ǅ",
    "e\u0301clair éclair E\u0301CLAIR \u0301 ÜBER über",
    "🍞🍞 the 🍞 bread 👩‍👩‍👧 cake 𝒜𝒷𝒸 𐐀𐐨",
    "한국어 日本語 กำ \u1e9b\u0323 \ufdfa",
    "tab\tand  two   spaces\u00a0\u2003 line\x1cend\u2028engine",
    "snake_case __ _ a b the of and",
    '<script>alert("bread")</script> </textarea> &amp; cake',
    "bread " * 3000 + "gearbox " * 1500 + "cake",
]


def corpus(seed):
    rng = np.random.default_rng(seed)
    texts = [" ".join(rng.choice(WORDS, size=int(rng.integers(2, 12)))) for _ in range(80)]
    return texts, rng


def one_vs_all(bits=None):
    """Several labels per row, pairs of words, and everything that changes scores and decisions; compressed or not."""
    texts, _ = corpus(0)
    Y = np.array([[w in text for w in WORDS[:7]] for text in texts], dtype=int)
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, stop_words="english", dtype=np.float32)
    classifier = OneVsAllClassifier(
        C=4.0, prune=0.01, normalize=True, rank_scale=0.4, decision="threshold", min_labels=1, max_labels=3
    )
    X = vectorizer.fit_transform(texts)
    classifier.fit(X, Y).set_label_names([f"<b>{word}</b>" for word in WORDS[:7]])
    classifier.fit_decision(X, Y).calibrate(X, Y)
    model = TextPipeline([("tfidf", vectorizer), ("classifier", classifier)])
    names = classifier.classes_
    rows = (texts, [[names[label] for label in np.flatnonzero(row)] for row in Y])
    return model if bits is None else compress(model, bits=bits, rows=rows)


def simple(classifier, vectorizer, n_classes, calibrate=None):
    texts, rng = corpus(n_classes)
    y = np.array(WORDS[:n_classes])[rng.integers(0, n_classes, len(texts))]
    texts = [f"{label} {text}" for label, text in zip(y, texts, strict=True)]
    model = TextPipeline([("tfidf", vectorizer), ("classifier", classifier)]).fit(texts, y)
    return model if calibrate is None else model.calibrate(texts, y, method=calibrate, cv=3)


def tree(calibrate=None, **options):
    texts, rng = corpus(3)
    taxonomy = Taxonomy.from_paths(TREE, full_names=True)
    labels = [*TREE, "food/baked", "food"] if options.get("stop") else TREE  # inner nodes, too
    y = np.array(labels)[rng.integers(0, len(labels), len(texts))]
    texts = [f"{WORDS[labels.index(label)]} {text}" for label, text in zip(y, texts, strict=True)]
    classifier = HierarchicalClassifier(taxonomy, random_state=0, separator=None, **options)
    steps = [("tfidf", TfidfVectorizer(token_pattern=r"\S+")), ("classifier", classifier)]
    model = TextPipeline(steps).fit(texts, y)
    return model if calibrate is None else model.calibrate(texts, y, method=calibrate, cv=3)


def plain_one_vs_all():
    """Labels above 0, without a rule."""
    texts, rng = corpus(1)
    Y = [[label for label in range(20) if rng.random() < 0.3] for _ in texts]
    vectorizer = TfidfVectorizer(token_pattern="[^ ,]{2,}", strip_accents="ascii", min_df=2)
    return TextPipeline([("tfidf", vectorizer), ("classifier", OneVsAllClassifier(loss="logistic"))]).fit(texts, Y)


def undecided():
    """Several labels per row, and a threshold that was never chosen."""
    model = plain_one_vs_all()
    model[-1].decision = "threshold"
    return model


MODELS = {
    "one-vs-all": one_vs_all,
    "one-vs-all, compressed": lambda: one_vs_all(bits=8),
    "one-vs-all, sign": plain_one_vs_all,
    "one-vs-all, undecided": undecided,
    "top-k": lambda: simple(
        TopKClassifier(k=2, random_state=0), TfidfVectorizer(use_idf=False, norm="l1"), 5, "isotonic"
    ),
    "classes": lambda: simple(
        OneVsAllClassifier(), TfidfVectorizer(strip_accents="unicode", lowercase=False), 4, "sigmoid"
    ),
    "two classes": lambda: simple(
        OneVsAllClassifier(),
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), strip_accents="unicode"),
        2,
        "sigmoid",
    ),
    "characters": lambda: simple(
        TopKClassifier(random_state=0, normalize=True),
        TfidfVectorizer(analyzer="char", ngram_range=(1, 3), binary=True, norm=None, dtype=np.float32),
        3,
    ),
    "tree": lambda: tree("sigmoid"),
    "tree, beam": lambda: tree(None, method="similarity", decision="beam", beam_width=2),
    "tree, stop": lambda: tree(None, method="per-node", prune=0.01, stop=True),
    "tree, flat": lambda: tree("isotonic", method="tree-loss"),
    "tree, factored": lambda: tree(None, method="similarity", memory_limit_mb=0.001),
}


@functools.cache
def make_model(name):
    """A model by its name in `MODELS`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tolerances that so few rows do not allow
        return MODELS[name]()
