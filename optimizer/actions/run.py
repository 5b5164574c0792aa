"""Start and steer runs. Every function locks the run, records what it did and enqueues the next step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from pydantic import ValidationError as SettingsError

from optimizer.actions.audit import log_action
from optimizer.actions.job import do_cancel_jobs
from optimizer.actions.notification import do_follow
from optimizer.actions.quota import check_room_for_run
from optimizer.calls.choice import ChoiceError, check_choices
from optimizer.calls.lifecycle import do_ask_cancelled_again, do_cancel_calls
from optimizer.calls.tool_calls import do_cancel_tool_calls
from optimizer.enqueue import enqueue_run
from optimizer.events.payloads import BudgetRaised, RunStateChanged
from optimizer.events.record import record
from optimizer.loop.advance import enter
from optimizer.loop.seeds import add_seeds
from optimizer.models import AuditAction, ProblemVersion, Run, RunState, Target, Team, TeamRole, User
from optimizer.models.run import RunTransitionError
from optimizer.queries.budgets import Budget, budget_of, limit_faults
from optimizer.runs.ahead import do_cancel_ahead
from optimizer.runs.budget import ended_by_budget, exhausted
from optimizer.runs.languages import languages_for
from optimizer.runs.locking import lock_run
from optimizer.search import STRATEGIES
from optimizer.text.complaints import complaints_of
from runners.dispatch import DISPATCHERS
from runners.job import Baseline, Objective
from runners.targets import TARGETS

MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class NewRun:
    """Hold everything with which a run is started.

    `settings` are the strategy's own. `providers` maps a role, or `default`, to who answers it: `{"default":
    {"provider": …, "model": …}}`.
    """

    team: Team
    problem_version: ProblemVersion
    target: Target
    strategy: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    providers: Mapping[str, Any] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    seed: int = 0
    baseline: str = Baseline.EAGER.value
    objective: str = Objective.DEVICE.value
    dispatcher: str = "celery"
    dispatch_settings: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    guidance: str = ""
    is_private: bool = False
    is_demo: bool = False
    cloned_from: Run | None = None


def check_start_run(user: User | None, new: NewRun) -> NewRun:
    """Validate the settings of a new run and return them. Raises ValidationError with the fields at fault.

    `user` None is the system itself.
    """
    faults: dict[str, Any] = {}
    _note_fault(faults, "team", _may_start(user, new.team), "You may not start runs in this team.")
    _note_fault(faults, "problem", _is_problem_of(new), "This problem belongs to another team.")
    _note_fault(faults, "strategy", new.strategy in STRATEGIES, f"There is no strategy {new.strategy!r}.")
    _note_fault(faults, "dispatcher", new.dispatcher in DISPATCHERS, f"There is no dispatcher {new.dispatcher!r}.")
    _note_fault(faults, "baseline", new.baseline in set(Baseline), f"There is no baseline {new.baseline!r}.")
    _note_fault(faults, "objective", new.objective in set(Objective), f"There is no objective {new.objective!r}.")
    _note_fault(faults, "objective", *_objective_fits(new))
    _note_fault(faults, "seed", 0 <= new.seed <= MAX_SEED, "Enter a seed of 0 or more.")
    _note_fault(faults, "target", _has_language(new), "This problem has no language that the target can run.")
    faults |= budget_faults(new.budget) | _settings_faults(new) | _dispatch_faults(new) | _provider_faults(new)
    if faults:
        raise ValidationError(faults)
    return new


def _is_problem_of(new: NewRun) -> bool:
    """Return whether runs of the team may use the problem: its members could not see another team's."""
    return new.problem_version.problem.team_id in (None, new.team.pk)


def do_start_run(user: User | None, new: NewRun, *, by_hand: bool = True) -> Run:
    """Store the run and enqueue its first step. Raises ValidationError (see `check_start_run`).

    Runs that a campaign starts for a person (`by_hand` False) have the campaign's limits instead of the person's.
    """
    check_start_run(user, new)
    with transaction.atomic():
        if by_hand:
            check_room_for_run(user)
        run = Run.objects.create(
            team=new.team,
            title=(new.title or default_title(new))[:200],
            problem_version=new.problem_version,
            target=new.target,
            strategy=new.strategy,
            settings=dict(new.settings),
            providers=dict(new.providers),
            baseline=new.baseline,
            objective=new.objective,
            seed=new.seed,
            dispatcher=new.dispatcher,
            dispatch_settings=dict(new.dispatch_settings),
            guidance=new.guidance,
            is_private=new.is_private,
            is_demo=new.is_demo,
            cloned_from=new.cloned_from,
            created_by=user,
            **{f"budget_{kind}": limit for kind, limit in asdict(new.budget).items()},
        )
        log_action(AuditAction.RUN_STARTED, user, run)
        if user is not None:
            do_follow(user, run)
        # Sent after commit, so that the worker can see the row.
        enqueue_run(run.pk)
    return run


def default_title(new: NewRun) -> str:
    """Return the name of a run that was given none: `STARK · Row-wise softmax · AMD EPYC 9654`."""
    strategy = STRATEGIES[new.strategy].title
    return f"{strategy} · {new.problem_version.problem.title} · {new.target.title}"


def do_pause_run(user: User | None, run: Run) -> Run:
    """Pause the run: open work ends, nothing new begins. Raises RunTransitionError."""

    def pause(locked: Run) -> None:
        enter(locked, RunState.PAUSED, f"Paused by {_name(user)}.")
        log_action(AuditAction.RUN_PAUSED, user, locked)

    return _steer(run, pause)


def do_resume_run(user: User | None, run: Run) -> Run:
    """Resume a paused run. Raises RunTransitionError."""

    def resume(locked: Run) -> None:
        # A pending run may also enter the state running, but only the timer starts one.
        if locked.state != RunState.PAUSED:
            raise RunTransitionError("only a paused run can be resumed")
        enter(locked, RunState.RUNNING)
        # One that was paused before its first step has no seeds yet, and only the step of a pending run adds them.
        if not locked.kernels.exists():
            add_seeds(locked)
        log_action(AuditAction.RUN_RESUMED, user, locked)

    return _steer(run, resume)


def do_stop_run(user: User | None, run: Run) -> Run:
    """Stop the run permanently: cancel waiting work and ask workers to stop. Raises RunTransitionError."""

    def stop(locked: Run) -> None:
        enter(locked, RunState.STOPPING, f"Stopped by {_name(user)}.")
        do_cancel_calls(locked)
        do_cancel_tool_calls(locked)
        do_cancel_ahead(locked)
        do_cancel_jobs(locked)
        log_action(AuditAction.RUN_STOPPED, user, locked)

    return _steer(run, stop)


def do_raise_budget(user: User | None, run: Run, budget: Budget) -> Run:
    """Replace the limits of a live run. Raises ValidationError, RunTransitionError."""
    if faults := budget_faults(budget):
        raise ValidationError(faults)

    def change(locked: Run) -> None:
        if locked.state_choice.is_terminal:
            raise RunTransitionError("this run has ended; continue it with more budget, or clone it")
        _set_limits(user, locked, budget)

    return _steer(run, change)


def _set_limits(user: User | None, locked: Run, budget: Budget) -> None:
    """Store the limits, with event and audit entry. Call under the run's lock."""
    limits = asdict(budget)
    for kind, limit in limits.items():
        setattr(locked, f"budget_{kind}", limit)
    # Percentages of the old limits say nothing about the new ones.
    locked.warned = {}
    locked.save(update_fields=["warned", *(f"budget_{kind}" for kind in limits)])
    figures = {kind: None if limit is None else float(limit) for kind, limit in limits.items()}
    record(locked, BudgetRaised(limits=figures))
    log_action(AuditAction.RUN_BUDGET, user, locked, limits=figures)


def do_continue_run(user: User | None, run: Run, budget: Budget, *, by_hand: bool = True) -> Run:
    """Continue a run that finished because its budget was used up, under larger limits.

    Only its campaign continues a run of a campaign (`by_hand` False). Raises ValidationError for limits that are still
    used up, RunTransitionError for a run that cannot continue.
    """
    if faults := budget_faults(budget):
        raise ValidationError(faults)

    def reopen(locked: Run) -> None:
        # A campaign has settled what its runs found, and nobody would settle it again.
        if by_hand and hasattr(locked, "campaign_cell"):
            raise RunTransitionError(
                "a run of a campaign cannot be continued alone; continue the campaign or clone it"
            )
        if not ended_by_budget(locked):
            raise RunTransitionError("only a run that used up its budget can be continued; clone it")
        _set_limits(user, locked, budget)
        if still := exhausted(locked):
            raise ValidationError(f"{still} Raise it to continue.")
        locked.reopen()
        do_ask_cancelled_again(locked)
        record(locked, RunStateChanged(state=locked.state, reason="Continued with more budget."))
        log_action(AuditAction.RUN_RESUMED, user, locked)

    return _steer(run, reopen)


def as_new_run(run: Run) -> NewRun:
    """Return the settings with which a clone of the run would be started."""
    return NewRun(
        team=run.team,
        problem_version=run.problem_version,
        target=run.target,
        strategy=run.strategy,
        settings=run.settings,
        providers=run.providers,
        budget=budget_of(run),
        seed=run.seed,
        baseline=run.baseline,
        objective=run.objective,
        dispatcher=run.dispatcher,
        dispatch_settings=run.dispatch_settings,
        title=run.title,
        guidance=run.guidance,
        is_private=run.is_private,
        cloned_from=run,
    )


def do_clone_run(user: User | None, run: Run) -> Run:
    """Start a run with the same settings. Raises ValidationError when they are no longer allowed."""
    return do_start_run(user, as_new_run(run))


def _steer(run: Run, change: Callable[[Run], None]) -> Run:
    with transaction.atomic():
        locked = lock_run(run.pk)
        change(locked)
        enqueue_run(locked.pk)
    return locked


def _name(user: User | None) -> str:
    return user.get_username() if user else "the system"


def _note_fault(faults: dict[str, Any], name: str, sound: bool, text: str) -> None:
    if not sound:
        faults[name] = text


def _may_start(user: User | None, team: Team) -> bool:
    # None stands for commands and the demo, which act for the installation.
    role = TeamRole.OWNER if user is None else user.role_in(team)
    return role is not None and role.rank >= TeamRole.OPERATOR.rank


def _has_language(new: NewRun) -> bool:
    return not set(new.problem_version.languages).isdisjoint(languages_for(new.target.key))


def _objective_fits(new: NewRun) -> tuple[bool, str]:
    """Return whether the target has such a time, and what to say where it has not."""
    fits = new.objective != Objective.CALL or has_call_time(new.target.key)
    return fits, "On a CPU, device time and call time are the same: leave the objective at device time."


def has_call_time(target: str) -> bool:
    """Return True for a target whose calls cost the host time beside the device's: any GPU."""
    known = TARGETS.get(target)
    return known is not None and known.family != "cpu"


def budget_faults(budget: Budget) -> dict[str, str]:
    """Return the faults of a run's limits, by field."""
    return limit_faults(asdict(budget), "budget_")


def _settings_faults(new: NewRun) -> dict[str, list[str]]:
    strategy = STRATEGIES.get(new.strategy)
    try:
        if strategy is not None:
            strategy.Settings.model_validate(dict(new.settings))
    except SettingsError as error:
        return {"settings": list(map(str, complaints_of(error)))}
    return {}


def _dispatch_faults(new: NewRun) -> dict[str, list[str]]:
    dispatcher = DISPATCHERS.get(new.dispatcher)
    faults = dispatcher.faults(dict(new.dispatch_settings)) if dispatcher else []
    return {"dispatcher": faults} if faults else {}


def _provider_faults(new: NewRun) -> dict[str, list[str]]:
    try:
        check_choices(new.team, new.providers, priced=new.budget.usd is not None)
    except ChoiceError as error:
        return {"providers": [str(error)]}
    return {}
