"""Make a team with one of everything, and one person for every way of standing to it."""

from __future__ import annotations

from dataclasses import dataclass

from allauth.usersessions.models import UserSession
from django.utils import timezone

from optimizer.actions.guidance import do_give_guidance
from optimizer.actions.release import do_ask_release
from optimizer.actions.review import Place, Words, do_say
from optimizer.actions.team import do_invite, do_make_service_account
from optimizer.models import (
    ApiToken,
    CallState,
    Finding,
    LlmCall,
    Notification,
    ProblemUpload,
    Provider,
    Run,
    Runner,
    RunTemplate,
    SavedView,
    Target,
    TeamRole,
    TokenScope,
    User,
    Webhook,
)
from tests.campaigns import make_campaign
from tests.driven_runs import make_finished_run
from tests.factories import drive, make_run, make_team, make_user


@dataclass(frozen=True)
class World:
    """`people` by standing; `tokens` are secrets of theirs with every scope; `places` fill addresses."""

    people: dict[str, User | None]
    tokens: dict[str, str]
    places: dict[str, str | int]
    running: Run


def make_world() -> World:
    """Make a finished run with a thread, a release and a waiting prompt, and a live one."""
    team = make_team()
    people: dict[str, User | None] = {"anonymous": None, "outsider": make_user(make_team(), TeamRole.OWNER)}
    people |= {role.value: make_user(team, role) for role in TeamRole}
    people["superuser"] = User.objects.create_superuser("root-of-it-all", password="correct horse")
    starter = make_user(team, TeamRole.OWNER)
    run, live = make_finished_run(team, starter), make_run(team, starter)
    drive(live, rounds=1)
    guidance = do_give_guidance(starter, live, "Use tiles.")
    assert run.best_kernel is not None
    comment = do_say(starter, Place(run, run.best_kernel), Words("Why?"))
    scopes = list(TokenScope)
    tokens = {name: ApiToken.make(user, "all", scopes)[1] for name, user in people.items() if user is not None}
    places = {
        "run_id": run.pk, "number": run.best_kernel.number, "slug": team.slug, "thread_id": comment.thread_id,
        "comment_id": comment.pk, "guidance_id": guidance.pk, "release_id": do_ask_release(starter, run.best_kernel).pk,
        "live_id": live.pk, "key": "cpu", "name": _tunable(run), "form": "md", "kind": "native", "token": "x" * 43,
        "verb": "claim",
        "campaign_id": make_campaign(team, starter).pk, "figure": "fast",
        "folder": "cpu", "page": "vector_exp",
        "invitation_id": do_invite(starter, team, TeamRole.VIEWER, "", 7)[0].pk,
        "service_id": do_make_service_account(starter, team, "ci", TeamRole.VIEWER).pk,
        "user_id": make_user(team, TeamRole.VIEWER).pk, "token_id": ApiToken.make(starter, "his", scopes)[0].pk,
        **_of_the_team(run, starter),
    }  # fmt: skip
    return World(people, tokens, places, live)


def _tunable(run: Run) -> str:
    tuned = run.kernels.exclude(tunables={}).first()
    return next(iter(tuned.tunables), "none") if tuned else "none"


def _of_the_team(run: Run, starter: User) -> dict[str, str | int]:
    team, now = run.team, timezone.now()
    call = LlmCall.objects.create(
        run=run, key="plan.1", role="planner", provider="inbox", state=CallState.WAITING, asked_at=now,
        answer_schema="FreeAnswer", messages=[{"role": "user", "content": "Write."}],
    )  # fmt: skip
    runner = Runner.objects.create(name="r", target=Target.objects.get(key="cpu"), heartbeat_at=now)
    told = Notification.objects.create(user=starter, kind="ended", key="k", run=run, text="Done", link="/runs/")
    session = UserSession.objects.create(user=starter, session_key="s" * 32, ip="192.0.2.1", user_agent="curl")
    return {
        "call_id": call.pk,
        "runner_id": runner.pk,
        "notification_id": told.pk,
        "session_id": session.pk,
        "provider_id": Provider.objects.create(team=team, name="vllm", base_url="https://192.0.2.1/v1").pk,
        "webhook_id": Webhook.objects.create(team=team, url="https://192.0.2.1/h", secret_encrypted="").pk,
        "finding_id": Finding.objects.create(team=team, title="t", text="x", origin="person").pk,
        "upload_id": ProblemUpload.objects.create(
            created_by=starter, name="mine", file_name="mine.py", content=b""
        ).pk,
        "view_id": SavedView.objects.create(user=starter, name="v").pk,
        "template_id": RunTemplate.objects.create(team=team, name="t", created_by=starter, values={}).pk,
    }
