"""Close the cells whose run has ended, and name why those without a result have none."""

from __future__ import annotations

from contextlib import suppress

from django.db.models import F, Q

from optimizer.actions.campaign import active_cells
from optimizer.actions.run import do_stop_run
from optimizer.models import (
    CallState,
    Campaign,
    CampaignCell,
    CampaignConfiguration,
    Evaluation,
    EvaluationStatus,
    Kernel,
    LlmCall,
    Run,
    RunState,
)
from optimizer.models.run import RunTransitionError
from optimizer.queries.campaign_steps import steps_of
from optimizer.queries.outcomes import SEARCHED

# A configuration is halted after so many runs in a row in which no model answered and nothing was evaluated.
HALT_AFTER = 3


def close_ended(campaign: Campaign) -> None:
    """Close every cell whose run has ended. Call under the campaign's lock."""
    active = list(active_cells(campaign))
    _stop_stranded([cell for cell in active if cell.run.state == RunState.PAUSED])
    ended = [cell for cell in active if cell.run.state_choice.is_terminal]
    steps = steps_of([cell.run for cell in ended]) if ended else {}
    for cell in ended:
        cell.steps = [point.as_json() for point in steps[cell.run_id]]
        cell.why = cell.why or _why(cell)
        cell.is_closed = True
        cell.save(update_fields=["steps", "why", "is_closed"])
        _skip_if_too_large(campaign, cell)
        _halt_if_unanswered(cell.configuration)


def skip_waiting(campaign: Campaign, reason: str, **which: object) -> None:
    """Skip the cells that wait, all or some, with a reason that pages and reports show.

    A run that waits to be continued stays as it ended, and does not count: it had less than those that go on.
    """
    why = reason[:300]
    campaign.cells.filter(run=None, is_skipped=False, **which).update(is_skipped=True, why=why)
    campaign.cells.filter(is_continuing=True, **which).update(
        is_continuing=False, is_closed=True, is_behind=True, why=why
    )


def _stop_stranded(paused: list[CampaignCell]) -> None:
    """Stop runs that paused themselves because their evaluations kept failing.

    Nobody watches each run of a campaign, and one that waits for a person would keep the whole from ending. A run that
    a person has paused is left to them.
    """
    for cell in paused:
        if cell.run is None or cell.is_held or cell.run.stop_reason.startswith("Paused by "):
            continue
        cell.why = cell.run.stop_reason[:300]
        cell.save(update_fields=["why"])
        with suppress(RunTransitionError):
            do_stop_run(None, cell.run)


def _why(cell: CampaignCell) -> str:
    run = cell.run
    if run is None or run.state == RunState.FINISHED:
        return ""
    return f"{run.state_choice.label}: {run.stop_reason}"[:300]


def _skip_if_too_large(campaign: Campaign, cell: CampaignCell) -> None:
    """Skip a problem that does not fit the device: every other run on it would end the same way."""
    seeds = Evaluation.objects.filter(kernel__run=cell.run, kernel__author_kind="seed")
    if seeds.filter(status=EvaluationStatus.TOO_LARGE).exists():
        skip_waiting(campaign, f"Does not fit the device: {cell.why}", problem_version=cell.problem_version_id)


def _halt_if_unanswered(configuration: CampaignConfiguration) -> None:
    """Halt a configuration whose model answers nobody, so that the rest of the campaign goes on without it."""
    runs = Run.objects.filter(campaign_cell__configuration=configuration, campaign_cell__is_closed=True)
    newest = list(runs.order_by("-finished_at", "-campaign_cell__order")[:HALT_AFTER])
    if configuration.halted_why or len(newest) < HALT_AFTER:
        return
    # A run that its budget has ended leaves questions unanswered without any fault of the model.
    if any(run.ended_by_budget for run in newest):
        return
    # What a run did before it was continued says nothing about the model now.
    now = Q(run__reopened_at=None) | Q(created_at__gte=F("run__reopened_at"))
    calls = LlmCall.objects.filter(now, run__in=newest)
    failed = calls.filter(state__in=[CallState.FAILED, CallState.UNCERTAIN]).order_by("-pk").first()
    if failed is None or calls.filter(state=CallState.ANSWERED).exists():
        return
    kernels = Kernel.objects.filter(now, run__in=newest)
    if Evaluation.objects.filter(SEARCHED, kernel__in=kernels).exists():
        return
    why = f"Its model did not answer in the last {HALT_AFTER} runs: {failed.error}"
    configuration.halted_why = why[:300]
    configuration.save(update_fields=["halted_why"])
    skip_waiting(configuration.campaign, why, configuration=configuration)
