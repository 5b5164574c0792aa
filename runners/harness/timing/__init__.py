"""Time candidate, parent and baseline against each other, and estimate speedups, intervals and the noise floor."""
