"""Numbers that arrive as text: in an address, a form, a message."""

from __future__ import annotations

KEY_DIGITS = 18
"""So many fit the key of a row."""
COUNT_DIGITS = 9
"""So many fit a column of integers: the number of a kernel, a version."""


def number_in(text: str | None, most_digits: int = KEY_DIGITS) -> int | None:
    """The whole number that the text is, in ASCII digits alone; None where it is anything else or too long to store."""
    if not text or not text.isascii() or not text.isdigit() or len(text) > most_digits:
        return None
    return int(text)
