"""Serve kernels: sources, evaluations, raw measurements and hypotheses; and accept kernels that people write."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from ninja import Field, Query, Router, Schema, Status

from optimizer.access import access_kernel, access_run
from optimizer.actions.suggestion import MAX_WHY, Moved, Suggestion, base_moved, check_suggest, do_suggest
from optimizer.api.auth import caller, needs
from optimizer.api.body import Body
from optimizer.api.errors import Refusal
from optimizer.api.paging import Page, Window, page_of
from optimizer.models import Evaluation, Hypothesis, Kernel, Measurement, TokenScope
from runners.job import Limits

router = Router(tags=["kernels"], auth=needs(TokenScope.READ))


class Outcome(Schema):
    """Describe how an evaluation ended. Times are in µs; speedups are the opponent's time divided by the kernel's.

    `time_us` is device time, `call_us` is the time of a call including the host, and `call_speedup*` compares the
    latter; all of these are null on a CPU, where there is only one time. `speedup*` and `parent_speedup*` compare the
    time that the run's objective names. `roofline_share` is 1 at the measured ceiling. `failed_side` is `candidate`,
    `parent`, `baseline` or `harness`.
    """

    id: int
    effort: str
    state: str
    status: str
    verdict: str
    time_us: float | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    parent_speedup: float | None
    parent_speedup_low: float | None
    parent_speedup_high: float | None
    call_us: float | None
    call_speedup: float | None
    call_speedup_low: float | None
    call_speedup_high: float | None
    roofline_share: float | None
    failed_side: str
    sandbox: str
    harness_version: str
    device_s: float
    created_at: dt.datetime
    finished_at: dt.datetime | None


class KernelOut(Schema):
    """Describe a kernel without its source. `evaluation` is its first one."""

    number: int
    key: str
    title: str
    author_kind: str
    language: str
    tunables: dict[str, Any]
    flags: list[str]
    content_hash: str
    hypothesis_id: int | None
    report: str
    created_at: dt.datetime
    parents: list[int]
    evaluation: Outcome | None

    @staticmethod
    def resolve_parents(kernel: Kernel) -> list[int]:
        """Return the parents' numbers, base first."""
        links = sorted(kernel.parent_links.all(), key=lambda link: link.rank)
        return [link.parent.number for link in links]

    @staticmethod
    def resolve_evaluation(kernel: Kernel) -> Evaluation | None:
        """Return the first evaluation, or null before it was queued."""
        return getattr(kernel, "evaluation", None)


class MeasurementOut(Schema):
    """Describe the raw times of one case in µs, by subject."""

    case: str
    subject: str
    samples_us: list[float]
    median_us: float
    low_us: float | None
    high_us: float | None


class EvaluationOut(Outcome):
    """Describe an evaluation with everything that the harness reported."""

    result: dict[str, Any]
    measurements: list[MeasurementOut]


class HypothesisOut(Schema):
    """Describe what was expected and what was measured; gains are in per cent of speed."""

    id: int
    key: str
    kind: str
    round: int
    title: str
    description: str
    rubric: str
    basis: int | None
    predicted_min: float | None
    predicted_max: float | None
    innovation: int | None
    chosen: bool
    chosen_why: str
    measured_gain: float | None

    @staticmethod
    def resolve_basis(row: Hypothesis) -> int | None:
        """Return the number of the kernel on which it builds."""
        return row.basis.number if row.basis else None


class KernelIn(Body):
    """Describe a person's edit of kernel `base`: the complete new source, and the reason.

    `seen` is the run's newest kernel when the edit was started. If the base has had a correct descendant since, the
    answer is 409.
    """

    base: int = Field(ge=0, lt=2**31)
    source: str = Field(max_length=Limits().source_bytes)
    title: str = Field(default="", max_length=200)
    note: str = Field(default="", max_length=MAX_WHY)
    seen: int | None = Field(default=None, ge=0, lt=2**31)


