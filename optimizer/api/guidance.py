"""What people tell the agents of a run: say it, read it, take it back."""

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
    """Something to tell the agents of a run; it enters every later prompt."""

    text: str = Field(min_length=1, max_length=MAX_CHARACTERS)


class InstructionOut(Schema):
    """An instruction on record. With a `kernel` it holds for that kernel's lineage alone; `followers` are the numbers
    of the kernels whose prompts held it."""

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
        """The account's name; null where it is gone."""
        return row.author.get_username() if row.author else None

    @staticmethod
    def resolve_kernel(row: Guidance) -> int | None:
        """Its number."""
        return row.kernel.number if row.kernel else None

    @staticmethod
    def resolve_followers(row: Guidance) -> list[int]:
        """In order."""
        return list(row.followers().values_list("number", flat=True))

    @staticmethod
    def resolve_withdrawn_by(row: Guidance) -> str | None:
        """The account's name."""
        return row.withdrawn_by.get_username() if row.withdrawn_by else None


@router.get("/{int:run_id}/guidance", response=Page[InstructionOut])
def list_guidance(request: HttpRequest, run_id: int, window: Query[Window]) -> Any:
    """Everything that the agents were told, oldest first, with what was withdrawn."""
    run = access_run(caller(request), run_id, "view")
    rows = Guidance.objects.filter(run=run).select_related("author", "kernel", "withdrawn_by")
    heavy = ("kernel__source", "kernel__report", "kernel__meta")
    return page_of(rows.defer(*heavy).order_by("pk"), window, "pk")


@router.post("/{int:run_id}/guidance", response={201: InstructionOut, 409: Refusal, 422: Refusal}, auth=STEER)
def instruct(request: HttpRequest, run_id: int, body: Instruction) -> Any:
    """Tell the agents something."""
    run = access_run(caller(request), run_id, "comment")
    return Status(201, do_give_guidance(caller(request), run, body.text))


@router.delete("/{int:run_id}/guidance/{int:guidance_id}", response={204: None, 422: Refusal}, auth=STEER)
def withdraw(request: HttpRequest, run_id: int, guidance_id: int) -> Any:
    """No later prompt holds it; it stays on record. 422 where it was withdrawn already."""
    run = access_run(caller(request), run_id, "comment")
    do_withdraw_guidance(caller(request), get_object_or_404(Guidance, pk=guidance_id, run=run))
    return Status(204, None)
