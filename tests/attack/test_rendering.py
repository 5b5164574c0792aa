"""Attack what colours sources and renders Markdown: libraries that take quadratic time for some texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from optimizer.text import rendering
from optimizer.text.renderer import MOST_CPU_S, Renderer, RenderingError
from optimizer.views.safe_html import markdown, source_lines
from tests.attack.growth import AT_ONCE, growth, repeated, seconds

BLANK_LINES = "int a;" + " \n" * 40_000 + "int b;"
LISTS = "- a\n" * 400_000


@pytest.fixture
def renderer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Renderer]:
    """Provide a renderer that gives up sooner than the site's, with which nothing else is different."""
    monkeypatch.setattr("optimizer.text.renderer.MOST_CPU_S", 0.5)
    own = Renderer()
    yield own
    own.close()


def lines_of(text: str) -> list[str]:
    return text.split("\n")


def test_a_text_that_takes_too_long_is_given_up_and_the_next_one_is_rendered(renderer: Renderer) -> None:
    """Measure this process's processor time: a thread that only waits for the child keeps no other from running."""

    def shown(_: str) -> None:
        with pytest.raises(RenderingError):
            renderer.render("lexed", "cpp", lines_of(BLANK_LINES))

    assert seconds(shown, "") < MOST_CPU_S / 3
    assert renderer.render("markdown", "*a*", []) == "<p><em>a</em></p>\n"


def test_a_text_that_was_given_up_costs_nothing_the_next_time(renderer: Renderer) -> None:
    with pytest.raises(RenderingError, match=r"more than .* of processor time"):
        renderer.render("markdown", LISTS, [])
    with pytest.raises(RenderingError, match="took too long before"):
        renderer.render("markdown", LISTS, [])
    assert renderer.child.pid is None  # nobody was asked again
    assert renderer.render("markdown", "*a*", []) == "<p><em>a</em></p>\n"


def test_pages_show_plain_what_takes_too_long(renderer: Renderer, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("safe_html", "colour"):
        monkeypatch.setattr(f"optimizer.views.{module}.RENDERER", renderer)
    lines = source_lines(BLANK_LINES + "\n<script>", "cpp")
    assert lines[-1].html == "&lt;script&gt;" and len(lines) == 40_002
    shown = markdown(LISTS + "<script>")
    assert shown.startswith('<pre tabindex="0">- a\n') and "<script>" not in shown
    assert 'class="' in source_lines("int a;", "cpp")[0].html


def test_a_code_block_can_be_scrolled_with_the_keyboard() -> None:
    assert '<pre tabindex="0"><code>a long line' in markdown("Text\n\n```\na long line\n```")
    assert "tabindex" not in markdown('<pre tabindex="7">`x`</pre>').replace("&lt;pre tabindex", "")


def test_the_child_has_none_of_the_sites_secrets(renderer: Renderer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "canary")
    renderer.render("markdown", "a", [])
    assert b"canary" not in Path(f"/proc/{renderer.child.pid}/environ").read_bytes()


def test_the_library_alone_takes_quadratic_time() -> None:
    """Call the lexer in this process, as the control."""
    assert growth(lambda text: rendering.lexed("cpp", lines_of(text)), repeated(" \n"), 500, AT_ONCE) > 1.4
