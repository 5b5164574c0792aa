"""Take kernels from whoever optimises outside, into a run of the strategy `external`.

A submission is measured here, or kept as reported with its author's own times until it is measured. Reported times are
shown as such and never rank. Everything is limited: what waits, what is reported, how long texts are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from statistics import geometric_mean
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from optimizer.access import may
from optimizer.actions.audit import log_action
from optimizer.actions.quota import check_room_for_kernel
from optimizer.enqueue import enqueue_run
from optimizer.events.hypotheses import record_hypothesis
from optimizer.events.payloads import RunNoted
from optimizer.events.record import record
from optimizer.models import (
    AuditAction,
    AuthorKind,
    EvaluationState,
    Hypothesis,
    HypothesisKind,
    Kernel,
    Run,
    RunState,
    User,
)
from optimizer.models.run import RunTransitionError
from optimizer.runs import budget
from optimizer.runs.dispatch import begin_evaluation, begin_reported, hold_evaluation
from optimizer.runs.history import problem_of
from optimizer.runs.kernels import add_kernel
from optimizer.runs.languages import languages_for
from optimizer.runs.locking import lock_run
from optimizer.runs.strategies import settings_of, strategy_of
from optimizer.search.base import Draft
from optimizer.search.external import ExternalSettings
from optimizer.text.hostile_text import sanitized_line, sanitized_text
from optimizer.text.storable import storable_text
from runners.job import Limits, Source
from runners.problems.base import Purpose
from runners.targets import TARGETS
from runners.verbs.workbook import Expected, Reported

MAX_KEY, MAX_TITLE, MAX_REPORT = 100, 200, 20_000
MAX_PARENTS, MAX_FLAGS, MAX_TUNABLES = 8, 64, 64
# More is no search any more; pages and histories stay usable.
MAX_KERNELS = 10_000
# No clock of ours resolves less, and a kernel that takes an hour is not one that a report could be about.
LONGEST_US = 3.6e9


@dataclass(frozen=True)
class Submission:
    """Hold a kernel from outside. `key` is its author's name for it: the same key is the same kernel.

    `parents` are kernel numbers of the run, the base first. Without `measure` it is kept as reported.
    """

    source: Source
    key: str = ""
    title: str = ""
    report: str = ""
    parents: tuple[int, ...] = ()
    hypothesis: Expected | None = None
    reported: Reported | None = None
    measure: bool = True
    meta: Mapping[str, Any] = field(default_factory=dict)


def check_submit(user: User | None, run: Run, wanted: Submission) -> Submission:
    """Validate a submission under the run's lock and return it. Raises ValidationError."""
    if user is not None and not may(user, run, "operate"):
        raise ValidationError("Only operators submit kernels to this run.")
    _check_run(run)
    _check_source(run, wanted.source)
    _check_claim(run, wanted)
    return wanted


def do_submit(user: User | None, run: Run, wanted: Submission) -> tuple[Kernel, bool]:
    """Store a submission and queue its evaluation. Return the kernel, and whether it is new. Raises ValidationError.

    The same key with the same source again is the same submission, so a client may repeat one whose answer it lost.
    """
    # First, because the key is looked up: the source's hash must be that of the text that is stored.
    wanted = _with_storable_text(wanted)
    _check_limits(wanted)
    with transaction.atomic():
        locked = lock_run(run.pk)
        if (known := _known(locked, wanted)) is not None:
            return known, False
        wanted = check_submit(user, locked, wanted)
        _check_room(locked, wanted)
        check_room_for_kernel(user, len(wanted.source.text.encode()), measured=wanted.measure)
        number = locked.kernels.filter(author_kind=AuthorKind.AGENT).count() + 1
        key = f"external.{wanted.key or number}"
        if not wanted.key and locked.kernels.filter(key=key).exists():
            key = f"external.{number}.{locked.kernels.count()}"
        hypothesis = _hypothesise(locked, wanted, key) if wanted.hypothesis else None
        draft = _draft(locked, wanted, key, hypothesis)
        begin = begin_evaluation if wanted.measure else hold_evaluation
        kernel = add_kernel(locked, draft, author=user, begin=begin)
        enqueue_run(locked.pk)
    return kernel, True


