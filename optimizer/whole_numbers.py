"""Parse whole numbers that arrive as text in an address, form or message."""

from __future__ import annotations

KEY_DIGITS = 18
"""So many fit the key of a row."""
COUNT_DIGITS = 9
"""So many fit a column of integers: the number of a kernel, a version."""


def parse_whole_number(text: str | None, most_digits: int = KEY_DIGITS) -> int | None:
    """Return the number, or None where the text is not made of ASCII digits or is too long to store."""
    # `int()` also accepts signs, underscores, spaces and digits of other scripts, and `isdigit` is True for "²".
    if not text or not text.isascii() or not text.isdigit() or len(text) > most_digits:
        return None
    return int(text)
