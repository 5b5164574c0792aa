"""Run the cascade: screen, build, smallest case, all cases, quick timing, paired timing.

The cheapest stage comes first, and the first failure ends the evaluation. Every stage that ran is in the result.
"""

from __future__ import annotations

import logging
import random
import secrets
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from runners import emulation
from runners.backends import Artefact, BuildRequest, backend_for
from runners.errors import BASELINE, CANDIDATE, PARENT, Cancelled, CandidateFailure, InfraFailure, TooLarge
from runners.harness.building.ahead import AheadOrder, compile_ahead
from runners.harness.building.module_build import BuildFailure, ModuleBuilds, compiles, looks_compiled
from runners.harness.building.sample_arguments import samples_of
from runners.harness.comparison import PLANS, Comparison
from runners.harness.devices.device import Device, device_for, why_absent
from runners.harness.devices.gpu_state import is_other_product, watched
from runners.harness.findings import Findings
from runners.harness.memory.contents import Setups
from runners.harness.memory.usage import MemoryWatch, Need, need_of
from runners.harness.oracle.client import GpuOracleClient, OracleClient
from runners.harness.oracle.pool import TrustedPool, pool
from runners.harness.stages import Stages
from runners.harness.timing import environment
from runners.harness.timing.baseline import baseline_source
from runners.harness.timing.environment import HARNESS_VERSION
from runners.harness.timing.sessions import Bench, Sides, overall_us
from runners.harness.verdict import emulated, screen
from runners.harness.verdict.checks import Checks
from runners.harness.verdict.report import case_results
from runners.job import (
    OTHERS_SHARE,
    Baseline,
    Effort,
    Failure,
    Flag,
    JobResult,
    JobSpec,
    Language,
    Source,
    Status,
)
from runners.problems import open_bundle
from runners.problems.base import Problem, ProblemError, Purpose
from runners.profiling.summary import summary
from runners.sandbox import SandboxError, work_folder
from runners.targets import UnknownTarget, target

# Failures that say little without the side and the stage in which they happened.
PLACED = (Status.TIMEOUT, Status.CRASHED, Status.OUT_OF_MEMORY)
log = logging.getLogger(__name__)


