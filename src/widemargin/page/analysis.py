"""The text analysis of a vectoriser as tables, so that a browser finds the same terms as Python.

A browser has its own version of Unicode, and its `\\w` and lower-casing follow other rules. The tables therefore hold
what this Python does with every code point:

    lower     characters that `str.lower` changes. Only Σ depends on its neighbours: it becomes ς after a cased
              character and before none, and characters that case ignores are skipped on both sides
    accents   characters that `strip_accents` changes. Combining characters are removed, and Unicode reorders nothing
              else, so each character has its own result. Hangul syllables are computed, as Unicode defines them
    token     characters that a token consists of. A token pattern is one set of characters, repeated, so that tokens
              are the longest runs of these characters; other patterns are refused
    space     white space, for n-grams of characters

Sets of characters are lists [gap, length, gap, length, …] of ranges.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

from sklearn.feature_extraction.text import strip_accents_ascii, strip_accents_unicode

from widemargin.estimators.persistence import stored_options
from widemargin.exceptions import NotSavableError

__all__ = ["describe_analysis", "token_characters"]

HANGUL = range(0xAC00, 0xD7A4)
# One set of characters: \w and similar, or a class in brackets; written once or more, the last with + or {n,}.
SET = r"\\[wWdDsS]|\[\^?\]?(?:\\.|[^\]\\])*\]"
PATTERN = re.compile(rf"(?:\(\?u\))?(?P<before>\\b)?(?P<set>{SET})(?P<more>(?:(?P=set))*)(?P<repeat>\+|\{{\d+,\}})"
                     r"(?P<after>\\b)?")  # fmt: skip


def describe_analysis(vectorizer: Any) -> dict[str, Any]:
    """The analysis of a `TfidfVectorizer` as JSON values; a NotSavableError for one that a page cannot repeat.

    Parameters
    ----------
    vectorizer : TfidfVectorizer
        Its options are those that `widemargin.save` accepts.

    Returns
    -------
    dict
        "analyzer", "ngrams", "stop_words", and the tables "lower", "cased", "ignorable", "accents", "token" and
        "space", each None if it is not needed; "least" is the length of the shortest token.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import TfidfVectorizer
    >>> from widemargin.page.analysis import describe_analysis
    >>> found = describe_analysis(TfidfVectorizer(ngram_range=(1, 2)))
    >>> found["analyzer"], found["ngrams"], found["least"], found["token"][:4], found["lower"]["İ"]
    ('word', [1, 2], 2, [48, 10, 7, 26], 'i̇')
    """
    options = stored_options(vectorizer)
    words = options["analyzer"] == "word"
    token, least = token_characters(options["token_pattern"]) if words else (None, 1)
    stop_words = vectorizer.get_stop_words() if words else None
    cased, ignorable = _around_sigma() if options["lowercase"] else (None, None)
    return {
        "analyzer": options["analyzer"],
        "ngrams": list(options["ngram_range"]),
        "stop_words": None if stop_words is None else sorted(stop_words),
        "lower": _lower() if options["lowercase"] else None,
        "cased": cased,
        "ignorable": ignorable,
        "accents": _accents(options["strip_accents"]),
        "token": token,
        "least": least,
        "space": None if words else _ranges(r"\s"),
    }


def token_characters(pattern: str) -> tuple[list[int], int]:
    r"""The characters of tokens, as ranges, and the length of the shortest token.

    Parameters
    ----------
    pattern : str
        A regular expression that is one set of characters, repeated: `\w\w+`, `[a-z]{3,}`, `\S+`. `\b` before and
        after `\w` changes nothing. Python's own `re` finds the characters.

    Returns
    -------
    ranges : list of int
        Gaps and lengths in turn.
    least : int
        The number of repetitions.

    Examples
    --------
    >>> from widemargin.page.analysis import token_characters
    >>> token_characters("[a-c-]+")
    ([45, 1, 51, 3], 1)
    """
    found = PATTERN.fullmatch(pattern)
    least = 0
    if found is not None and (found["set"] == r"\w" or not (found["before"] or found["after"])):
        repeat = 1 if found["repeat"] == "+" else int(found["repeat"][1:-2])
        least = len(found["more"]) // len(found["set"]) + repeat
    if found is None or least == 0:
        raise NotSavableError(
            f"a page cannot repeat token_pattern={pattern!r} of the vectoriser exactly; use a pattern that repeats one "
            r"set of characters, such as '(?u)\b\w\w+\b', '\w+' or '[^ ,;]+', or use the service (widemargin serve)"
        )
    return _ranges(found["set"]), least


@cache
def _every_character() -> str:
    return "".join(map(chr, range(sys.maxunicode + 1)))


@cache
def _ranges(pattern: str) -> list[int]:
    """The characters that match a set of characters."""
    return _runs(pattern, _every_character())


def _runs(pattern: str, text: str) -> list[int]:
    """Where a text matches a set of characters, as gaps and lengths."""
    found, last = [], 0
    for run in re.finditer(f"(?:{pattern})+", text):
        found += [run.start() - last, run.end() - run.start()]
        last = run.end()
    return found


def _flagged(flags: Iterable[bool]) -> list[int]:
    return _runs("x", "".join("x" if flag else "." for flag in flags))


@cache
def _lower() -> dict[str, str]:
    return {c: small for c in _every_character() if (small := c.lower()) != c}


@cache
def _around_sigma() -> tuple[list[int], list[int]]:
    """Characters that are cased and not ignored by case, and those that are ignored, as `str.lower` treats them."""

    def final_after(before: str) -> list[bool]:
        """Whether Σ between two line ends becomes ς after some characters and each of all characters."""
        lines = "".join(f"{before}{c}Σ\n" for c in _every_character() if c != "\n")
        flags = [line.endswith("ς") for line in lines.lower().split("\n")[:-1]]
        return [*flags[:10], False, *flags[10:]]  # a line end is neither

    cased = final_after("")
    skipped = [after and not alone for after, alone in zip(final_after("A"), cased, strict=True)]
    return _flagged(cased), _flagged(skipped)


@cache
def _accents(kind: str | None) -> dict[str, Any] | None:
    """The results of `strip_accents` by character; "rest" is whether other characters beyond ASCII are kept."""
    if kind is None:
        return None
    if kind == "ascii":
        kept = {c: new for c in _every_character()[128:] if (new := strip_accents_ascii(c))}
        return {"changes": kept, "rest": False, "hangul": False}
    others = (c for c in _every_character()[128:] if ord(c) not in HANGUL)
    changes = {c: new for c in others if (new := strip_accents_unicode(c)) != c}
    return {"changes": changes, "rest": True, "hangul": True}
