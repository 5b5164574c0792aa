"""Start and steer campaigns. Every function locks the campaign first and its runs second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q, QuerySet

from optimizer.actions.audit import log_action
from optimizer.actions.job import do_cancel_timing
from optimizer.actions.run import MAX_SEED, NewRun, check_start_run, do_pause_run, do_resume_run, do_stop_run
from optimizer.enqueue import enqueue_campaign
from optimizer.models import (
    AuditAction,
    Campaign,
    CampaignCell,
    CampaignConfiguration,
    CampaignState,
    Run,
    RunState,
    Suite,
    SuiteEntry,
    Target,
    Team,
    User,
)
from optimizer.models.campaign import CampaignTransitionError
from optimizer.models.choices import OPEN_EVALUATION_STATES
from optimizer.models.run import RunTransitionError
from optimizer.queries.budgets import Budget, limit_faults
from optimizer.queries.suites import Subset, UnknownNameError, chosen
from runners.job import Baseline, Objective

MAX_CELLS = 20_000
MAX_CONFIGURATIONS = 20
MAX_PARALLEL = 64
MAX_SEEDS = 100


@dataclass(frozen=True)
class NewConfiguration:
    """Hold one configuration to compare. `budget` holds for each of its runs."""

    name: str
    strategy: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    providers: Mapping[str, Any] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)


@dataclass(frozen=True)
class Limits:
    """Hold the limits of all runs of a campaign together; None is unlimited."""

    usd: Decimal | None = None
    tokens: int | None = None
    device_minutes: float | None = None


@dataclass(frozen=True)
class NewCampaign:
    """Hold everything with which a campaign is started. Runs search against the first of `baselines`."""

    team: Team
    suite: Suite
    target: Target
    configurations: Sequence[NewConfiguration]
    subset: Subset = field(default_factory=Subset)
    seeds: Sequence[int] = (0,)
    baselines: Sequence[str] = (Baseline.EAGER.value,)
    objective: str = Objective.DEVICE.value
    dispatcher: str = "celery"
    dispatch_settings: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    parallel_runs: int = 1
    order_seed: int = 0
    title: str = ""
    is_private: bool = False


def check_start_campaign(user: User | None, new: NewCampaign) -> list[SuiteEntry]:
    """Validate a new campaign and return the chosen problems. Raises ValidationError with the fields at fault."""
    faults: dict[str, Any] = {}
    entries = _entries(new, faults)
    usable = [entry for entry in entries if entry.problem_version_id is not None]
    seeds, names = list(new.seeds), [one.name for one in new.configurations]
    cells = len(usable) * len(seeds) * len(names)
    known = {baseline.value for baseline in Baseline}
    for name, is_sound, text in (
        ("problems", bool(usable) or "problems" in faults, "Choose at least one usable problem."),
        ("seeds", 0 < len(seeds) <= MAX_SEEDS, f"One to {MAX_SEEDS} seeds."),
        ("seeds", len(set(seeds)) == len(seeds), "List each seed once."),
        ("seeds", all(0 <= seed <= MAX_SEED for seed in seeds), "Seeds are whole numbers from 0."),
        ("configurations", 0 < len(names) <= MAX_CONFIGURATIONS, f"One to {MAX_CONFIGURATIONS} configurations."),
        ("configurations", len(set(names)) == len(names), "Configuration names must be unique."),
        ("configurations", all(0 < len(name) <= 60 for name in names), "Names have 1 to 60 characters."),
        (
            "baselines",
            bool(new.baselines) and set(new.baselines) <= known,
            f"Choose among {', '.join(sorted(known))}.",
        ),
        ("baselines", len(set(new.baselines)) == len(new.baselines), "List each baseline once."),
        ("parallel_runs", 1 <= new.parallel_runs <= MAX_PARALLEL, f"1 to {MAX_PARALLEL} runs at once."),
        ("order_seed", 0 <= new.order_seed <= MAX_SEED, "Enter an order seed of 0 or more."),
        (
            "problems",
            cells <= MAX_CELLS,
            f"A campaign has at most {MAX_CELLS:,} runs; this one would have {cells:,}.",
        ),
    ):
        if not is_sound:
            faults.setdefault(name, text)
    faults |= limit_faults(asdict(new.limits), "limit_")
    if not faults:
        faults |= _run_faults(user, new, usable)
    if faults:
        raise ValidationError(faults)
    return entries


def do_start_campaign(user: User | None, new: NewCampaign) -> Campaign:
    """Store the campaign with all its cells and enqueue its first step. Raises ValidationError."""
    entries = check_start_campaign(user, new)
    with transaction.atomic():
        campaign = Campaign.objects.create(
            team=new.team,
            title=new.title.strip()[:120] or str(new.suite),
            suite=new.suite,
            target=new.target,
            baselines=list(new.baselines),
            objective=new.objective,
            dispatcher=new.dispatcher,
            dispatch_settings=dict(new.dispatch_settings),
            unusable=[{"name": e.name, "complaint": e.complaint} for e in entries if e.problem_version_id is None],
            order_seed=new.order_seed,
            is_private=new.is_private,
            parallel_runs=new.parallel_runs,
            created_by=user,
            **{f"limit_{kind}": limit for kind, limit in asdict(new.limits).items()},
        )
        configurations = [_configuration(campaign, n, one) for n, one in enumerate(new.configurations)]
        CampaignCell.objects.bulk_create(_cells(campaign, configurations, entries, new.seeds), batch_size=1000)
        log_action(AuditAction.CAMPAIGN_STARTED, user, new.team, subject=campaign.title, campaign=campaign.pk)
        enqueue_campaign(campaign.pk)
    return campaign


def do_pause_campaign(user: User | None, campaign: Campaign) -> Campaign:
    """Pause the campaign and its runs. Raises CampaignTransitionError."""
    with transaction.atomic():
        locked = lock_campaign(campaign.pk)
        locked.enter(CampaignState.PAUSED, f"Paused by {_name(user)}.")
        for cell in active_cells(locked):
            # A run that a person has paused stays theirs, so only those paused here are marked.
            with suppress(RunTransitionError):
                do_pause_run(user, cell.run)
                cell.is_held = True
                cell.save(update_fields=["is_held"])
        log_action(AuditAction.CAMPAIGN_PAUSED, user, locked.team, subject=locked.title, campaign=locked.pk)
    return locked


def do_resume_campaign(user: User | None, campaign: Campaign) -> Campaign:
    """Resume a paused campaign and the runs that it had paused. Raises CampaignTransitionError."""
    with transaction.atomic():
        locked = lock_campaign(campaign.pk)
        locked.enter(CampaignState.RUNNING, "Resumed.")
        held = active_cells(locked).filter(is_held=True)
        # Lock all runs first, in order. Resuming one may wait for another's seeds while somebody else holds its row.
        list(Run.objects.select_for_update(of=("self",)).filter(campaign_cell__in=held).order_by("pk"))
        for cell in held:
            with suppress(RunTransitionError):
                do_resume_run(user, cell.run)
            cell.is_held = False
            cell.save(update_fields=["is_held"])
        log_action(AuditAction.CAMPAIGN_RESUMED, user, locked.team, subject=locked.title, campaign=locked.pk)
        enqueue_campaign(locked.pk)
    return locked


def do_stop_campaign(user: User | None, campaign: Campaign) -> Campaign:
    """Stop the campaign permanently: runs are stopped, and timings of the settling cancelled.

    A problem counts as settled only if all its timings have ended. Raises CampaignTransitionError.
    """
    with transaction.atomic():
        locked = lock_campaign(campaign.pk)
        locked.enter(CampaignState.STOPPING, f"Stopped by {_name(user)}.")
        for cell in active_cells(locked):
            # One that is stopping already needs nothing more.
            with suppress(RunTransitionError):
                do_stop_run(user, cell.run)
        for timing in locked.timings.filter(evaluation__state__in=OPEN_EVALUATION_STATES).select_related(
            "evaluation"
        ):
            if timing.evaluation is not None:
                do_cancel_timing(timing.evaluation)
        log_action(AuditAction.CAMPAIGN_STOPPED, user, locked.team, subject=locked.title, campaign=locked.pk)
        enqueue_campaign(locked.pk)
    return locked


def do_change_limits(user: User | None, campaign: Campaign, limits: Limits, parallel_runs: int) -> Campaign:
    """Replace the limits of a campaign that has not ended. Raises ValidationError, CampaignTransitionError."""
    faults = limit_faults(asdict(limits), "limit_")
    if not 1 <= parallel_runs <= MAX_PARALLEL:
        faults["parallel_runs"] = f"1 to {MAX_PARALLEL} runs at once."
    if faults:
        raise ValidationError(faults)
    with transaction.atomic():
        locked = lock_campaign(campaign.pk)
        if locked.state_choice.is_terminal:
            raise CampaignTransitionError("this campaign has ended")
        store_limits(locked, asdict(limits))
        locked.parallel_runs = parallel_runs
        locked.save(update_fields=["parallel_runs"])
        figures = {kind: None if limit is None else float(limit) for kind, limit in locked.limits.items()}
        log_action(
            AuditAction.CAMPAIGN_LIMITS, user, locked.team, subject=locked.title, campaign=locked.pk, limits=figures
        )
        enqueue_campaign(locked.pk)
    return locked


def store_limits(locked: Campaign, limits: Mapping[str, Any]) -> None:
    """Store limits of all runs together, by kind. Call under the campaign's lock."""
    for kind, limit in limits.items():
        setattr(locked, f"limit_{kind}", limit)
    locked.save(update_fields=[f"limit_{kind}" for kind in limits])


