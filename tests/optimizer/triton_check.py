"""Run a Triton snippet's check in a process of its own: `python triton_check.py SNIPPET cpu|cuda`; exits with 0 or 1.

On `cpu` set TRITON_INTERPRET=1. Needs torch and triton, nothing else.
"""

import runpy
import sys

from torch.linalg import vector_norm

path, device = sys.argv[1:]
snippet = runpy.run_path(path)
arguments = snippet["inputs"](device)
got, want = snippet["custom_kernel"](*arguments), snippet["expected"](*arguments)
relative = float(vector_norm(got.double() - want) / vector_norm(want))
print(f"relative error {relative:.3g}, allowed {snippet['LIMIT']:.3g}")
sys.exit(not relative <= snippet["LIMIT"])
