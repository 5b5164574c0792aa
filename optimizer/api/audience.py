"""Change who follows a run and who sees it."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router, Schema

from optimizer.access import access_run
from optimizer.actions.notification import do_follow
from optimizer.actions.team import do_set_privacy
from optimizer.api.auth import caller, needs
from optimizer.api.body import Body
from optimizer.api.errors import Refusal
from optimizer.api.runs import RunOut, run_out
from optimizer.models import TokenScope

router = Router(tags=["runs"], auth=needs(TokenScope.RUNS))


class Following(Body):
    """State whether the caller follows a run."""

    follow: bool


class FollowingOut(Schema):
    """State whether the caller now follows the run."""

    follow: bool


class Privacy(Body):
    """State whether only the person who started the run and the team's owners see it."""

    private: bool


@router.put("/{int:run_id}/follow", response=FollowingOut, summary="Follow or unfollow a run")
def follow_run(request: HttpRequest, run_id: int, body: Following) -> Any:
    """Follow the run or stop following it, for the caller alone. Whoever starts a run follows it."""
    run = access_run(caller(request), run_id, "view")
    do_follow(caller(request), run, body.follow)
    return {"follow": body.follow}


@router.put(
    "/{int:run_id}/privacy",
    response={200: RunOut, 422: Refusal},
    summary="Make a run private, or show it to the team",
)
def hide_run(request: HttpRequest, run_id: int, body: Privacy) -> Any:
    """Change who sees the run. Only the person who started it and owners may."""
    run = access_run(caller(request), run_id, "operate")
    do_set_privacy(caller(request), run, body.private)
    run.refresh_from_db(fields=["is_private"])
    return run_out(run)
