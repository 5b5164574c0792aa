"""Colour sources and render Markdown with libraries that take quadratic time for some texts.

`python -m optimizer.text.rendering` is the child process of `optimizer.text.renderer`. It needs neither Django nor any
secret.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token as Part
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES, Token, _TokenType

from optimizer.text.mentions import MENTION
from runners.limited_child import serve

_TAGS = {
    *("p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "code"),
    *("em", "strong", "s", "table", "thead", "tbody", "tr", "th", "td", "a"),
}
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])

# Pairs of (CSS class, text) that together make up one line.
Tokens = Sequence[tuple[str, str]]


def lexed(name: str, lines: Sequence[str]) -> list[Tokens]:
    """Return the lines as tokens of Pygments' lexer `name`."""
    result: list[list[tuple[str, str]]] = [[]]
    for kind, text in _lexer(name).get_tokens("\n".join(lines)):
        first, *others = text.split("\n")
        css = _css_class(kind)
        if first:
            result[-1].append((css, first))
        for piece in others:
            result.append([(css, piece)] if piece else [])
    return list(result)


def markdown(text: str, people: Collection[str]) -> str:
    """Return Markdown as sanitised HTML: no raw HTML, no images, links to http(s) only and without a referrer.

    `@name` of one of the `people` (case-folded names) is emphasised, except in code.
    """
    tokens = _MARKDOWN.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):  # below the page's own h1 and the section's h2
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"
        if people and token.children:
            token.children = [part for child in token.children for part in _with_mentions(child, people)]
    # Sanitise the output as well: a bug in the Markdown parser must not become a hole.
    return nh3.clean(
        _MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}),
        tags=_TAGS,
        attributes={"a": {"href", "title"}, "th": set(), "td": set()},
        # Long lines scroll; only what takes the focus can be scrolled with the keyboard.
        set_tag_attribute_values={"pre": {"tabindex": "0"}},
        url_schemes={"http", "https"},
        link_rel="noopener noreferrer nofollow",
    )


def _with_mentions(token: Part, people: Collection[str]) -> Iterator[Part]:
    if token.type != "text":
        yield token
        return
    for place, part in enumerate(MENTION.split(token.content)):
        if place % 2 and part.casefold() in people:
            yield Part("strong_open", "strong", 1)
            yield Part("text", "", 0, content=f"@{part}")
            yield Part("strong_close", "strong", -1)
        else:
            yield Part("text", "", 0, content=f"@{part}" if place % 2 else part)


@lru_cache
def _lexer(name: str) -> Lexer:
    return get_lexer_by_name(name, stripnl=False, ensurenl=True)


@lru_cache(maxsize=512)
def _css_class(kind: _TokenType) -> str:
    while kind not in STANDARD_TYPES and kind is not Token:
        kind = kind.parent
    return str(STANDARD_TYPES.get(kind, ""))


TASKS: dict[str, Callable[..., Any]] = {"lexed": lexed, "markdown": markdown}


if __name__ == "__main__":
    serve(TASKS)
