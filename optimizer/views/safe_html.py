"""Turn text into trusted HTML; apart from `diff_markup`, nothing else marks strings as safe.

Everything returned has gone through nh3, or is Pygments' own markup around text that Pygments has escaped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import nh3
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from optimizer.text.hostile_text import UNSEEN, unseen_name
from optimizer.text.mentions import MENTION
from optimizer.views.colour import LEXERS

COLOURED_CHARS = 200_000
_TAGS = {
    *("p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "code"),
    *("em", "strong", "s", "table", "thead", "tbody", "tr", "th", "td", "a"),
}
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


@dataclass(frozen=True)
class SourceLine:
    """Hold one line of a source: its number from 1 and its markup."""

    number: int
    html: SafeString


def source_lines(text: str, language: str) -> list[SourceLine]:
    """Return a source line by line with syntax colour. Characters that reorder or hide text are shown by name.

    Sources longer than `COLOURED_CHARS` get no colour, since a hostile text must not cost seconds.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    plain = len(text) > COLOURED_CHARS
    lexer = get_lexer_by_name("text" if plain else LEXERS.get(language, "text"), stripnl=False)
    markup = highlight(text, lexer, HtmlFormatter(nowrap=True))
    lines = markup.removesuffix("\n").split("\n")
    return [SourceLine(number, _show_unseen(line)) for number, line in enumerate(lines, 1)]


def markdown(text: str, people: Collection[str] = ()) -> SafeString:
    """Render Markdown as sanitised HTML: no raw HTML, no images, links to http(s) only and without a referrer.

    `@name` of one of the `people` (case-folded names) is emphasised, except in code.
    """
    tokens = _MARKDOWN.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):  # below the page's own h1 and the section's h2
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"
        if people and token.children:
            token.children = [part for child in token.children for part in _with_mentions(child, people)]
    # Sanitise the output as well: a bug in the Markdown parser must not become a hole.
    html = nh3.clean(
        _MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}),
        tags=_TAGS,
        attributes={"a": {"href", "title"}, "th": set(), "td": set()},
        url_schemes={"http", "https"},
        link_rel="noopener noreferrer nofollow",
    )
    return mark_safe(html)  # noqa: S308  # sanitised in the line above


def _with_mentions(token: Token, people: Collection[str]) -> Iterator[Token]:
    if token.type != "text":
        yield token
        return
    for place, part in enumerate(MENTION.split(token.content)):
        if place % 2 and part.casefold() in people:
            yield Token("strong_open", "strong", 1)
            yield Token("text", "", 0, content=f"@{part}")
            yield Token("strong_close", "strong", -1)
        else:
            yield Token("text", "", 0, content=f"@{part}" if place % 2 else part)


def _show_unseen(markup: str) -> SafeString:
    shown = UNSEEN.sub(lambda found: f'<span class="unseen">{escape(unseen_name(found[0]))}</span>', markup)
    return mark_safe(shown)  # noqa: S308  # Pygments escaped the text; the replacement is our own
