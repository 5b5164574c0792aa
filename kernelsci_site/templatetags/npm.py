"""Load scripts that come from npm."""

from __future__ import annotations

from django import template
from django.contrib.staticfiles import finders
from django.templatetags.static import static
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from kernelsci_site.static_finders import NPM_SCRIPTS

register = template.Library()


@register.simple_tag
def npm_scripts(purpose: str) -> SafeString:
    """Return the script elements for `morph` or `zoom`. Scripts that are not installed are left out."""
    installed = (path for path in NPM_SCRIPTS[purpose] if finders.find(f"npm/{path}"))
    return format_html_join(
        "\n", '<script src="{}" defer></script>', ((static(f"npm/{path}"),) for path in installed)
    )
