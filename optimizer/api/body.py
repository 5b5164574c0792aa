"""Define the base of request bodies, and how they are decoded."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Schema
from ninja.parser import Parser
from pydantic import ConfigDict

from optimizer.text.bounded_json import read_json

# The length of texts whose field states none: names, choices and addresses.
MOST_CHARACTERS = 1000


class Body(Schema):
    """Validate the body of a request. Unknown fields are refused and never ignored silently."""

    # A misspelled limit that is ignored would start an unlimited run.
    model_config = ConfigDict(extra="forbid", str_max_length=MOST_CHARACTERS)


class BoundedParser(Parser):
    """Decode bodies within limits of depth, numbers and strings."""

    def parse_body(self, request: HttpRequest) -> Any:
        """Return the decoded body. Raises ValueError."""
        return read_json(request.body)
