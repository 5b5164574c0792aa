"""Define how a text mentions people: `@name`."""

from __future__ import annotations

import re

# An account name after an @ that is no part of an address or path. It ends in a letter, digit or underscore, so that
# the full stop of a sentence does not belong to it.
MENTION = re.compile(r"(?<![\w@/.+-])@(\w(?:[\w.@+-]{0,148}\w)?)")


def mentioned_names(text: str) -> set[str]:
    """Return the names that the text mentions, case-folded."""
    return {name.casefold() for name in MENTION.findall(text)}
