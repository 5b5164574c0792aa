"""Render the rows of a diff as table rows.

Like `safe_html`, this is a place where text becomes trusted markup: `_piece` escapes every piece of text, and
everything else is written here. Plain strings are used because a template would take ten times as long for thousands
of rows.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape

from django.utils.safestring import SafeString, mark_safe

from optimizer.diffs.folding import Gap, gaps
from optimizer.diffs.intraline import Span
from optimizer.diffs.rows import Row, RowKind, Text, TextDiff
from optimizer.text.hostile_text import UNSEEN, unseen_name
from optimizer.text.rendering import Tokens
from optimizer.views.colour import coloured, plain

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
CRLF_SHARE = 0.9
COLUMNS = {"split": 4, "unified": 3}

# Returns the cells of the row that stands for hidden rows.
GapMarkup = Callable[[Gap], str]


@dataclass(frozen=True)
class Painter:
    """Render one diff. `below` maps (side, line from 1) to the markup of the threads under that line."""

    diff: TextDiff
    language: str
    layout: str
    gap_markup: GapMarkup
    below: Mapping[tuple[str, int], str] = field(default_factory=dict)

    def rows(self, start: int, end: int, shown: Collection[int]) -> SafeString:
        """Return rows start … end - 1, with a row for every gap."""
        lines = _Lines(self.diff, self.language, [number for number in range(start, end) if number in shown])
        hidden = {gap.start: gap for gap in gaps(start, end, shown)}
        starts = [*hidden, end]
        parts: list[str] = []
        number = start
        while number < end:
            if number in hidden:
                parts.append(self._gap(hidden[number]))
                number = hidden[number].end
                continue
            stop = starts[bisect_right(starts, number)]
            parts += (
                self._split(lines, number, stop) if self.layout == "split" else self._unified(lines, number, stop)
            )
            number = stop
        return mark_safe("".join(parts))  # noqa: S308  # every piece of text went through `_piece`

    def _gap(self, gap: Gap) -> str:
        cell = f'<td colspan="{COLUMNS[self.layout]}">{self.gap_markup(gap)}</td>'
        return f'<tr class="gap" id="g{gap.start}">{cell}</tr>'

    def _split(self, lines: _Lines, start: int, end: int) -> Iterator[str]:
        for number in range(start, end):
            row = self.diff.rows[number]
            old, new = lines.cells(row)
            cells = f"{_number(row.old, 'o')}{old}{_number(row.new, 'n')}{new}"
            # `row.kind` is an enumeration member, and numbers are integers: nothing here comes from outside.
            yield f'<tr class="{row.kind}" data-row="{number}">{cells}</tr>'
            yield from self._threads(row, "old", row.old)
            yield from self._threads(row, "new", row.new)

    def _unified(self, lines: _Lines, start: int, end: int) -> Iterator[str]:
        """Yield the old lines of a block before its new ones."""
        number = start
        while number < end:
            stop = number + 1
            if self.diff.rows[number].kind is not RowKind.EQUAL:
                while stop < end and self.diff.rows[stop].kind is not RowKind.EQUAL:
                    stop += 1
                yield from self._block(lines, number, stop)
            else:
                row = self.diff.rows[number]
                _, new = lines.cells(row)
                yield f'<tr class="equal" data-row="{number}">{_number(row.old, "o")}{_number(row.new, "n")}{new}</tr>'
                yield from self._threads(row, "old", row.old)
                yield from self._threads(row, "new", row.new)
            number = stop

    def _block(self, lines: _Lines, start: int, end: int) -> Iterator[str]:
        rows = list(enumerate(self.diff.rows[start:end], start))
        for number, row in rows:
            if row.old is not None:
                old, _ = lines.cells(row)
                yield f'<tr class="removed" data-row="{number}">{_number(row.old, "o")}<td class="num"></td>{old}</tr>'
                yield from self._threads(row, "old", row.old)
        for number, row in rows:
            if row.new is not None:
                _, new = lines.cells(row)
                yield f'<tr class="added" data-row="{number}"><td class="num"></td>{_number(row.new, "n")}{new}</tr>'
                yield from self._threads(row, "new", row.new)

    def _threads(self, row: Row, side: str, line: int | None) -> Iterator[str]:
        markup = None if line is None else self.below.get((side, line + 1))
        if markup:
            yield f'<tr class="said {side}"><td colspan="{COLUMNS[self.layout]}">{markup}</td></tr>'


@dataclass(frozen=True)
class _Lines:
    """Hold the markup of the visible lines. Equal lines are lexed once, on the new side."""

    diff: TextDiff
    language: str
    shown: Sequence[int]

    @cached_property
    def _new(self) -> Mapping[int, Tokens]:
        wanted = [row.new for n in self.shown if (row := self.diff.rows[n]).new is not None]
        return coloured(self.diff.new.lines, wanted, self.language)

    @cached_property
    def _old(self) -> Mapping[int, Tokens]:
        wanted = [row.old for n in self.shown if (row := self.diff.rows[n]).old is not None and not self._same(row)]
        return coloured(self.diff.old.lines, wanted, self.language)

    @cached_property
    def _crlf(self) -> tuple[bool, bool]:
        return has_crlf(self.diff.old), has_crlf(self.diff.new)

    def _same(self, row: Row) -> bool:
        if row.kind is not RowKind.EQUAL or row.old is None or row.new is None:
            return False
        return self.diff.old.lines[row.old] == self.diff.new.lines[row.new]

    def cells(self, row: Row) -> tuple[str, str]:
        """Return the code cells of the old and the new line."""
        marks = self.diff.marks(row)
        if self._same(row) and row.new is not None:
            tokens = self._new.get(row.new) or plain(self.diff.new.lines[row.new])
            cell = f'<td class="line">{_line(tokens, (), self._crlf[1])}</td>'
            return cell, cell
        changed = row.kind is not RowKind.EQUAL
        return (
            self._cell(row.old, self._old, self.diff.old, marks.old, self._crlf[0], "del" if changed else "", "→"),
            self._cell(row.new, self._new, self.diff.new, marks.new, self._crlf[1], "ins" if changed else "", "←"),
        )

    def _cell(
        self,
        line: int | None,
        found: Mapping[int, Tokens],
        text: Text,
        spans: Sequence[Span],
        crlf: bool,
        element: str,
        arrow: str,
    ) -> str:
        if line is None:
            return '<td class="line none"></td>'
        markup = _line(found.get(line) or plain(text.lines[line]), spans, crlf)
        if not element:
            return f'<td class="line">{markup}</td>'
        moved = self.diff.moved_to if element == "del" else self.diff.moved_from
        code = f"<{element}>{markup}</{element}>"
        if line not in moved:
            return f'<td class="line {element}">{code}</td>'
        return f'<td class="line {element} moved">{_moved(line, moved, element, arrow)}{code}</td>'


def has_crlf(text: Text) -> bool:
    """Return True where lines end in CR LF throughout, so that the CR need not be shown on each line."""
    ended = sum(line.endswith("\r") for line in text.lines)
    return ended >= max(1, CRLF_SHARE * len(text.lines))


def _moved(line: int, moved: Mapping[int, int], element: str, arrow: str) -> str:
    """Return a link to where the block moved to or from, on its first line only."""
    if moved.get(line - 1) == moved[line] - 1:
        return ""
    there, words = ("n", "moved to") if element == "del" else ("o", "moved from")
    target = moved[line] + 1
    return f'<a class="moved-link" href="#{there}{target}">{arrow} {words} line {target}</a>'


def _number(line: int | None, side: str) -> str:
    if line is None:
        return '<td class="num"></td>'
    return f'<td class="num" id="{side}{line + 1}"><a href="#{side}{line + 1}">{line + 1}</a></td>'


def _line(tokens: Tokens, spans: Sequence[Span], crlf: bool) -> str:
    """Return the tokens with marks around what changed; a mark may split a token."""
    if crlf and tokens and tokens[-1][1].endswith("\r"):
        tokens = [*tokens[:-1], (tokens[-1][0], tokens[-1][1][:-1])]
    if not spans:
        return "".join([_coloured(css, text) for css, text in tokens])
    parts: list[str] = []
    place = 0
    for css, text in tokens:
        for begin, end, marked in _cut(place, place + len(text), spans):
            piece = _coloured(css, text[begin - place : end - place])
            parts.append(f"<mark>{piece}</mark>" if marked else piece)
        place += len(text)
    return "".join(parts).replace("</mark><mark>", "")


def _cut(start: int, end: int, spans: Sequence[Span]) -> Iterator[tuple[int, int, bool]]:
    """Yield [start, end) in pieces, each completely inside or outside the spans."""
    place = start
    for low, high in spans:
        low, high = max(low, place), min(high, end)
        if low >= high:
            continue
        if place < low:
            yield place, low, False
        yield low, high, True
        place = high
    if place < end:
        yield place, end, False


def _coloured(css: str, text: str) -> str:
    return f'<span class="{css}">{_piece(text)}</span>' if css and not css.startswith("w") else _piece(text)


def _piece(text: str) -> str:
    """Return escaped text in which invisible characters are replaced by their names."""
    # Escape before naming invisible characters, whose replacement is our own markup.
    markup = escape(text)
    if not text.isascii():
        markup = UNSEEN.sub(_named, markup)
    return _CONTROLS.sub(_named, markup) if not text.isprintable() else markup


def _named(found: re.Match[str]) -> str:
    name = "CR" if found[0] == "\r" else unseen_name(found[0])
    return f'<span class="unseen">{escape(name)}</span>'
