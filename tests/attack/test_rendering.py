"""Attack what colours sources and renders Markdown: libraries that take quadratic time for some texts."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from optimizer.text import rendering
from optimizer.text.renderer import MOST_REMEMBERED, RENDERER, Renderer, RenderingError
from optimizer.views.safe_html import markdown, source_lines
from tests.attack.growth import growth, repeated

BLANK_LINES = "int a;" + " \n" * 40_000 + "int b;"
LISTS = "- a\n" * 400_000


@pytest.fixture
def renderer():
    own = Renderer()
    yield own
    own.close()


def lines_of(text: str) -> list[str]:
    return text.split("\n")


@pytest.mark.parametrize(
    ("task", "arguments"), [("lexed", ("cpp", lines_of(BLANK_LINES))), ("markdown", (LISTS, []))]
)
def test_a_text_that_takes_too_long_is_given_up_and_the_next_one_is_rendered(renderer, task, arguments) -> None:
    with pytest.raises(RenderingError):
        renderer.render(task, *arguments)
    assert renderer.render("markdown", "*a*", []) == "<p><em>a</em></p>\n"


def test_a_text_that_was_given_up_costs_nothing_the_next_time(renderer) -> None:
    for _ in range(2):
        started = time.monotonic()
        with pytest.raises(RenderingError):
            renderer.render("markdown", LISTS, [])
    assert time.monotonic() - started < 0.2 and MOST_REMEMBERED > 1


def test_a_hostile_text_holds_up_no_other_thread(renderer) -> None:
    """A thread that sleeps a millisecond at a time stands for the event loop."""
    pauses: list[float] = []
    done = threading.Event()

    def loop() -> None:
        while not done.is_set():
            started = time.monotonic()
            time.sleep(0.001)
            pauses.append(time.monotonic() - started)

    watch = threading.Thread(target=loop)
    watch.start()
    with pytest.raises(RenderingError):
        renderer.render("lexed", "cpp", lines_of(BLANK_LINES))
    done.set()
    watch.join()
    # The machine may be busy: the thread is late now and then, but never waits for the whole text.
    assert sorted(pauses)[len(pauses) * 9 // 10] < 0.1


def test_pages_show_plain_what_takes_too_long() -> None:
    lines = source_lines(BLANK_LINES + "\n<script>", "cpp")
    assert lines[-1].html == "&lt;script&gt;" and len(lines) == 40_002
    shown = markdown(LISTS + "<script>")
    assert shown.startswith("<pre>- a\n") and "<script>" not in shown
    assert 'class="' in source_lines("int a;", "cpp")[0].html
    RENDERER.close()


def test_the_child_has_none_of_the_sites_secrets(renderer, monkeypatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "canary")
    renderer.render("markdown", "a", [])
    assert b"canary" not in Path(f"/proc/{renderer.child.pid}/environ").read_bytes()


def test_the_library_alone_takes_quadratic_time() -> None:
    """Control: the lexer in this process."""
    assert growth(lambda text: rendering.lexed("cpp", lines_of(text)), repeated(" \n"), 500) > 1.4
