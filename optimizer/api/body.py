"""What callers send."""

from __future__ import annotations

from ninja import Schema
from pydantic import ConfigDict


class Body(Schema):
    """The body of a request. A field that it does not have is refused, never passed over in silence."""

    model_config = ConfigDict(extra="forbid")
