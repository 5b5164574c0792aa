"""Show a live run: the page, the parts of it that change, and the buttons that steer it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.core.paginator import Page, Paginator
from django.db.models import F, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from optimizer.access import access_run
from optimizer.actions import run as actions
from optimizer.actions.submission import do_finish_run
from optimizer.charts import curve as charts
from optimizer.forms.budget import BudgetForm
from optimizer.models import EvaluationStatus, Kernel, Run, User
from optimizer.models.run import RunTransitionError
from optimizer.queries.headline import show_stated
from optimizer.queries.run_summary import summarise
from optimizer.queries.runners import absence_of_runners
from optimizer.queries.timing import newest_noise_warning
from optimizer.search import settings_in_force
from optimizer.text.whole_numbers import parse_whole_number
from optimizer.views import feed
from optimizer.views.refusals import as_sentence
from optimizer.views.run_guidance import guidance_context
from optimizer.views.run_head import actions_context, asks_models
from optimizer.views.run_labels import labels_context
from optimizer.views.run_workers import workers_of
from optimizer.views.signed_in import user_of
from runners.dispatch import DISPATCHERS

KERNELS_PER_PAGE = 50
BEST_KERNELS = 10
CURVE_ROWS = 500
KERNEL_SORTS = {
    "number": "number",
    "speedup": "evaluation__speedup",
    "parent": "evaluation__parent_speedup",
    "time": "evaluation__time_us",
    "call": "evaluation__call_us",
}
RANKING_SORTS = {"speedup", "parent", "time", "call"}
KERNEL_FILTERS: dict[str, dict[str, str]] = {
    "": {},
    "faster": {"evaluation__verdict": "faster", "evaluation__status": EvaluationStatus.CORRECT},
    "correct": {"evaluation__status": EvaluationStatus.CORRECT},
    "failed": {"evaluation__state": "done"},
}
FILTER_LABELS = (("", "All"), ("faster", "Faster"), ("correct", "Correct"), ("failed", "Not accepted"))


@login_required
@require_safe
def run_page(request: HttpRequest, run_id: int) -> HttpResponse:
    """Show everything about a run. The page works without scripts, which only keep it fresh."""
    run = access_run(user_of(request), run_id, "view")
    items = feed.latest_items(run)
    context = _live_context(run, user_of(request)) | _best_kernels_context(run)
    context |= guidance_context(run, user_of(request)) | labels_context(request, run)
    context |= {
        "feed_tabs": feed.TABS,
        "feed_only": request.GET.get("feed", "") if request.GET.get("feed", "") in dict(feed.TABS) else "",
        "items": items,
        "last_seq": items[-1].seq if items else 0,
        "axes": charts.AXES,
        "setting_groups": _settings(run),
    }
    return render(request, "runs/page.html", context)


@login_required
@require_safe
def run_live(request: HttpRequest, run_id: int) -> HttpResponse:
    """Return what changed after event `?after=`: new lines of the feed, and the parts that show the present state."""
    run = access_run(user_of(request), run_id, "view")
    items = feed.items_after(run, _after(request))
    context = _live_context(run, user_of(request))
    context |= {"items": items, "last_seq": items[-1].seq if items else run.last_seq, "only_new": True}
    return render(request, "runs/_live.html", context)


@login_required
@require_safe
def run_workers(request: HttpRequest, run_id: int) -> HttpResponse:
    """Return the list of workers alone, which is requested when a log grows."""
    run = access_run(user_of(request), run_id, "view")
    return render(request, "runs/_workers.html", _workers_context(run))


@login_required
@require_safe
def run_kernels(request: HttpRequest, run_id: int) -> HttpResponse:
    """List the kernels of a run; for htmx the table alone, with `?best=1` that of the run's page."""
    run = access_run(user_of(request), run_id, "view")
    if not request.headers.get("HX-Request"):
        return render(request, "runs/kernels.html", _kernels_context(request, run))
    is_best = request.GET.get("best") == "1"
    context = _best_kernels_context(run) if is_best else _kernels_context(request, run)
    return render(request, "runs/_kernels.html", context)


@login_required
@require_safe
def run_curve(request: HttpRequest, run_id: int) -> HttpResponse:
    """Return the best-so-far figure as plotly JSON, against `?axis=` evaluations, minutes or usd."""
    run = access_run(user_of(request), run_id, "view")
    axis = request.GET.get("axis", "evaluations")
    # The axis is part of the address, so an unknown one is a missing page.
    if axis not in get_args(charts.Axis):
        raise Http404
    figure = charts.curve(charts.points_of(run), axis, run.baseline.replace("_", " "))  # type: ignore[arg-type]
    return HttpResponse(figure.to_json(), content_type="application/json")


@login_required
@require_safe
def run_curve_table(request: HttpRequest, run_id: int) -> HttpResponse:
    """Return the numbers behind the figure: a part of the run's page for htmx, else a page."""
    run = access_run(user_of(request), run_id, "view")
    part = bool(request.headers.get("HX-Request"))
    context = {"run": run, "points": charts.points_of(run), "shown": CURVE_ROWS}
    return render(request, "runs/_curve_table.html" if part else "runs/curve_table.html", context)


@login_required
@require_POST
def run_pause(request: HttpRequest, run_id: int) -> HttpResponse:
    """Pause the run: running work ends and nothing new begins."""
    return _steer(request, run_id, actions.do_pause_run)


@login_required
@require_POST
def run_resume(request: HttpRequest, run_id: int) -> HttpResponse:
    """Resume the run."""
    return _steer(request, run_id, actions.do_resume_run)


