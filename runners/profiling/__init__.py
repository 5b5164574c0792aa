"""What keeps a kernel from its ceiling. `summary` needs nothing but times; `ncu`, `rocprofv3` and `perf` look at
counters, behind the interface of `base`.
"""