def lock_campaign(campaign_id: int) -> Campaign:
    """Lock the campaign's row, waiting if necessary. Call inside a transaction and before locking any run."""
    return Campaign.objects.select_for_update(of=("self",)).get(pk=campaign_id)


def active_cells(campaign: Campaign) -> Any:
    """Return the cells whose run was started and has not been closed, with the run."""
    started = campaign.cells.filter(run__isnull=False, is_closed=False, is_continuing=False)
    return started.select_related("run", "configuration")


def waiting_cells(campaign: Campaign) -> QuerySet[CampaignCell]:
    """Return the cells that wait for a place: to have their run started, or to have it continued."""
    return campaign.cells.filter(Q(run=None, is_skipped=False) | Q(is_continuing=True))


def new_run_of(
    campaign: Campaign, configuration: CampaignConfiguration, cell: CampaignCell, user: User | None
) -> NewRun:
    """Return the settings with which a cell's run is started."""
    return _new_run(campaign, NewConfiguration(
        configuration.name, configuration.strategy, configuration.settings, configuration.providers,
        budget_from(configuration.budget),
    ), cell.problem_version, cell.seed, f"{campaign.title} · {cell}"[:200])  # fmt: skip


def stored_budget(budget: Budget) -> dict[str, Any]:
    """Return a budget as configurations store it; dollars become text, which loses no digit."""
    limits = {kind: limit for kind, limit in asdict(budget).items() if limit is not None}
    return limits | ({"usd": str(limits["usd"])} if "usd" in limits else {})


