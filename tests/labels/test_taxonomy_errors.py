"""Every bad tree gives an error with the problem and the remedy, and for files with the line."""

from __future__ import annotations

import re

import networkx as nx
import numpy as np
import pytest

from widemargin.exceptions import DataFormatError
from widemargin.labels.taxonomy import VIRTUAL_ROOT, Taxonomy
from widemargin.labels.tree import Tree

BAD_TREES = {
    "cycle": (lambda: Taxonomy.from_edges([("a", "b"), ("b", "c"), ("c", "a")]), "'a' → 'b' → 'c' → 'a'"),
    "cycle beside a tree": (lambda: Taxonomy.from_edges([("x", "y"), ("a", "b"), ("b", "a")]), "'a' → 'b' → 'a'"),
    "cycle beside two trees": (
        lambda: Taxonomy.from_edges([("x", "y"), ("v", "w"), ("tail", "a"), ("a", "b"), ("b", "a")]),
        "'a' → 'b' → 'a'",
    ),
    "own parent": (lambda: Taxonomy.from_parents({"a": "a"}), "'a' → 'a'"),
    "long cycle": (lambda: Taxonomy.from_edges([(i, (i + 1) % 50) for i in range(50)]), r"… \(41 more\)"),
    "two parents": (lambda: Taxonomy.from_edges([("c", "a"), ("c", "b")]), "'c' has two parents, 'a' and 'b'"),
    "root and child": (lambda: Taxonomy.from_paths(["A/B", "B/C"]), "'B' is both a root and a child of 'A'"),
    "child and root": (lambda: Taxonomy.from_paths(["B/C", "A/B"]), "'B' is both a root and a child of 'A'"),
    "empty mapping": (lambda: Taxonomy.from_parents({}), "no nodes"),
    "empty edges": (lambda: Taxonomy.from_edges([]), "no nodes"),
    "empty nested": (lambda: Taxonomy.from_nested({}), "no nodes"),
    "empty graph": (lambda: Taxonomy.from_networkx(nx.DiGraph()), "no nodes"),
    "no labels": (lambda: Taxonomy.flat([]), "no nodes"),
    "not a pair": (
        lambda: Taxonomy.from_edges([("a", "b"), ("a", "b", "c")]),
        r"edge 1 is not a pair; got \('a', 'b', 'c'\)",
    ),
    "a string for a pair": (lambda: Taxonomy.from_edges(["ab"]), "edge 0 is not a pair; got 'ab'"),
    "no name": (lambda: Taxonomy.from_edges([(None, "a")]), "None cannot be used as a name"),
    "nan": (lambda: Taxonomy.from_edges([(float("nan"), "a")]), "nan cannot be used as a name"),
    "unhashable": (lambda: Taxonomy.from_edges([(["x"], "a")]), r"\['x'\] is not hashable"),
    "empty path": (lambda: Taxonomy.from_paths([[]]), "empty name"),
    "slash at the end": (lambda: Taxonomy.from_paths(["A/B/"]), "'A/B/' contains an empty name"),
    "nested text": (lambda: Taxonomy.from_nested({"A": "BC"}), "'BC' cannot describe the children of 'A'"),
    "undirected": (lambda: Taxonomy.from_networkx(nx.path_graph(3)), "undirected"),
    "virtual root taken": (lambda: Taxonomy.from_edges([("a", VIRTUAL_ROOT), ("b", "c")]), "choose another name"),
    "flat root taken": (lambda: Taxonomy.flat(["a", VIRTUAL_ROOT]), "choose another name with root"),
    "name twice": (lambda: Taxonomy(("a", "b", "b"), Tree([-1, 0, 0])), "two nodes are named 'b'"),
    "names too few": (lambda: Taxonomy(("a",), Tree([-1, 0])), "one name for each of the 2 nodes; got 1"),
    "array without root": (lambda: Tree([0, 0]), "must be numbered breadth-first"),
    "array out of order": (lambda: Tree([-1, 0, 1, 0]), "must be numbered breadth-first"),
    "array beyond itself": (lambda: Tree([-1, 1]), "must be numbered breadth-first"),
    "array with two roots": (lambda: Tree([-1, -1]), "must be numbered breadth-first"),
    "empty array": (lambda: Tree([]), "at least one node"),
}


@pytest.mark.parametrize(("build", "message"), BAD_TREES.values(), ids=BAD_TREES)
def test_bad_trees_are_refused_by_name(build, message):
    with pytest.raises(DataFormatError, match=message):
        build()


def test_an_unknown_node_is_named_with_near_matches():
    tree = Taxonomy.flat(["politics", "poultry", "sports"])
    with pytest.raises(DataFormatError, match="'politcs' is not in the taxonomy; did you mean 'politics'"):
        tree.index("politcs")
    with pytest.raises(DataFormatError, match="'zzz' is not in the taxonomy"):
        tree.ancestors("zzz")
    with pytest.raises(DataFormatError, match=r"2 labels \('x', 'y'\) are not in the taxonomy"):
        tree.indices(["x", "sports", "y", "x"])
    with pytest.raises(DataFormatError, match="'x' is not in the taxonomy"):
        tree.tree_distance(["sports", "sports"], np.array(["x", "sports"]))
    with pytest.raises(DataFormatError, match="one-dimensional"):
        tree.indices(np.array([["sports"]]))


