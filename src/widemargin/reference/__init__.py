"""NumPy twins of the C++ core: the specification, and the oracle of its tests."""
