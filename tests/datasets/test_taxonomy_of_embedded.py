"""The trees of the embedded data sets contain every label and have the shape of their source."""

from __future__ import annotations

from widemargin.datasets import load_debian_tags, load_wordnet_animals
from widemargin.labels.taxonomy import VIRTUAL_ROOT


def test_every_debian_tag_is_a_leaf_under_its_facet():
    data = load_debian_tags()
    taxonomy = data.taxonomy
    assert taxonomy.root == VIRTUAL_ROOT
    for tag in data.label_names:
        assert taxonomy.path(tag) == [VIRTUAL_ROOT, tag.split("::")[0], tag]
    assert set(taxonomy.leaves) == set(data.label_names)


def test_animals_have_labels_on_inner_nodes_under_one_root():
    data = load_wordnet_animals()
    taxonomy = data.taxonomy
    assert taxonomy.root == "animal"
    assert set(data.label_names) == set(taxonomy.nodes)
    assert taxonomy.is_ancestor("dog", "hound")
    inner = set(data.label_names) - set(taxonomy.leaves)
    assert len(inner & set(data.y_train)) > 20
