"""Find the firmest level that works on this machine, by running /bin/true at each."""

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
    confinement,
    unsandboxed_allowed,
)
from runners.sandbox.bubblewrap import SCRATCH
from runners.sandbox.cgroup import delegation
from runners.sandbox.fork_server import ForkServer
from runners.sandbox.launch import environment, prepare
from runners.sandbox.orphans import sweep_orphans
from runners.sandbox.paths import python_paths
from runners.sandbox.process import Sandboxed

TRIAL = SandboxPolicy(limits=ResourceLimits(wall_s=10))
# Its result stands for a process's life, so it must not fail because the machine is busy.
FORK_TRIAL = SandboxPolicy(python_paths(), limits=ResourceLimits(wall_s=60))


@dataclass(frozen=True)
class ProbeReport:
    """Name the firmest level that works, and for each firmer one the reason why it doesn't."""

    level: SandboxLevel
    reasons: dict[SandboxLevel, str]

    def lines(self) -> list[str]:
        """Return one line for each level that was tried, for `doctor`."""
        failed = [f"{level}: {reason}" for level, reason in self.reasons.items()]
        return [*failed, f"{self.level}: works"]


def confinement_here() -> str:
    """Return how firmly jobs are confined on this machine, as it is stored with results."""
    return confinement(probe(), grouped=delegation().base is not None)


def probe() -> SandboxLevel:
    """Return the firmest level that works on this machine, tried once in a process's life."""
    return probe_report().level


@cache
def probe_report() -> ProbeReport:
    """Return the level with the reasons. Kills orphans first, since it runs once in a worker's life, near its start."""
    sweep_orphans()
    reasons: dict[SandboxLevel, str] = {}
    for level in SandboxLevel:
        if (reason := why_not(level)) is None:
            return ProbeReport(level, reasons)
        reasons[level] = reason
    return ProbeReport(SandboxLevel.NONE, reasons)


def why_not(level: SandboxLevel) -> str | None:
    """Return why `level` does not work here, or None if it does."""
    if level is SandboxLevel.NONE:
        return None
    if not sys.platform.startswith("linux"):
        return f"{sys.platform} is not Linux"
    try:
        completed = Sandboxed(prepare(level, ["/bin/true"], TRIAL, ()), TRIAL).wait()
    except SandboxError as error:
        return str(error)
    return None if completed and completed.ok else f"a trial run ended with {completed}"


@cache
def why_not_forked(level: SandboxLevel) -> str | None:
    """Return why programs cannot be forked at this level, or None if they can.

    Tried once in a process's life, because kernels before 5.8 cannot join namespaces by a process's descriptor.
    """
    if level is SandboxLevel.NONE:
        return "only a sandbox has a launcher that can be forked"
    server = ForkServer((), environment(FORK_TRIAL, SCRATCH))
    try:
        launch = prepare(level, [sys.executable, "-I", "-c", "print(1)"], FORK_TRIAL, (), server)
        completed = Sandboxed(launch, FORK_TRIAL).outcome()
    except SandboxError as error:
        return str(error)
    finally:
        server.close()
    return None if completed.ok and completed.stdout else f"a trial run ended with {completed}"


def allowed_level(wanted: SandboxLevel | None = None) -> SandboxLevel:
    """Return the level to run at: `wanted`, else KERNELSCI_SANDBOX, else the firmest.

    Raises SandboxError if it does not hold untrusted code and the administrator has not allowed that.
    """
    level = wanted or SandboxLevel(os.environ.get(FORCED_LEVEL) or probe())
    if not level.holds and not unsandboxed_allowed():
        reasons = "; ".join(probe_report().lines())
        raise SandboxError(f"no sandbox here ({reasons}); set {ALLOW_UNSANDBOXED}=1 to run without one")
    return level
