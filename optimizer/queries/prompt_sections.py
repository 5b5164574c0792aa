"""Divide a prompt into its sections, and say what is new in each since the previous prompt of the same role."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optimizer.diffs.differ import Tag, diff
from optimizer.models import LlmCall
from optimizer.text.tokens import tokens_of

MOST_SECTIONS = 60
ADDED, REMOVED = "+", "−"
_HEADING = re.compile(r"^(?=#{1,2} \S)", re.MULTILINE)


@dataclass(frozen=True)
class Section:
    """Hold one section: its message's role, its heading, its text and about how many tokens that is.

    `lines` are those of a section that differs from the previous prompt's, each with its sign: `+`, `−` or a space.
    `added` and `removed` count the signs; both are None where there is no previous prompt, and `is_new` marks a section
    that it did not have.
    """

    role: str
    title: str
    text: str
    tokens: int
    added: int | None = None
    removed: int | None = None
    is_new: bool = False
    lines: tuple[tuple[str, str], ...] = ()

    @property
    def is_changed(self) -> bool:
        """Return True where the section existed and differs."""
        return not self.is_new and bool(self.added or self.removed)


def sections_of(call: LlmCall) -> list[Section]:
    """Return the prompt's sections in order, compared with those of the role's previous prompt in the run."""
    before = _previous(call)
    known = {(role, title): text for role, title, text in _divided(before.messages)} if before else {}
    return [_section(*part, known, compared=before is not None) for part in _divided(call.messages)]


def _previous(call: LlmCall) -> LlmCall | None:
    earlier = LlmCall.objects.filter(run=call.run_id, role=call.role, pk__lt=call.pk).exclude(messages=[])
    # An attempt of the same question repeats its prompt: what changed is asked of the question before.
    return earlier.exclude(key=call.key).only("messages").order_by("-pk").first()


def _divided(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Return role, heading and text of each section; text before the first heading is one without a heading."""
    found = []
    for message in messages:
        role = str(message.get("role", ""))
        for text in _HEADING.split(str(message.get("content", "")), maxsplit=MOST_SECTIONS):
            if text.strip():
                first = text.partition("\n")[0]
                found.append((role, first.lstrip("# ").strip()[:120] if first.startswith("#") else "", text))
    return found


def _section(role: str, title: str, text: str, known: Mapping[tuple[str, str], str], *, compared: bool) -> Section:
    # An estimate: servers count whole prompts and not their sections.
    tokens = tokens_of(len(text))
    if not compared:
        return Section(role, title, text, tokens)
    if (role, title) not in known:
        return Section(role, title, text, tokens, is_new=True)
    lines = tuple(_marked(known[role, title].splitlines(), text.splitlines()))
    signs = [sign for sign, _ in lines]
    return Section(role, title, text, tokens, signs.count(ADDED), signs.count(REMOVED), lines=lines)


def _marked(was: Sequence[str], now: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield all lines of both in order, removed ones before those that replace them."""
    for code in diff(was, now):
        if code.tag is Tag.EQUAL:
            yield from ((" ", line) for line in now[code.b0 : code.b1])
        else:
            yield from ((REMOVED, line) for line in was[code.a0 : code.a1])
            yield from ((ADDED, line) for line in now[code.b0 : code.b1])
