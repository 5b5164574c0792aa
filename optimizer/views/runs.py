"""Show the table of runs."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.core.paginator import Page, Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from optimizer.forms.run_filter import COLUMNS, DEFAULT_SORT, RunFilterForm, ordered
from optimizer.models import Run
from optimizer.search import strategy_titles
from optimizer.views.frame import in_current_team
from optimizer.views.signed_in import user_of

PER_PAGE = 50
HEAVY = ("problem_version__bundle", "problem_version__description", "settings", "providers", "guidance",
         "best_kernel__source", "best_kernel__report", "best_kernel__meta")  # fmt: skip


@login_required
@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """Redirect to the table of runs."""
    return redirect("runs")


@login_required
@require_safe
def runs(request: HttpRequest) -> HttpResponse:
    """List the runs that the person may see; the address holds filter, order, columns and page."""
    form = RunFilterForm(request.GET, strategies=strategy_titles())
    user = user_of(request)
    sort = request.GET.get("sort", DEFAULT_SORT)
    # ids first: only one page of the visible set is worth its wide columns
    mine = in_current_team(request, Run.objects.visible_to(user))
    page = Paginator(ordered(form.narrow(mine, user.pk), sort).values_list("pk", flat=True), PER_PAGE).get_page(
        request.GET.get("page")
    )
    context = {
        "form": form,
        "page": page,
        "runs": _rows(page, sort),
        "sort": sort,
        "columns": form.columns,
        "all_columns": COLUMNS,
        "is_filtered": any(key not in ("page", "sort", "cols") and value for key, value in request.GET.items()),
    }
    return render(request, "runs/_table.html" if _wants_table(request) else "runs/list.html", context)


def _rows(page: Page[int], sort: str) -> list[Run]:
    wide = Run.objects.for_dashboard().defer(*HEAVY).filter(pk__in=list(page.object_list))
    return list(ordered(wide, sort))


def _wants_table(request: HttpRequest) -> bool:
    return request.headers.get("HX-Target") == "runs-table"
