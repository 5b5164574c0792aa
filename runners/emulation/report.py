"""Read what an emulated kernel said when the emulation stopped it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from runners.job import Status

_LINE = re.compile(r"^emulation: (?P<kind>[a-z]+): (?P<text>.*)$", re.MULTILINE)
# A fault of addresses or of the launch ends a kernel on the device too; races and barriers give wrong results or hang.
STATUS = {
    "memory": Status.CRASHED,
    "fault": Status.CRASHED,
    "launch": Status.CRASHED,
    "race": Status.INCORRECT,
    "barrier": Status.INCORRECT,
    "timeout": Status.TIMEOUT,
}


@dataclass(frozen=True)
class Stopped:
    """Hold why the emulation stopped. `status` is None where the emulation lacks something."""

    status: Status | None
    text: str


def stopped(log: str) -> Stopped | None:
    """Return why the emulation stopped, from the end of what the process printed, or None if it did not.

    A candidate can print such a line itself. It then only gives itself a worse verdict, or none.
    """
    lines = [match for match in _LINE.finditer(log) if match["kind"] in STATUS or match["kind"] == "uncovered"]
    return Stopped(STATUS.get(lines[-1]["kind"]), lines[-1]["text"]) if lines else None


def notes(log: str) -> list[str]:
    """Return what the emulation noticed without stopping, such as a read of LDS that nothing had written.

    It says each of its two notes once; a candidate that prints more of them is not heard.
    """
    return [match["text"][:300] for match in _LINE.finditer(log) if match["kind"] == "note"][:2]
