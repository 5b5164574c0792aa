"""Map the addresses of search, lineage, leaderboards, knowledge, exports and API."""

from __future__ import annotations

from django.urls import path

from optimizer.views import (
    api_page,
    calls,
    exports,
    knowledge,
    leaderboards,
    library,
    lineage,
    parameters,
    plan,
    search,
    tokens,
)

urlpatterns = [
    path("search/", search.search_page, name="search"),
    path("runs/<int:run_id>/lineage/", lineage.lineage, name="lineage"),
    path("runs/<int:run_id>/lineage/data/", lineage.lineage_data, name="lineage_data"),
    path("runs/<int:run_id>/calls/", calls.calls, name="calls"),
    path("runs/<int:run_id>/calls/<int:call_id>/", calls.call_page, name="call_page"),
    path("runs/<int:run_id>/calls/<int:call_id>/tools/", calls.call_transcript, name="call_transcript"),
    path("runs/<int:run_id>/calls/<int:call_id>/text/", calls.call_text, name="call_text"),
    path("runs/<int:run_id>/plan/", plan.run_plan, name="run_plan"),
    path("runs/<int:run_id>/parameters/", parameters.tuned, name="tuned"),
    path("runs/<int:run_id>/parameters/<slug:name>/", parameters.tuned_chart, name="tuned_chart"),
    path("runs/<int:run_id>/export/", exports.run_export, name="run_export"),
    path("runs/<int:run_id>/report.<slug:form>", exports.run_report, name="run_report"),
    path("runs/<int:run_id>/kernels/<int:number>/submission/<slug:kind>/", exports.kernel_submission,
         name="kernel_submission"),
    path("runs/<int:run_id>/kernels/<int:number>/patch/", exports.kernel_patch, name="kernel_patch"),
    path("leaderboards/", leaderboards.leaderboards, name="leaderboards"),
    path("leaderboards/<slug:slug>/<slug:key>/", leaderboards.leaderboard, name="leaderboard"),
    path("leaderboards/<slug:slug>/<slug:key>/cost/", leaderboards.leaderboard_cost, name="leaderboard_cost"),
    path("leaderboards/<slug:slug>/<slug:key>/retime/", leaderboards.leaderboard_retime, name="leaderboard_retime"),
    path("knowledge/", knowledge.knowledge, name="knowledge"),
    path("knowledge/pages/", library.library, name="library"),
    path("knowledge/pages/<slug:folder>/<slug:page>/", library.library_page, name="library_page"),
    path("knowledge/new/", knowledge.finding_new, name="finding_new"),
    path("knowledge/<int:finding_id>/", knowledge.finding_page, name="finding_page"),
    path("knowledge/<int:finding_id>/edit/", knowledge.finding_edit, name="finding_edit"),
    path("account/tokens/", tokens.tokens, name="tokens"),
    path("account/tokens/<int:token_id>/revoke/", tokens.token_revoke, name="token_revoke"),
    path("account/webhooks/", tokens.webhooks, name="webhooks"),
    path("account/webhooks/<int:webhook_id>/delete/", tokens.webhook_delete, name="webhook_delete"),
    path("api/", api_page.api_page, name="api_page"),
]  # fmt: skip
