"""Decide whether a kernel may replace another: the same results, and not slower."""
