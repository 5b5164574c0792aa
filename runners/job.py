"""Define the whole contract between the optimizer and the runners: requests and results.

Everything here is plain data that survives JSON: a job travels through a broker, a spool directory or a command line.
Standard library only, because a spool machine has torch and nothing else. `runners.wire` converts these classes to
JSON and back, strictly: unknown or missing fields are errors.

Units: `*_us` microseconds, `*_s` seconds, `*_bytes` bytes. Times are medians unless a name says otherwise.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

# 2: jobs know the artefacts that their run has evaluated; a result may name one of them instead of measuring it. 3:
# jobs name an objective; results carry device time and call time, the noise floor, memory figures and the side that
# failed. 4: the effort `check`. 5: device kernels carry static features. 6: jobs may name variants to compile ahead.
# 7: jobs may leave out the hidden cases. 8: a job on a CPU may name the target for which its kernel is written.
PROTOCOL_VERSION = 8
# Messages of these versions can be read. What is on its way during an upgrade is not lost.
READABLE_VERSIONS = (7, PROTOCOL_VERSION)

TunableValue = int | float | str | bool


class Language(StrEnum):
    """List the languages of candidates; each has one backend."""

    CPP = "cpp"
    HIP = "hip"
    CUDA = "cuda"
    TRITON = "triton"
    PYTHON = "python"

    @property
    def label(self) -> str:
        """Return the name of the language for people."""
        return {"cpp": "C++", "hip": "HIP", "cuda": "CUDA", "triton": "Triton", "python": "Python"}[self]

    @property
    def suffix(self) -> str:
        """Return the file name suffix of the language, with the dot."""
        return {"cuda": ".cu", "triton": ".py", "python": ".py"}.get(self, f".{self}")


class Status(StrEnum):
    """List how an evaluation can end. Only `correct` kernels are ranked.

    `infra_error` and `too_large` are not the kernel's fault: the harness or the machine failed, or the problem does
    not fit into the device's memory.
    """

    CORRECT = "correct"
    INCORRECT = "incorrect"
    BUILD_FAILED = "build_failed"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    REJECTED = "rejected"
    SUSPECT = "suspect"
    TOO_LARGE = "too_large"
    INFRA_ERROR = "infra_error"


class Verdict(StrEnum):
    """List what the statistics can support about candidate against opponent."""

    FASTER = "faster"
    SAME = "same"
    SLOWER = "slower"


class Effort(StrEnum):
    """List how far the cascade goes.

    `build`: compile and report only. `check`: run the test cases that everybody may see. `quick`: short timing.
    `full`: paired timing with an interval. `confirm`: full timing again in cold processes.
    """

    BUILD = "build"
    CHECK = "check"
    QUICK = "quick"
    FULL = "full"
    CONFIRM = "confirm"


class Baseline(StrEnum):
    """List the ways in which torch runs the reference implementation."""

    EAGER = "torch_eager"
    COMPILE = "torch_compile"
    MAX_AUTOTUNE = "torch_compile_max_autotune"


class Objective(StrEnum):
    """Choose the time that a verdict compares.

    `device`: time on the device alone, without the host. `call`: time of a call in a steady loop, host included. On a
    CPU both are the same.
    """

    DEVICE = "device"
    CALL = "call"


class Flag(StrEnum):
    """List the observations on an evaluation that do not decide its status.

    A result may also hold flags that are not listed here: the findings of a second reader, such as
    `kernelguard:TIMER_MONKEYPATCH`, and flags of earlier versions.
    """

    NO_CUSTOM_KERNEL = "no_custom_kernel"
    """The work is done by torch or a vendor's library."""
    SLOW_REFERENCE = "slow_reference"
    """The reference loops in Python, so a speedup over it says little."""
    NONDETERMINISTIC = "nondeterministic"
    """The same inputs gave other bits the second time."""
    NOT_EXECUTED = "not_executed"
    """The kernel was built and not run."""
    EMULATED = "emulated"
    """The kernel ran in emulation on the CPU, on the smallest cases; its device was not there."""
    NOT_EMULATED = "not_emulated"
    """The kernel uses something that the emulation lacks; the log of the stage `emulation` names it."""
    NOT_TIMED = "not_timed"
    """The kernel was checked and not timed."""
    NO_BENCHMARK_CASE = "no_benchmark_case"
    """The problem has no case to time on this target."""
    ABANDONED_SLOW = "abandoned_slow"
    """The quick timing found the kernel far behind the best, so the paired timing was left out."""
    MEASURED_AGAIN = "measured_again"
    """The first timing was not plausible; the figures are those of a second one in fresh processes."""
    MEASURED_ELSEWHERE = "measured_elsewhere"
    """An evaluator outside this installation took the times."""
    OTHER_PRODUCT = "other_product"
    """The GPU is another product than the target's, so the target's peaks and rooflines are not its own."""
    BASELINE_DISAGREES = "baseline_disagrees"
    """The baseline's own outputs are outside the tolerance."""
    BASELINE_FAILED = "baseline_failed"
    """The baseline failed, so there is no speedup."""
    PARENT_FAILED = "parent_failed"
    """The parent failed, so there is no comparison with it."""
    UNCONFIRMED = "unconfirmed"
    """The candidate's clock claims a speedup that the referee's clock does not confirm."""
    NEEDS_REVIEW = "needs_review"
    """The speedup is so large that a person should read the kernel."""
    SYNCHRONISES = "synchronises"
    """The call waits for the device, so it cannot be timed behind a gate; call time decides."""
    LAUNCH_BOUND = "launch_bound"
    """The call enqueues more launches than the device's queue holds; call time decides."""
    HOST_BOUND = "host_bound"
    """The call takes much longer with the host than on the device alone."""
    OVERWRITES_OUTPUT = "overwrites_output"
    """Every call returns the same memory, so that the next one overwrites what the last one returned."""


