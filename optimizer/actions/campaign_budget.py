"""Continue a campaign with a larger budget for each of its runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, NamedTuple

from django.core.exceptions import ValidationError
from django.db import transaction

from optimizer.actions.audit import log_action
from optimizer.actions.campaign import (
    active_cells,
    budget_from,
    lock_campaign,
    store_limits,
    stored_budget,
    waiting_cells,
)
from optimizer.actions.run import do_continue_run, do_raise_budget
from optimizer.enqueue import enqueue_campaign
from optimizer.models import AuditAction, Campaign, CampaignCell, CampaignState, Run, RunState, User
from optimizer.models.campaign import LIMIT_KINDS, CampaignTransitionError
from optimizer.models.run import RunTransitionError
from optimizer.queries.budgets import LABELS, Budget, budget_lines, budget_of, limit_faults
from optimizer.queries.campaign_spending import reserved, spent_by_configuration, total
from optimizer.runs.budget import ended_by_budget


class Waiting(NamedTuple):
    """Describe a cell that waits for a place. `left` is what its run may still spend, None where it has no limit."""

    cell: int
    order: int
    configuration: int
    left: dict[str, float | None]


def may_continue(campaign: Campaign) -> bool:
    """Return whether the campaign's state allows it to be continued."""
    # One that was paused in its settling runs again with its timings planned, and settles next.
    is_searching = campaign.state == CampaignState.RUNNING and campaign.settling_at is None
    return is_searching or campaign.state == CampaignState.FINISHED


def do_continue_campaign(
    user: User | None, campaign: Campaign, budget: Budget, limits: Mapping[str, Any] | None = None
) -> Campaign:
    """Raise the budget of every run, and continue those that had used theirs up; then the campaign is settled again.

    Each limit of `budget` that is given replaces the one of every configuration, and each of `limits` (by kind,
    None is unlimited) the one of all runs together. Raises ValidationError for limits that are no larger or
    leave no room, CampaignTransitionError for a campaign whose state forbids it or none of whose runs could go on.
    """
    with transaction.atomic():
        locked = lock_campaign(campaign.pk)
        if not may_continue(locked):
            state = CampaignState.SETTLING if locked.state == CampaignState.RUNNING else locked.state_choice
            raise CampaignTransitionError(f"this campaign is {state.label.lower()} and cannot be continued")
        _set_limits(locked, limits or {})
        _raise_budgets(locked, budget)
        # Running ones first: one that ends in between is then found among those that have ended.
        if not (_raise_live(locked) + _let_wait(locked) or waiting_cells(locked).exists()):
            raise CampaignTransitionError("no run of this campaign has used up its budget")
        _check_room(locked)
        if locked.state == CampaignState.FINISHED:
            locked.reopen("Continued with larger budgets.")
        log_action(
            AuditAction.CAMPAIGN_CONTINUED, user, locked.team, subject=locked.title, campaign=locked.pk,
            budget=_figures(asdict(budget)), limits=_figures(locked.limits),
        )  # fmt: skip
        enqueue_campaign(locked.pk)
    return locked


def do_continue_cell(cell: CampaignCell) -> bool:
    """Continue the run of a cell that waits for it. Call under the campaign's lock.

    Return False where it cannot go on after all. It stays as it ended, and does not count beside those that go on.
    """
    run, cell.is_continuing = cell.run, False
    if run is None:
        return False
    try:
        # A savepoint: a refusal leaves nothing behind.
        with transaction.atomic():
            cell.run = do_continue_run(None, run, larger(run, cell.configuration.budget), by_hand=False)
    except (ValidationError, RunTransitionError) as refusal:
        cell.is_closed = cell.is_behind = True
        cell.why = f"It could not be continued: {' '.join(getattr(refusal, 'messages', [str(refusal)]))}"[:300]
    else:
        cell.is_behind, cell.steps, cell.why = False, [], ""
        cell.continuations, cell.before_s = cell.continuations + 1, run.spent_device_s
    cell.save(
        update_fields=["is_continuing", "is_closed", "is_behind", "continuations", "before_s", "steps", "why"]
    )
    return not cell.is_closed


def larger(run: Run, stored: Mapping[str, Any]) -> Budget:
    """Return for each kind the larger one of the run's own limit, which a person may have changed, and the stored."""
    return Budget(**larger_of(asdict(budget_from(stored)), asdict(budget_of(run))))


