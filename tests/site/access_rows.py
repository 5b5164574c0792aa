"""List the access matrix: a row for every address and method, saying who is let in.

`needs` is the least that lets a person in: nothing (`public`), an account (`signed_in`), a role in the team that owns
the thing (`viewer`, `reviewer`, `operator`, `owner`), or administration (`superuser`); `nobody` stands at what is
another person's own. Whoever has less gets 404; the anonymous are sent to the sign-in page, and at the API told 401.
`ok` is the answer to whoever is let in: a redirect after a change, 422 where what is sent is refused on its merits.
Every POST is sent with `data`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

RANKS = ("public", "signed_in", "viewer", "reviewer", "operator", "owner", "superuser", "nobody")


@dataclass(frozen=True)
class Row:
    """Hold one line of the matrix. `refused` is the answer to whoever is signed in and has less than `needs`;
    `signed_in`, where it differs, the answer of a public page to people who are."""

    route: str
    needs: str
    ok: int = 200
    method: str = "GET"
    data: dict[str, Any] = field(default_factory=dict)
    query: str = ""
    refused: int = 404
    signed_in: int | None = None


def get(needs: str, *routes: str, ok: int = 200) -> list[Row]:
    """Return rows of pages that are only looked at."""
    return [Row(route, needs, ok) for route in routes]


def post(needs: str, route: str, ok: int = 302, **data: Any) -> Row:
    """Return the row of a change."""
    return Row(route, needs, ok, "POST", data)


def api(needs: str, method: str, route: str, ok: int = 200, **data: Any) -> Row:
    """Return the row of a route of the API, with the body that is sent."""
    return Row(f"api/v1/{route}", needs, ok, method, data)


RUN = "runs/<int:run_id>/"
KERNEL = f"{RUN}kernels/<int:number>/"
TEAM = "teams/<slug:slug>/"
CAMPAIGN = "campaigns/<int:campaign_id>/"
SERVICE = f"{TEAM}service-accounts/<int:user_id>/"
START = {"problem": "softmax_rows", "team": "{slug}", "budget": {"evaluations": 1}}
COMPARED = {"suite": "ours", "team": "{slug}", "configurations": [{"name": "a", "strategy": "tune"}]}
OF_ANOTHER_KERNEL = {
    "script": "train.py", "without_s": 2.0, "with_s": 1.0, "speedup": 2.0, "low": 1.9, "high": 2.1, "floor": 1.01,
    "agrees": True, "results": 1, "calls": {"a": 1}, "kernels": {"a": "0"}, "device": "CPU", "sessions": 1, "rounds": 1,
}  # fmt: skip
HOOK = {"team": "{slug}", "url": "https://93.184.215.14/hook", "events": ["run.finished"]}
SERVER = "https://93.184.215.14/v1"
FACTOR = "profile/second-factor/"
COMPANY_LOGIN = "company/oidc/<str:provider_id>/login/"

PAGES = [
    *get("public", "healthz", "live", "ready", "metrics"),
    Row("sign-in/", "public", signed_in=302),
    *get("public", "welcome/<str:token>/", "join/<str:token>/", ok=404),
    Row("sign-in/", "public", 200, "POST", {"username": "nobody", "password": "wrong"}, signed_in=302),
    post("public", "sign-out/"),
    post("public", "work/<slug:verb>/", 401),  # workers, by a token that nobody here has
    post("public", "theme/", theme="dark"),
    *get("public", "sign-in/code/", ok=302),
    *get("signed_in", ""),
    post("signed_in", "start/hide/"),
    *get("signed_in", "help/", "runs/", "runs/new/", "runs/new/settings/", "runs/new/estimate/", "runs/export.csv",
         "runs/export.jsonl", "runs/compare/", "runs/compare/curves/", "problems/", "problems/<slug:slug>/", "targets/",
         "targets/<slug:key>/", "runners/", "runners/add/", "runners/<int:runner_id>/",
         "inbox/", "providers/", "search/", "leaderboards/",
         "leaderboards/<slug:slug>/<slug:key>/", "leaderboards/<slug:slug>/<slug:key>/cost/",
         "knowledge/", "knowledge/pages/",
         "knowledge/pages/<slug:folder>/<slug:page>/", "account/tokens/", "account/webhooks/", "api/",
         "profile/", "profile/password/", "profile/sessions/", FACTOR, "teams/", "notifications/",
         "notifications/settings/", "releases/", "campaigns/", "campaigns/new/"),
    post("signed_in", "campaigns/new/", 200),
    *get("viewer", CAMPAIGN, f"{CAMPAIGN}runs/", f"{CAMPAIGN}chart/<slug:figure>/", f"{CAMPAIGN}report.<slug:form>"),
    post("operator", f"{CAMPAIGN}pause/"),
    post("operator", f"{CAMPAIGN}resume/"),
    post("operator", f"{CAMPAIGN}limits/", parallel_runs="2"),
    *get("operator", f"{CAMPAIGN}continue/"),
    post("operator", f"{CAMPAIGN}continue/", 200, evaluations="0"),
    post("operator", f"{CAMPAIGN}stop/"),
    post("signed_in", "runs/new/", 200),
    post("signed_in", "runs/new/link/"),
    post("signed_in", "runs/new/check/", 200),
    post("signed_in", "runs/bulk/", do="stop", run="{run_id}"),
    post("signed_in", "runs/views/", name="Nightly"),
    post("signed_in", "runs/views/<int:view_id>/delete/"),
    post("signed_in", "leaderboards/<slug:slug>/<slug:key>/retime/"),
    post("signed_in", "account/tokens/", 200, name=""),
    post("signed_in", "account/webhooks/", 200),
    post("signed_in", "profile/", email="a@example.org"),
    post("signed_in", "profile/password/", 200, old_password="wrong"),
    post("signed_in", "profile/sessions/end-others/"),
    *get("signed_in", "profile/confirm/", ok=200),
    *get("signed_in", "profile/confirm/code/", ok=302),
    *get("signed_in", f"{FACTOR}on/", f"{FACTOR}codes/new/", ok=302),
    *get("nobody", f"{FACTOR}off/", f"{FACTOR}codes/", f"{FACTOR}codes/file/"),  # nobody here has one
    post("signed_in", "teams/", 200, name=""),
    post("signed_in", "teams/switch/", team=""),
    post("signed_in", "notifications/read/"),
    post("signed_in", "notifications/settings/"),
    *get("signed_in", "problems/new/"),
    post("signed_in", "problems/new/", 200),
    *get("nobody", "problems/new/<int:upload_id>/"),
    post("nobody", "problems/new/<int:upload_id>/"),
    post("nobody", "problems/new/<int:upload_id>/discard/"),
    # runs
    *get("viewer", RUN, f"{RUN}live/", f"{RUN}curve/", f"{RUN}curve/table/", f"{RUN}workers/",
         f"{RUN}hypotheses/", f"{RUN}hypotheses/chart/", f"{RUN}kernels/", f"{RUN}lineage/",
         f"{RUN}lineage/data/", f"{RUN}calls/", f"{RUN}calls/<int:call_id>/", f"{RUN}calls/<int:call_id>/text/",
         f"{RUN}calls/<int:call_id>/tools/",
         f"{RUN}parameters/", f"{RUN}parameters/<slug:name>/", f"{RUN}plan/", f"{RUN}export/",
         f"{RUN}report.<slug:form>", f"{RUN}discussion/"),
    *get("viewer", f"{RUN}threads/<int:thread_id>/", ok=302),
    *get("operator", f"{RUN}budget/"),
    post("operator", f"{RUN}budget/", 200, budget_evaluations="0"),
    post("operator", f"{RUN}pause/"),
    post("operator", f"{RUN}resume/"),
    post("operator", f"{RUN}stop/"),
    post("operator", f"{RUN}finish/"),
    post("operator", f"{RUN}labels/", tags="a"),
    post("operator", f"{RUN}archive/"),
    post("operator", f"{RUN}privacy/", private="off"),
    post("viewer", f"{RUN}follow/"),
    # kernels
    *get("viewer", KERNEL, f"{KERNEL}state/", f"{KERNEL}download/", f"{KERNEL}cases/", f"{KERNEL}samples/",
         f"{KERNEL}submission/<slug:kind>/", f"{KERNEL}patch/", f"{KERNEL}diff/", f"{KERNEL}release/"),
    Row(f"{KERNEL}diff/rows/", "viewer", query="?gap=0-4&show=0-4"),
    *get("nobody", f"{KERNEL}roofline/"),  # the world's kernel lies under no roof
    *get("reviewer", f"{KERNEL}suggest/"),
    *get("nobody", f"{RUN}comments/<int:comment_id>/edit/"),  # its author's alone
    post("reviewer", f"{KERNEL}suggest/", 422, source=""),
    post("reviewer", f"{KERNEL}release/", note="please"),
    Row(f"{RUN}reviews/publish/", "reviewer", 302, "POST", {"verdict": "approve"}, "?kernel={number}"),
    post("reviewer", f"{RUN}threads/new/", body="Why?"),
    post("reviewer", f"{RUN}threads/preview/", 200, body="Why?"),
    post("reviewer", f"{RUN}threads/<int:thread_id>/reply/", body="Because."),
    post("reviewer", f"{RUN}threads/<int:thread_id>/state/", state="resolved"),
    post("reviewer", f"{RUN}comments/<int:comment_id>/measure/"),
    post("nobody", f"{RUN}comments/<int:comment_id>/edit/", body="Not mine."),
    post("nobody", f"{RUN}comments/<int:comment_id>/delete/"),
    post("reviewer", f"{RUN}guidance/", text="Use tiles."),
    post("reviewer", f"{RUN}guidance/<int:guidance_id>/withdraw/"),
    post("operator", "releases/<int:release_id>/release/"),
    post("reviewer", "releases/<int:release_id>/withdraw/"),
    # what belongs to a team
    *get("viewer", TEAM, "knowledge/<int:finding_id>/"),
    *get("signed_in", "knowledge/new/"),
    *get("reviewer", "knowledge/<int:finding_id>/edit/"),
    post("signed_in", "knowledge/new/", 200, title="", team="{slug}"),
    post("reviewer", "knowledge/<int:finding_id>/edit/", 200, title=""),
    post("signed_in", "runs/new/templates/", 200, template_name="", team="{slug}"),
    post("operator", "runs/new/templates/<int:template_id>/delete/"),
    *get("operator", "inbox/<int:call_id>/", "inbox/<int:call_id>/state/"),
    post("operator", "inbox/<int:call_id>/", 422, answer=""),
    post("operator", "inbox/<int:call_id>/claim/"),
    *get("owner_of_any", "providers/new/"),
    *get("owner", "providers/<int:provider_id>/"),
    post("owner_of_any", "providers/new/", 200, name="", team="{slug}"),
    post("owner", "providers/<int:provider_id>/", 200, name=""),
    post("owner", "providers/<int:provider_id>/delete/"),
    post("operator", "providers/<int:provider_id>/check/"),
    post("owner", "account/webhooks/<int:webhook_id>/delete/"),
    *get("owner", f"{TEAM}log/", f"{TEAM}log.csv", f"{TEAM}log.jsonl", f"{SERVICE}tokens/"),
    post("owner", f"{TEAM}rules/", name="Team", approvals_needed="2"),
    post("owner", f"{TEAM}members/<int:user_id>/role/", role="viewer"),
    post("owner", f"{TEAM}members/<int:user_id>/remove/"),
    post("owner", f"{TEAM}invitations/", 200, role="viewer", days="7"),
    post("owner", f"{TEAM}invitations/<int:invitation_id>/revoke/"),
    post("owner", f"{TEAM}service-accounts/", name="nightly", role="viewer"),
    post("owner", f"{SERVICE}end/"),
    post("owner", f"{SERVICE}tokens/", 200, name=""),
    # what belongs to one person, here to somebody who is none of those who ask
    post("nobody", "profile/sessions/<int:session_id>/end/"),
    post("nobody", "account/tokens/<int:token_id>/revoke/"),
    post("nobody", "notifications/<int:notification_id>/"),
    post("superuser", "runners/<int:runner_id>/drain/"),
]  # fmt: skip

COMPANY = [  # only where a company's server is configured: tests/site/test_company_sign_in.py
    *get("signed_in", "company/"),
    post("signed_in", "company/", 200, account="0"),
    *get("public", COMPANY_LOGIN, "company/login/cancelled/"),
    post("public", COMPANY_LOGIN),
    *get("public", f"{COMPANY_LOGIN}callback/", "company/login/error/", ok=401),  # an answer that nobody asked for
    *get("public", "company/signup/", ok=302),  # nobody stands there without a company's word
    post("public", "company/signup/", username="guest"),
]

API = [
    api("public", "GET", "openapi.json"),
    *[api("signed_in", "GET", route) for route in (
        "runs", "findings", "runners", "webhooks", "inbox", "problems", "problems/<slug>", "targets",
        "strategies", "receipt-key", "problems/<slug>/task", "knowledge/pages?q=softmax",
        "providers", "releases", "runs/export.csv", "runs/export.jsonl", "search?q=softmax",
        "leaderboard?problem=softmax_rows&target=cpu", "notifications", "templates", "teams",
        "campaigns", "campaigns/suites",
    )],
    api("signed_in", "POST", "problem-uploads", 422, name="", source=""),
    api("nobody", "GET", "problem-uploads/<int:upload_id>"),
    api("nobody", "POST", "problem-uploads/<int:upload_id>/add"),
    api("nobody", "DELETE", "problem-uploads/<int:upload_id>"),
    api("viewer", "GET", "teams/<slug>/members"),
    api("owner", "GET", "teams/<slug>/log"),
    api("viewer", "GET", "runs/<int:run_id>/parameters"),
    api("viewer", "GET", "runs/<int:run_id>/ahead"),
    api("viewer", "GET", "runs/<int:run_id>/plan"),
    Row("api/v1/runs/compare", "viewer", query="?ids={run_id},{live_id}"),
    api("viewer", "PUT", "runs/<int:run_id>/follow", follow=True),
    api("operator", "PUT", "runs/<int:run_id>/privacy", private=False),
    api("signed_in", "POST", "notifications/read"),
    Row("api/v1/runs/estimate", "operator", 200, "POST", START, refused=422),
    Row("api/v1/templates", "operator", 201, "POST", {"team": "{slug}", "name": "t", "values": {"seed": "1"}}),
    api("operator", "DELETE", "templates/<int:template_id>", 204),
    *[api("viewer", "GET", f"runs/<int:run_id>{more}") for more in (
        "", "/events", "/kernels", "/kernels/<int:number>", "/kernels/<int:number>/source",
        "/kernels/<int:number>/evaluations", "/kernels/<int:number>/diff", "/kernels/<int:number>/patch",
        "/kernels/<int:number>/submission/<slug:kind>", "/calls", "/calls/<int:call_id>", "/guidance", "/hypotheses",
        "/report.<form>", "/threads", "/threads/<int:thread_id>", "/reviews", "/best",
        "/kernels/<int:number>/verdict", "/kernels/<int:number>/receipt", "/kernels/<int:number>/endtoend",
    )],
    *[api("viewer", "GET", f"campaigns/<int:campaign_id>{more}") for more in ("", "/report.<form>")],
    Row("api/v1/campaigns", "operator", 201, "POST", COMPARED, refused=422),
    api("operator", "POST", "campaigns/<int:campaign_id>/pause"),
    api("operator", "POST", "campaigns/<int:campaign_id>/resume", 409),
    api("operator", "PUT", "campaigns/<int:campaign_id>/limits", parallel_runs=2),
    api("operator", "POST", "campaigns/<int:campaign_id>/continue", budget={"evaluations": 9}),
    api("operator", "POST", "campaigns/<int:campaign_id>/stop"),
    # who may not is told like somebody who names a team that is not there
    Row("api/v1/runs", "operator", 201, "POST", START, refused=422),
    Row("api/v1/runs/<int:run_id>/clone", "operator", 201, "POST", refused=422),
    api("operator", "POST", "runs/<int:run_id>/pause"),
    api("operator", "POST", "runs/<int:run_id>/resume", 409),
    api("operator", "POST", "runs/<int:run_id>/stop"),
    api("operator", "PUT", "runs/<int:run_id>/budget", evaluations=5),
    api("operator", "POST", "runs/<int:run_id>/continue", evaluations=5),
    api("reviewer", "POST", "runs/<int:run_id>/guidance", 201, text="Use tiles."),
    api("reviewer", "DELETE", "runs/<int:run_id>/guidance/<int:guidance_id>", 204),
    api("reviewer", "POST", "runs/<int:run_id>/kernels", 201, base=1, source="// somebody's own\n"),
    api("nobody", "PUT", "runs/<int:run_id>/comments/<int:comment_id>", body="Not mine."),
    api("nobody", "DELETE", "runs/<int:run_id>/comments/<int:comment_id>"),
    # the world's run searches by itself, and has ended
    api("operator", "POST", "runs/<int:run_id>/submissions", 422, source="// new\n", language="cpp"),
    api("operator", "POST", "runs/<int:run_id>/kernels/<int:number>/measure", 422),
    api("operator", "POST", "runs/<int:run_id>/finish", 409, reason="done"),
    api("reviewer", "POST", "runs/<int:run_id>/kernels/<int:number>/endtoend", 422, **OF_ANOTHER_KERNEL),
    api("operator", "PUT", "runs/<int:run_id>/labels", tags=["later"], notes="n"),
    api("operator", "PUT", "runs/<int:run_id>/archived", archived=True),
    api("signed_in", "POST", "runs/bulk", do="archive", runs=[1]),
    api("reviewer", "POST", "runs/<int:run_id>/threads", 201, body="Why?"),
    api("reviewer", "POST", "runs/<int:run_id>/threads/<int:thread_id>/comments", 201, body="Because."),
    api("reviewer", "PUT", "runs/<int:run_id>/threads/<int:thread_id>/state", state="resolved"),
    api("reviewer", "POST", "runs/<int:run_id>/reviews", 201, summary="Good."),
    api("viewer", "GET", "releases/<int:release_id>"),
    Row("api/v1/releases", "reviewer", 422, "POST", {"run": "{run_id}", "kernel": "{number}"}),
    api("operator", "POST", "releases/<int:release_id>/release", 422),
    api("operator", "POST", "releases/<int:release_id>/withdraw"),
    Row("api/v1/providers", "owner", 201, "POST", {"team": "{slug}", "name": "new", "base_url": SERVER}),
    api("owner", "PUT", "providers/<int:provider_id>", name="vllm", base_url=SERVER),
    api("owner", "DELETE", "providers/<int:provider_id>", 204),
    api("operator", "POST", "providers/<int:provider_id>/check"),
    api("viewer", "GET", "findings/<int:finding_id>"),
    Row("api/v1/findings", "reviewer", 201, "POST", {"team": "{slug}", "title": "t", "text": "x"}),
    Row("api/v1/findings/<int:finding_id>", "reviewer", 200, "PUT", {"title": "t", "text": "y"}, refused=422),
    api("superuser", "POST", "runners/<int:runner_id>/drain", note="new driver"),
    api("superuser", "POST", "runners/<int:runner_id>/undrain"),
    Row("api/v1/webhooks", "owner", 201, "POST", HOOK),
    api("owner", "DELETE", "webhooks/<int:webhook_id>", 204),
    api("owner", "GET", "webhooks/<int:webhook_id>/deliveries"),
    api("operator", "GET", "inbox/<int:call_id>"),
    api("operator", "POST", "inbox/<int:call_id>/claim"),
    api("operator", "POST", "inbox/<int:call_id>/release", 204),
    api("operator", "POST", "inbox/<int:call_id>/answer", 422, text=""),
]  # fmt: skip

SOCKETS = {
    "ws/me/": "signed_in",
    "ws/me/?run={run_id}&kernel={number}": "viewer",
    "ws/runs/<int:run_id>/": "viewer",
}
