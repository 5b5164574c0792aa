"""Continue a campaign with a larger budget for each of its runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from optimizer.actions.audit import log_action
from optimizer.actions.campaign import Limits, active_cells, budget_from, limit_faults, lock_campaign, stored_budget
from optimizer.actions.run import do_continue_run, do_raise_budget
from optimizer.enqueue import enqueue_campaign
from optimizer.models import AuditAction, Campaign, CampaignCell, CampaignState, RunState, User
from optimizer.models.campaign import CampaignTransitionError
from optimizer.models.run import RunTransitionError
from optimizer.queries.budgets import LABELS, Budget
from optimizer.queries.campaign_spending import spent_by_configuration, total
from optimizer.runs.budget import exhausted

CONTINUABLE = (CampaignState.RUNNING, CampaignState.FINISHED)


def do_continue_campaign(
    user: User | None, campaign: Campaign, budget: Budget, limits: Limits | None = None
) -> Campaign:
    """Raise the budget of every run, and continue those that had used theirs up; then the campaign is settled again.

    Each limit of `budget` that is given replaces the one of every configuration. `limits`, if given, replace those of
    all runs together. Raises ValidationError for limits that are no larger or leave no room, CampaignTransitionError
    for a campaign that is neither running nor finished, or none of whose runs could go on.
    """
    with transaction.atomic():
        locked = lock_campaign(campaign.pk)
        if locked.state not in CONTINUABLE:
            raise CampaignTransitionError(
                f"a campaign that is {locked.state_choice.label.lower()} cannot be continued"
            )
        _raise_limits(locked, limits)
        _raise_budgets(locked, budget)
        going_on = _let_wait(locked)
        if locked.state == CampaignState.FINISHED:
            if not going_on:
                raise CampaignTransitionError("no run of this campaign has used up its budget")
            # From here on nothing counts until it is settled again.
            locked.settling_at = None
            locked.enter(CampaignState.RUNNING, "Continued with larger budgets.")
        figures = {kind: float(limit) for kind, limit in asdict(budget).items() if limit is not None}
        log_action(
            AuditAction.CAMPAIGN_CONTINUED,
            user,
            locked.team,
            subject=locked.title,
            campaign=locked.pk,
            limits=figures,
        )
        enqueue_campaign(locked.pk)
    return locked


def do_continue_cell(cell: CampaignCell) -> bool:
    """Continue the run of a cell that waits for it. Call under the campaign's lock.

    Return False, and leave the run as it ended, where it cannot go on: another budget of it is used up.
    """
    cell.is_continuing = False
    try:
        if cell.run is not None:
            cell.run = do_continue_run(None, cell.run, budget_from(cell.configuration.budget), by_hand=False)
    except (ValidationError, RunTransitionError):
        cell.is_closed = True
    else:
        cell.steps = []
    cell.save(update_fields=["is_continuing", "is_closed", "steps"])
    return not cell.is_closed


def _raise_limits(locked: Campaign, limits: Limits | None) -> None:
    if limits is not None:
        if faults := limit_faults(limits):
            raise ValidationError(faults)
        for kind, limit in asdict(limits).items():
            setattr(locked, f"limit_{kind}", limit)
        locked.save(update_fields=[f"limit_{kind}" for kind in asdict(limits)])
    spent = total(spent_by_configuration(locked))
    for kind in asdict(Limits()):
        limit = getattr(locked, f"limit_{kind}")
        if limit is not None and spent.of(kind) >= float(limit):
            text = f"The limit of {float(limit):g} {LABELS[kind]} for all runs together is reached: raise it too."
            raise ValidationError({f"limit_{kind}": text})


def _raise_budgets(locked: Campaign, budget: Budget) -> None:
    given = {kind: limit for kind, limit in asdict(budget).items() if limit is not None}
    if not given:
        raise ValidationError("Give at least one larger limit for each run.")
    configurations = list(locked.configurations.all())
    faults: dict[str, Any] = {}
    for configuration in configurations:
        before = asdict(budget_from(configuration.budget))
        for kind, limit in given.items():
            if (old := before[kind]) is None:
                faults[kind] = (
                    f"The runs of {configuration} have no limit of {LABELS[kind]}, which cannot be raised."
                )
            elif not limit > old:
                faults[kind] = f"The runs of {configuration} have {old:g} {LABELS[kind]} already; give more."
        configuration.budget = stored_budget(Budget(**(before | given)))
    if faults:
        raise ValidationError(faults)
    for configuration in configurations:
        configuration.save(update_fields=["budget"])
    for cell in active_cells(locked):
        if not cell.run.state_choice.is_terminal and cell.run.state != RunState.STOPPING:
            do_raise_budget(None, cell.run, budget_from(cell.configuration.budget))


def _let_wait(locked: Campaign) -> int:
    """Let every run that came to its end because its budget was used up wait for a place. Return how many there are."""
    ended = locked.cells.filter(run__state=RunState.FINISHED).select_related("run")
    used_up = [cell.pk for cell in ended if cell.run is not None and exhausted(cell.run) is not None]
    return locked.cells.filter(pk__in=used_up).update(is_continuing=True, is_closed=False)
