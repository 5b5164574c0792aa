"""Addresses of the pages."""

from __future__ import annotations

from django.urls import path

from optimizer.api.root import api
from optimizer.views import (
    account,
    compare,
    help,
    hypotheses,
    inbox,
    kernel_page,
    problems,
    providers,
    run_guidance,
    run_labels,
    run_page,
    runners,
    runs,
    start_run,
    start_run_parts,
    targets,
    theme,
)

urlpatterns = [
    path("", runs.home, name="home"),
    path("sign-in/", account.sign_in, name="sign_in"),
    path("sign-out/", account.sign_out, name="sign_out"),
    path("theme/", theme.set_theme, name="set_theme"),
    path("help/", help.help_page, name="help"),
    # runs
    path("runs/", runs.runs, name="runs"),
    path("runs/new/", start_run.start_run, name="start_run"),
    path("runs/new/link/", start_run.start_run_link, name="start_run_link"),
    path("runs/new/settings/", start_run_parts.start_run_settings, name="start_run_settings"),
    path("runs/new/outlook/", start_run_parts.start_run_outlook, name="start_run_outlook"),
    path("runs/new/check/", start_run_parts.start_run_check, name="start_run_check"),
    path("runs/new/templates/", start_run_parts.template_save, name="template_save"),
    path("runs/new/templates/<int:template_id>/delete/", start_run_parts.template_delete, name="template_delete"),
    path("runs/compare/", compare.compare, name="compare"),
    path("runs/compare/curves/", compare.compare_curves, name="compare_curves"),
    path("runs/<int:run_id>/", run_page.run_page, name="run_page"),
    path("runs/<int:run_id>/live/", run_page.run_live, name="run_live"),
    path("runs/<int:run_id>/curve/", run_page.run_curve, name="run_curve"),
    path("runs/<int:run_id>/pause/", run_page.run_pause, name="run_pause"),
    path("runs/<int:run_id>/resume/", run_page.run_resume, name="run_resume"),
    path("runs/<int:run_id>/stop/", run_page.run_stop, name="run_stop"),
    path("runs/<int:run_id>/budget/", run_page.run_budget, name="run_budget"),
    path("runs/<int:run_id>/workers/", run_page.run_workers, name="run_workers"),
    path("runs/<int:run_id>/guidance/", run_guidance.run_instruct, name="run_instruct"),
    path("runs/<int:run_id>/guidance/<int:guidance_id>/withdraw/", run_guidance.run_withdraw, name="run_withdraw"),
    path("runs/<int:run_id>/labels/", run_labels.run_labels, name="run_labels"),
    path("runs/<int:run_id>/archive/", run_labels.run_archive, name="run_archive"),
    path("runs/<int:run_id>/hypotheses/", hypotheses.hypotheses, name="hypotheses"),
    path("runs/<int:run_id>/hypotheses/chart/", hypotheses.hypotheses_chart, name="hypotheses_chart"),
    # kernels
    path("runs/<int:run_id>/kernels/", run_page.run_kernels, name="run_kernels"),
    path("runs/<int:run_id>/kernels/<int:number>/", kernel_page.kernel_page, name="kernel_page"),
    path("runs/<int:run_id>/kernels/<int:number>/download/", kernel_page.kernel_download, name="kernel_download"),
    path("runs/<int:run_id>/kernels/<int:number>/cases/", kernel_page.kernel_cases_chart, name="kernel_cases_chart"),
    path("runs/<int:run_id>/kernels/<int:number>/samples/", kernel_page.kernel_samples_chart,
         name="kernel_samples_chart"),
    # what runs are made of
    path("problems/", problems.problems, name="problems"),
    path("problems/<slug:slug>/", problems.problem_page, name="problem_page"),
    path("targets/", targets.targets, name="targets"),
    path("targets/<slug:key>/", targets.target_page, name="target_page"),
    path("runners/", runners.runners, name="runners"),
    path("runners/<int:runner_id>/drain/", runners.runner_drain, name="runner_drain"),
    # who answers the agents
    path("inbox/", inbox.inbox, name="inbox"),
    path("inbox/<int:call_id>/", inbox.prompt_page, name="prompt_page"),
    path("inbox/<int:call_id>/claim/", inbox.prompt_claim, name="prompt_claim"),
    path("providers/", providers.providers, name="providers"),
    path("providers/new/", providers.provider_new, name="provider_new"),
    path("providers/<int:provider_id>/", providers.provider_edit, name="provider_edit"),
    path("providers/<int:provider_id>/delete/", providers.provider_delete, name="provider_delete"),
    path("providers/<int:provider_id>/check/", providers.provider_check, name="provider_check"),
    path("api/v1/", api.urls),
]  # fmt: skip
