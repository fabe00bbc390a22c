"""Table 1 of Lapin, Hein and Schiele (2015), re-run with its rivals: `python -m reproduce_top_k_rivals`."""
