"""Decide about a candidate: static screening, correctness checks, plausibility checks and the report."""
