"""Show what changed between two kernels, and the effect on their times.

The address holds everything: kernels, layout, white space, opened rows. Links and forms do what the scripts do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.html import format_html
from django.views.decorators.http import require_safe

from optimizer.access import access_kernel
from optimizer.diffs.folding import STEP_ROWS, Gap, Range, function_start, visible_rows
from optimizer.diffs.rows import TextDiff
from optimizer.models import Kernel
from optimizer.queries.diff_change import change_between, settings_between
from optimizer.queries.diff_sides import SOURCE, Preset, Sides, assemblies, other_of, presets_of, sides_of
from optimizer.text.hostile_text import lookalikes_in, unseen_in
from optimizer.views import diff_threads
from optimizer.views.diff_markup import Painter, has_crlf
from optimizer.views.signed_in import user_of

LAYOUTS = {"split": "Side by side", "unified": "Unified"}
# Rows shown by default. The others are loaded on demand, so that a huge diff stays fast.
MOST_ROWS = 600
MOST_RANGES = 200
_RANGE = re.compile(r"(\d{1,7})-(\d{1,7})")
_LINE = re.compile(r"([on])(\d{1,7})")


@dataclass(frozen=True)
class Address:
    """Hold a diff's address.

    `against` is a preset or `run.number`; `opened` are ranges of rows; `line` is `o12` or `n12`.
    """

    run_id: int
    number: int
    against: str = ""
    view: str = "split"
    space: str = ""
    text: str = SOURCE
    opened: tuple[Range, ...] = ()
    line: str = ""

    @classmethod
    def of(cls, request: HttpRequest, run_id: int, number: int) -> Address:
        """Parse the address of a request, ignoring malformed parts."""
        get = request.GET.get
        view = get("view", "split")
        return cls(
            run_id,
            number,
            against=get("against", "")[:40],
            view=view if view in LAYOUTS else "split",
            space="ignore" if get("space") == "ignore" else "",
            text=get("text", SOURCE)[:300],
            opened=_ranges(get("open", "")),
            line=get("line", "") if _LINE.fullmatch(get("line", "")) else "",
        )

    def url(self, fragment: str = "", **changes: Any) -> str:
        """Return the page's address with some changes."""
        return f"{reverse('diff_page', args=[self.run_id, self.number])}?{replace(self, **changes).query}{fragment}"

    def rows_url(self, gap: Gap, shown: Range) -> str:
        """Return the address of the rows of a gap, with `shown` of them opened."""
        query = urlencode({"gap": f"{gap.start}-{gap.end}", "show": f"{shown[0]}-{shown[1]}"})
        return f"{reverse('diff_rows', args=[self.run_id, self.number])}?{self.query}&{query}"

    @property
    def query(self) -> str:
        """Return the encoded query of what differs from the default."""
        opened = ",".join(f"{start}-{end}" for start, end in self.opened)
        values = {
            "against": self.against,
            "view": "" if self.view == "split" else self.view,
            "space": self.space,
            "text": "" if self.text == SOURCE else self.text,
            "open": opened,
            "line": self.line,
        }
        return urlencode({name: value for name, value in values.items() if value})

    @property
    def fields(self) -> dict[str, str]:
        """Return the hidden fields of a form that changes `against`."""
        return {name: value for name, value in (("view", self.view), ("space", self.space)) if value}


@login_required
@require_safe
def diff_page(request: HttpRequest, run_id: int, number: int) -> HttpResponse:
    """Show a kernel beside another one."""
    address = Address.of(request, run_id, number)
    user = user_of(request)
    new = access_kernel(user, run_id, number, "view")
    presets = presets_of(new)
    sides = _sides(address, new, other_of(user, new, address.against, presets))
    threads = diff_threads.placed(user, sides.old, new, sides.diff, request) if address.text == SOURCE else None
    context = {
        "run": new.run,
        "kernel": new,
        "other": sides.old,
        "address": address,
        "presets": _preset_links(address, presets, sides.old),
        "layouts": [(label, address.url(view=key), key == address.view) for key, label in LAYOUTS.items()],
        "space_url": address.url(space="" if address.space else "ignore", opened=()),
        "tabs": [(name, address.url(text=name, opened=(), line=""), name == address.text) for name in sides.tabs],
        "rows": _all_rows(address, sides, threads),
        "columns": "old" if address.view == "split" else "",
        "diff": sides.diff,
        "change": change_between(sides.old, new) if sides.old else None,
        "settings": settings_between(sides.old, new) if sides.old else [],
        "warnings": list(_warnings(address, sides)),
        "previous": _neighbour(address, new, -1),
        "following": _neighbour(address, new, 1),
        "threads": threads,
        **diff_threads.forms(user, new, sides.old, address.url()),
    }
    return render(request, "review/diff.html", context)


@login_required
@require_safe
def diff_rows(request: HttpRequest, run_id: int, number: int) -> HttpResponse:
    """Return the rows of one gap with `?show=` of them opened, which replace the gap's row."""
    address = Address.of(request, run_id, number)
    user = user_of(request)
    new = access_kernel(user, run_id, number, "view")
    sides = _sides(address, new, other_of(user, new, address.against))
    gap, shown = _ranges(request.GET.get("gap", "")), _ranges(request.GET.get("show", ""))
    if not gap or not shown:
        raise Http404
    start, end = gap[0][0], min(gap[0][1], len(sides.diff.rows))
    visible = visible_rows(len(sides.diff.rows), (), shown)
    return HttpResponse(_painter(address, sides, {}).rows(start, end, visible))


