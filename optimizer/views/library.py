"""Show the shipped knowledge pages: what agents are told of hardware, and what their search finds."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from optimizer.knowledge import page as page_named
from optimizer.knowledge import pages, search_knowledge
from optimizer.knowledge.search import MAX_RESULTS
from optimizer.views.safe_html import markdown


@login_required
@require_safe
def library(request: HttpRequest) -> HttpResponse:
    """List all pages, or those that a search finds, best first."""
    query = request.GET.get("q", "").strip()
    shown = search_knowledge(query, "", MAX_RESULTS) if query else list(pages())
    rows = [{"page": one, "url": reverse("library_page", args=one.name.split("/"))} for one in shown]
    return render(request, "knowledge/library.html", {"query": query, "shown": rows})


@login_required
@require_safe
def library_page(request: HttpRequest, folder: str, page: str) -> HttpResponse:
    """Show one page with its snippet and sources."""
    try:
        shown = page_named(f"{folder}/{page}")
    except KeyError:
        raise Http404("There is no such page.") from None
    return render(request, "knowledge/library_page.html", {"page": shown, "text": markdown(shown.markdown)})