_EXTENSION = re.compile(r"\bload_inline\b|\bcpp_extension\b")


@dataclass(frozen=True)
class Source:
    """Hold one kernel as text.

    `tunables` override the defaults that the text declares; `flags` are compiler flags from the backend's allow-list.
    """

    language: Language
    text: str
    tunables: dict[str, TunableValue] = field(default_factory=dict)
    flags: tuple[str, ...] = ()

    @property
    def compiles_extension(self) -> bool:
        """Return whether the text names torch's `load_inline` or `cpp_extension`, in the language Python."""
        return self.language is Language.PYTHON and bool(_EXTENSION.search(self.text))

    @property
    def content_hash(self) -> str:
        """Return the SHA-256, in hexadecimal, over everything that changes the built artefact."""
        # Sorted, so that the order in which tunables were chosen does not matter.
        parts = [self.language.value, self.text, sorted(self.tunables.items()), list(self.flags)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True)
class Variant:
    """Choose the tunables and flags with which a text is built."""

    tunables: dict[str, TunableValue] = field(default_factory=dict)
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProblemBundle:
    """Hold a problem as it travels: every file it needs, by relative path.

    `format` is native, kernelbench, kernelbench_hard or gpumode. `entry` is the path inside `files` where reading
    starts.
    """

    name: str
    format: str
    entry: str
    files: dict[str, str]

    @property
    def content_hash(self) -> str:
        """Return the SHA-256 over format, entry and files in hexadecimal."""
        parts = [self.format, self.entry, sorted(self.files.items())]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True)
class Limits:
    """Limit what a candidate may use. The referee enforces wall-clock limits from outside."""

    build_s: float = 300.0
    call_s: float = 30.0
    total_s: float = 600.0
    memory_bytes: int = 4 << 30
    log_bytes: int = 64 << 10
    source_bytes: int = 1 << 20


