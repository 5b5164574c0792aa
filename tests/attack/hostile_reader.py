"""Read the texts of jobs as a reader that is not prepared for them. The candidate's last line says what happens."""

from __future__ import annotations

import builtins
import ctypes
import re

from runners import wire
from runners.job import JobSpec
from runners.limited_child import serve


def read(job: str) -> dict[str, list[str]]:
    """Do what the last line says: search for ever, take memory, crash, or raise."""
    _, what, name = wire.loads(JobSpec, job).candidate.text.strip().rpartition("\n")[2].split()
    if what == "searches":
        re.match(r"(a+)+$", "a" * 64 + "b")
    elif what == "allocates":
        bytearray(4 << 30)
    elif what == "crashes":
        ctypes.string_at(0)
    elif what == "raises":
        raise getattr(builtins, name)("unprepared")
    return {"complaints": [], "flags": ["read"]}


if __name__ == "__main__":
    serve({"read": read})
