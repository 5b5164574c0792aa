"""Generate the rows of a synthetic run: a family tree of kernels with outcomes, samples, hypotheses, calls and events.

Times follow a multiplicative random walk from parent to child. They come from a random generator and are no
measurements: titles, sources, reasons and the sandbox column say "synthetic".
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from optimizer.events import payloads
from optimizer.models import (
    Evaluation,
    Hypothesis,
    Job,
    Kernel,
    KernelParent,
    LlmCall,
    Measurement,
    Run,
    RunEvent,
)
from runners import wire
from runners.job import BuildReport, CaseResult, JobResult, Speedup, StageResult, Status, Verdict

MARK = "Synthetic"
WORKER = "synthetic"
BASELINE_US = 200.0
SUBJECTS = ("candidate", "baseline")
STATUSES = (Status.CORRECT,) * 14 + (Status.INCORRECT,) * 3 + (Status.BUILD_FAILED,) * 2 + (Status.TIMEOUT,)
TIMED_SHARE = STATUSES.count(Status.CORRECT) / len(STATUSES)
IDEAS = (
    "Wider vector loads", "Tile for the second-level cache", "Unroll the inner loop by four",
    "Keep the running maximum in registers", "Fuse the two passes", "Split long rows between threads",
    "Prefetch the next tile", "Replace the division by a reciprocal", "Non-temporal stores for the output",
    "Reduce in a tree instead of a chain", "Double-buffer the shared memory", "Swizzle against bank conflicts",
)  # fmt: skip


@dataclass(frozen=True)
class Keys:
    """Hold the first free primary key of each table."""

    run: int
    kernel: int
    evaluation: int
    hypothesis: int
    parent: int
    measurement: int
    event: int
    call: int
    job: int


@dataclass
class Family:
    """Hold all rows of one synthetic run.

    The primary keys of `kernels`, `evaluations` and `hypotheses` are their index plus an offset.
    """

    run: Run
    kernels: list[Kernel] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    hypotheses: list[Hypothesis] = field(default_factory=list)
    parents: list[KernelParent] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)
    events: list[RunEvent] = field(default_factory=list)
    calls: list[LlmCall] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)


class FamilyMaker:
    """Generate families one after another with consecutive keys. Equal arguments give equal rows."""

    def __init__(self, keys: Keys, samples_per_kernel: int, seed: int = 0) -> None:
        self.rng = random.Random(seed)  # noqa: S311  # synthetic figures, not cryptography
        self.samples = samples_per_kernel
        self.next: dict[str, int] = {name: getattr(keys, name) for name in Keys.__dataclass_fields__}

    def make(self, run: Run, kernels: int) -> Family:
        """Generate a run with that many kernels. `run` is unsaved and has everything except its outcome."""
        run.pk = self._take("run")
        family = Family(run)
        times: list[float] = []
        for number in range(kernels):
            times.append(self._kernel(family, number, times))
        self._close(family)
        return family

    def _kernel(self, family: Family, number: int, times: list[float]) -> float:
        rng, run = self.rng, family.run
        base = _base(rng, times)
        status = Status.CORRECT if number == 0 else rng.choice(STATUSES)
        time_us = BASELINE_US if base is None else times[base] * rng.lognormvariate(-0.01, 0.12)
        at = run.created_at + dt.timedelta(seconds=20 * (number + 1))
        hypothesis = self._hypothesis(family, number, base) if base is not None else None
        if hypothesis is not None:
            family.calls.append(_call(run, number, self._take("call"), hypothesis.title, at))
        kernel = _kernel_row(run, number, self._take("kernel"), hypothesis, at)
        family.kernels.append(kernel)
        if base is not None:
            parent_id = family.kernels[base].pk
            family.parents.append(KernelParent(pk=self._take("parent"), kernel_id=kernel.pk, parent_id=parent_id))
        evaluation = self._evaluation(run, kernel, status, time_us, times[base] if base is not None else None, at)
        family.evaluations.append(evaluation)
        family.jobs.append(_job(evaluation, self._take("job"), at))
        if evaluation.speedup:
            self._measure(family, evaluation, time_us)
            if hypothesis is not None and evaluation.parent_speedup:
                hypothesis.measured_gain = (evaluation.parent_speedup - 1) * 100
        self._tell(family, kernel, evaluation, at)
        return time_us

    def _hypothesis(self, family: Family, number: int, base: int) -> Hypothesis:
        low = self.rng.uniform(-5, 20)
        hypothesis = Hypothesis(
            pk=self._take("hypothesis"), run_id=family.run.pk, key=f"round{number}.experiment", kind="experiment",
            round=number // 3, title=f"{self.rng.choice(IDEAS)}, variant {number}",
            description=f"{MARK} hypothesis {number}: expected of no measurement.", rubric="Change the inner loop.",
            predicted_min=low, predicted_max=low + self.rng.uniform(2, 30), innovation=self.rng.randint(0, 100),
            chosen=True, basis_id=family.kernels[base].pk, created_at=family.run.created_at,
        )  # fmt: skip
        family.hypotheses.append(hypothesis)
        return hypothesis

    def _evaluation(
        self, run: Run, kernel: Kernel, status: Status, time_us: float, parent_us: float | None, at: dt.datetime
    ) -> Evaluation:
        timed = _timed(time_us, parent_us) if status == Status.CORRECT else {}
        return Evaluation(
            pk=self._take("evaluation"), kernel_id=kernel.pk, first_of_id=kernel.pk, target_id=run.target_id,
            effort="full", state="done", status=status.value, result=_result(status, timed), sandbox="synthetic",
            harness_version="synthetic", device_s=3.0, created_at=at, started_at=at, finished_at=at, **timed,
        )  # fmt: skip

    def _measure(self, family: Family, evaluation: Evaluation, time_us: float) -> None:
        for subject, middle in zip(SUBJECTS, (time_us, BASELINE_US), strict=True):
            times = [round(middle * self.rng.lognormvariate(0, 0.01), 4) for _ in range(self.samples // 2)]
            family.measurements.append(Measurement(
                pk=self._take("measurement"), evaluation_id=evaluation.pk, case="big", subject=subject,
                samples_us=times, median_us=middle, low_us=middle * 0.99, high_us=middle * 1.01,
            ))  # fmt: skip

    def _tell(self, family: Family, kernel: Kernel, evaluation: Evaluation, at: dt.datetime) -> None:
        finished = payloads.EvaluationFinished(
            number=kernel.number, evaluation=evaluation.pk, effort="full", first=True, status=evaluation.status,
            verdict=evaluation.verdict, time_us=evaluation.time_us, speedup=evaluation.speedup,
            speedup_low=evaluation.speedup_low, speedup_high=evaluation.speedup_high,
            parent_speedup=evaluation.parent_speedup, spent_evaluations=kernel.number + 1,
            spent_device_s=3.0 * (kernel.number + 1),
        )  # fmt: skip
        family.run.last_seq += 1
        family.events.append(RunEvent(
            pk=self._take("event"), run_id=family.run.pk, seq=family.run.last_seq, type=finished.type,
            payload=finished.model_dump(mode="json"), created_at=at,
        ))  # fmt: skip

    def _close(self, family: Family) -> None:
        """Set the run's outcome from its kernels."""
        run = family.run
        run.spent_evaluations = len(family.kernels)
        run.spent_device_s = 3.0 * len(family.kernels)
        run.active_s = 20.0 * len(family.kernels)
        timed = [row for row in family.evaluations if row.speedup is not None]
        if timed:
            best = max(timed, key=lambda row: row.speedup or 0.0)
            run.best_kernel_id, run.best_speedup = best.kernel_id, best.speedup
            run.best_speedup_low, run.best_speedup_high = best.speedup_low, best.speedup_high

    def _take(self, table: str) -> int:
        self.next[table] += 1
        return self.next[table] - 1