@dataclass(frozen=True)
class JobSpec:
    """Ask for one evaluation on one target.

    `known_artefacts` maps the digest of an artefact that was evaluated already to a name for that evaluation. A
    candidate that builds the same artefact is not executed, and its result names the evaluation in `duplicate_of`.
    With `ahead`, which goes with the effort `build`, these variants of the candidate's text are compiled in place of
    the candidate, and nothing is run. Without `hidden_cases`, the candidate is checked on the test cases that everybody
    may see, as with the effort `check`: for those who may ask as often as they like.
    """

    job_id: str
    problem: ProblemBundle
    target: str
    candidate: Source
    effort: Effort = Effort.FULL
    baseline: Baseline = Baseline.EAGER
    parent: Source | None = None
    best_us: dict[str, float] = field(default_factory=dict)
    known_artefacts: dict[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    profile: bool = False
    objective: Objective = Objective.DEVICE
    ahead: tuple[Variant, ...] = ()
    hidden_cases: bool = True
    for_target: str = ""
    protocol_version: int = PROTOCOL_VERSION


@dataclass(frozen=True)
class Speedup:
    """Compare candidate and opponent: opponent time divided by candidate time, geometric mean over the timed cases.

    `low` and `high` bound the bootstrap interval. Above 1 the candidate is faster. `band` is the noise floor (a ratio
    ≥ 1) that the verdict had to clear. `basis` is the time that was compared: `device` or `call`.
    """

    median: float
    low: float
    high: float
    baseline: str
    band: float
    verdict: Verdict
    basis: Objective = Objective.DEVICE


@dataclass(frozen=True)
class CaseResult:
    """Report one case. Fields stay None if the cascade stopped earlier.

    `samples` holds raw per-call times in µs by side (`candidate`, `baseline`, `parent`). `speedup*` are against the
    baseline, by device time. `*_call_us` and `call_speedup*` are the same by call time, None on a CPU. `basis` is the
    time on which the case's verdict rests: `call` if device time cannot be separated from the host's (flag
    `launch_bound` or `synchronises`). `roofline_us` is the least time that the measured ceilings allow, and
    `roofline_share` that bound divided by the candidate's device time (1 is at the roofline).
    """

    name: str
    ok: bool
    error: str | None = None
    candidate_us: float | None = None
    candidate_low_us: float | None = None
    candidate_high_us: float | None = None
    baseline_us: float | None = None
    parent_us: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    roofline_us: float | None = None
    roofline_share: float | None = None
    candidate_call_us: float | None = None
    baseline_call_us: float | None = None
    parent_call_us: float | None = None
    call_speedup: float | None = None
    call_speedup_low: float | None = None
    call_speedup_high: float | None = None
    basis: Objective = Objective.DEVICE
    flags: list[Flag | str] = field(default_factory=list)
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    samples: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class StageResult:
    """Report one stage of the cascade that was run, in order. `log` is capped to its head and tail."""

    name: str
    seconds: float
    ok: bool = True
    log: str = ""


@dataclass(frozen=True)
class KernelResources:
    """Report what the compiler says about one device kernel (or one CPU function). Unknown figures are None.

    `features` are read from the machine code (`runners.static_features`), by name; empty where nothing reads it.
    """

    name: str
    vgpr: int | None = None
    agpr: int | None = None
    sgpr: int | None = None
    registers: int | None = None
    lds_bytes: int | None = None
    scratch_bytes: int | None = None
    vgpr_spills: int | None = None
    sgpr_spills: int | None = None
    occupancy: int | None = None
    matrix_instructions: int | None = None
    code_bytes: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    features: dict[str, float] = field(default_factory=dict)

    @property
    def spill_store_bytes(self) -> int | None:
        """Return the bytes of spilled registers that a compiler for NVIDIA counts, None where none does."""
        found = self.extra.get("spill_store_bytes")
        return found if isinstance(found, int) else None


@dataclass(frozen=True)
class BuildReport:
    """Report a build: log, artefact digest, resources of each kernel, and assembly if there is any."""

    ok: bool
    seconds: float
    cached: bool
    log: str
    artefact_hash: str | None = None
    kernels: list[KernelResources] = field(default_factory=list)
    assembly: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AheadBuild:
    """Report what the compiler made of a variant.

    `refused` says why the variant cannot run: it does not compile, or exceeds a limit of the device. `figures` are the
    static features and resources of its largest kernel, empty where nothing reads its machine code.
    """

    seconds: float = 0.0
    cached: bool = False
    refused: str = ""
    artefact_hash: str | None = None
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class NoiseFloor:
    """Report how far comparisons of a program with itself stray from 1 on a machine, as a ratio ≥ 1.

    `measured_at` is Unix time in seconds. `wide` warns that the machine was too noisy even when it was measured
    again.
    """

    ratio: float
    comparisons: int = 0
    measured_at: float = 0.0
    driver: str = ""
    load_average: float = 0.0
    wide: bool = False


@dataclass(frozen=True)
class MemoryUse:
    """Report the device memory of an evaluation in bytes.

    `footprint_bytes` counts inputs, weights and outputs of the largest case. `peak_bytes` is the most that all of the
    evaluation's processes held together, those that stand ready for later ones included. `needed_bytes` and
    `available_bytes` are compared before anything runs. `reference_bytes` is what the reference itself took beyond the
    footprint when outputs were judged, in double precision where it is judged so.
    """

    footprint_bytes: int = 0
    needed_bytes: int = 0
    available_bytes: int = 0
    peak_bytes: int = 0
    reference_bytes: int = 0


@dataclass(frozen=True)
class Failure:
    """Name where an evaluation failed: `side` is `candidate`, `parent`, `baseline` or `harness`, `stage` a stage's
    name."""

    side: str
    stage: str
    reason: str


# In the environment of a result: what other programs used of the processors during timing, as a share.
OTHERS_SHARE = "others_share"


@dataclass(frozen=True)
class JobResult:
    """Answer a JobSpec.

    `reasons` explains the status in words; `flags` holds observations that do not decide it. With `duplicate_of` set
    nothing was executed: status and figures are those of the evaluation it names (`JobSpec.known_artefacts`).
    `sandbox` is the level at which the kernel ran, empty if it never ran. `speedup` and `versus_parent` compare the
    time that the job's objective names, `call_speedup` always call time. `failures` names the side and stage of
    everything that failed; a parent or baseline that fails drops its comparison and not the candidate. `ahead` holds a
    build for each of the job's variants, in their order.
    """

    job_id: str
    status: Status
    reasons: list[str] = field(default_factory=list)
    flags: list[Flag | str] = field(default_factory=list)
    verdict: Verdict | None = None
    speedup: Speedup | None = None
    versus_parent: Speedup | None = None
    call_speedup: Speedup | None = None
    failures: list[Failure] = field(default_factory=list)
    noise_floor: NoiseFloor | None = None
    memory: MemoryUse | None = None
    cases: list[CaseResult] = field(default_factory=list)
    stages: list[StageResult] = field(default_factory=list)
    build: BuildReport | None = None
    profile: dict[str, Any] = field(default_factory=dict)
    duplicate_of: str | None = None
    ahead: list[AheadBuild] = field(default_factory=list)
    sandbox: str = ""
    environment: dict[str, Any] = field(default_factory=dict)
    harness_version: str = ""
    protocol_version: int = PROTOCOL_VERSION

    @property
    def outcome(self) -> str:
        """Return the status in a word for people, who must not take a kernel for correct that its device never ran:
        `emulated` where it was right in emulation, `built` where it was only compiled."""
        if self.status is not Status.CORRECT or Flag.NOT_EXECUTED not in self.flags or self.duplicate_of:
            return self.status.value
        return "emulated" if Flag.EMULATED in self.flags else "built"
