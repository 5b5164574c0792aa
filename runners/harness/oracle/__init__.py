"""Compute what is expected: trusted processes that hold torch, make inputs from secret seeds and judge outputs."""
