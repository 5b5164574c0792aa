"""Run one of our modules on a problem's code in the sandbox: a JSON request on stdin, marked lines on stdout."""

from __future__ import annotations

import json
import os
from typing import Any

from runners.sandbox import PACKAGE, Completed, ResourceLimits, SandboxPolicy, command_of, python_paths, run

# A whole bundle is one line of the answer, and `Capture` keeps half of this at either end.
ANSWER_BYTES = 32 << 20


def run_module(module: str, request: dict[str, Any], timeout_s: float, memory_bytes: int) -> Completed:
    """Run `main` of one of our modules in the sandbox, without a network; return how it ended. Raises SandboxError."""
    limits = ResourceLimits(
        wall_s=timeout_s, memory_bytes=memory_bytes, log_bytes=ANSWER_BYTES, output_bytes=ANSWER_BYTES
    )
    # Of the installation only our code, never its data.
    policy = SandboxPolicy((*python_paths(), PACKAGE), env=_environment(), limits=limits)
    return run(command_of(module), policy, json.dumps(request).encode(), preloaded=("torch",))


def marked_line(text: str, mark: str) -> str:
    """Return the last line with that mark, without the mark, or an empty text."""
    for line in reversed(text.splitlines()):
        if line.startswith(mark):
            return line.removeprefix(mark)
    return ""


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("OMP_NUM_THREADS",) if name in os.environ}
    return {**kept, "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
