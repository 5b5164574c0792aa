"""Search everything that a person may read."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from optimizer.queries.fulltext import MAX_TEXT, SOURCES, search
from optimizer.views.signed_in import user_of

FEW, MANY = 8, 100


@login_required
@require_safe
def search_page(request: HttpRequest) -> HttpResponse:
    """Show a few hits of every kind, or with `?kind=` many of one."""
    text = request.GET.get("q", "")[:MAX_TEXT].strip()
    kinds = tuple(source.kind for source in SOURCES if source.kind == request.GET.get("kind"))
    found = search(user_of(request), text, kinds, MANY if kinds else FEW) if text else {}
    groups = [(source, found[source.kind]) for source in SOURCES if found.get(source.kind)]
    context = {"q": text, "kind": kinds[0] if kinds else "", "groups": groups, "few": FEW, "sources": SOURCES}
    return render(request, "search/page.html", context)
