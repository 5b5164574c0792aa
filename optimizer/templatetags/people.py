"""What pages of runs and kernels show of the person who looks at them."""

from __future__ import annotations

from typing import Any

from django import template
from django.conf import settings

from optimizer.access import may
from optimizer.models import Follow, Kernel, Release, ReleaseState, Run

register = template.Library()


@register.simple_tag
def company() -> str:
    """What the company's sign-in is called; empty where there is none."""
    return settings.OIDC_NAME if settings.OIDC_SERVER else ""


@register.inclusion_tag("parts/run_person.html", takes_context=True)
def run_person(context: dict[str, Any], run: Run) -> dict[str, Any]:
    """Buttons: follow the run, and hide it from the team."""
    user = context["request"].user
    return {
        "run": run,
        "csrf_token": context.get("csrf_token"),
        "follows": Follow.objects.filter(user=user, run=run).exists(),
        "may_hide": run.created_by_id == user.pk or may(user, run, "own"),
    }


@register.inclusion_tag("parts/kernel_release.html")
def kernel_release(run: Run, kernel: Kernel) -> dict[str, Any]:
    """A link to the kernel's release, saying where it stands."""
    states = [ReleaseState.ASKED, ReleaseState.RELEASED]
    release = Release.objects.filter(kernel=kernel, state__in=states).first()
    return {"run": run, "kernel": kernel, "release": release}
