"""Parallel processing: one consumer, a sliding window of cells, and workers that run a function."""