def larger_of(stored: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the larger limit of each kind. None in `own` is unlimited and stays; None in `stored` changes nothing."""
    return {
        kind: limit if stored[kind] is None or limit is None else max(limit, stored[kind])
        for kind, limit in own.items()
    }


def waiting_in(campaign: Campaign) -> list[Waiting]:
    """Return what waits for a place, in the campaign's order."""
    spent = [f"run__spent_{kind}" for kind in ("usd", "tokens", "device_s")]
    own = [f"run__budget_{kind}" for kind in LIMIT_KINDS]
    columns = ("pk", "order", "configuration_id", "run_id", *spent, *own)
    budgets = {one.pk: asdict(budget_from(one.budget)) for one in campaign.configurations.all()}
    return [
        Waiting(cell, order, configuration, _left(budgets[configuration], run is not None, figures))
        for cell, order, configuration, run, *figures in waiting_cells(campaign)
        .order_by("order")
        .values_list(*columns)
    ]


def shown(limit: Any) -> str:
    """Return a limit as text, with all its digits."""
    return f"{limit:,}"


def _set_limits(locked: Campaign, limits: Mapping[str, Any]) -> None:
    if faults := limit_faults(limits, "limit_"):
        raise ValidationError(faults)
    store_limits(locked, limits)


def _raise_budgets(locked: Campaign, budget: Budget) -> None:
    """Raise the configurations' budgets. Raises ValidationError where one has no such limit or a larger one."""
    if faults := limit_faults(asdict(budget), ""):
        raise ValidationError(faults)
    given = {kind: limit for kind, limit in asdict(budget).items() if limit is not None}
    if not given:
        raise ValidationError("Give at least one larger limit for each run.")
    configurations = list(locked.configurations.all())
    for configuration in configurations:
        before = asdict(budget_from(configuration.budget))
        for kind, limit in given.items():
            if (old := before[kind]) is None:
                faults[kind] = (
                    f"The runs of {configuration} have no limit of {LABELS[kind]}, which cannot be raised."
                )
            elif limit < old or (limit == old and not configuration.cells.filter(is_behind=True).exists()):
                faults[kind] = f"The runs of {configuration} have {shown(old)} {LABELS[kind]} already; give more."
        configuration.budget = stored_budget(Budget(**(before | given)))
    if faults:
        raise ValidationError(faults)
    for configuration in configurations:
        configuration.save(update_fields=["budget"])


def _raise_live(locked: Campaign) -> int:
    """Give runs that are under way the larger budget. Return how many there are."""
    raised = 0
    for cell in active_cells(locked):
        if cell.run.state_choice.is_terminal or cell.run.state == RunState.STOPPING:
            continue
        # One that ends before its row is locked here is closed with the budget that it had.
        with suppress(RunTransitionError):
            do_raise_budget(None, cell.run, larger(cell.run, cell.configuration.budget))
            raised += 1
    return raised


def _let_wait(locked: Campaign) -> int:
    """Let every run wait for a place that ended because its budget was used up. Return how many there are.

    Those of a halted configuration stay as they are, and no longer count.
    """
    ended = locked.cells.filter(run__state=RunState.FINISHED).select_related("run", "configuration")
    used_up = [
        cell for cell in ended
        if cell.run is not None and _goes_on(cell.run, larger(cell.run, cell.configuration.budget))
    ]  # fmt: skip
    for halted in [cell for cell in used_up if cell.configuration.halted_why]:
        halted.is_behind, halted.why = True, halted.configuration.halted_why
        halted.save(update_fields=["is_behind", "why"])
    going_on = [cell.pk for cell in used_up if not cell.configuration.halted_why]
    return locked.cells.filter(pk__in=going_on).update(is_continuing=True, is_closed=False, is_behind=False, why="")


def _goes_on(run: Run, budget: Budget) -> bool:
    """Return whether a budget has ended the run and `budget` lets it go on."""
    if not ended_by_budget(run):
        return False
    for kind, limit in asdict(budget).items():
        setattr(run, f"budget_{kind}", limit)
    return all(line.percent < 100 for line in budget_lines(run))


def _check_room(locked: Campaign) -> None:
    """Raise ValidationError unless the limits leave room for all that runs may still spend, those to come too."""
    spent = total(spent_by_configuration(locked))
    waiting = waiting_in(locked)
    for kind, limit in locked.limits.items():
        if limit is None:
            continue
        needed = spent.of(kind) + reserved(locked, kind) + sum(one.left[kind] or 0.0 for one in waiting)
        is_reached = limit > 0 and spent.of(kind) >= float(limit)
        if is_reached or needed > float(limit) * (1 + 1e-9):
            # Rounded up, so that whoever enters this figure has given enough.
            least = math.ceil(needed) if kind == "tokens" else math.ceil(100 * needed) / 100
            text = (
                f"The limit of {shown(limit)} {LABELS[kind]} for all runs together leaves no room: with what is "
                f"spent they may need {shown(least)}."
            )
            raise ValidationError({f"limit_{kind}": text})


def _left(budget: Mapping[str, Any], is_continued: bool, figures: Sequence[Any]) -> dict[str, float | None]:
    """Return what a run may still spend, by kind, once it has that budget.

    `figures` are what it has spent (dollars, tokens, seconds of the device), and its own limits by `LIMIT_KINDS`.
    """
    usd, tokens, device_s = (float(one or 0.0) for one in figures[:3])
    used = {"usd": usd, "tokens": tokens, "device_minutes": device_s / 60}
    limits = {kind: budget[kind] for kind in LIMIT_KINDS}
    if is_continued:
        limits = larger_of(limits, dict(zip(LIMIT_KINDS, figures[3:], strict=True)))
    return {kind: None if limit is None else max(float(limit) - used[kind], 0.0) for kind, limit in limits.items()}


def _figures(limits: Mapping[str, Any]) -> dict[str, float]:
    return {kind: float(limit) for kind, limit in limits.items() if limit is not None}
