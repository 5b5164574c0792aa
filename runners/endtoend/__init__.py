"""Run a program with and without exported kernels: are its results the same, is it faster, were the kernels called?

`measuring` starts fresh processes and judges, `child` is what runs in them, and `parity` compares results.
"""
