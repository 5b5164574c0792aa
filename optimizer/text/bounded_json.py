"""Decode JSON from outside within limits of depth, size of numbers and number of values, with reasons in words."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

# No request of ours nests deeper than about ten, and deep nesting exhausts the stack of whoever reads it later.
MOST_DEPTH = 32
# Objects and arrays together: each costs memory far beyond its two characters.
MOST_CONTAINERS = 100_000
# 64 bits, which is what columns, kernels and other languages hold.
MOST_DIGITS = 19
# A string, which may contain brackets, without its repetitions being tried in parts.
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")
# Escapes of NUL and of surrogates, of which lone ones cannot be stored.
_SUSPECT = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")


class JsonLimitError(json.JSONDecodeError):
    """Report JSON that exceeds a limit. The message says which."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, "", 0)

    def __str__(self) -> str:
        """Return the reason without a place in the text."""
        return self.msg


class BoundedDecoder(json.JSONDecoder):
    """Decode JSON like json.JSONDecoder, within the limits. Raises JsonLimitError."""

    def __init__(self, **options: Any) -> None:
        limits = {"parse_int": _integer, "parse_float": _number, "parse_constant": _refuse_constant}
        super().__init__(**{**options, **limits})

    def decode(self, text: str, *args: Any) -> Any:
        """Return the value of a whole text."""
        check_nesting(text)
        value = super().decode(text, *args)
        if _SUSPECT.search(text):
            _check_strings(value)
        return value


def read_json(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raises JsonLimitError and other ValueErrors."""
    return json.loads(text, cls=BoundedDecoder)


def check_nesting(text: str, most_containers: int = MOST_CONTAINERS) -> None:
    """Raise JsonLimitError where a text nests too deep or has too many objects and arrays."""
    containers = text.count("[") + text.count("{")
    if containers <= MOST_DEPTH:
        return
    depth = containers = 0
    for bracket in _BRACKET.finditer(_STRING.sub("", text)):
        opens = bracket[0] in "[{"
        depth += 1 if opens else -1
        containers += opens
        if depth > MOST_DEPTH:
            raise JsonLimitError(f"objects and arrays are nested deeper than {MOST_DEPTH}")
        if containers > most_containers:
            raise JsonLimitError(f"more than {most_containers:,} objects and arrays")


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > MOST_DIGITS:
        raise JsonLimitError(f"a number has more than {MOST_DIGITS} digits")
    return int(digits)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise JsonLimitError("a number is too large")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise JsonLimitError(f"{name} is no number in JSON")


def _check_strings(value: Any) -> None:
    """Refuse strings that PostgreSQL cannot store. The depth is limited already."""
    if isinstance(value, dict):
        for key, item in value.items():
            _check_strings(key)
            _check_strings(item)
    elif isinstance(value, list):
        for item in value:
            _check_strings(item)
    elif isinstance(value, str) and ("\x00" in value or not _is_unicode(value)):
        raise JsonLimitError("a string holds a NUL character or half of a surrogate pair")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
