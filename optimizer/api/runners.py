"""List runners, and drain or undrain them. Runners serve all teams, so only administrators may drain one."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.http import Http404, HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Field, Router, Schema

from optimizer.actions.runner import do_drain_runner, do_undrain_runner
from optimizer.api.auth import caller, needs
from optimizer.api.body import Body
from optimizer.models import Runner, TokenScope

router = Router(tags=["runners"], auth=needs(TokenScope.READ))


class RunnerOut(Schema):
    """Describe a runner as it reported itself."""

    id: int
    name: str
    target: str
    queues: list[str]
    device: str
    sandbox: str
    is_alive: bool
    draining: bool
    drain_note: str
    heartbeat_at: dt.datetime
    started_at: dt.datetime

    @staticmethod
    def resolve_target(row: Runner) -> str:
        """Return the target's key."""
        return row.target.key


class Drain(Body):
    """State why the runner is drained."""

    note: str = Field(default="", max_length=200)


@router.get("", response=list[RunnerOut])
def list_runners(request: HttpRequest) -> Any:
    """List all runners."""
    return Runner.objects.select_related("target").order_by("name")


@router.post("/{int:runner_id}/drain", response=RunnerOut, auth=needs(TokenScope.RUNNERS))
def drain(request: HttpRequest, runner_id: int, body: Drain) -> Any:
    """Let the runner finish its job and claim no more."""
    runner = _operated(request, runner_id)
    do_drain_runner(caller(request), runner, body.note.strip())
    return runner


@router.post("/{int:runner_id}/undrain", response=RunnerOut, auth=needs(TokenScope.RUNNERS))
def undrain(request: HttpRequest, runner_id: int) -> Any:
    """Let the runner claim jobs again."""
    runner = _operated(request, runner_id)
    do_undrain_runner(caller(request), runner)
    return runner


def _operated(request: HttpRequest, runner_id: int) -> Runner:
    if not caller(request).is_superuser:
        raise Http404
    return get_object_or_404(Runner.objects.select_related("target"), pk=runner_id)
