"""Show the table of runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from django.contrib.auth.decorators import login_required
from django.core.paginator import Page, Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from optimizer.forms.run_filter import COLUMNS, DEFAULT_SORT, RunFilterForm, ordered
from optimizer.models import Run
from optimizer.search import strategy_title, strategy_titles
from optimizer.views.frame import in_current_team
from optimizer.views.saved_views import views_of
from optimizer.views.signed_in import user_of

PER_PAGE = 50
HEAVY = ("problem_version__bundle", "problem_version__description", "settings", "providers", "guidance",
         "best_kernel__source", "best_kernel__report", "best_kernel__meta")  # fmt: skip


@login_required
@require_safe
def runs(request: HttpRequest) -> HttpResponse:
    """List the runs that the person may see; the address holds filter, order, columns and page."""
    user = user_of(request)
    form = RunFilterForm(user, request.GET, strategies=strategy_titles())
    sort = request.GET.get("sort", DEFAULT_SORT)
    # ids first: only one page of the visible set is worth its wide columns
    mine = in_current_team(request, Run.objects.visible_to(user))
    group = form.values.get("group") or ""
    ids = ordered(form.narrow(mine, user.pk), sort, group).values_list("pk", flat=True)
    # Words are looked for in every visible row, which the paginator would do twice: to count, and for the page.
    page = Paginator(list(ids) if form.values.get("q") else ids, PER_PAGE).get_page(request.GET.get("page"))
    rows = _rows(page, sort, group)
    context = {
        "form": form,
        "page": page,
        "runs": rows,
        "groups": grouped(rows, group),
        "group": group,
        "views": views_of(user),
        "sort": sort,
        "columns": form.columns,
        "all_columns": COLUMNS,
        "is_filtered": any(
            key not in ("page", "sort", "cols", "group") and value for key, value in request.GET.items()
        ),
        "address": request.GET.urlencode(),
    }
    return render(request, "runs/_table.html" if _wants_table(request) else "runs/list.html", context)


def _rows(page: Page[int], sort: str, group: str) -> list[Run]:
    wide = Run.objects.for_dashboard().defer(*HEAVY).filter(pk__in=list(page.object_list))
    return list(ordered(wide, sort, group))


def grouped(rows: Sequence[Run], group: str) -> list[tuple[str, list[Run]]]:
    """Return the rows, already in the order of their groups, under the name of each; one nameless group without any."""
    return [(name, list(members)) for name, members in groupby(rows, lambda run: _group_of(run, group))]


def _group_of(run: Run, group: str) -> str:
    if group == "tag":
        return ", ".join(run.tags) or "No tag"
    if group == "strategy":
        return strategy_title(run.strategy)
    return {"problem": run.problem_version.problem.title, "target": run.target.title}.get(group, "")


def _wants_table(request: HttpRequest) -> bool:
    return request.headers.get("HX-Target") == "runs-table"
