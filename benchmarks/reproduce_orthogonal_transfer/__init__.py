"""Reproduces tables 2–8 of Zhou, Xiao and Wu (2011): `python -m reproduce_orthogonal_transfer`."""
