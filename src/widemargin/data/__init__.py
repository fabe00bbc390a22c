"""Readers, writers and the memory-mapped store: from files to (X, Y) and back."""
