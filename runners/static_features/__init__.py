"""Read from machine code what a kernel will do, without running it.

The text comes from a compiler that read hostile source: it is capped, nothing in it is executed, and every figure may
be missing.
"""

from runners.static_features.features import LABELS, VERSION, features_of, hottest_block
from runners.static_features.listing import Dialect, Listing

__all__ = ["LABELS", "VERSION", "Dialect", "Listing", "features_of", "hottest_block"]
