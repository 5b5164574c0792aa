"""What this machine can do: each level is tried by running /bin/true in it, firmest first."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache

from runners.sandbox.base import (
    ALLOW_UNSANDBOXED,
    FORCED_LEVEL,
    ResourceLimits,
    SandboxError,
    SandboxLevel,
    SandboxPolicy,
    unsandboxed_allowed,
)
from runners.sandbox.launch import prepare
from runners.sandbox.orphans import sweep_orphans
from runners.sandbox.process import Sandboxed

TRIAL = SandboxPolicy(limits=ResourceLimits(wall_s=10))


@dataclass(frozen=True)
class ProbeReport:
    """The firmest level that works, and for each firmer one why it doesn't, in words."""

    level: SandboxLevel
    reasons: dict[SandboxLevel, str]

    def lines(self) -> list[str]:
        """For `doctor`: one line a level that was tried."""
        failed = [f"{level}: {reason}" for level, reason in self.reasons.items()]
        return [*failed, f"{self.level}: works"]


def probe() -> SandboxLevel:
    """The firmest level this machine can do, tried once in a process's life."""
    return probe_report().level


@cache
def probe_report() -> ProbeReport:
    """`probe` with the reasons. Sweeps first: it runs once in a worker's life, near its start."""
    sweep_orphans()
    reasons: dict[SandboxLevel, str] = {}
    for level in SandboxLevel:
        if (reason := why_not(level)) is None:
            return ProbeReport(level, reasons)
        reasons[level] = reason
    return ProbeReport(SandboxLevel.NONE, reasons)


def why_not(level: SandboxLevel) -> str | None:
    """Why `level` does not work here; None when it does."""
    if level is SandboxLevel.NONE:
        return None
    if not sys.platform.startswith("linux"):
        return f"{sys.platform} is not Linux"
    try:
        completed = Sandboxed(prepare(level, ["/bin/true"], TRIAL, ()), TRIAL).wait()
    except SandboxError as error:
        return str(error)
    return None if completed and completed.ok else f"a trial run ended with {completed}"


def allowed_level(wanted: SandboxLevel | None = None) -> SandboxLevel:
    """The level to run at: `wanted`, else KERNELSCI_SANDBOX, else the firmest. Raises SandboxError when it
    doesn't hold untrusted code and nobody allowed that."""
    level = wanted or SandboxLevel(os.environ.get(FORCED_LEVEL) or probe())
    if not level.holds and not unsandboxed_allowed():
        reasons = "; ".join(probe_report().lines())
        raise SandboxError(f"no sandbox here ({reasons}); set {ALLOW_UNSANDBOXED}=1 to run without one")
    return level
