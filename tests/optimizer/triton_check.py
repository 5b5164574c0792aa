"""Run Triton snippets' checks in a process of its own: `python triton_check.py cpu|cuda SNIPPET…`.

On `cpu` set TRITON_INTERPRET=1. Needs torch and triton, nothing else. Writes a line `exit CODE of SNIPPET` after what
each check wrote, and exits with 1 where one failed.
"""

import os
import runpy
import sys
import traceback

import triton  # noqa: F401 - imported here, once, for all snippets
from torch.linalg import vector_norm


def check(path: str, device: str) -> bool:
    """Run one snippet, print its error, return whether that is small enough."""
    snippet = runpy.run_path(path)
    arguments = snippet["inputs"](device)
    got, want = snippet["custom_kernel"](*arguments), snippet["expected"](*arguments)
    relative = float(vector_norm(got.double() - want) / vector_norm(want))
    print(f"relative error {relative:.3g}, allowed {snippet['LIMIT']:.3g}")
    return relative <= float(snippet["LIMIT"])


def check_in_a_fork(path: str, device: str) -> int:
    """Run one snippet in a process that has torch and Triton already, and of which nothing reaches the next one."""
    if not (pid := os.fork()):
        code = 1
        try:
            code = 0 if check(path, device) else 1
        except BaseException:  # the fork must end here, whatever a snippet raises
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(device: str, paths: list[str]) -> int:
    """Run all snippets; 1 where one failed."""
    os.dup2(sys.stdout.fileno(), sys.stderr.fileno())  # one stream, so that a message stands before its exit line
    codes = []
    for path in paths:
        codes.append(check_in_a_fork(path, device))
        print(f"exit {codes[-1]} of {path}", flush=True)
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
