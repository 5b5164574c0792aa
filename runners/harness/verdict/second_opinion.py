"""Read a candidate's text with KernelGuard (PyPI, MIT), if it is installed. The findings are advice, never a verdict.

KernelGuard is a rule-based detector of benchmark hacks. The text is hostile, so it is read in the sandbox, with
limits. Another reader is added as a function from text to rule names in READERS.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path

from runners.job import Source
from runners.sandbox import ResourceLimits, SandboxError, SandboxPolicy, python_paths, run, work_folder

READ_S = 10.0
MOST_RULES = 8
_PROGRAM = (
    "import json, pathlib, sys\n"
    "sys.path.append(sys.argv[2])\n"
    "import kernelguard\n"
    "found = kernelguard.analyze_code(pathlib.Path(sys.argv[1]).read_text(), compute_structural_hash=False)\n"
    "rules = [match['pattern'] for match in found['matched_patterns'] if match['severity'] in ('high', 'critical')]\n"
    "print(json.dumps(sorted(set(rules))))\n"
)


def kernelguard(source: Source) -> list[str]:
    """Return the matching rules of high or critical severity.

    The list is empty if KernelGuard isn't installed, takes too long or fails.
    """
    place = _place("kernelguard")
    if place is None:
        return []
    with work_folder("read-") as folder:
        text = folder / "kernel.txt"
        text.write_text(source.text)
        # The sandbox reads it as a user of its own.
        text.chmod(0o644)
        limits = ResourceLimits(wall_s=READ_S, memory_bytes=1 << 30)
        policy = SandboxPolicy(read_only=(*python_paths(), place, text), limits=limits)
        try:
            done = run([sys.executable, "-I", "-c", _PROGRAM, str(text), str(place)], policy)
        except SandboxError:
            return []
    return _rules(done.stdout) if done.ok else []


def _place(module: str) -> Path | None:
    """Return the folder from which a module is imported, or None if it is not installed."""
    found = importlib.util.find_spec(module)
    return Path(found.origin).resolve().parent if found and found.origin else None


def _rules(answer: str) -> list[str]:
    """Return at most MOST_RULES names from the reader's answer, which hostile text may have shaped."""
    try:
        rules = json.loads(answer)
    except ValueError:
        return []
    names = [rule for rule in rules if isinstance(rule, str)] if isinstance(rules, list) else []
    # Flags are shown on pages and in prompts, so nothing but a plain name may pass.
    return [name[:64] for name in names if name.isidentifier()][:MOST_RULES]


READERS: dict[str, Callable[[Source], list[str]]] = {"kernelguard": kernelguard}


def opinions(source: Source) -> list[str]:
    """Return the findings of every reader as flags: `kernelguard:TIMER_MONKEYPATCH`."""
    return [f"{name}:{rule}" for name, read in READERS.items() for rule in read(source)]
