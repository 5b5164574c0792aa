"""Assemble the API: one line per router."""

from __future__ import annotations

from ninja import NinjaAPI

from optimizer.api import (
    audience,
    calls,
    campaigns,
    catalogue,
    comments,
    comparison,
    diffs,
    discussion,
    endtoend,
    estimates,
    guidance,
    inbox,
    kernels,
    knowledge,
    labels,
    lookup,
    notifications,
    parameters,
    problem_uploads,
    providers,
    releases,
    runners,
    runs,
    submissions,
    teams,
    templates,
    webhooks,
)
from optimizer.api.body import BoundedParser
from optimizer.api.errors import answer_errors

api = NinjaAPI(title="Kernel Scientist", version="1", urls_namespace="api", docs_url=None, parser=BoundedParser())
api.add_router("/runs", runs.router)
api.add_router("/runs", kernels.router)
api.add_router("/runs", diffs.router)
api.add_router("/runs", calls.router)
api.add_router("/runs", guidance.router)
api.add_router("/runs", labels.router)
api.add_router("/runs", discussion.router)
api.add_router("/runs", comments.router)
api.add_router("/runs", audience.router)
api.add_router("/runs", comparison.router)
api.add_router("/runs", estimates.router)
api.add_router("/runs", parameters.router)
api.add_router("/runs", endtoend.router)
api.add_router("/campaigns", campaigns.router)
api.add_router("/templates", templates.router)
api.add_router("/teams", teams.router)
api.add_router("/notifications", notifications.router)
api.add_router("/releases", releases.router)
api.add_router("/providers", providers.router)
api.add_router("/findings", knowledge.router)
api.add_router("/runners", runners.router)
api.add_router("/webhooks", webhooks.router)
api.add_router("/inbox", inbox.router)
api.add_router("/problem-uploads", problem_uploads.router)
api.add_router("", submissions.router)
api.add_router("", lookup.router)
api.add_router("", catalogue.router)
answer_errors(api)
