"""Define the base of request bodies."""

from __future__ import annotations

from ninja import Schema
from pydantic import ConfigDict


class Body(Schema):
    """Validate the body of a request. Unknown fields are refused and never ignored silently."""

    # A misspelled limit that is ignored would start an unlimited run.
    model_config = ConfigDict(extra="forbid")
