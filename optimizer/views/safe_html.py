"""Turn text into trusted HTML; apart from `diff_markup`, nothing else marks strings as safe.

Everything returned has gone through nh3, or is markup written here around text that was escaped.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from optimizer.text.hostile_text import UNSEEN, unseen_name
from optimizer.text.renderer import RENDERER, RenderingError
from optimizer.views.colour import LEXERS, lexed


@dataclass(frozen=True)
class SourceLine:
    """Hold one line of a source: its number from 1 and its markup."""

    number: int
    html: SafeString


def source_lines(text: str, language: str) -> list[SourceLine]:
    """Return a source line by line with syntax colour. Characters that reorder or hide text are shown by name.

    Sources that take a lexer too long get no colour, see `optimizer.views.colour`.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.removesuffix("\n").split("\n")
    coloured = lexed(lines, LEXERS.get(language, "text"))
    return [
        SourceLine(number, _show_unseen("".join(_span(css, piece) for css, piece in tokens)))
        for number, tokens in enumerate(coloured, 1)
    ]


def markdown(text: str, people: Collection[str] = ()) -> SafeString:
    """Render Markdown as sanitised HTML (`optimizer.text.rendering.markdown`). Texts that take too long stay as they
    are.

    `@name` of one of the `people` (case-folded names) is emphasised, except in code.
    """
    try:
        html = RENDERER.render("markdown", text, sorted(people))
    except RenderingError:
        return mark_safe(f'<pre tabindex="0">{escape(text)}</pre>')  # noqa: S308  # escaped
    return mark_safe(str(html))  # noqa: S308  # sanitised by nh3


def _span(css: str, text: str) -> str:
    # The class is one of Pygments' own names for its kinds of tokens.
    return f'<span class="{css}">{escape(text)}</span>' if css else escape(text)


def _show_unseen(markup: str) -> SafeString:
    shown = UNSEEN.sub(lambda found: f'<span class="unseen">{escape(unseen_name(found[0]))}</span>', markup)
    return mark_safe(shown)  # noqa: S308  # `_span` escaped the text; the replacement is our own