def do_measure(user: User | None, kernel: Kernel) -> Kernel:
    """Measure a kernel that was only reported. Raises ValidationError where it is measured already or may not be."""
    with transaction.atomic():
        run = lock_run(kernel.run_id)
        if user is not None and not may(user, run, "operate"):
            raise ValidationError("Only operators measure kernels of this run.")
        _check_run(run)
        row = run.kernels.select_related("evaluation").get(pk=kernel.pk)
        if getattr(row, "evaluation", None) is None or row.evaluation.state != EvaluationState.REPORTED:
            raise ValidationError(f"#{row.number} was measured already.")
        _check_budget(run)
        check_room_for_kernel(user)
        begin_reported(run, row)
        enqueue_run(run.pk)
    return row


def do_finish_run(user: User | None, run: Run, reason: str = "") -> Run:
    """Let a live run finish: what leads is measured again, and the run ends. Raises RunTransitionError."""
    who = user.get_username() if user else "the system"
    said = sanitized_line(reason).strip()
    with transaction.atomic():
        locked = lock_run(run.pk)
        if locked.finish_reason:
            raise RunTransitionError("this run is already finishing")
        locked.wind_down(f"Finished by {who}: {said}" if said else f"Finished by {who}.")
        record(locked, RunNoted(text=locked.finish_reason))
        log_action(AuditAction.RUN_FINISHED, user, locked)
        enqueue_run(locked.pk)
    return locked


def _check_run(run: Run) -> None:
    """Raise ValidationError unless the run takes kernels from outside now."""
    strategy = strategy_of(run)
    if not strategy.waits_outside:
        raise ValidationError(
            f"This run writes its own kernels ({strategy.title}). Submit to a run with strategy external."
        )
    if run.state == RunState.PENDING:
        raise ValidationError("This run has not started yet. Try again in a few seconds.")
    if run.state != RunState.RUNNING or run.finish_reason:
        state = (
            "being finished"
            if run.finish_reason and run.state == RunState.RUNNING
            else run.state_choice.label.lower()
        )
        raise ValidationError(f"This run is {state} and takes no kernels.")


def _known(run: Run, wanted: Submission) -> Kernel | None:
    """Return the kernel that this submission has made already. Raises ValidationError for a key of another kernel."""
    if not wanted.key:
        return None
    kernel = run.kernels.filter(key=f"external.{wanted.key}").first()
    if kernel is not None and kernel.content_hash != wanted.source.content_hash:
        raise ValidationError({"key": f"#{kernel.number} has this key but a different source. Choose a new key."})
    return kernel


def _with_storable_text(wanted: Submission) -> Submission:
    source = replace(wanted.source, text=storable_text(wanted.source.text))
    title = sanitized_line(storable_text(wanted.title)).strip()[:MAX_TITLE]
    report = sanitized_text(storable_text(wanted.report)).strip()[:MAX_REPORT]
    return replace(wanted, source=source, title=title, report=report)


def _check_source(run: Run, source: Source) -> None:
    most = Limits().source_bytes
    if len(source.text.encode()) > most:
        raise ValidationError({"source": f"A source has {most >> 10:,} KiB at most."})
    if not source.text.strip():
        raise ValidationError({"source": "Enter the source."})
    allowed = set(languages_for(run.target.key)) & set(problem_of(run).languages)
    if source.language not in allowed:
        named = ", ".join(sorted(language.value for language in allowed))
        raise ValidationError({"language": f"This run takes kernels in {named}."})
    if len(source.flags) > MAX_FLAGS or len(source.tunables) > MAX_TUNABLES:
        raise ValidationError(f"At most {MAX_FLAGS} flags and {MAX_TUNABLES} tunables are accepted.")


def _check_limits(wanted: Submission) -> None:
    if len(wanted.key) > MAX_KEY or not wanted.key.isprintable():
        raise ValidationError({"key": f"A key has at most {MAX_KEY} printable characters."})
    if len(wanted.parents) > MAX_PARENTS:
        raise ValidationError({"parents": f"A kernel has at most {MAX_PARENTS} parents."})
    expected = wanted.hypothesis
    gains = [expected.predicted_min, expected.predicted_max] if expected else []
    if not all(gain is None or math.isfinite(gain) for gain in gains):
        raise ValidationError({"hypothesis": "Enter predicted gains as numbers, in percent of speed."})
    if expected is not None and not expected.title.strip():
        raise ValidationError({"hypothesis": "A hypothesis has a title."})


