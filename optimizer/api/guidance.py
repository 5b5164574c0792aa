"""Give instructions to the agents of a run, list them, and withdraw them."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Field, Query, Router, Schema, Status

from optimizer.access import access_run
from optimizer.actions.guidance import MAX_CHARACTERS, do_give_guidance, do_withdraw_guidance
from optimizer.api.auth import caller, needs
from optimizer.api.body import Body
from optimizer.api.errors import Refusal
from optimizer.api.paging import Page, Window, page_of
from optimizer.models import Guidance, TokenScope

router = Router(tags=["guidance"], auth=needs(TokenScope.READ))
STEER = needs(TokenScope.RUNS)


class Instruction(Body):
    """Hold an instruction to the agents of a run, which becomes part of every later prompt."""

    text: str = Field(min_length=1, max_length=MAX_CHARACTERS)


class InstructionOut(Schema):
    """Describe a recorded instruction.

    With a `kernel` it applies to that kernel's lineage only. `followers` are the numbers of the kernels whose prompts
    contained it.
    """

    id: int
    text: str
    author: str | None
    kernel: int | None
    followers: list[int]
    created_at: dt.datetime
    withdrawn_at: dt.datetime | None
    withdrawn_by: str | None

    @staticmethod
    def resolve_author(row: Guidance) -> str | None:
        """Return the account name, or null where the account is gone."""
        return row.author.get_username() if row.author else None

    @staticmethod
    def resolve_kernel(row: Guidance) -> int | None:
        """Return the kernel's number."""
        return row.kernel.number if row.kernel else None

    @staticmethod
    def resolve_followers(row: Guidance) -> list[int]:
        """Return the kernels' numbers in order."""
        return list(row.followers().values_list("number", flat=True))

    @staticmethod
    def resolve_withdrawn_by(row: Guidance) -> str | None:
        """Return the account name."""
        return row.withdrawn_by.get_username() if row.withdrawn_by else None


@router.get("/{int:run_id}/guidance", response=Page[InstructionOut])
def list_guidance(request: HttpRequest, run_id: int, window: Query[Window]) -> Any:
    """List all instructions, oldest first, including withdrawn ones."""
    run = access_run(caller(request), run_id, "view")
    rows = Guidance.objects.filter(run=run).select_related("author", "kernel", "withdrawn_by")
    heavy = ("kernel__source", "kernel__report", "kernel__meta")
    return page_of(rows.defer(*heavy).order_by("pk"), window, "pk")


@router.post("/{int:run_id}/guidance", response={201: InstructionOut, 409: Refusal, 422: Refusal}, auth=STEER)
def instruct(request: HttpRequest, run_id: int, body: Instruction) -> Any:
    """Give the agents an instruction."""
    run = access_run(caller(request), run_id, "comment")
    return Status(201, do_give_guidance(caller(request), run, body.text))


@router.delete("/{int:run_id}/guidance/{int:guidance_id}", response={204: None, 422: Refusal}, auth=STEER)
def withdraw(request: HttpRequest, run_id: int, guidance_id: int) -> Any:
    """Withdraw an instruction; it stays on record. Answers 422 where it was withdrawn before."""
    run = access_run(caller(request), run_id, "comment")
    do_withdraw_guidance(caller(request), get_object_or_404(Guidance, pk=guidance_id, run=run))
    return Status(204, None)
