"""Define how request bodies are decoded. Their base is `optimizer.forms.bodies.Body`, as commands use some too."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja.parser import Parser

from optimizer.forms.bodies import MOST_CHARACTERS, Body
from optimizer.text.bounded_json import read_json

__all__ = ["MOST_CHARACTERS", "Body", "BoundedParser"]


class BoundedParser(Parser):
    """Decode bodies within limits of depth, numbers and strings."""

    def parse_body(self, request: HttpRequest) -> Any:
        """Return the decoded body. Raises ValueError."""
        return read_json(request.body)
