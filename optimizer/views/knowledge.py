"""Show, write and edit findings with their scopes, sources and history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from optimizer.actions.finding import FindingSupersededError, do_edit_finding, do_write_finding, may_edit
from optimizer.diffs.differ import Tag, diff
from optimizer.forms.finding import FindingFilterForm, FindingForm, teams_to_write_in
from optimizer.models import Finding
from optimizer.queries.fulltext import findings_seen_by
from optimizer.views.safe_html import markdown
from optimizer.views.signed_in import user_of

PER_PAGE = 30
VERSIONS = 50
MOST_CONSOLIDATED = 200


@dataclass(frozen=True)
class Change:
    """Hold a line of the difference between two versions: `same`, `ins` or `del`."""

    kind: str
    text: str


@login_required
@require_safe
def knowledge(request: HttpRequest) -> HttpResponse:
    """List the findings that the person may read, newest first."""
    form = FindingFilterForm(user_of(request), request.GET)
    rows = form.narrow(_seen(request)).order_by("-pk")
    context = {
        "form": form,
        "page": Paginator(rows, PER_PAGE).get_page(request.GET.get("page")),
        "is_filtered": any(value for key, value in request.GET.items() if key != "page"),
        "may_write": teams_to_write_in(user_of(request)).exists(),
    }
    return render(request, "knowledge/list.html", context)


@login_required
@require_safe
def finding_page(request: HttpRequest, finding_id: int) -> HttpResponse:
    """Show one finding and all its versions, each with its changes."""
    finding = _found(request, finding_id)
    versions = history_of(finding)
    context = {
        "finding": finding,
        "text": markdown(finding.text),
        "versions": [
            (row, changes_of(older, row)) for older, row in zip([None, *versions], versions, strict=False)
        ][::-1],
        "newest": versions[-1],
        "consolidated": consolidated_by(versions[0])[:MOST_CONSOLIDATED],
        "may_edit": finding.is_current and may_edit(user_of(request), finding),
    }
    return render(request, "knowledge/page.html", context)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def finding_new(request: HttpRequest) -> HttpResponse:
    """Write a finding."""
    form = FindingForm(
        user_of(request), request.POST if request.method == "POST" else None, initial=request.GET.dict()
    )
    if request.method == "POST" and form.is_valid():
        values = dict(form.cleaned_data)
        row = do_write_finding(user_of(request), values.pop("team"), **values)
        return redirect("finding_page", finding_id=row.pk)
    return render(request, "knowledge/form.html", {"form": form})


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def finding_edit(request: HttpRequest, finding_id: int) -> HttpResponse:
    """Write a newer version of a finding."""
    user, finding = user_of(request), _found(request, finding_id)
    if not may_edit(user, finding):
        raise Http404("There is no such finding.")
    form = FindingForm(user, request.POST if request.method == "POST" else None, finding=finding)
    if request.method == "POST" and form.is_valid():
        try:
            return redirect("finding_page", finding_id=do_edit_finding(user, finding, **form.cleaned_data).pk)
        except (FindingSupersededError, ValidationError) as refusal:
            messages.warning(request, str(refusal))
            return redirect("finding_page", finding_id=finding.pk)
    return render(request, "knowledge/form.html", {"form": form, "finding": finding})


def history_of(finding: Finding) -> list[Finding]:
    """Return all versions, oldest first. A document that consolidates several findings is a first version."""
    oldest = finding
    # A limit instead of an endless walk, should corrupt data form a cycle.
    for _ in range(VERSIONS):
        older = list(consolidated_by(oldest)[:2])
        if len(older) != 1:
            break
        oldest = older[0]
    versions = [oldest]
    while (newer := versions[-1].superseded_by) is not None and len(versions) < 2 * VERSIONS:
        versions.append(newer)
    return versions


def consolidated_by(finding: Finding) -> QuerySet[Finding]:
    """Return the rows that the finding replaced: one for an edit, several for the librarian's document."""
    return Finding.objects.filter(superseded_by=finding).select_related("author", "run").order_by("pk")


def changes_of(older: Finding | None, newer: Finding) -> list[Change]:
    """Return the lines that a version removed and added; nothing for the first one."""
    if older is None:
        return []
    old, new = older.text.splitlines(), newer.text.splitlines()
    changes: list[Change] = []
    for code in diff(old, new):
        if code.tag is not Tag.EQUAL:
            changes += [Change("del", line) for line in old[code.a0 : code.a1]]
            changes += [Change("ins", line) for line in new[code.b0 : code.b1]]
    return changes


def _seen(request: HttpRequest) -> QuerySet[Finding]:
    return findings_seen_by(user_of(request)).select_related("team", "target", "problem", "run", "author")


def _found(request: HttpRequest, finding_id: int) -> Any:
    return get_object_or_404(_seen(request), pk=finding_id)
