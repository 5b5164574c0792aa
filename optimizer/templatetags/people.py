"""Provide the parts of run and kernel pages that depend on the person."""

from __future__ import annotations

from typing import Any

from django import template
from django.conf import settings

from optimizer.access import may
from optimizer.models import Follow, Kernel, Release, ReleaseState, Run
from optimizer.text import browsers

register = template.Library()
register.filter(browsers.browser_name)


@register.simple_tag
def company() -> str:
    """Return the name of the company's sign-in, or an empty text without one."""
    return settings.OIDC_NAME if settings.OIDC_SERVER else ""


@register.inclusion_tag("parts/run_person.html", takes_context=True)
def run_person(context: dict[str, Any], run: Run) -> dict[str, Any]:
    """Render the buttons to follow the run and to hide it from the team."""
    user = context["request"].user
    return {
        "run": run,
        "csrf_token": context.get("csrf_token"),
        "follows": Follow.objects.filter(user=user, run=run).exists(),
        "may_hide": run.created_by_id == user.pk or may(user, run, "own"),
    }


@register.inclusion_tag("parts/kernel_release.html")
def kernel_release(run: Run, kernel: Kernel) -> dict[str, Any]:
    """Render a link to the kernel's release with its state."""
    states = [ReleaseState.ASKED, ReleaseState.RELEASED]
    release = Release.objects.filter(kernel=kernel, state__in=states).first()
    return {"run": run, "kernel": kernel, "release": release}
