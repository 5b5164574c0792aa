"""The whole site under faults: `python -m tests.chaos --seed 1`. See docs/operations.md, "Faults"."""
