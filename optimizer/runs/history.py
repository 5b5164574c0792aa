"""Present a run's rows as the immutable `History` on which strategies decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from django.db.models import CharField, Q, QuerySet, Value
from django.db.models.functions import Cast, Concat

from optimizer.models import (
    CallState,
    Evaluation,
    EvaluationState,
    Finding,
    Hypothesis,
    Kernel,
    LlmCall,
    ProblemVersion,
    Run,
)
from optimizer.queries.compiled_ahead import compiled_of
from optimizer.queries.earlier_runs import others_of_its_campaign
from optimizer.queries.earlier_tasks import earlier_tasks
from optimizer.queries.guidance import guidance_views
from optimizer.queries.own_builds import with_own_build
from optimizer.queries.prediction import predictions_of_open
from optimizer.runs.budget import evaluations_left
from optimizer.runs.drift import Anchor, anchor_of
from optimizer.runs.evidence import Evidence, evidence_of
from optimizer.runs.hot_loop import hot_loop
from optimizer.runs.strategies import settings_of, strategy_of
from optimizer.search.base import CallView, History, HypothesisView, KernelView
from runners.job import JobResult, Objective, Status
from runners.problems import open_bundle
from runners.problems.base import Problem

MAX_CALL_ATTEMPTS = 3
UNANCHORED = Anchor(0.0, {})
_OF_A_CALL = ("key", "role", "attempt", "state", "context", "answer", "error", "model", "cost_usd")


def problem_of(run: Run) -> Problem:
    """Return the run's problem, opened once per process and version, as versions never change."""
    return open_version(run.problem_version_id)


def history_of(run: Run) -> History:
    """Return the snapshot of a run. Call under the run's lock, so that it shows one moment."""
    return History(
        problem=problem_of(run),
        target=run.target.key,
        settings=settings_of(run),
        seed=run.seed,
        kernels=kernel_views(run),
        calls=call_views(run),
        hypotheses=hypothesis_views(run),
        evaluations_left=evaluations_left(run),
        findings=tuple(findings_for(run).filter(kind="finding", origin="agent").values_list("text", flat=True)),
        guidance=guidance_views(run),
        objective=Objective(run.objective),
        compiled=compiled_of(run),
        earlier=earlier_tasks(run) if strategy_of(run).uses_earlier else (),
    )


def told_history_of(run: Run) -> History:
    """Return the snapshot as agents are told it: kernels that are not measured yet carry what their code predicts."""
    history = history_of(run)
    if all(kernel.finished for kernel in history.kernels):
        return history
    found = {key: one.in_words() for key, one in predictions_of_open(run).items()}
    return replace(history, kernels=[replace(one, predicted=found.get(one.key, "")) for one in history.kernels])


def kernel_views(run: Run) -> list[KernelView]:
    """Return all kernels in order of their number.

    The views of finished kernels change only when later evidence speaks against them, so the expensive part of each
    is read once per process.
    """
    anchor, evidence = anchor_of(run), evidence_of(run)
    rows = list(run.kernels.order_by("number").values_list("pk", "key", "evaluation__state"))
    # Strategies know kernels by key, whereas evidence names them by id.
    keys = {pk: key for pk, key, _ in rows}
    return [
        # The arguments are the key of the cache: a refuted kernel gets another view.
        _ranked(_finished_view(pk, anchor, evidence.is_refuted(pk)), pk, evidence, keys, anchor)
        if state == EvaluationState.DONE
        else _view(pk)
        for pk, _, state in rows
    ]


def _ranked(
    view: KernelView, pk: int, evidence: Evidence, keys: Mapping[int, str], anchor: Anchor | None
) -> KernelView:
    """Add the kernels that were proven faster, and the bound from a confirmation.

    Most kernels have neither and are returned unchanged.
    """
    if beaters := evidence.beaters(pk):
        view = replace(view, beaten_by=frozenset(keys[one] for one in beaters))
    standing = evidence.by_kernel.get(pk)
    if standing is not None and standing.settled and standing.low and anchor is not None:
        view = replace(view, bound_us=anchor.overall_us / standing.low)
    return view


def call_views(run: Run) -> dict[str, CallView]:
    """Return the newest attempt of every question by key, with the cost of all its attempts."""
    views: dict[str, CallView] = {}
    # Every decision reads all calls, whose prompts and answers as text may be megabytes.
    rows = LlmCall.objects.filter(run=run).only(*_OF_A_CALL)
    for call in rows.order_by("attempt", "pk"):
        views[call.key] = _after(views.get(call.key), _call_view(call))
    return views


def hypothesis_views(run: Run) -> dict[str, HypothesisView]:
    """Return every hypothesis by key."""
    rows = Hypothesis.objects.filter(run=run).select_related("basis")
    return {row.key: _hypothesis_view(row) for row in rows}


def findings_for(run: Run) -> QuerySet[Finding]:
    """Return all current findings, notes and digests that apply to the run, whoever wrote them, oldest first.

    Without a warm start, those of other runs are left out.
    """
    problem = ProblemVersion.objects.filter(pk=run.problem_version_id)
    return Finding.objects.filter(
        # None means unrestricted in that scope.
        Q(team__isnull=True) | Q(team=run.team_id),
        Q(target__isnull=True) | Q(target=run.target_id),
        Q(problem__isnull=True) | Q(problem__in=problem.values("problem")),
        Q(run__isnull=True) | Q(run=run),
        superseded_by__isnull=True,
    ).exclude(_from_runs_not_to_learn_from(run)).order_by("pk")  # fmt: skip


