"""What pages of others show of a review: the guidance a kernel was written under."""

from __future__ import annotations

from django import template

from optimizer.guidance import taken_by
from optimizer.models import Guidance, Kernel

register = template.Library()


@register.simple_tag
def guidance_read(kernel: Kernel) -> list[Guidance]:
    """The guidance in the prompt that the kernel was written from, and in the one that its idea came from."""
    calls = [kernel.call, kernel.hypothesis.call if kernel.hypothesis else None]
    found = {row.pk: row for call in calls for row in taken_by(call)}
    return [found[pk] for pk in sorted(found)]