class MovedOn(Refusal):
    """Report that the base has the newer descendant `latest`.

    `merged` is the edit applied to it, or null where both changed the same lines. To submit the edit unchanged, send
    it again with `seen` at `latest` or above.
    """

    latest: int
    merged: str | None


@router.get("/{int:run_id}/kernels", response=Page[KernelOut])
def list_kernels(request: HttpRequest, run_id: int, window: Query[Window]) -> Any:
    """List kernels by number."""
    run = access_run(caller(request), run_id, "view")
    kernels = Kernel.objects.filter(run=run).for_table().prefetch_related("parent_links__parent")
    heavy = ("source", "meta", "evaluation__result")
    return page_of(kernels.defer(*heavy), window, "number")


@router.post(
    "/{int:run_id}/kernels",
    response={201: KernelOut, 409: MovedOn, 422: Refusal},
    auth=needs(TokenScope.RUNS),
    summary="Add a person's kernel",
)
def suggest_kernel(request: HttpRequest, run_id: int, body: KernelIn) -> Any:
    """Add a person's kernel, which is built, checked and timed like any other and costs no search budget.

    Sending the same edit again adds another kernel.
    """
    user = caller(request)
    base = access_kernel(user, run_id, body.base, "comment")
    wanted = check_suggest(user, base.run, Suggestion(base, body.source, body.title, body.note))
    # Only clients that send `seen` ask for the check.
    moved = base_moved(base, wanted.text, body.seen) if body.seen is not None else None
    if moved is not None:
        return Status(409, _moved_on(base, moved))
    return Status(201, _kernel(request, run_id, do_suggest(user, wanted).number))


@router.get("/{int:run_id}/kernels/{int:number}", response=KernelOut)
def read_kernel(request: HttpRequest, run_id: int, number: int) -> Any:
    """Return one kernel."""
    return _kernel(request, run_id, number)


@router.get("/{int:run_id}/kernels/{int:number}/source")
def read_source(request: HttpRequest, run_id: int, number: int) -> HttpResponse:
    """Return the source as an attachment."""
    kernel = _kernel(request, run_id, number)
    headers = {"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"}
    return HttpResponse(kernel.source, content_type="text/plain; charset=utf-8", headers=headers)


@router.get("/{int:run_id}/kernels/{int:number}/evaluations", response=list[EvaluationOut])
def list_evaluations(request: HttpRequest, run_id: int, number: int) -> Any:
    """List all evaluations, first one first, with their measurements."""
    evaluations = Evaluation.objects.filter(kernel=_kernel(request, run_id, number)).order_by("pk")
    return [_whole(row) for row in evaluations.prefetch_related("measurements")]


@router.get("/{int:run_id}/hypotheses", response=Page[HypothesisOut])
def list_hypotheses(request: HttpRequest, run_id: int, window: Query[Window]) -> Any:
    """List hypotheses in the order in which they were recorded."""
    run = access_run(caller(request), run_id, "view")
    rows = Hypothesis.objects.filter(run=run).select_related("basis").defer("basis__source", "basis__report")
    return page_of(rows.order_by("pk"), window, "pk")


def _kernel(request: HttpRequest, run_id: int, number: int) -> Kernel:
    run = access_run(caller(request), run_id, "view")
    kernels = Kernel.objects.select_related("evaluation").prefetch_related("parent_links__parent")
    return get_object_or_404(kernels, run=run, number=number)


def _moved_on(base: Kernel, moved: Moved) -> MovedOn:
    number = moved.latest.number
    detail = f"#{base.number} has moved on since: #{number} was derived from it and is correct."
    return MovedOn(detail=detail, latest=number, merged=moved.merged)


def _whole(row: Evaluation) -> dict[str, Any]:
    plain = {name: getattr(row, name) for name in Outcome.model_fields if name != "id"}
    measured: list[Measurement] = list(row.measurements.all())
    return plain | {"id": row.pk, "result": row.result, "measurements": measured}
