"""Find what keeps a kernel from its ceiling.

`summary` needs only times; `ncu`, `rocprofv3` and `perf` read hardware counters, behind the interface of `base`.
"""