@login_required
@require_POST
def run_stop(request: HttpRequest, run_id: int) -> HttpResponse:
    """Stop the run permanently."""
    return _steer(request, run_id, actions.do_stop_run)


@login_required
@require_POST
def run_finish(request: HttpRequest, run_id: int) -> HttpResponse:
    """Let the run finish: its best kernels are measured again, and it ends."""
    return _steer(request, run_id, do_finish_run)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def run_budget(request: HttpRequest, run_id: int) -> HttpResponse:
    """Change the limits of a live run, or continue one that used up its budget."""
    run = access_run(user_of(request), run_id, "operate")
    form = BudgetForm(run, request.POST if request.method == "POST" else None)
    change = actions.do_continue_run if run.state_choice.is_terminal else actions.do_raise_budget
    if request.method == "POST" and form.is_valid():
        try:
            change(user_of(request), run, form.budget)
            return redirect("run_page", run_id=run.pk)
        except (ValidationError, RunTransitionError) as refusal:
            form.add_error(None, refusal if isinstance(refusal, ValidationError) else as_sentence(refusal))
    return render(request, "runs/budget.html", {"run": run, "form": form})


def _steer(request: HttpRequest, run_id: int, action: Callable[[User, Run], Any]) -> HttpResponse:
    run = access_run(user_of(request), run_id, "operate")
    try:
        action(user_of(request), run)
    except RunTransitionError as refusal:  # another tab was faster
        messages.warning(request, as_sentence(refusal))
    return redirect("run_page", run_id=run.pk)


def _live_context(run: Run, user: User) -> dict[str, Any]:
    return (
        _workers_context(run)
        | actions_context(run, user)
        | {
            "asks_models": asks_models(run),
            "summary": summarise(run),
            "noise_warning": newest_noise_warning(run),
        }
    )


def _settings(run: Run) -> list[tuple[str, Any]]:
    """Return the run's settings by group; groups without any are left out."""
    groups = (
        ("Strategy", settings_in_force(run.strategy, run.settings)),
        ("Models", run.providers),
        ("Run on", {"dispatcher": run.dispatcher, **run.dispatch_settings}),
    )
    return [(name, values) for name, values in groups if values]


def _workers_context(run: Run) -> dict[str, Any]:
    """Return the workers, and a warning about absent runners unless the run has ended."""
    # A run of an older version may name a dispatcher that no longer exists.
    known = not run.state_choice.is_terminal and run.dispatcher in DISPATCHERS
    absence = absence_of_runners(run.target.key, run.dispatcher) if known else ""
    return {"run": run, "workers": workers_of(run), "absence": absence}


def _best_kernels_context(run: Run) -> dict[str, Any]:
    """Return the kernels that rank first, for the run's own page; those without a speedup come last."""
    numbers = _sorted(Kernel.objects.filter(run=run), "-speedup").values_list("pk", flat=True)
    page = Paginator(numbers, BEST_KERNELS).get_page(1)
    context = _table_context(run, page, "-speedup")
    # The best kernel was chosen by its confirmation, which may state less than another's first evaluation.
    context["kernels"].sort(key=lambda kernel: kernel.pk != run.best_kernel_id)
    return context | {"is_best": True}


def _kernels_context(request: HttpRequest, run: Run) -> dict[str, Any]:
    sort = request.GET.get("sort", "number")
    show = request.GET.get("show", "")
    # ids first: only one page of the run's kernels is worth its wide columns
    numbers = _sorted(_shown(Kernel.objects.filter(run=run), show), sort).values_list("pk", flat=True)
    page = Paginator(numbers, KERNELS_PER_PAGE).get_page(request.GET.get("page"))
    return _table_context(run, page, sort) | {"show": show, "kernel_filters": FILTER_LABELS}


def _table_context(run: Run, page: Page[int], sort: str) -> dict[str, Any]:
    wide = Kernel.objects.for_table().defer("source", "report", "meta", "evaluation__result")
    kernels = show_stated(run, _sorted(wide.filter(pk__in=list(page.object_list)), sort))
    return {"run": run, "page": page, "kernels": kernels, "sort": sort, "best_id": run.best_kernel_id,
            "has_call": any(_call_us(kernel) for kernel in kernels)}  # fmt: skip


def _call_us(kernel: Kernel) -> float | None:
    evaluation = getattr(kernel, "evaluation", None)
    return evaluation.call_us if evaluation else None


def _shown(kernels: QuerySet[Kernel], show: str) -> QuerySet[Kernel]:
    kernels = kernels.filter(**KERNEL_FILTERS.get(show, {}))
    return kernels.exclude(evaluation__status=EvaluationStatus.CORRECT) if show == "failed" else kernels


def _sorted(kernels: QuerySet[Kernel], sort: str) -> QuerySet[Kernel]:
    """Sort the kernels; unconfirmed claims come after all that can be ranked."""
    key = sort.removeprefix("-")
    field = F(KERNEL_SORTS.get(key, "number"))
    first = field.desc(nulls_last=True) if sort.startswith("-") else field.asc(nulls_last=True)
    unconfirmed_last = [F("evaluation__unconfirmed").asc(nulls_first=True)] if key in RANKING_SORTS else []
    return kernels.order_by(*unconfirmed_last, first, "number")


def _after(request: HttpRequest) -> int:
    after = parse_whole_number(request.GET.get("after", "0"))
    if after is None:
        raise Http404
    return after
