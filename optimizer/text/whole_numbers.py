"""Parse whole numbers that arrive as text in an address, form or message."""

from __future__ import annotations

# Digits that always fit the primary key of a row.
KEY_DIGITS = 18
# Digits that always fit an integer column, such as the number of a kernel or version.
COUNT_DIGITS = 9


def parse_whole_number(text: str | None, most_digits: int = KEY_DIGITS) -> int | None:
    """Return the number, or None where the text is not made of ASCII digits or is too long to store."""
    # `int()` also accepts signs, underscores, spaces and digits of other scripts, and `isdigit` is True for "²".
    if not text or not text.isascii() or not text.isdigit() or len(text) > most_digits:
        return None
    return int(text)
