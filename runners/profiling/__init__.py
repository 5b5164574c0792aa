"""What keeps a kernel from its ceiling. `summary` needs nothing but times; `kernels` asks a profiler that is there."""
