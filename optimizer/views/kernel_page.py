"""Show a kernel: its source, the reason it was written, its measurements and downloads."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils.text import Truncator
from django.views.decorators.http import require_safe

from optimizer.access import access_run
from optimizer.charts import cases as charts
from optimizer.charts.roofline import Position, positions, roofline
from optimizer.models import Evaluation, Kernel, LlmCall, Measurement, Run
from optimizer.queries.headline import against_parent, stated_among
from optimizer.queries.judged import as_judged
from optimizer.queries.kernel_resources import feature_rows, resource_rows
from optimizer.queries.memory import memory_text, too_large_text
from optimizer.queries.own_builds import with_own_build
from optimizer.queries.prediction import prediction_of
from optimizer.queries.timing import (
    case_rows,
    failure_lines,
    has_call_time,
    load_warning,
    noise_text,
    noise_warning,
    notes_of,
)
from optimizer.reports.files import as_attachment
from optimizer.runs.history import problem_of
from optimizer.text.hostile_text import Diagnostic, diagnostics_in, unseen_in
from optimizer.views.diff_threads import views_about
from optimizer.views.kernel_flags import determinism, observations, warns
from optimizer.views.safe_html import SourceLine, source_lines
from optimizer.views.signed_in import user_of
from runners.job import BuildReport, JobResult, Language, Objective, Status
from runners.problems.base import ProblemError
from runners.profiling.summary import in_words, notes_in
from runners.targets import TARGETS, ceilings_in
from runners.wire import WireError

ASSEMBLY_CHARS = 60_000


@dataclass(frozen=True)
class ShownLine:
    """Hold a source line with the compiler's messages about it."""

    source: SourceLine
    complaints: Sequence[Diagnostic]


@login_required
@require_safe
def kernel_page(request: HttpRequest, run_id: int, number: int) -> HttpResponse:
    """Show the kernel with one of its evaluations.

    That is the one that `?evaluation=` names, else the one that the run's headline states, else the first.
    """
    kernel = _kernel(request, run_id, number)
    evaluations = list(kernel.evaluations.select_related("target", "opponent").order_by("pk"))
    # The page's parts ask for the kernel's first evaluation, which need not be read again.
    if first := next((one for one in evaluations if one.first_of_id == kernel.pk), None):
        kernel.evaluation = first
    evaluation = _chosen(request, kernel.run, evaluations)
    result = _complete(evaluation, first)
    build = result.build if result else None
    parent_build = _parent_build(kernel) if build else None
    measurements = list(evaluation.measurements.order_by("pk")) if evaluation else []
    context = {
        "run": kernel.run,
        "kernel": kernel,
        "evaluations": evaluations,
        "evaluation": evaluation,
        "against_parent": against_parent(evaluation, first),
        "result": result,
        "cases_timed": result is not None and any(case.speedup for case in result.cases),
        "lines": _lines(kernel, result),
        **_timing(result),
        "unseen": unseen_in(kernel.source),
        "resources": resource_rows(build, parent_build),
        "features": feature_rows(build, parent_build),
        "prediction": prediction_of(kernel),
        "resource_names": [one.name for one in build.kernels] if build else [],
        "assembly": _assembly(result),
        "profile": in_words(result.profile) if result else [],
        "profile_notes": notes_in(result.profile) if result else [],
        "positions": _positions(kernel, result),
        "observed": observations(result),
        "warnings": warns(observations(result)),
        "determinism": determinism(result),
        "questions": _questions(kernel),
        "samples": [row for row in measurements if row.samples_us],
        "threads": views_about(user_of(request), kernel, request),
        "here": request.get_full_path(),
        **_kin(kernel),
    }
    return render(request, "kernels/page.html", context)


@login_required
@require_safe
def kernel_state(request: HttpRequest, run_id: int, number: int) -> HttpResponse:
    """Return how the evaluation of an unfinished kernel stands; once it is done, ask the page to load again."""
    kernel = _kernel(request, run_id, number)
    evaluation = _chosen(request, kernel.run, list(kernel.evaluations.order_by("pk")))
    answer = render(request, "kernels/_state.html", {"run": kernel.run, "kernel": kernel, "evaluation": evaluation})
    if evaluation is not None and evaluation.state_choice.is_terminal:
        answer["HX-Refresh"] = "true"
    return answer


@login_required
@require_safe
def kernel_download(request: HttpRequest, run_id: int, number: int) -> HttpResponse:
    """Download the source as a file."""
    kernel = _kernel(request, run_id, number)
    name = f"{_file_stem(kernel)}{Language(kernel.language).suffix}"
    # Sent as a text attachment: a browser must not run or display what a model wrote.
    return as_attachment(kernel.source, name, "text/plain")


@login_required
@require_safe
def kernel_cases_chart(request: HttpRequest, run_id: int, number: int) -> HttpResponse:
    """Return speedups by case as plotly JSON."""
    result = _evaluation(request, run_id, number).as_readable_result()
    if result is None:
        raise Http404
    return HttpResponse(charts.speedups(as_judged(result)).to_json(), content_type="application/json")


@login_required
@require_safe
def kernel_samples_chart(request: HttpRequest, run_id: int, number: int) -> HttpResponse:
    """Return the raw samples as plotly JSON."""
    rows = list(Measurement.objects.filter(evaluation=_evaluation(request, run_id, number)).order_by("pk"))
    return HttpResponse(charts.samples(rows).to_json(), content_type="application/json")


