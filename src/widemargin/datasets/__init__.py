"""Two small real data sets, and generators of any size."""

from widemargin.datasets.embedded import LabelledData, load_debian_tags, load_wordnet_animals
from widemargin.datasets.generators import make_hierarchical, make_zipf_multilabel

__all__ = [
    "LabelledData",
    "load_debian_tags",
    "load_wordnet_animals",
    "make_hierarchical",
    "make_zipf_multilabel",
]
