"""Answer addresses that do not exist: a page for people, JSON for programs."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.defaults import page_not_found


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 404; under `/api/v1/` in the form of the API's own errors."""
    if request.path.startswith("/api/v1/"):
        return JsonResponse({"detail": "Not Found"}, status=404)
    return page_not_found(request, exception)