def _check_claim(run: Run, wanted: Submission) -> None:
    """Refuse times that cannot be true, so that no page shows them and no claim of them is measured first."""
    said = wanted.reported
    if said is None:
        if not wanted.measure:
            raise ValidationError(
                {"reported": "A kernel that is not measured here needs the time that you measured."}
            )
        return
    figures = [said.time_us] + ([said.speedup] if said.speedup is not None else [])
    if not all(math.isfinite(figure) and 0 < figure <= LONGEST_US for figure in figures):
        raise ValidationError({"reported": "Times are in µs and above zero, and so are speedups."})
    least_us = _least_us(run)
    if least_us is not None and said.time_us < least_us:
        raise ValidationError(
            {"reported": f"{said.time_us:g} µs is impossible: this hardware needs {least_us:.3g} µs at least."}
        )


def _least_us(run: Run) -> float | None:
    """Return the mean time in µs that no honest kernel goes under on the run's target, None where it is not known."""
    problem, target = problem_of(run), TARGETS[run.target.key]
    bounds = [target.floor_us(problem.work(case)) for case in problem.cases(target.key, Purpose.BENCHMARK)]
    known = [bound for bound in bounds if bound]
    return geometric_mean(known) if known and len(known) == len(bounds) else None


def _check_room(run: Run, wanted: Submission) -> None:
    """Raise ValidationError where the run takes no more of this at the moment."""
    settings = settings_of(run).narrow(ExternalSettings)
    if run.kernels.count() >= MAX_KERNELS:
        raise ValidationError(f"A run holds at most {MAX_KERNELS:,} kernels.")
    if not wanted.measure:
        reported = run.kernels.filter(evaluation__state=EvaluationState.REPORTED).count()
        if reported >= settings.reported_kernels:
            raise ValidationError(
                f"{reported} kernels of this run are reported and not measured; it takes no more."
            )
        return
    _check_budget(run)
    if budget.counted_open(run) >= settings.open_kernels:
        raise ValidationError(
            f"{settings.open_kernels} kernels of this run wait for their evaluation. Read their verdicts first."
        )


def _check_budget(run: Run) -> None:
    if budget.evaluations_left(run) == 0:
        raise ValidationError(f"The budget of {run.budget_evaluations} evaluations is used up.")


def _draft(run: Run, wanted: Submission, key: str, hypothesis: Hypothesis | None) -> Draft:
    found = {kernel.number: kernel.key for kernel in run.kernels.filter(number__in=wanted.parents)}
    if unknown := [number for number in wanted.parents if number not in found]:
        raise ValidationError({"parents": f"This run has no kernel #{unknown[0]}."})
    reported = {"reported": _plain(wanted.reported)} if wanted.reported else {}
    return Draft(
        key,
        wanted.source,
        tuple(found[number] for number in wanted.parents),
        AuthorKind.AGENT.value,
        hypothesis_key=hypothesis.key if hypothesis else None,
        title=wanted.title,
        report=wanted.report,
        meta={**wanted.meta, **reported},
    )


def _plain(said: Reported) -> dict[str, Any]:
    return asdict(said) | {"device": sanitized_line(said.device)[:200], "how": sanitized_line(said.how)[:400]}


def _hypothesise(run: Run, wanted: Submission, key: str) -> Hypothesis:
    said = wanted.hypothesis or Expected("")
    base = run.kernels.filter(number=wanted.parents[0]).first() if wanted.parents else None
    hypothesis = Hypothesis.objects.create(
        run=run,
        key=key,
        kind=HypothesisKind.EXPERIMENT,
        title=sanitized_line(said.title)[:300],
        description=sanitized_text(said.description)[:MAX_REPORT],
        basis=base,
        predicted_min=said.predicted_min,
        predicted_max=said.predicted_max,
        chosen=True,
        chosen_why="Submitted from outside.",
    )
    record_hypothesis(run, hypothesis)
    return hypothesis
