"""Tables 2–8 of Zhou, Xiao and Wu (2011), re-run: `python -m reproduce_orthogonal_transfer`."""
