"""Take and list end-to-end reports: a whole program with a kernel against the same without."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Field, Router, Schema, Status
from pydantic import ConfigDict

from optimizer.access import access_kernel
from optimizer.actions.endtoend import Figures, do_store_endtoend
from optimizer.api.auth import caller, needs
from optimizer.api.errors import Refusal
from optimizer.models import EndToEndReport, TokenScope

router = Router(tags=["kernels"], auth=needs(TokenScope.READ))
Count = Annotated[int, Field(ge=0, lt=2**31)]
Name = Annotated[str, Field(max_length=100)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class EndToEndIn(Schema):
    """Describe a report as `python -m runners endtoend --json FILE` writes it.

    What the report says beyond these fields is ignored: the verdict is computed here from the interval.
    """

    model_config = ConfigDict(extra="ignore")

    script: str = Field(min_length=1, max_length=400)
    function: str = Field(default="", max_length=400)
    without_s: Seconds
    with_s: Seconds
    speedup: Seconds
    low: Seconds
    high: Seconds
    floor: Seconds
    agrees: bool
    results: Count
    calls: dict[Name, Count] = Field(max_length=100)
    missed: dict[Name, dict[Annotated[str, Field(max_length=1000)], Count]] = Field(default={}, max_length=100)
    kernels: dict[Name, Annotated[str, Field(max_length=100)]] = Field(max_length=100)
    device: str = Field(max_length=400)
    sessions: Count
    rounds: Count
    torch_version: str = Field(default="", max_length=100)


class EndToEndOut(Schema):
    """Describe a stored report. `finding` says in words what it shows; `calls` counts what the kernel served."""

    id: int
    author: str | None
    created_at: dt.datetime
    finding: str
    verdict: str
    agrees: bool
    script: str
    function: str
    device: str
    torch_version: str
    without_s: float
    with_s: float
    speedup: float
    low: float
    high: float
    floor: float
    results: int
    calls: int
    missed: dict[str, int]
    others: list[str]
    sessions: int
    rounds: int

    @staticmethod
    def resolve_author(row: EndToEndReport) -> str | None:
        """Return the user name of who stored the report."""
        return row.author.get_username() if row.author else None


@router.get("/{int:run_id}/kernels/{int:number}/endtoend", response=list[EndToEndOut])
def list_endtoend(request: HttpRequest, run_id: int, number: int) -> Any:
    """List the end-to-end reports of a kernel, newest first."""
    kernel = access_kernel(caller(request), run_id, number, "view")
    return kernel.endtoend_reports.select_related("author")


@router.post(
    "/{int:run_id}/kernels/{int:number}/endtoend",
    response={201: EndToEndOut, 422: Refusal},
    auth=needs(TokenScope.REVIEW),
)
def store_endtoend(request: HttpRequest, run_id: int, number: int, body: EndToEndIn) -> Any:
    """Store an end-to-end report beside the kernel. 422 for a report of another kernel, or that cannot be true."""
    kernel = access_kernel(caller(request), run_id, number, "comment")
    return Status(201, do_store_endtoend(caller(request), kernel, Figures(**body.model_dump())))
