"""Advance campaigns and rounds of the regression watch: rows in, runs and timings out."""
