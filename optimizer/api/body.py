"""Define the base of request bodies."""

from __future__ import annotations

from ninja import Schema
from pydantic import ConfigDict


class Body(Schema):
    """Validate the body of a request. Unknown fields are refused and never ignored silently."""

    model_config = ConfigDict(extra="forbid")
