"""Phrases that were retired stay out of what people read: pages, forms, messages, mails, reports, command line.

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
            "charts",
            "problems",
            "campaigns",
            "calls",
            "upkeep",
            "synthetic",
        )
        for path in sorted((ROOT / "optimizer" / folder).rglob("*.py"))
    ),
    *sorted((ROOT / "kernelsci_site").rglob("*.py")),
    *sorted((ROOT / "runners" / "commands").rglob("*.py")),
    *sorted((ROOT / "runners" / "verbs").rglob("*.py")),
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
    "Test who answers": "Test the provider",
    "Not open to you": "You do not have access",
    "in the browser on purpose": "By design",
    "let you in": "rejected you",
    "let in here": "sign in through",
    "hoever looks after": "An administrator",
    "how it goes": "to see the status",
    "complains about": "check its output",
    "looking at the outputs": "checking its outputs",
    "for the role of an operator": "for the operator role",
    "Nobody has stored": "No … yet",
    "Nobody has checked this": "It has not been checked here",
    "it ranks nowhere": "is not ranked",
    "and rank nowhere": "are not ranked",
    "How it came about": "Path to the best kernel",
    "As it was understood": "Parsed answer",
    "The question and the answer": "Prompt and answer",
    "Sent again": "Retries",
    "Ended with": "Finish reason",
    "of them thought": "of them reasoning",
    "Report made": "Generated",
    "stays so": "The run stays ended",
    "at no cost to": "does not count against",
    "how much chance matters": "how much results vary by chance",
    "its way there": "lineage",
    "What stands in its way": "See …",
    "kernel leads yet": "No best kernel yet",
    "tables hold the same": "tables show the same data",
    "table holds the same": "shows the same numbers",
    "Only agents write them": "Agents write them",
    "Timed in turn,": "Timed alternately",
    "Times faster": "Speedup",
    "failed beside it": "failed in this evaluation",
    "gave other bits": "gave a different result",
    "nothing is known of": "… unknown",
    "say nothing together": "are not comparable",
    "from 0 up": "Enter a seed of 0 or more",
    "with a name of its own": "with a unique name",
    "no blanks": "cannot contain spaces",
    "What it gains": "The gain",
    "What each format holds": "Formats",
    "Whole evaluation": "Evaluation time",
    "Tick them": "Select them",
    "second hand": "quoted from another source",
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