def _from_runs_not_to_learn_from(run: Run) -> Q:
    """Return the condition on findings whose source is a run from which this one must not learn."""
    if settings_of(run).warm_start:
        return Q(source__in=_sources_in_its_campaign(run))
    return Q(source__regex=r"^run [0-9]+$") & ~Q(source=f"run {run.pk}")


def _sources_in_its_campaign(run: Run) -> QuerySet[Any, Any]:
    """Return how findings name the other runs of the run's campaign, which must not learn from each other."""
    named = Concat(Value("run "), Cast("run_id", CharField()))
    return others_of_its_campaign(run).annotate(finding_source=named).values("finding_source")


@lru_cache(maxsize=64)
def open_version(version_id: int) -> Problem:
    """Return the problem of a version's files, opened once per process. Raises ProblemError."""
    return open_bundle(ProblemVersion.objects.get(pk=version_id).as_bundle())


@lru_cache(maxsize=8192)
def _finished_view(kernel_id: int, anchor: Anchor | None, is_out: bool) -> KernelView:
    view = _view(kernel_id, anchor)
    # A refuted kernel keeps its source and result; only its times must not rank.
    return replace(view, time_us=None, times_us={}) if is_out else view


def _view(kernel_id: int, anchor: Anchor | None = None) -> KernelView:
    kernel = Kernel.objects.select_related("evaluation", "hypothesis").get(pk=kernel_id)
    evaluation: Evaluation | None = getattr(kernel, "evaluation", None)
    result = _with_hot_loop(with_own_build(evaluation.as_result(), kernel_id)) if evaluation else None
    parents = kernel.parent_links.order_by("rank").values_list("parent__key", flat=True)
    return KernelView(
        key=kernel.key,
        number=kernel.number,
        parent_keys=tuple(parents),
        author_kind=kernel.author_kind,
        source=kernel.as_source(),
        finished=evaluation is not None and EvaluationState(evaluation.state).is_terminal,
        status=Status(evaluation.status) if evaluation and evaluation.status else None,
        result=result,
        time_us=_time_us(evaluation, anchor),
        times_us=(anchor or UNANCHORED).by_case(result) if result and not _is_excluded(evaluation) else {},
        hypothesis_key=kernel.hypothesis.key if kernel.hypothesis else None,
        title=kernel.title,
        report=kernel.report,
        meta=kernel.meta,
        bound_us=_bound_us(evaluation, anchor),
    )


def _is_excluded(evaluation: Evaluation | None) -> bool:
    """Return whether the claim is unconfirmed; nothing is built on such times."""
    return evaluation is not None and evaluation.unconfirmed


def _with_hot_loop(result: JobResult | None) -> JobResult | None:
    """Reduce the assembly to its hot loop, which is all that prompts show: thousands of views stay in memory."""
    if result is None or result.build is None or not result.build.assembly:
        return result
    return replace(result, build=replace(result.build, assembly=hot_loop(result.build.assembly)))


def _time_us(evaluation: Evaluation | None, anchor: Anchor | None) -> float | None:
    if _is_excluded(evaluation):
        return None
    if evaluation is None or evaluation.time_us is None or anchor is None:
        return evaluation.time_us if evaluation else None
    return anchor.overall(evaluation)


def _bound_us(evaluation: Evaluation | None, anchor: Anchor | None) -> float | None:
    """Return the time that the lower end of the speedup's interval stands for; None without an interval."""
    if evaluation is None or anchor is None or not evaluation.speedup_low or _is_excluded(evaluation):
        return None
    return anchor.overall_us / evaluation.speedup_low


def _call_view(call: LlmCall) -> CallView:
    state = CallState(call.state)
    # An uncertain call is asked again in a new row, which the strategy must wait for.
    asked_again = state == CallState.UNCERTAIN and call.attempt < MAX_CALL_ATTEMPTS
    return CallView(
        key=call.key,
        role=call.role,
        finished=state.is_terminal and not asked_again,
        context=call.context,
        answer=call.answer if state == CallState.ANSWERED else None,
        error="" if state == CallState.ANSWERED else call.error or state.label,
        model=call.model,
        cost_usd=None if call.cost_usd is None else float(call.cost_usd),
    )


def _after(earlier: CallView | None, view: CallView) -> CallView:
    """Return the view with the cost of the earlier attempts added, as far as it is known."""
    if earlier is None or earlier.cost_usd is None:
        return view
    return replace(view, cost_usd=earlier.cost_usd + (view.cost_usd or 0.0))


def _hypothesis_view(row: Hypothesis) -> HypothesisView:
    return HypothesisView(
        key=row.key,
        kind=row.kind,
        title=row.title,
        basis_key=row.basis.key if row.basis else None,
        chosen=row.chosen,
        measured_gain=row.measured_gain,
        description=row.description,
        rubric=row.rubric,
        predicted_min=row.predicted_min,
        predicted_max=row.predicted_max,
        innovation=row.innovation,
        round=row.round,
    )
