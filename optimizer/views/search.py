"""Search everything that a person may read."""

from __future__ import annotations

import re
from dataclasses import dataclass

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from optimizer.queries.fulltext import MAX_TEXT, SOURCES, Hit, search
from optimizer.views.signed_in import user_of

FEW, MANY = 8, 100


@dataclass(frozen=True)
class Piece:
    """Hold a piece of an excerpt, marked where it is a word of the query."""

    text: str
    marked: bool


@login_required
@require_safe
def search_page(request: HttpRequest) -> HttpResponse:
    """Show a few hits of every kind, or with `?kind=` many of one."""
    text = request.GET.get("q", "")[:MAX_TEXT].strip()
    kinds = tuple(source.kind for source in SOURCES if source.kind == request.GET.get("kind"))
    found = search(user_of(request), text, kinds, MANY if kinds else FEW) if text else {}
    groups = [(source, _marked(found[source.kind], text)) for source in SOURCES if found.get(source.kind)]
    context = {"q": text, "kind": kinds[0] if kinds else "", "groups": groups, "few": FEW, "sources": SOURCES}
    return render(request, "search/page.html", context)


def _marked(hits: list[Hit], text: str) -> list[tuple[Hit, list[Piece]]]:
    return [(hit, pieces(hit.excerpt, text)) for hit in hits]


def pieces(excerpt: str, text: str) -> list[Piece]:
    """Split the excerpt where words of the query begin and end."""
    # Single letters would mark half of the excerpt.
    words = [re.escape(word) for word in re.findall(r"\w{2,}", text)]
    if not words:
        return [Piece(excerpt, False)]
    parts = re.split(f"({'|'.join(words)})", excerpt, flags=re.IGNORECASE)
    return [Piece(part, n % 2 == 1) for n, part in enumerate(parts) if part]
