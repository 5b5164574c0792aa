"""Run an exported kernel: build it, guard it, fall back to torch, and replace calls of a program by it.

These files are copied into every exported package. They import torch, the standard library and each other.
"""
