"""Answer errors as JSON of one shape, never with a stack trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig, ValidationError
from django.db import DataError
from django.http import HttpRequest, HttpResponse
from ninja import NinjaAPI, Schema
from ninja.errors import HttpError
from ninja.errors import ValidationError as RequestError

from optimizer.api.throttle import TooManyRequestsError
from optimizer.models.run import RunTransitionError
from optimizer.text.complaints import complaint_of


class Refusal(Schema):
    """Give the reason why nothing was done; `fields` lists the faults of a request by field."""

    detail: str
    fields: dict[str, list[str]] = {}


def answer_errors(api: NinjaAPI) -> None:
    """Register handlers for the exceptions that our actions raise."""

    @api.exception_handler(ValidationError)
    def refused(request: HttpRequest, error: ValidationError) -> HttpResponse:
        body: dict[str, Any] = {"detail": "; ".join(error.messages)}
        if hasattr(error, "error_dict"):
            body["fields"] = error.message_dict
        return api.create_response(request, body, status=422)

    @api.exception_handler(RequestError)
    def malformed(request: HttpRequest, error: RequestError) -> HttpResponse:
        complaints = [complaint_of(_field_of(one["loc"]), one["msg"]) for one in error.errors]
        fields: dict[str, list[str]] = defaultdict(list)
        for complaint in complaints:
            fields[complaint.place].append(complaint.words)
        body = {"detail": "; ".join(map(str, complaints)), "fields": fields}
        return api.create_response(request, body, status=422)

    @api.exception_handler(HttpError)
    def not_answered(request: HttpRequest, error: HttpError) -> HttpResponse:
        # Ninja says only that a body cannot be parsed. The decoder knows what is wrong or too much in it.
        cause = f": {error.__cause__}" if isinstance(error.__cause__, ValueError) else ""
        return api.create_response(request, {"detail": f"{error}{cause}"}, status=error.status_code)

    @api.exception_handler(RunTransitionError)
    def too_late(request: HttpRequest, error: RunTransitionError) -> HttpResponse:
        return api.create_response(request, {"detail": str(error)}, status=409)

    @api.exception_handler(RequestDataTooBig)
    def too_large(request: HttpRequest, error: RequestDataTooBig) -> HttpResponse:
        detail = f"A request holds at most {settings.DATA_UPLOAD_MAX_MEMORY_SIZE >> 20} MiB."
        return api.create_response(request, {"detail": detail}, status=413)

    @api.exception_handler(TooManyRequestsError)
    def too_often(request: HttpRequest, error: TooManyRequestsError) -> HttpResponse:
        response = api.create_response(request, {"detail": str(error)}, status=429)
        response["Retry-After"] = str(error.retry_after_s)
        return response

    # Pydantic does not know every limit of the columns, and a client's mistake must not answer 500.
    @api.exception_handler(DataError)
    def not_storable(request: HttpRequest, error: DataError) -> HttpResponse:
        detail = "A value holds something that cannot be stored, such as a NUL character or too large a number."
        return api.create_response(request, {"detail": detail}, status=422)


def _field_of(path: Sequence[str | int]) -> Sequence[str | int]:
    """Drop the part of the request from a path of Ninja's, and for a body the parameter that it is bound to."""
    return path[2 if path[0] == "body" else 1 :] or path[:1]