def _preset_links(
    address: Address, presets: Sequence[Preset], chosen: Kernel | None
) -> list[tuple[str, str, bool, Kernel | None]]:
    """Return (label, address, whether it is shown, kernel) of every preset that exists."""
    links = []
    for preset in presets:
        # A preset without a kernel would lead to the page as it is.
        if preset.kernel is None and preset.key != "none":
            continue
        named = (address.against or "parent") == preset.key or (preset.key == "none" and chosen is None)
        links.append((preset.label, address.url(against=preset.key, opened=(), line=""), named, preset.kernel))
    return links


def _sides(address: Address, new: Kernel, old: Kernel | None) -> Sides:
    return sides_of(old, new, address.text, bool(address.space))


def _all_rows(address: Address, sides: Sides, threads: diff_threads.Placed | None) -> str:
    count = len(sides.diff.rows)
    centres = sides.diff.changed if sides.old else range(count)
    # The limit applies to rows shown by default; what a reader opens is added afterwards.
    visible = _first(visible_rows(count, centres, ()), MOST_ROWS)
    visible |= visible_rows(count, _asked_for(address, sides.diff, threads), address.opened)
    return _painter(address, sides, threads.below if threads else {}).rows(0, count, visible)


def _first(rows: set[int], most: int) -> set[int]:
    return rows if len(rows) <= most else set(sorted(rows)[:most])


def _asked_for(address: Address, diff: TextDiff, threads: diff_threads.Placed | None) -> Iterable[int]:
    """Yield the rows that are shown in any case: the line of the address, and those with threads."""
    lines = list(threads.below) if threads else []
    if place := _LINE.fullmatch(address.line):
        lines.append(("old" if place[1] == "o" else "new", int(place[2])))
    for side, line in lines:
        row = (diff.row_of_old if side == "old" else diff.row_of_new).get(line - 1)
        if row is not None:
            yield row


def _painter(address: Address, sides: Sides, below: Mapping[tuple[str, int], str]) -> Painter:
    return Painter(sides.diff, sides.language, address.view, lambda gap: _gap(address, sides.diff, gap), below)


def _gap(address: Address, diff: TextDiff, gap: Gap) -> str:
    """Return the description of a gap and links to open it: next rows, previous rows, all rows, the function."""
    changed = sum(gap.start <= number < gap.end for number in diff.changed)
    words = f"{gap.size} lines, {changed} of them changed" if changed else f"{gap.size} unchanged lines"
    wanted: list[tuple[str, Range]] = []
    if gap.start > 0 and gap.size > STEP_ROWS:
        wanted.append((f"↓ {STEP_ROWS} more", (gap.start, gap.start + STEP_ROWS)))
    most = min(gap.end, gap.start + MOST_ROWS)
    wanted.append(("all" if most == gap.end else f"next {MOST_ROWS}", (gap.start, most)))
    if gap.end < len(diff.rows) and gap.size > STEP_ROWS:
        wanted.append((f"↑ {STEP_ROWS} more", (gap.end - STEP_ROWS, gap.end)))
    if (start := _function_row(diff, gap)) is not None:
        wanted.append(("to the function", (start, gap.end)))
    links = "".join(_gap_link(address, gap, text, shown) for text, shown in wanted)
    return format_html('<div class="gap-line"><span>{}</span>', words) + links + "</div>"


def _gap_link(address: Address, gap: Gap, text: str, shown: Range) -> str:
    return format_html(
        '<a href="{}" hx-get="{}" hx-target="closest tr" hx-swap="outerHTML">{}</a>',
        address.url(f"#g{gap.start}", opened=(*address.opened, shown)),
        address.rows_url(gap, shown),
        text,
    )


def _function_row(diff: TextDiff, gap: Gap) -> int | None:
    """Return the row within the gap where the function begins that continues after the gap, or None."""
    if gap.end >= len(diff.rows) or (line := diff.rows[gap.end].new) is None:
        return None
    start = function_start(diff.new.lines, line)
    row = diff.row_of_new.get(start) if start is not None else None
    return row if row is not None and gap.start <= row < gap.end else None


def _warnings(address: Address, sides: Sides) -> Iterable[str]:
    """Yield warnings about what a reader cannot see in the text itself."""
    pairs = [(f"Kernel #{sides.new.number}", sides.diff.new)]
    pairs += [(f"Kernel #{sides.old.number}", sides.diff.old)] if sides.old else []
    for name, text in pairs:
        whole = "\n".join(text.lines)
        if unseen := unseen_in(whole):
            yield f"{name} holds characters that hide or reorder text: {', '.join(unseen)}. They are shown by name."
        if alike := lookalikes_in(whole):
            yield f"{name} holds characters that look like others: {', '.join(alike)}."
    if address.text != SOURCE:
        lacking = [one for one in (sides.new, sides.old) if one and address.text not in assemblies(one)]
        yield from (f"Kernel #{one.number} has no such listing." for one in lacking)
    if sides.old and has_crlf(sides.diff.old) != has_crlf(sides.diff.new):
        yield "The line ends differ: one has CR LF throughout, the other LF."
    if sides.old and sides.diff.old.ends != sides.diff.new.ends:
        without = sides.new if sides.diff.old.ends else sides.old
        yield f"Kernel #{without.number} has no line end after its last line."


def _neighbour(address: Address, kernel: Kernel, step: int) -> str:
    """Return the address of the next or previous kernel's diff with its own parent, or an empty text."""
    number = kernel.number + step
    if not kernel.run.kernels.filter(number=number).exists():
        return ""
    return replace(address, number=number, against="", opened=(), line="", text=SOURCE).url()


def _ranges(text: str) -> tuple[Range, ...]:
    found = [(int(match[1]), int(match[2])) for match in _RANGE.finditer(text[:4_000])]
    return tuple((start, end) for start, end in found if start < end)[:MOST_RANGES]