def budget_from(stored: Mapping[str, Any]) -> Budget:
    """Return a stored budget."""
    values = dict(stored)
    if values.get("usd") is not None:
        values["usd"] = Decimal(str(values["usd"]))
    return Budget(**values)


def _new_run(campaign: Any, configuration: NewConfiguration, version: Any, seed: int, title: str) -> NewRun:
    return NewRun(
        team=campaign.team,
        problem_version=version,
        target=campaign.target,
        strategy=configuration.strategy,
        settings=configuration.settings,
        providers=configuration.providers,
        budget=configuration.budget,
        seed=seed,
        baseline=campaign.baselines[0],
        objective=campaign.objective,
        dispatcher=campaign.dispatcher,
        dispatch_settings=campaign.dispatch_settings,
        title=title,
        is_private=campaign.is_private,
    )


def _entries(new: NewCampaign, faults: dict[str, Any]) -> list[SuiteEntry]:
    try:
        found = chosen(new.suite, new.subset)
    except UnknownNameError as error:
        faults["problems"] = str(error)
        return []
    # The same problem under two names would be counted twice.
    unique: dict[Any, SuiteEntry] = {}
    for entry in found:
        unique.setdefault(entry.problem_version_id or entry.name, entry)
    return list(unique.values())


def _run_faults(user: User | None, new: NewCampaign, usable: Sequence[SuiteEntry]) -> dict[str, Any]:
    """Return what would refuse every run of a configuration.

    What only some problems cannot do, such as a language that the target lacks, is named cell by cell when its turn
    comes: one such problem is no reason against the others.
    """
    faults: list[str] = []
    for one in new.configurations:
        refusals = [
            _refusal(user, _new_run(new, one, entry.problem_version, new.seeds[0], "")) for entry in usable[:3]
        ]
        if all(refusals):
            faults.append(f"{one.name}: {refusals[0]}")
    return {"configurations": faults} if faults else {}


def _refusal(user: User | None, new: NewRun) -> str:
    try:
        check_start_run(user, new)
    except ValidationError as refusal:
        return words_of(refusal)
    return ""


def words_of(refusal: ValidationError) -> str:
    """Return the complaints of a refusal in one line, each with its field."""
    return "; ".join(f"{name}: {' '.join(texts)}" for name, texts in refusal.message_dict.items())


def _configuration(campaign: Campaign, position: int, new: NewConfiguration) -> CampaignConfiguration:
    return CampaignConfiguration.objects.create(
        campaign=campaign,
        position=position,
        name=new.name,
        strategy=new.strategy,
        settings=dict(new.settings),
        providers=dict(new.providers),
        budget=stored_budget(new.budget),
    )


def _cells(
    campaign: Campaign,
    configurations: Sequence[CampaignConfiguration],
    entries: Sequence[SuiteEntry],
    seeds: Sequence[int],
) -> list[CampaignCell]:
    """Build the cells in random order: problems and seeds are shuffled, and the configurations within each."""
    rng = np.random.default_rng(campaign.order_seed)
    blocks = [(entry, seed) for entry in entries if entry.problem_version_id is not None for seed in seeds]
    shuffled = [blocks[index] for index in rng.permutation(len(blocks))]
    # Configurations on the same problem and seed are neighbours: whatever drifts with time affects them alike.
    combined = [
        (entry, seed, configurations[index])
        for entry, seed in shuffled
        for index in rng.permutation(len(configurations))
    ]
    return [
        CampaignCell(
            campaign=campaign, configuration=configuration, problem_version_id=entry.problem_version_id,
            name=entry.name, seed=seed, order=order,
        )
        for order, (entry, seed, configuration) in enumerate(combined)
    ]  # fmt: skip


def is_active(cell: CampaignCell) -> bool:
    """Return True for a cell whose run takes one of the campaign's places: it has one that is not paused."""
    return cell.run is not None and not cell.is_closed and cell.run.state != RunState.PAUSED


def _name(user: User | None) -> str:
    return user.get_username() if user else "the system"
