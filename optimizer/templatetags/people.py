"""Provide the parts of run and kernel pages that depend on the person."""

from __future__ import annotations

from typing import Any

from django import template
from django.conf import settings

from optimizer.models import EndToEndReport, Kernel, Release, ReleaseState, Run
from optimizer.queries.receipts import has_receipt
from optimizer.reports.submission import offers_for
from optimizer.text import browsers
from optimizer.views.run_head import head_context

SHOWN_REPORTS = 5

register = template.Library()
register.filter(browsers.browser_name)


@register.simple_tag
def company() -> str:
    """Return the name of the company's sign-in, or an empty text without one."""
    return settings.OIDC_NAME if settings.OIDC_SERVER else ""


@register.inclusion_tag("runs/_head.html", takes_context=True)
def run_head(context: dict[str, Any], run: Run, tab: str) -> dict[str, Any]:
    """Render the head of a run's page, of which `tab` names the address."""
    return {"csrf_token": context.get("csrf_token"), **head_context(run, context["request"].user, tab)}


@register.inclusion_tag("parts/kernel_release.html")
def kernel_release(run: Run, kernel: Kernel) -> dict[str, Any]:
    """Render a link to the kernel's release with its state."""
    states = [ReleaseState.ASKED, ReleaseState.RELEASED]
    release = Release.objects.filter(kernel=kernel, state__in=states).first()
    return {"run": run, "kernel": kernel, "release": release}


@register.inclusion_tag("kernels/_use.html")
def kernel_use(run: Run, kernel: Kernel) -> dict[str, Any]:
    """Render how the kernel leaves the site: export formats, the signed receipt, and what it gained in programs."""
    return {
        "run": run,
        "kernel": kernel,
        "offers": offers_for(kernel),
        "has_receipt": has_receipt(kernel),
        **_endtoend(kernel),
    }


@register.inclusion_tag("kernels/_endtoend.html")
def kernel_endtoend(kernel: Kernel) -> dict[str, Any]:
    """Render the newest end-to-end reports of the kernel."""
    return _endtoend(kernel)


def _endtoend(kernel: Kernel) -> dict[str, Any]:
    rows = list(EndToEndReport.objects.filter(kernel=kernel).select_related("author")[:SHOWN_REPORTS])
    return {"endtoend": rows, "no_gain": bool(rows) and not any(row.finding == "Faster" for row in rows)}
