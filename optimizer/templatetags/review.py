"""Provide what other pages show of a review: the guidance under which a kernel was written."""

from __future__ import annotations

from django import template

from optimizer.models import Guidance, Kernel
from optimizer.queries.guidance import taken_by

register = template.Library()


@register.simple_tag
def guidance_read(kernel: Kernel) -> list[Guidance]:
    """Return the guidance in the prompts that produced the kernel and its hypothesis."""
    calls = [kernel.call, kernel.hypothesis.call if kernel.hypothesis else None]
    # The same instruction may be in both prompts.
    found = {row.pk: row for call in calls for row in taken_by(call)}
    return [found[pk] for pk in sorted(found)]
