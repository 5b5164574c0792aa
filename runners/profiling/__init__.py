"""What keeps a kernel from its ceiling. `summary` needs nothing but times; what a profiler saw, where one is there,
comes from `runners.harness.insight`.
"""
