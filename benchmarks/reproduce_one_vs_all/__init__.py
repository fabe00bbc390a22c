"""Reproduces the figures and tables of Schultheis & Babbar (2022): `make reproduce-one-vs-all`."""
