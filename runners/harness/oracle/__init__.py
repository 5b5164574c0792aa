"""Compute what is expected: sandboxed processes that hold torch, make inputs from secret seeds and judge outputs."""
