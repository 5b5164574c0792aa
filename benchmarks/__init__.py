"""Measure what the product costs and reaches: each module is a command (`python -m benchmarks.NAME`)."""
