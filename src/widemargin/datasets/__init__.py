"""Two small real data sets, and generators of any size."""
