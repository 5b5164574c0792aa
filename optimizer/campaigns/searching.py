"""Start the runs of a campaign within its limits, and see to it that they share the device evenly."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from django.core.exceptions import ValidationError
from django.db import transaction

from optimizer.actions.campaign import active_cells, is_active, new_run_of, waiting_cells, words_of
from optimizer.actions.campaign_budget import do_continue_cell, waiting_in
from optimizer.actions.notification import do_follow
from optimizer.actions.run import do_start_run, do_stop_run
from optimizer.campaigns import planning
from optimizer.campaigns.closing import skip_waiting
from optimizer.models import Campaign, CampaignCell, Run
from optimizer.models.run import RunTransitionError
from optimizer.queries.budgets import LABELS
from optimizer.queries.campaign_spending import Spent, reserved, spent_by_configuration, total


def search(campaign: Campaign) -> bool:
    """Start what may be started. Return True once every cell has its outcome. Call under the campaign's lock."""
    spent = spent_by_configuration(campaign)
    account = account_of(campaign, spent)
    if (kind := account.exhausted()) is not None:
        _stop_for(campaign, kind)
        spent = spent_by_configuration(campaign)
    lacking = _start_runs(campaign, account, spent)
    # A run that has just been started or continued has used nothing yet, so what was spent is still what it was.
    _share_device(campaign, spent)
    # While nothing runs, nothing that is reserved will come back: what could not start now never will.
    if lacking is not None and not active_cells(campaign).exists():
        skip_waiting(campaign, _words(campaign, lacking))
    return not (active_cells(campaign).exists() or waiting_cells(campaign).exists())


def account_of(campaign: Campaign, spent: Mapping[int, Spent]) -> planning.Account:
    """Return the campaign's spending, reservations and limits."""
    whole = total(spent)
    return planning.Account(
        spent={kind: whole.of(kind) for kind in campaign.limits},
        reserved={kind: reserved(campaign, kind) for kind, limit in campaign.limits.items() if limit is not None},
        limits={kind: None if limit is None else float(limit) for kind, limit in campaign.limits.items()},
    )


def _start_runs(campaign: Campaign, account: planning.Account, spent: Mapping[int, Spent]) -> str | None:
    """Fill the free places. Return the kind of budget that keeps the next run from starting, or None."""
    while True:
        choice = _choice(campaign, account, spent)
        refused = [cell for cell in _cells(choice.cells) if not _start(campaign, cell)]
        # A cell that was refused leaves its place to another one.
        if not refused:
            return choice.lacking
        spent = spent_by_configuration(campaign)
        account = account_of(campaign, spent)


def _choice(campaign: Campaign, account: planning.Account, spent: Mapping[int, Spent]) -> planning.Choice:
    free = campaign.parallel_runs - sum(one.active for one in spent.values())
    if free <= 0:
        return planning.Choice(())
    waiting = [planning.Candidate(*one) for one in waiting_in(campaign)]
    uses = {pk: planning.Use(one.device_s, one.active, one.ended_s, one.ended) for pk, one in spent.items()}
    return planning.choose(waiting, uses, free, account)


def _cells(keys: tuple[int, ...]) -> list[CampaignCell]:
    related = CampaignCell.objects.select_related("configuration", "problem_version__problem", "campaign", "run")
    found = related.in_bulk(list(keys))
    return [found[key] for key in keys]


def _start(campaign: Campaign, cell: CampaignCell) -> bool:
    """Start or continue the cell's run, or skip the cell with the reason of the refusal. Return whether it runs."""
    if cell.is_continuing:
        return do_continue_cell(cell)
    user = campaign.created_by
    try:
        # A savepoint: a refusal must leave nothing of the run behind.
        with transaction.atomic():
            run = do_start_run(user, new_run_of(campaign, cell.configuration, cell, user), by_hand=False)
            if user is not None:
                # People follow the campaign, or they would be told of thousands of runs one by one.
                do_follow(user, run, False)
            cell.run = run
            cell.save(update_fields=["run"])
    except ValidationError as refusal:
        cell.run = None
        CampaignCell.objects.filter(pk=cell.pk).update(is_skipped=True, why=words_of(refusal)[:300])
        return False
    return True


def _share_device(campaign: Campaign, spent: Mapping[int, Spent]) -> None:
    """Give the jobs of running runs priorities by the device time that their configurations have used."""
    ranks = planning.priorities({pk: one.device_s for pk, one in spent.items()})
    for cell in active_cells(campaign):
        wanted = ranks[cell.configuration_id]
        if cell.run.priority != wanted:
            Run.objects.filter(pk=cell.run_id).update(priority=wanted)


def _stop_for(campaign: Campaign, kind: str) -> None:
    """Stop what runs and skip what waits, because a limit is reached."""
    reason = _words(campaign, kind)
    for cell in active_cells(campaign):
        if is_active(cell) and cell.run is not None:
            cell.why = reason
            cell.save(update_fields=["why"])
            with suppress(RunTransitionError):
                do_stop_run(None, cell.run)
    skip_waiting(campaign, reason)


def _words(campaign: Campaign, kind: str) -> str:
    return f"The campaign's limit of {float(getattr(campaign, f'limit_{kind}')):g} {LABELS[kind]} is reached."
