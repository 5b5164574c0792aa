"""Kernels of a run: sources, evaluations, raw measurements, hypotheses."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from ninja import Query, Router, Schema

from optimizer.access import access_run
from optimizer.api.auth import caller, needs
from optimizer.api.paging import Page, Window, page_of
from optimizer.models import Evaluation, Hypothesis, Kernel, Measurement, TokenScope

router = Router(tags=["kernels"], auth=needs(TokenScope.READ))


class Outcome(Schema):
    """How an evaluation ended. Times in µs; speedups are opponent time divided by kernel time."""

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
    sandbox: str
    harness_version: str
    device_s: float
    created_at: dt.datetime
    finished_at: dt.datetime | None


class KernelOut(Schema):
    """A kernel, without its source. `evaluation` is its first one."""

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
        """Numbers, base first."""
        links = sorted(kernel.parent_links.all(), key=lambda link: link.rank)
        return [link.parent.number for link in links]

    @staticmethod
    def resolve_evaluation(kernel: Kernel) -> Evaluation | None:
        """None before it was queued."""
        return getattr(kernel, "evaluation", None)


class MeasurementOut(Schema):
    """Raw times of one case in µs, by who was timed."""

    case: str
    subject: str
    samples_us: list[float]
    median_us: float
    low_us: float | None
    high_us: float | None


class EvaluationOut(Outcome):
    """With everything that the harness said."""

    result: dict[str, Any]
    measurements: list[MeasurementOut]


class HypothesisOut(Schema):
    """What was expected, and what came of it; gains in per cent of speed."""

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
        """The number of the kernel it builds on."""
        return row.basis.number if row.basis else None


@router.get("/{int:run_id}/kernels", response=Page[KernelOut])
def list_kernels(request: HttpRequest, run_id: int, window: Query[Window]) -> Any:
    """By number."""
    run = access_run(caller(request), run_id, "view")
    kernels = Kernel.objects.filter(run=run).for_table().prefetch_related("parent_links__parent")
    heavy = ("source", "meta", "evaluation__result")
    return page_of(kernels.defer(*heavy), window, "number")


@router.get("/{int:run_id}/kernels/{int:number}", response=KernelOut)
def read_kernel(request: HttpRequest, run_id: int, number: int) -> Any:
    """One kernel."""
    return _kernel(request, run_id, number)


@router.get("/{int:run_id}/kernels/{int:number}/source")
def read_source(request: HttpRequest, run_id: int, number: int) -> HttpResponse:
    """The text itself, as an attachment."""
    kernel = _kernel(request, run_id, number)
    headers = {"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"}
    return HttpResponse(kernel.source, content_type="text/plain; charset=utf-8", headers=headers)


@router.get("/{int:run_id}/kernels/{int:number}/evaluations", response=list[EvaluationOut])
def list_evaluations(request: HttpRequest, run_id: int, number: int) -> Any:
    """All evaluations, first one first, each with its measurements."""
    evaluations = Evaluation.objects.filter(kernel=_kernel(request, run_id, number)).order_by("pk")
    return [_whole(row) for row in evaluations.prefetch_related("measurements")]


@router.get("/{int:run_id}/hypotheses", response=Page[HypothesisOut])
def list_hypotheses(request: HttpRequest, run_id: int, window: Query[Window]) -> Any:
    """In the order in which they went on record."""
    run = access_run(caller(request), run_id, "view")
    rows = Hypothesis.objects.filter(run=run).select_related("basis").defer("basis__source", "basis__report")
    return page_of(rows.order_by("pk"), window, "pk")


def _kernel(request: HttpRequest, run_id: int, number: int) -> Kernel:
    run = access_run(caller(request), run_id, "view")
    kernels = Kernel.objects.select_related("evaluation").prefetch_related("parent_links__parent")
    return get_object_or_404(kernels, run=run, number=number)


def _whole(row: Evaluation) -> dict[str, Any]:
    plain = {name: getattr(row, name) for name in Outcome.model_fields if name != "id"}
    measured: list[Measurement] = list(row.measurements.all())
    return plain | {"id": row.pk, "result": row.result, "measurements": measured}
