"""Show the help page."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from optimizer.views.glossary import TERMS


@login_required
@require_safe
def help_page(request: HttpRequest) -> HttpResponse:
    """Show first steps, the glossary with its sources, and keyboard shortcuts."""
    return render(request, "help/page.html", {"terms": TERMS})