def _base(rng: random.Random, times: list[float]) -> int | None:
    """Choose the parent: usually one of the fastest so far, sometimes any."""
    if not times:
        return None
    if rng.random() < 0.3:
        return rng.randrange(len(times))
    # A tournament: cheap, and it gives the tree the shape of a real search.
    sample = rng.sample(range(len(times)), min(8, len(times)))
    return min(sample, key=times.__getitem__)


def _kernel_row(run: Run, number: int, pk: int, hypothesis: Hypothesis | None, at: dt.datetime) -> Kernel:
    idea = hypothesis.title if hypothesis else "Seed"
    return Kernel(
        pk=pk, run_id=run.pk, number=number, key=f"synthetic.{number}", title=idea[:200],
        author_kind="agent" if hypothesis else "seed", language="cpp", source=_source(run, number, idea),
        content_hash=f"{run.pk:032x}{number:032x}", hypothesis_id=hypothesis.pk if hypothesis else None,
        tunables={"TILE": 2 ** (4 + number % 5), "UNROLL": 1 + number % 4}, created_at=at,
    )  # fmt: skip


def _call(run: Run, number: int, pk: int, idea: str, at: dt.datetime) -> LlmCall:
    """Return the call whose answer would have been the kernel; three of them make a round."""
    said = (
        f"# {MARK} prompt\nNo model was asked.\n# Idea\n{idea}\n# Kernels so far\n" + f"- #{number}, 1.02×\n" * 20
    )
    return LlmCall(
        pk=pk, run_id=run.pk, key=f"r{number // 3}.w{number % 3}", role="coder", provider="synthetic", model="none",
        messages=[{"role": "user", "content": said}], state="answered", answer_text=f"{MARK} answer: {idea}.",
        prompt_tokens=2000 + number % 500, answer_tokens=400 + number % 90, cost_usd=Decimal("0.0123"),
        transport={"duration_s": 4.0 + number % 7}, created_at=at, asked_at=at, answered_at=at,
    )  # fmt: skip


