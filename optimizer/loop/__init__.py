"""Advance runs: pure decisions in, durable steps out."""

from optimizer.loop.advance import advance

__all__ = ["advance"]
