"""Provide the template tags used everywhere: badges, icons, times, speedups. `format_html` escapes every value."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from django import template
from django.templatetags.static import static
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from optimizer.models import Evaluation, EvaluationState, EvaluationStatus, RunState, VerdictChoice
from optimizer.queries.timing import roofline_text
from optimizer.search import strategy_title
from optimizer.text.case_names import given_words, inputs_words
from optimizer.text.hostile_text import plain_log
from optimizer.views.theme import THEMES, theme_of
from runners.job import Effort, Flag, Language

register = template.Library()
register.filter("plain_log", plain_log)
register.filter("given_words", given_words)
register.filter("inputs_words", inputs_words)
register.filter("strategy_title", strategy_title)

NOTHING = "–"
TITLE_CHARS = 80


@register.simple_tag
def icon(name: str) -> SafeString:
    """Return an icon of the sprite. It is decoration only and therefore hidden from screen readers."""
    return format_html(
        '<svg class="icon" aria-hidden="true"><use href="{}#{}"></use></svg>', static("icons/sprite.svg"), name
    )


@register.simple_tag
def badge(label: str, tone: str) -> SafeString:
    """Return a word in its tone. Shape and colour only repeat what the word says."""
    return format_html('<span class="badge tone-{}">{}</span>', tone, label)


@register.simple_tag
def run_badge(state: str) -> SafeString:
    """Return the badge of a run's state."""
    choice = RunState(state)
    return badge(choice.label, choice.tone)


@register.simple_tag
def evaluation_badge(evaluation: Evaluation | None) -> SafeString:
    """Return the badge of an evaluation's outcome, or of its state while it is open."""
    if not evaluation:  # None, or "" where the template found no such row
        return badge("Not evaluated", "muted")
    if evaluation.state == EvaluationState.DONE and evaluation.status:
        status = EvaluationStatus(evaluation.status)
        if evaluation.effort == Effort.BUILD and status == EvaluationStatus.CORRECT:
            # Nothing has run on the device, so nobody knows whether it is correct.
            # A long list leaves the results in the database, and fetches none for this.
            is_known = "result" not in evaluation.get_deferred_fields()
            is_emulated = is_known and Flag.EMULATED in evaluation.result.get("flags", [])
            return badge("Right in emulation" if is_emulated else "Built", "muted")
        return badge(status.label, status.tone)
    state = EvaluationState(evaluation.state)
    return badge(evaluation.stage.capitalize() if evaluation.stage else state.label, state.tone)


@register.simple_tag
def verdict_badge(verdict: str) -> SafeString:
    """Return the badge of a verdict, or a dash where nothing was timed."""
    if not verdict:
        return format_html('<span class="muted">{}</span>', NOTHING)
    choice = VerdictChoice(verdict)
    return badge(choice.label, choice.tone)


@register.filter
def thousands(number: int | None) -> str:
    """Return a whole number with its thousands apart, `4,497,000`, and a dash without one."""
    return NOTHING if number is None else f"{number:,}"


@register.filter
def language(key: Any) -> str:
    """Return the name of a language, or names in a row for several: `C++, Triton`. Unknown ones stay as they are."""
    keys = [key] if isinstance(key, str) else key or []
    names = {one.value: one.label for one in Language}
    return ", ".join(names.get(str(one), str(one)) for one in keys)


@register.filter
def roofline(share: float | None) -> str:
    """Say how near a kernel comes to the roofline: `62 % of the measured ceiling`; empty where it is not known."""
    return roofline_text(share)


@register.simple_tag
def speedup(median: float | None, low: float | None = None, high: float | None = None) -> SafeString:
    """Return a speedup with its interval: 1.72× 1.65–1.80."""
    if not median:
        return format_html('<span class="muted">{}</span>', NOTHING)
    if not low or not high:
        return format_html('<span class="speed"><b>{}×</b></span>', _significant(median))
    return format_html(
        '<span class="speed"><b>{}×</b> <small>{}–{}</small></span>', *map(_significant, (median, low, high))
    )


@register.filter
def micros(value: float | None) -> str:
    """Format a time in µs in the most readable unit."""
    if not isinstance(value, int | float):
        return NOTHING
    for limit, divisor, unit in ((1e3, 1.0, "µs"), (1e6, 1e3, "ms"), (float("inf"), 1e6, "s")):
        if abs(value) < limit:
            # The first unit whose limit exceeds the value is the largest that keeps a digit before the point.
            return f"{_significant(value / divisor)} {unit}"
    return NOTHING


