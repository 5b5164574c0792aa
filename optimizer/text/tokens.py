"""Estimate how many tokens a text has, where no server has counted them."""

from __future__ import annotations

# A rule of thumb for English and code.
CHARACTERS_PER_TOKEN = 4


def tokens_of(characters: int) -> int:
    """Return about how many tokens a text of so many characters has, rounded up."""
    return -(-characters // CHARACTERS_PER_TOKEN)