def test_a_number_given_for_its_spelling_is_recognised():
    with pytest.raises(DataFormatError, match="5 is not in the taxonomy; did you mean '5'"):
        Taxonomy.flat(["5", "6"]).index(5)


BAD_FILES = {
    "cycle": ("a\tb\n# remark\nb\tc\nc\ta\n", 1, "cycle"),
    "two parents": ("child\tparent\nc\ta\n\nc\tb\n", 4, "'c' has two parents, 'a' and 'b'"),
    "one column": ("a\tb\nc\n", 2, "1 column"),
    "three columns": ("a\tb\tc\n", 1, "3 column"),
    "no child": ("x\ty\n\tb\n", 2, "the child name is missing"),
    "spaces": ("a\tb \n", 1, "the name 'b ' has leading or trailing spaces"),
    "not text": (b"a\tb\n\xff\xfe\tb\n", 2, "not UTF-8"),
    "empty": ("", None, "no nodes"),
    "header only": ("child\tparent\n", None, "no nodes"),
}


@pytest.mark.parametrize(("content", "line", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_files_are_refused_with_file_and_line(tmp_path, content, line, message):
    file = tmp_path / "tree.tsv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataFormatError, match=message) as caught:
        Taxonomy.from_tsv(file)
    assert (caught.value.path, caught.value.line) == (str(file), line)


@pytest.mark.parametrize(
    "content",
    [
        "child\tparent\nb\ta\nc\ta\n",
        "b\ta\nc\ta\n",
        "Child\tParent\r\nb\ta\r\nc\ta\r\n",
        "\ufeff# remark\nchild\tparent\n\nb\ta\na\t\nc\ta",
        "b\ta\nb\ta\nc\ta\n",
        "a\t-1\nb\ta\nc\ta\n",
    ],
    ids=["header", "no header", "windows", "mark, remark and root", "repeated line", "no parent is -1"],
)
def test_files_of_every_kind_give_the_same_tree(tmp_path, content):
    file = tmp_path / "tree.tsv"
    file.write_bytes(content.encode())
    assert Taxonomy.from_tsv(file) == Taxonomy.from_parents({"b": "a", "c": "a"})


def test_a_node_may_be_called_minus_one(tmp_path):
    file = tmp_path / "tree.tsv"
    file.write_text("-1\ttop\n7\t-1\n")
    assert Taxonomy.from_tsv(file).path("7") == ["top", "-1", "7"]


def test_the_header_can_be_declared_or_denied(tmp_path):
    file = tmp_path / "tree.tsv"
    file.write_text("child\tparent\nb\ta\n")
    assert "child" in Taxonomy.from_tsv(file, header=False)
    file.write_text("node\tabove\nb\ta\n")
    assert Taxonomy.from_tsv(file, header=True).nodes == ("a", "b")


def test_a_written_file_reads_back_equal_and_leaves_nothing_else(tmp_path):
    tree = Taxonomy.from_edges([("child", "parent"), ("ü b", "parent"), ("x\u2028y", "child")])
    tree.to_tsv(tmp_path / "tree.tsv")
    assert Taxonomy.from_tsv(tmp_path / "tree.tsv") == tree
    assert [file.name for file in tmp_path.iterdir()] == ["tree.tsv"]


@pytest.mark.parametrize("name", [3, "a\tb", "#a", " a", "", "a\nb"], ids=repr)
def test_names_a_file_cannot_hold_are_refused(tmp_path, name):
    with pytest.raises(DataFormatError, match="cannot be written"):
        Taxonomy.flat([name]).to_tsv(tmp_path / "tree.tsv")
    assert not list(tmp_path.iterdir())


def test_a_graph_with_several_parents_is_refused_with_what_to_do():
    edges = [("c", "a"), ("d", "a"), ("a", "top"), ("b", "top"), ("c", "b"), ("d", "b"), ("d", "c")]
    with pytest.raises(DataFormatError, match=r"'c' has two parents, 'a' and 'b' \(2 nodes") as found:
        Taxonomy.from_edges(edges)
    message = str(found.value)
    assert "LabelGraph, whose nodes may have several parents, to predict_closed" in message
    code = re.search(r"Taxonomy\.from_parents\(.*?\)\}\)", message).group()
    tree = eval(code, {"Taxonomy": Taxonomy, "edges": edges, "reversed": reversed})  # the advice, as it is written
    assert tree.ancestors("c") == tree.ancestors("d") == ["a", "top"]
    graph = nx.DiGraph([(parent, child) for child, parent in edges])
    with pytest.raises(DataFormatError, match="keep one parent per node"):
        Taxonomy.from_networkx(graph)