@login_required
@require_safe
def kernel_roofline_chart(request: HttpRequest, run_id: int, number: int) -> HttpResponse:
    """Return the timed cases under the target's roofs as plotly JSON."""
    kernel = _kernel(request, run_id, number)
    result = _evaluation(request, run_id, number).as_readable_result()
    placed = _positions(kernel, result)
    if not placed:
        raise Http404
    reached = ceilings_in(result.environment if result else {})
    figure = roofline(TARGETS[kernel.run.target.key], placed, reached)
    return HttpResponse(figure.to_json(), content_type="application/json")


def _kernel(request: HttpRequest, run_id: int, number: int) -> Kernel:
    run = access_run(user_of(request), run_id, "view")
    kernels = Kernel.objects.select_related("hypothesis__call", "call", "author")
    kernel = get_object_or_404(kernels, run=run, number=number)
    # The run that was authorised, with its joins.
    kernel.run = run
    return kernel


def _evaluation(request: HttpRequest, run_id: int, number: int) -> Evaluation:
    run: Run = access_run(user_of(request), run_id, "view")
    evaluations = Evaluation.objects.filter(kernel__run=run, kernel__number=number).order_by("pk")
    chosen = _chosen(request, run, list(evaluations))
    if chosen is None:
        raise Http404
    return chosen


def _chosen(request: HttpRequest, run: Run, evaluations: Sequence[Evaluation]) -> Evaluation | None:
    wanted = request.GET.get("evaluation")
    if wanted is None:
        return stated_among(run, evaluations) or next(iter(evaluations), None)
    for evaluation in evaluations:
        # Only evaluations of this kernel are compared, so an id of another run is not found.
        if str(evaluation.pk) == wanted:
            return evaluation
    raise Http404


def _complete(evaluation: Evaluation | None, first: Evaluation | None) -> JobResult | None:
    """Return what an evaluation found, with the profile and the machine code of the first one where it has none.

    A confirmation times a kernel again and profiles nothing. Where neither carries a build, this site's own counts.
    """
    result = evaluation.as_readable_result() if evaluation else None
    if evaluation is None or result is None:
        return None
    earlier = first.as_readable_result() if first and evaluation is not first else None
    if earlier is not None:
        build = result.build if result.build and result.build.assembly else earlier.build or result.build
        result = replace(result, build=build, profile=result.profile or earlier.profile)
    return with_own_build(result, evaluation.kernel_id)


def _lines(kernel: Kernel, result: JobResult | None) -> list[ShownLine]:
    by_line: dict[int, list[Diagnostic]] = defaultdict(list)
    if result and result.build:
        for diagnostic in diagnostics_in(result.build.log):
            by_line[diagnostic.line].append(diagnostic)
    return [ShownLine(line, by_line[line.number]) for line in source_lines(kernel.source, kernel.language)]


def _assembly(result: JobResult | None) -> list[tuple[str, str]]:
    """Return the machine code by name, each cut to what a page can hold."""
    found = result.build.assembly if result and result.build else {}
    return [(name, Truncator(text).chars(ASSEMBLY_CHARS)) for name, text in found.items()]


def _parent_build(kernel: Kernel) -> BuildReport | None:
    """Return the build report of the kernel's base, or None."""
    base = Evaluation.objects.filter(first_of__child_links__kernel=kernel, first_of__child_links__rank=0).first()
    result = with_own_build(base.as_readable_result(), base.kernel_id) if base else None
    return result.build if result else None


def _timing(result: JobResult | None) -> dict[str, Any]:
    """Return how the result was timed: cases with both times, what failed, memory and the machine's noise."""
    rows = case_rows(result)
    return {
        "case_rows": rows,
        "case_notes": notes_of(rows),
        "has_call": has_call_time(result),
        "by_call": bool(result and result.speedup and result.speedup.basis == Objective.CALL),
        "failures": failure_lines(result),
        "noise": noise_text(result.noise_floor if result else None),
        "noise_warnings": [noise_warning(result.noise_floor if result else None), load_warning(result)],
        "memory": memory_text(result),
        "too_large": too_large_text(result.memory) if result and result.status == Status.TOO_LARGE else "",
    }


def _questions(kernel: Kernel) -> list[LlmCall]:
    """Return the calls behind the kernel in order: the one that had the idea, the one that wrote it."""
    idea = kernel.hypothesis.call if kernel.hypothesis else None
    found = [call for call in (idea, kernel.call) if call is not None]
    return list(dict.fromkeys(found))


def _positions(kernel: Kernel, result: JobResult | None) -> list[Position]:
    """Return the timed cases under the target's roofs, or none where the problem is unreadable or declares no work."""
    target = TARGETS.get(kernel.run.target.key)
    if result is None or target is None:
        return []
    try:
        return positions(problem_of(kernel.run), target, result.cases)
    except (ProblemError, WireError):
        return []


def _kin(kernel: Kernel) -> dict[str, Any]:
    # Sources and results can have megabytes, and links need none of them.
    light = Kernel.objects.select_related("evaluation").defer("source", "report", "meta", "evaluation__result")
    return {
        "parents": light.filter(child_links__kernel=kernel).order_by("child_links__rank"),
        "children": light.filter(parent_links__parent=kernel).order_by("number")[:50],
        "previous_number": kernel.number - 1 if kernel.number > 0 else None,
        "next_number": light.filter(run=kernel.run, number=kernel.number + 1)
        .values_list("number", flat=True)
        .first(),
        "is_best": kernel.run.best_kernel_id == kernel.pk,
    }


def _file_stem(kernel: Kernel) -> str:
    """Return a file name of letters, digits, dashes and underscores only."""
    # The name ends up in a header and in a file system.
    problem = re.sub(r"[^A-Za-z0-9_-]+", "_", kernel.run.problem_version.problem.slug)
    return f"{problem}-run{kernel.run_id}-kernel{kernel.number}"
