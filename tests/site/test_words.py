"""Keep retired phrases out of what people read: pages, forms, messages, mails, reports and the command line.

docs/glossary.md has the words that are used instead.
"""

from __future__ import annotations

import re
from functools import cache
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
            "calls",
            "campaigns",
            "charts",
            "events",
            "queries",
            "reports",
            "management",
            "llm",
            "loop",
            "models",
            "observing",
            "problems",
            "search",
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
    # campaigns
    "infinitely dear": "infinite cost",
    "What it took": "Spent",
    "are more than chance": "are statistically significant",
    "Where to measure": "Target and baselines",
    "of all runs together<": "Campaign limits",
    "Begin with<": "Presets",
    "marked below": "Check the marked fields.",
    "Left out while": "Ignored until it has a name.",
    "that can be used is chosen": "Choose at least one usable problem.",
    "is a number from 0 up": "Enter a … of 0 or more.",
    "A limit is a number": "A limit must be above zero.",
    "needs a name of its own": "… names must be unique.",
    "answered none of the last": "did not answer in the last",
    "JSON is refused": "Invalid JSON: …",
    # everywhere
    "Not open to you": "No permission",
    "Whoever looks after": "An administrator",
    "whoever looks after": "your administrator",
    "You are let in": "You signed in with …",
    "let in here by": "signs you in through",
    "nobody could count": "could not be counted",
    "As it was understood": "Parsed answer",
    "how exactly": "tolerances",
    "holds 1 proves": "contains 1 proves nothing",
    "Nobody has stored": "No end-to-end report",
    "Nobody has checked": "not checked here",
    "Nobody else can check": "not checked here",
    "ranks nowhere": "is not ranked",
    "What agents are told": "What agents read",
    "second factor off": "Turn off the second factor",
    "look for what it complains about": "read its messages",
    "cannot be read any more": "can no longer be read",
    "to see how it goes": "for the current state",
    "has ended and stays so": "stays ended",
    "does not fit onto it": "does not apply to it",
    "but for white space": "… except white space",
    "its way there": "ancestry",
    "No kernel leads yet": "No best kernel yet",
    "No kernel leads this run: ": "No best kernel yet",
    "in the order of their ends": "in the order in which they ended",
    "Only agents write them": "Hypotheses are written by agents.",
    "has not asked a model": "No model calls yet.",
    "Tick them": "Select them",
    "Keys without Ctrl": "Single-key shortcuts",
    "There is no problem to run": "No problems yet.",
    "need the role of an operator": "needs the operator role",
    "left out by whoever": "optional",
    "Hear of a run": "Follow or unfollow a run",
    "What a run would take": "Estimate a run",
    "The same with many": "Change many runs",
    "should hear of": "notifications",
    "Who did what": "Audit log",
    "only administrators decide this": "only administrators may set this",
    "may go on tomorrow": "Try again tomorrow.",
    "without the kernel's doing": "for reasons outside the kernel",
    "enter it there": "enter it at the provider",
    "fell silent": "stopped sending",
    "Speedups are over this": "Speedups are relative to this.",
    "draw so many": "number of … to draw at random",
    "say nothing together": "do not compare",
    "no time differs": "Both build to the same binary.",
    "Test who answers": "Test the provider",
    "in the browser on purpose": "By design",
    "let you in": "rejected you",
    "let in here": "sign in through",
    "hoever looks after": "An administrator",
    "how it goes": "to see the status",
    "complains about": "check its output",
    "looking at the outputs": "checking its outputs",
    "for the role of an operator": "for the operator role",
    "Nobody has checked this": "It has not been checked here",
    "it ranks nowhere": "is not ranked",
    "and rank nowhere": "are not ranked",
    "How it came about": "Path to the best kernel",
    "The question and the answer": "Prompt and answer",
    "Sent again": "Retries",
    "Ended with": "Finish reason",
    "of them thought": "of them reasoning",
    "Report made": "Generated",
    "stays so": "The run stays ended",
    "at no cost to": "does not count against",
    "how much chance matters": "how much results vary by chance",
    "What stands in its way": "See …",
    "kernel leads yet": "No best kernel yet",
    "tables hold the same": "tables show the same data",
    "table holds the same": "shows the same numbers",
    "Timed in turn,": "Timed alternately",
    "Times faster": "Speedup",
    "failed beside it": "failed in this evaluation",
    "gave other bits": "gave a different result",
    "nothing is known of": "… unknown",
    "from 0 up": "Enter a seed of 0 or more",
    "with a name of its own": "with a unique name",
    "no blanks": "cannot contain spaces",
    "What it gains": "The gain",
    "What each format holds": "Formats",
    "Whole evaluation": "Evaluation time",
    "second hand": "quoted from another source",
}


@cache
def texts() -> dict[str, str]:
    """Return what people read, by path."""
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in READ_BY_PEOPLE}


@pytest.mark.parametrize("phrase", RETIRED)
def test_a_retired_phrase_is_nowhere(phrase: str) -> None:
    pattern = re.compile(re.sub(r"\\? ", r"\\s+", re.escape(phrase)).replace(">", r">\s*").replace("<", r"\s*<"))
    found = [path for path, text in texts().items() if pattern.search(text)]
    assert not found, f"write “{RETIRED[phrase]}” instead of “{phrase}”"


def test_the_pattern_finds_a_phrase_across_lines_and_within_tags() -> None:
    pattern = re.compile(re.sub(r"\\? ", r"\\s+", re.escape("Way to the runners")))
    assert pattern.search("<label>Way to\n    the runners</label>")