def _job(evaluation: Evaluation, pk: int, at: dt.datetime) -> Job:
    return Job(
        pk=pk, evaluation_id=evaluation.pk, queue="bench.synthetic", spec={}, state="done", worker=WORKER, fence=1,
        attempts=1, created_at=at, started_at=at, finished_at=at,
    )  # fmt: skip


def _source(run: Run, number: int, idea: str) -> str:
    body = "\n".join(f"    y[i + {n}] = x[i + {n}] * scale_{number % 97}; // lane {n}" for n in range(24))
    return (
        f"// {MARK} kernel {number} of run {run.pk}: {idea}\n// Made by load_scale; never built, never timed.\n"
        f'extern "C" void softmax_rows(const float* x, float* y, long rows, long cols) {{\n'
        f"  for (long i = 0; i < rows * cols; i += 24) {{\n{body}\n  }}\n}}\n"
    )


def _timed(time_us: float, parent_us: float | None) -> dict[str, Any]:
    ratio = BASELINE_US / time_us
    verdict = "faster" if ratio > 1.03 else "slower" if ratio < 0.97 else "same"
    found = {"time_us": time_us, "speedup": ratio, "speedup_low": ratio * 0.98, "speedup_high": ratio * 1.02}
    if parent_us is None:
        return found | {"verdict": verdict}
    gain = parent_us / time_us
    against = {"parent_speedup": gain, "parent_speedup_low": gain * 0.98, "parent_speedup_high": gain * 1.02}
    parent_verdict = "faster" if gain > 1.03 else "slower" if gain < 0.97 else "same"
    return found | against | {"verdict": verdict, "parent_verdict": parent_verdict}


def _result(status: Status, timed: dict[str, Any]) -> dict[str, Any]:
    """Return a JobResult with one case, in its stored form."""
    speedup = case = None
    if timed:
        low, middle, high = timed["speedup_low"], timed["speedup"], timed["speedup_high"]
        speedup = Speedup(middle, low, high, "torch_eager", 1.02, Verdict(timed["verdict"]))
        case = CaseResult("big", ok=True, candidate_us=timed["time_us"], baseline_us=BASELINE_US, speedup=middle,
                          speedup_low=low, speedup_high=high)  # fmt: skip
    result = JobResult(
        job_id="synthetic", status=status, reasons=[f"{MARK}: nothing was run."], speedup=speedup,
        cases=[case] if case else [], stages=[StageResult("build", 0.3), StageResult("full", 2.7)],
        build=BuildReport(ok=True, seconds=0.3, cached=False, log=""), sandbox="synthetic",
        harness_version="synthetic",
    )  # fmt: skip
    plain: dict[str, Any] = wire.to_plain(result)
    return plain


def sizes(runs: int, kernels: int, large: tuple[int, ...] = (5000, 2000)) -> Iterator[int]:
    """Yield the number of kernels of each run: first the large ones, one empty, then equal shares of the rest."""
    rest, left = runs, kernels
    for size in large:
        if rest > 1 and left >= 2 * size:
            rest, left = rest - 1, left - size
            yield size
    if rest > 1:
        rest -= 1
        yield 0
    for n in range(rest):
        yield left // rest + (n < left % rest)
