"""Profile a candidate after its timing: launch cost, graph replay, and the kernels that take the time of a call."""
