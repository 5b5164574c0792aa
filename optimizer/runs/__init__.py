"""Read and change the state of a run under its lock: kernels, evaluations, budget, evidence and the best kernel."""
