"""Keep retired phrases out of what people read: pages, forms, messages, mails, reports and the command line.

docs/glossary.md has the words that are used instead.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
READ_BY_PEOPLE = [
    *sorted((ROOT / "templates").rglob("*.html")),
    *sorted((ROOT / "templates").rglob("*.txt")),
    *sorted((ROOT / "static" / "js").glob("*.js")),
    *(
        path
        for folder in (
            "forms",
            "views",
            "actions",
            "api",
            "events",
            "queries",
            "reports",
            "management",
            "loop",
            "models",
            "search",
        )
        for path in sorted((ROOT / "optimizer" / folder).rglob("*.py"))
    ),
    *sorted((ROOT / "kernelsci_site").rglob("*.py")),
    *sorted((ROOT / "runners" / "commands").rglob("*.py")),
]
RETIRED = {
    "Way to the runners": "Run on",
    "Hand in": "Export kernel",
    "Take away": "Export",
    ">Keep<": "Save",
    ">Keep it<": "Save",
    "Keep this form": "Save as template",
    "Put into the archive": "Archive",
    "Take out of the archive": "Restore",
    "Parted by commas": "Comma-separated",
    "parted by commas": "comma-separated",
    "named by its number": "Optional",
    "With the ticked runs": "2 selected",
    "Ticked": "Selected",
    "Nobody is measuring": "Waiting for a runner.",
    "No such run yet": "No estimate yet: no comparable runs.",
    "nobody works for it": "Run ended.",
    ">Closer<": "Zoom in",
    ">Farther<": "Zoom out",
    "What came of it": "Result",
    "Answers not taken": "Rejected answers",
    "brought no kernel": "Stopped: no new kernel in 3 rounds",
    "Words to you": "Mentions, reviews and runs you follow",
    "What you hear of": "Notification settings",
    "What it takes": "Requirements",
    "Propose it": "Request a release",
    "Release it": "Release",
    "Ask for a release": "Request release",
    "Measured twice": "Measurements",
    "Keep as draft": "Save draft",
    "Nothing waits": "No waiting prompts",
    "waits no longer": "was closed",
    "is at work on this prompt": "claimed this prompt",
    "Make a link": "Create invitation link",
    "Make a team": "Create team",
    "Store the rules": "Save",
    ">Store<": "Save",
    "Switch it off": "Turn off",
    ">Go on<": "Continue",
    "Who is told": "Webhooks",
    "is told nothing any more": "Removed …",
    "and its key are gone": "Deleted … and its key.",
    "says something": "Enter …",
    "Nobody has said anything": "No threads",
    "Somebody who left": "A former member",
    "Small letters": "Lowercase letters",
    "Way to the best": "Path to the best kernel",
    "The way to the best": "Path to the best kernel",
    "Who answers": "Models",
}


@pytest.mark.parametrize("phrase", RETIRED)
def test_a_retired_phrase_is_nowhere(phrase: str) -> None:
    pattern = re.compile(re.sub(r"\\? ", r"\\s+", re.escape(phrase)).replace(">", r">\s*").replace("<", r"\s*<"))
    found = [
        str(path.relative_to(ROOT)) for path in READ_BY_PEOPLE if pattern.search(path.read_text(encoding="utf-8"))
    ]
    assert not found, f"write “{RETIRED[phrase]}” instead of “{phrase}”"


def test_the_pattern_finds_a_phrase_across_lines_and_within_tags() -> None:
    pattern = re.compile(re.sub(r"\\? ", r"\\s+", re.escape("Way to the runners")))
    assert pattern.search("<label>Way to\n    the runners</label>")