@register.filter
def seconds(value: float | None) -> str:
    """Format a duration: 0.26 s, 12 s, 3 min 20 s, 2 h 05 min."""
    if not isinstance(value, int | float):
        return NOTHING
    # Decimals matter only for short durations.
    if value < 10 and value != int(value):
        return f"{value:.2f} s"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


@register.filter
def short_time(value: float | None) -> str:
    """Format a time in seconds in the most readable unit, with significant digits."""
    return micros(1e6 * value if isinstance(value, int | float) else None)


@register.filter
def gain(value: float | None) -> str:
    """Format a gain in per cent with its sign."""
    return NOTHING if value is None else f"{value:+.1f} %"


@register.filter
def signed(value: float | None) -> str:
    """Format a change: +12, −3."""
    return NOTHING if value is None else f"{value:+g}".replace("-", "−")


@register.filter
def file_size(value: int | None) -> str:
    """Format bytes in binary units; 0 is shown, None is a dash."""
    if not isinstance(value, int | float):
        return NOTHING
    if value < 1024:
        return f"{value} B"
    if value < 1 << 30:
        return f"{value / 1024:.1f} KiB" if value < 1 << 20 else f"{value / (1 << 20):.1f} MiB"
    return f"{value / (1 << 30):.1f} GiB"


@register.filter
def scientific(value: float | None) -> str:
    """Format the size of an error: 1.2e-07."""
    return NOTHING if value is None else f"{value:.1e}"


@register.filter
def first_clause(text: str) -> str:
    """Return the first clause of a sentence, at most 80 characters, for a heading."""
    clause = re.split(r"(?<=\w)(?:[.;:](?:\s|$)|,(?=\s[^=,]+(?:,|$)))|\s[–—(-]\s?", text.strip(), maxsplit=1)[0]
    return Truncator(clause).chars(TITLE_CHARS)


@register.filter
def or_dash(value: Any) -> Any:
    """Return a dash for None and empty text; zero stays."""
    return NOTHING if value is None or value == "" else value


@register.filter
def underscores(value: str) -> str:
    """Return a name of the code as words: `torch_eager` is `torch eager`."""
    return value.replace("_", " ")


@register.filter
def as_rows(value: Any) -> list[tuple[str, str]]:
    """Flatten nested data into rows of a dotted name and a value in words, for a description list instead of JSON."""
    return list(_rows("", value))


@register.filter
def as_labelled_rows(value: Any) -> list[tuple[str, str]]:
    """Do the same with labels for people, `Visible devices` for `visible_devices`, and leave out what is empty."""
    rows = [(name.rpartition(".")[2].replace("_", " "), text) for name, text in as_rows(value) if text != NOTHING]
    return [(name[:1].upper() + name[1:], text) for name, text in rows]


def _rows(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _rows(f"{name}.{key}" if name else str(key), inner)
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping | list | tuple) for item in value):
        for number, inner in enumerate(value, 1):
            yield from _rows(f"{name}.{number}" if name else str(number), inner)
    elif isinstance(value, list | tuple):
        yield name, ", ".join(map(_in_words, value)) or NOTHING
    else:
        yield name, _in_words(value)


def _in_words(value: Any) -> str:
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@register.filter
def as_json(value: Any) -> str:
    """Format nested values as indented JSON text, which the template escapes like any text."""
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True, default=str)


def _significant(value: float) -> str:
    # Two decimals below a hundred, because speedups differ in the second one.
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) >= 100 else f"{value:.2f}"


@register.simple_tag(takes_context=True)
def nav_link(context: dict[str, Any], name: str, label: str) -> SafeString:
    """Return a link of the main menu, marked when the current page belongs to it."""
    address = reverse(name)
    # Pages below an entry belong to it, so the prefix is compared.
    if context["request"].path.startswith(address):
        return format_html('<a href="{}" aria-current="page">{}</a>', address, label)
    return format_html('<a href="{}">{}</a>', address, label)


@register.simple_tag(takes_context=True)
def current_theme(context: dict[str, Any]) -> str:
    """Return the theme that this browser requested."""
    return theme_of(context["request"])


@register.simple_tag
def themes() -> list[tuple[str, str]]:
    """Return all themes with their labels."""
    return list(THEMES.items())


@register.filter
def rate(value: float | None, unit: str) -> str:
    """Format a rate with its decimal prefix: 5.3 TB/s."""
    if not isinstance(value, int | float):
        return NOTHING
    for limit, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= limit:
            return f"{_significant(value / limit)} {prefix}{unit}"
    return f"{value:.0f} {unit}"


@register.filter
def age(moment: dt.datetime) -> str:
    """Format how long ago the moment was."""
    return seconds(float(round((timezone.now() - moment).total_seconds())))