class Evaluation:
    """Take one job through the cascade."""

    def __init__(
        self,
        spec: JobSpec,
        cancel: Callable[[], bool] | None,
        on_progress: Callable[[str, str], None] | None,
    ) -> None:
        self.spec = spec
        # Seeded from the system's entropy, because a candidate that knew the order of blocks could recognise timed
        # calls.
        self._rng = random.Random(secrets.randbits(64))  # noqa: S311 - order of blocks; seeds of inputs are secret
        self._stages = Stages(spec.limits, cancel, on_progress)
        self._found = Findings()

    def result(self) -> JobResult:
        """Run the cascade and return its result, which also reports every failure."""
        try:
            self._cascade()
        except CandidateFailure as failure:
            self._note_failure(failure)
        except Cancelled:
            self._note_breakdown("cancelled")
        except TooLarge as error:
            self._note_breakdown(str(error), Status.TOO_LARGE)
        except (InfraFailure, SandboxError, ProblemError, UnknownTarget) as error:
            self._note_breakdown(str(error))
        except Exception as error:
            log.exception("the harness failed on job %s", self.spec.job_id)
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).name}:{where.lineno}"
            self._note_breakdown(f"harness: {type(error).__name__}: {error} ({place})")
        return self._assembled()

    def _cascade(self) -> None:
        self._target = target(self.spec.target)
        problem = self._problem = open_bundle(self.spec.problem)
        self._comparison = Comparison(self.spec, self._target, self._stages, self._found, self._rng)
        with self._stages.stage("screen"):
            if problem.obstacles:
                raise CandidateFailure(Status.REJECTED, f"not evaluated here: {'; '.join(problem.obstacles)}")
            self._found.flags += screen.screened(self.spec, problem)
        device = device_for(self._target.vendor, self._target.flush_bytes)
        with work_folder("job-") as folder:
            if self.spec.ahead:
                self._compile_ahead(problem, folder)
                return
            if self.spec.effort is Effort.BUILD:
                self._built(self.spec.candidate, problem, folder)
                self._found.status = Status.CORRECT
                self._found.flags.append(Flag.NOT_EXECUTED)
                self._emulate(problem, folder)
                return
            if absent := why_absent(self._target):
                raise InfraFailure(absent)
            self._found.memory = MemoryWatch(device)
            with self._found.memory.watching():
                self._execute(problem, device, folder)

    def _compile_ahead(self, problem: Problem, folder: Path) -> None:
        """Compile the variants of the candidate's text. Nothing of them runs, so that none of them is judged."""
        with self._stages.stage("build") as logs:
            order = AheadOrder(self._request(self.spec.candidate, problem, folder), self._target, self.spec.ahead)
            self._found.ahead = compile_ahead(order, partial(self._stages.progress, "build"))
            refused = sum(bool(build.refused) for build in self._found.ahead)
            logs.append(f"{len(self._found.ahead)} variants compiled, {refused} of them cannot run")
        self._found.status = Status.CORRECT
        self._found.flags.append(Flag.NOT_EXECUTED)

    def _emulate(self, problem: Problem, folder: Path) -> None:
        """Check the candidate in emulation if its device is absent. Raises CandidateFailure.

        What the emulation lacks is no fault of the candidate, which then stays built and not run.
        """
        language = self.spec.candidate.language
        if why_absent(self._target) is None or not emulation.serves(language, self._target.key):
            return
        with self._stages.stage("emulation") as logs:
            try:
                found = self._emulated(problem, folder)
            except emulation.NotCovered as gap:
                logs.append(f"not emulated: {gap}")
                self._found.flags.append(Flag.NOT_EMULATED)
                return
            except CandidateFailure:
                self._found.flags.append(Flag.EMULATED)
                raise
            logs.append("\n".join(found.notes))
        self._found.outcomes, self._found.sandbox = found.outcomes, found.level
        self._found.flags.append(Flag.EMULATED)

    def _emulated(self, problem: Problem, folder: Path) -> emulated.Emulated:
        warm, bundle = pool(Device("cpu")), self.spec.problem
        oracle = warm.borrow(bundle)
        try:
            oracle.listen(self._stages.cancel)
            return emulated.check(
                self._request(self.spec.candidate, problem, folder),
                problem,
                oracle,
                self._set_up(problem, oracle, folder),
                self.spec.limits,
                self._rng,
                self._stages.cancel,
                partial(self._stages.progress, "emulation"),
            )
        finally:
            warm.give_back(bundle, oracle)

    @cached_property
    def _baseline(self) -> Source:
        return baseline_source(self._problem, self.spec.baseline, self._target.key)

    @property
    def _parent(self) -> Source | None:
        """Return the parent that is timed: none if its source is the baseline's, which is timed anyway."""
        return None if self.spec.parent == self._baseline else self.spec.parent

    def _expect(self, warm: TrustedPool) -> None:
        """Start the processes that this evaluation will need, if it computes on a GPU."""
        if self._target.family == "cpu":
            return
        sessions = PLANS[self.spec.effort].sessions
        modules = sum(source.language in (Language.PYTHON, Language.TRITON) for source in self._sources)
        # The checked process measures in the first plan. If that is quick timing, full timing needs others.
        checked = bool(modules) and self._comparison.may_abandon
        builds = sum(map(looks_compiled, self._sources)) + (self.spec.baseline is not Baseline.EAGER)
        warm.expect(
            (modules + 1) * sessions + checked + builds + self.spec.profile,
            with_triton=any(source.language is Language.TRITON for source in self._sources),
            one_stream=self._one_stream,
        )

    @cached_property
    def _one_stream(self) -> bool:
        """Return whether no side needs more than one work queue of the device, so that all their processes get one."""
        return self._target.vendor == "nvidia" and screen.stays_in_one_stream(self.spec)

    @property
    def _sources(self) -> list[Source]:
        return [source for source in (self.spec.candidate, self._parent) if source is not None]

    def _execute(self, problem: Problem, device: Device, folder: Path) -> None:
        self._found.seen["gpu_before"] = watched(self._target)
        warm = pool(device)
        self._expect(warm)
        oracle = warm.borrow(self.spec.problem)
        healthy, ending = False, _nothing
        try:
            oracle.listen(self._stages.cancel)
            if self._found.memory is not None and not self._found.memory.has_room():
                self._await_endings(warm)
            with self._held(device):
                artefact = self._built(self.spec.candidate, problem, folder)
                if self._is_known(artefact):
                    healthy = True
                    return
                built = self._sides(artefact, problem, folder)
                sides = {side: replace(one, one_stream=self._one_stream) for side, one in built.items()}
                bench = self._bench_for(problem, oracle, warm, folder)
                ending = bench.close
                needs = self._needs(bench)
            # While the device is not held: those that end hold it too, and may have to wait for somebody who is timed.
            self._await_endings(warm)
            with self._held(device):
                self._check_memory(bench, needs)
                self._build_modules(bench, device, sides)
                self._check(bench, sides[CANDIDATE])
                self._start_ahead(bench, sides)
            self._comparison.time(bench, device, sides)
            if self._found.memory is not None and isinstance(oracle, GpuOracleClient):
                self._found.memory.note_reference(oracle.held_bytes())
            healthy = True
        except CandidateFailure:
            healthy = True
            raise
        finally:
            if healthy:
                warm.afterwards(ending) if oracle.on_gpu else ending()
                warm.give_back(self.spec.problem, oracle)
            else:  # closing arenas asks the oracle, so that it must be there still
                ending()
                oracle.close()

    @contextmanager
    def _held(self, device: Device) -> Iterator[None]:
        """Hold the device together with other builds and checks. The wait for it does not count against the limits."""
        with device.shared(self._stages.cancel) as waited_s:
            self._stages.forgive(waited_s)
            yield

    def _await_endings(self, warm: TrustedPool) -> None:
        """Wait until earlier evaluations have given their memory back, and count the peak from here."""
        self._stages.forgive(warm.await_endings())
        if self._found.memory is not None:
            self._found.memory.begin()

    def _bench_for(self, problem: Problem, oracle: OracleClient, warm: TrustedPool, folder: Path) -> Bench:
        return Bench(
            problem,
            self.spec.problem,
            oracle,
            problem.cases(self._target.key, Purpose.BENCHMARK),
            self._set_up(problem, oracle, folder),
            self.spec.limits,
            self._rng,
            self._stages.cancel,
            warm.warm_workers,
            at_once=oracle.on_gpu and not any(map(screen.measures_itself, self._sources)),
            objective=self.spec.objective,
            neighbours=self._found.neighbours,
        )

    def _needs(self, bench: Bench) -> list[Need]:
        """Return how much of a GPU's memory each case needs; an empty list where the oracle is not on a GPU."""
        if not bench.oracle.on_gpu:
            return []
        needs = [need_of(bench.oracle.make(case, case.distributions[0])[0], bench.setups) for case in bench.cases]
        bench.oracle.reset()
        return needs

    def _check_memory(self, bench: Bench, needs: list[Need]) -> None:
        """Raise TooLarge if the device cannot hold what a comparison takes."""
        if self._found.memory is None or not bench.oracle.on_gpu:
            return
        self._found.memory.check(needs)
        bench.device_bytes = self._found.memory.total_bytes

    def _set_up(self, problem: Problem, oracle: OracleClient, folder: Path) -> Setups:
        """Have the oracle write what Python candidates are given once, for every case."""
        cases = [case for purpose in Purpose for case in problem.cases(self._target.key, purpose)]
        return oracle.set_up(cases, folder / "setups")

    def _built(self, source: Source, problem: Problem, folder: Path) -> Artefact:
        with self._stages.stage("build") as logs:
            artefact = backend_for(source.language).build(self._request(source, problem, folder))
            self._found.build = artefact.report
            logs.append(artefact.report.log)
            if artefact.path is None:
                raise CandidateFailure(Status.BUILD_FAILED, artefact.report.log.strip() or "the build failed")
        return artefact

    def _is_known(self, artefact: Artefact) -> bool:
        """Return whether this very artefact was evaluated already, in which case the device is left to others."""
        self._found.duplicate_of = self.spec.known_artefacts.get(artefact.report.artefact_hash or "")
        if self._found.duplicate_of is None:
            return False
        self._found.status = Status.CORRECT
        self._found.flags.append(Flag.NOT_EXECUTED)
        return True

    def _request(self, source: Source, problem: Problem, folder: Path) -> BuildRequest:
        """Return the build's request. Only builds without a device get sample calls; elsewhere its own process compiles
        sooner."""
        samples = samples_of(problem, self._target.key) if self.spec.effort is Effort.BUILD else ()
        return BuildRequest(
            source, problem.symbol, self._target.key, folder, self.spec.limits, samples, self.spec.for_target
        )

    def _sides(self, artefact: Artefact, problem: Problem, folder: Path) -> Sides:
        """Return the sides of the comparison: the candidate, the baseline, and a parent that builds.

        The candidate is alone where nothing is timed.
        """
        sides = {CANDIDATE: artefact}
        if self.spec.effort is Effort.CHECK:
            return sides
        self._found.parent_is_baseline = self.spec.parent == self._baseline
        for name, source in ((BASELINE, self._baseline), (PARENT, self._parent)):
            if source is not None and (built := self._built_opponent(name, source, problem, folder)):
                sides[name] = built
        return sides

    def _built_opponent(self, name: str, source: Source, problem: Problem, folder: Path) -> Artefact | None:
        """Build an opponent. One that fails is noted and only drops its comparison."""
        inner = folder / name
        inner.mkdir(mode=0o755)
        artefact = backend_for(source.language).build(self._request(source, problem, inner))
        if artefact.path is None:
            self._found.note_opponent(name, "build", artefact.report.log.strip() or "the build failed")
            return None
        return artefact

    def _build_modules(self, bench: Bench, device: Device, sides: Sides) -> None:
        """Let the sides' modules compile, each in a stage with a clock of its own.

        An opponent that fails drops its comparison. Raises CandidateFailure if the candidate fails.
        """
        builds = ModuleBuilds(bench, device, self._target)
        for side, artefact in list(sides.items()):
            if not compiles(artefact):
                continue
            name = "build" if side == CANDIDATE else f"build {side}"
            with self._found.opponents(self._stages, sides), self._stages.stage(name) as logs:
                sides[side] = self._build_module(builds, side, artefact, logs)
            self._stages.forgive(self._stages.results[-1].seconds)

    def _build_module(self, builds: ModuleBuilds, side: str, artefact: Artefact, logs: list[str]) -> Artefact:
        report = artefact.report
        try:
            artefact = builds.built(side, artefact)
            report = artefact.report
        except BuildFailure as failure:
            report = replace(report, ok=False, seconds=failure.seconds, log=failure.log, artefact_hash=None)
            raise
        finally:
            logs.append(report.log)
            if side == CANDIDATE:
                self._found.build = report
        return artefact

    def _check(self, bench: Bench, artefact: Artefact) -> None:
        # Whoever may check as often as they like must not learn the hidden cases that way.
        with_hidden = self.spec.hidden_cases and self.spec.effort is not Effort.CHECK
        is_short = self.spec.effort in (Effort.CHECK, Effort.QUICK)
        checks = Checks(
            bench.problem,
            bench.oracle,
            self._target.key,
            1 if is_short else 2,
            self.spec.limits,
            self._rng,
            purposes=(Purpose.TEST, Purpose.HIDDEN) if with_hidden else (Purpose.TEST,),
        )
        self._found.outcomes = checks.outcomes
        with self._stages.stage("smallest"):
            process, stays = bench.for_checks(self._comparison.first_plan, artefact, checks.prepare)
            self._found.sandbox = process.level
            try:
                checks.smallest(process)
            except BaseException:
                bench.dismiss([process])
                raise
        with self._stages.stage("tests"):
            try:
                checks.all(process, lambda text: self._stages.progress("tests", text))
            except BaseException:
                bench.dismiss([process])
                raise
        bench.oracle.reset()
        if stays and artefact.timed:
            bench.keep(process)
        else:
            bench.dismiss([process])
        if not all(outcome.deterministic for outcome in checks.outcomes):
            self._found.flags.append(Flag.NONDETERMINISTIC)

    def _start_ahead(self, bench: Bench, sides: Sides) -> None:
        """Start the sides that are measured first, if that need not wait for the device."""
        artefact = sides[CANDIDATE]
        if not bench.cases or not artefact.timed or BASELINE not in sides:
            return
        with self._stages.stage("start"), self._found.opponents(self._stages, sides):
            bench.start_ahead(self._comparison.first_plan, self._comparison.first_sides(sides))

    def _note_failure(self, failure: CandidateFailure) -> None:
        self._found.status = failure.status
        self._found.sandbox = self._found.sandbox or failure.level
        prefix = f"{failure.case}: " if failure.case else ""
        reason, stage = f"{prefix}{failure.reason}", self._stages.current
        self._found.failures.append(Failure(failure.side, stage, reason))
        self._found.reasons = [f"{failure.side}, {stage}: {reason}" if failure.status in PLACED else reason]
        if failure.case:
            self._found.failed_case = (failure.case, failure.reason)

    def _note_breakdown(self, reason: str, status: Status = Status.INFRA_ERROR) -> None:
        """Discard partial results: an interrupted evaluation has no verdict."""
        self._found.status, self._found.reasons = status, [reason]
        self._found.failures.append(Failure("harness", self._stages.current, reason))

    def _assembled(self) -> JobResult:
        cases = case_results(
            self.spec, self._found.outcomes, self._found.timings, self._found.failed_case, self._rng
        )
        total = self._found.speedups.get(BASELINE)
        found = environment.describe_safely(self.spec.target, self._gpu())
        if self._found.timings is not None and self._one_stream:
            found["work_queues"] = 1
        if self._found.neighbours.share is not None:
            found[OTHERS_SHARE] = round(self._found.neighbours.share, 3)
        if self._found.timings is not None and is_other_product(self._target, found):
            self._found.flags.append(Flag.OTHER_PRODUCT)
        return JobResult(
            job_id=self.spec.job_id,
            status=self._found.status,
            reasons=self._found.reasons,
            flags=self._found.flags,
            verdict=total.verdict if total and self._found.status is Status.CORRECT else None,
            speedup=total,
            versus_parent=self._found.speedups.get(PARENT),
            call_speedup=self._found.call_speedup,
            failures=self._found.failures,
            noise_floor=self._found.floor,
            memory=self._found.memory.use if self._found.memory else None,
            cases=cases,
            stages=self._stages.results,
            build=self._found.build,
            profile=self._summarised(),
            duplicate_of=self._found.duplicate_of,
            ahead=self._found.ahead,
            sandbox=self._found.sandbox,
            environment=found,
            harness_version=HARNESS_VERSION,
        )

    def _summarised(self) -> dict[str, Any]:
        """Return what binds the kernel, if there are times, and what was seen beside them."""
        if (timings := self._found.timings) is None:
            return {}
        work = {many[0].case.name: self._problem.work(many[0].case) for many in timings.sessions.values()}
        return {**summary(self._target, work, overall_us(timings)), **self._found.profile}

    def _gpu(self) -> dict[str, Any] | None:
        """Return the GPU's state before this evaluation used it and as its timing ended, or None without timing on a
        GPU."""
        if "gpu_at_end" not in self._found.seen or self._target.family == "cpu":
            return None
        return {**self._found.seen["gpu_at_end"].result(), "before": self._found.seen["gpu_before"].result()}


def _nothing() -> None:
    """Do nothing: there is no bench to close yet."""
