"""Two small real data sets, and generators of any size."""

from __future__ import annotations

from widemargin.datasets.embedded import LabelledData, load_debian_tags, load_wordnet_animals

__all__ = ["LabelledData", "load_debian_tags", "load_wordnet_animals"]
