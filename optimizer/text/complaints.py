"""Turn pydantic's validation errors into text for people and models."""

from __future__ import annotations

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
    return [Complaint(_place(one["loc"]), one["msg"].removeprefix(_VALIDATOR)) for one in faults]


def _place(path: tuple[int | str, ...]) -> str:
    place = ".".join(map(str, path))
    return place if len(place) <= MOST_PLACE else f"{place[:MOST_PLACE]}…"
