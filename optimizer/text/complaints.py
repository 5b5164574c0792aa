"""Turn pydantic's validation errors into text for people and models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

# What pydantic puts before the message of a validator that raised ValueError.
_VALIDATOR = "Value error, "
# Names of unknown fields are the sender's, and may be megabytes long.
MOST_PLACE = 200


@dataclass(frozen=True)
class Complaint:
    """Hold what is wrong with one field. `place` is its path, such as `calls.0.role`, or empty for the whole."""

    place: str
    words: str

    def __str__(self) -> str:
        return self.told_of("")

    def told_of(self, whole: str) -> str:
        """Return the complaint in one line. `whole` names the data where the complaint is about no single field."""
        return ": ".join(filter(None, (self.place or whole, self.words)))


def complaints_of(error: ValidationError) -> list[Complaint]:
    """Return what an error says, without the values, which may be long, hostile or a key in the wrong field."""
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    return [complaint_of(one["loc"], one["msg"]) for one in faults]


def complaint_of(path: Sequence[int | str], message: str) -> Complaint:
    """Return what pydantic says of the field at `path`."""
    return Complaint(_place(path), message.removeprefix(_VALIDATOR))


def _place(path: Sequence[int | str]) -> str:
    place = ".".join(map(str, path))
    return place if len(place) <= MOST_PLACE else f"{place[:MOST_PLACE]}…"
