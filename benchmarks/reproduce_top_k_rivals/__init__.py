"""Reproduces Table 1 of Lapin, Hein and Schiele (2015) with its rivals: `python -m reproduce_top_k_rivals`."""
