"""Every link between our own pages leads to a file that exists, and every anchor to a heading."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MADE_BY_THE_BUILD = {DOCS / "_build", DOCS / "api", DOCS / "gallery"}
PAGES = sorted(
    [*ROOT.glob("*.md"), ROOT / "tools" / "README.md"]
    + [page for page in DOCS.rglob("*.md") if not MADE_BY_THE_BUILD & set(page.parents)]
)
FENCE = re.compile(r"^(`{3,}).*?^\1`*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH_IN_DIRECTIVE = re.compile(r"^`{3,}\{(?:figure|image|include)\} (\S+)$", re.MULTILINE)
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


def name_of(page):
    return str(page.relative_to(ROOT))


def prose_of(page):
    """A page without its code and its directives."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors_of(page):
    """The anchors that GitHub and MyST give to headings."""
    text = page.read_text(encoding="utf-8")
    for included in re.findall(r"^```\{include\} (\S+)$", text, re.MULTILINE):
        text += (page.parent / included).read_text(encoding="utf-8")
    titles = (re.sub(r"\[([^]]*)\]\([^)]*\)|[`*]", r"\1", title) for title in HEADING.findall(FENCE.sub("", text)))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def source_of(path):
    """The source of a gallery page, or the path itself."""
    if path.parent == DOCS / "gallery":
        return ROOT / "examples" / ("README.rst" if path.stem == "index" else f"{path.stem}.py")
    if path.parent == DOCS / "gallery" / "images":
        stem = re.fullmatch(r"sphx_glr_(plot_\w+)_001", path.stem)
        return ROOT / "examples" / f"{stem[1]}.py" if stem else path
    return path


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for link in LINK.findall(prose_of(page)):
        if re.match(r"\w+:", link):
            continue  # `make linkcheck` checks other sites
        file, _, anchor = link.partition("#")
        target = source_of((page.parent / file).resolve()) if file else page
        assert target.exists(), f"{name_of(page)} links to {link}"
        if anchor:
            assert anchor in anchors_of(target), (
                f"{name_of(page)} links to {link}; headings: {sorted(anchors_of(target))}"
            )


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pictures_and_included_files_exist(page):
    for path in PATH_IN_DIRECTIVE.findall(page.read_text(encoding="utf-8")):
        assert source_of((page.parent / path).resolve()).exists(), f"{name_of(page)} shows {path}"


def test_every_page_is_in_the_table_of_contents_once():
    blocks = TOCTREE.findall((DOCS / "index.md").read_text(encoding="utf-8"))
    listed = [line for block in blocks for line in block.splitlines() if line and not line.startswith(":")]
    assert len(listed) == len(set(listed))
    pages = {str(page.relative_to(DOCS).with_suffix("")) for page in PAGES if DOCS in page.parents}
    in_lists_of_their_own = {page for page in pages if page.startswith("decisions/0")}
    assert pages - {"index"} - in_lists_of_their_own == set(listed) - {"api", "gallery/index"}


def test_a_broken_link_would_be_found():
    assert LINK.findall("see [that](no/such.md#part)") == ["no/such.md#part"]
    assert "c-α-and-k" in anchors_of(DOCS / "guide" / "hierarchical.md")
