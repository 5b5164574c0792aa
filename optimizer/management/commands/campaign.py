"""Run whole suites: `manage.py campaign suite|start|list|status|pause|resume|stop|continue|report|retime`."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import pydantic
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from optimizer.actions import campaign as actions
from optimizer.actions.campaign import Limits, NewCampaign, NewConfiguration, words_of
from optimizer.actions.campaign_budget import do_continue_campaign
from optimizer.actions.demo import do_make_default_team
from optimizer.actions.problem import do_sync_shipped_problems
from optimizer.actions.retiming import NOTHING_RELEASED, UNDER_WAY, do_start_retiming
from optimizer.actions.suite import NewEntry
from optimizer.actions.target import do_sync_targets
from optimizer.campaigns.advance import advance_campaign
from optimizer.campaigns.retiming import advance_retiming
from optimizer.forms.bodies import Body, ConfigurationIn, TotalLimits
from optimizer.forms.bodies import Limits as RunLimits
from optimizer.forms.campaign import parse_seeds, providers_of
from optimizer.models import Campaign, CampaignState, Evaluation, RetimeRound, RetimeVerdict, Suite, Target, Team
from optimizer.models.campaign import LIMIT_KINDS, CampaignTransitionError
from optimizer.problems.suites import EmptySuiteError, Reading, read_suite
from optimizer.queries.budgets import Budget
from optimizer.queries.campaign_results import results_of
from optimizer.queries.campaign_spending import spent_by_configuration, total
from optimizer.queries.suites import Subset
from optimizer.reports.campaign import FORMS, markdown_report
from optimizer.search.ablations import SETS
from optimizer.text.bounded_json import read_json
from optimizer.text.complaints import complaints_of
from runners.dispatch import DISPATCHERS
from runners.job import Baseline, Objective

Checked = TypeVar("Checked", bound=Body)

POLL_S = 1.0
GIB = 1 << 30
# Exit codes of `retime`, for CI: a kernel has become slower or wrong; something could not be measured or was refused;
# nothing is released, so that whoever expects releases can tell a wrong team or target from success.
ALARM, INCOMPLETE, UNWATCHED = 1, 2, 3


class Command(BaseCommand):
    """Start and steer campaigns on the workers of `manage.py up`."""

    help = "Run whole suites of problems, compare configurations, and time released kernels again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the actions with their options."""
        commands = parser.add_subparsers(dest="action", required=True)
        _suite_options(commands.add_parser("suite", help="read a suite from a path, or `shipped`"))
        _start_options(commands.add_parser("start", help="start a campaign"))
        commands.add_parser("list", help="list campaigns and suites")
        for name in ("status", "pause", "resume", "stop"):
            commands.add_parser(name).add_argument("campaign", type=int)
        _continue_options(commands.add_parser("continue", help="go on with a larger budget for each run"))
        reporting = commands.add_parser("report", help="write a report")
        reporting.add_argument("campaign", type=int)
        reporting.add_argument("--format", default="md", choices=list(FORMS))
        reporting.add_argument("--output", type=Path, help="file (default: standard output)")
        _retime_options(
            commands.add_parser("retime", help="time released kernels again; exit code 1 on a regression")
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """Run the action. Raises CommandError with a reason."""
        try:
            getattr(self, f"_{options['action']}")(options)
        except ValidationError as refusal:
            is_dict = hasattr(refusal, "error_dict")
            raise CommandError(words_of(refusal) if is_dict else " ".join(refusal.messages)) from refusal
        except CampaignTransitionError as refusal:
            raise CommandError(f"{refusal}.") from refusal

    def _suite(self, options: dict[str, Any]) -> None:
        most = options["most_gib"]
        how = Reading(
            target=options["target"],
            trace=not options["no_trace"],
            run_references=options["run"],
            timeout_s=options["timeout_s"],
            most_bytes=None if most is None else int(most * GIB),
        )
        do_sync_targets()
        try:
            suite, is_new = read_suite(options["path"], how, options["name"], options["licence"], self._tell)
        except EmptySuiteError as error:
            raise CommandError(f"{error}.") from error
        usable = suite.entries.filter(problem_version__isnull=False).count()
        broken = suite.entries.count() - usable
        told = f"{'New' if is_new else 'Known'}: {suite.slug} v{suite.number}, {usable} problems"
        self.stdout.write(f"{told}{f', {broken} that cannot be used' if broken else ''}. Licence: {suite.licence}.")

    def _tell(self, entry: NewEntry) -> None:
        size = f" {entry.footprint_bytes / GIB:.2f} GiB" if entry.footprint_bytes is not None else ""
        self.stdout.write(f"{entry.name}{size}{f': {entry.complaint}' if entry.complaint else ''}")

    def _start(self, options: dict[str, Any]) -> None:
        do_sync_targets()
        do_sync_shipped_problems()
        campaign = actions.do_start_campaign(None, _new(options))
        if not options["wait"]:
            self.stdout.write(f"Started campaign {campaign.pk}: {campaign.cells.count()} runs.")
            return
        self._follow(campaign)
        self.stdout.write(markdown_report(campaign))

    def _follow(self, campaign: Campaign) -> None:
        """Print progress until the campaign ends or pauses. Ctrl-C stops it."""
        told = ""
        try:
            while not campaign.state_choice.is_terminal and campaign.state != CampaignState.PAUSED:
                if (line := _progress(campaign)) != told:
                    self.stderr.write(line)
                    told = line
                time.sleep(POLL_S)
                campaign.refresh_from_db()
        except KeyboardInterrupt:
            actions.do_stop_campaign(None, campaign)
            raise CommandError(f"Campaign {campaign.pk} is being stopped.") from None

    def _list(self, _options: dict[str, Any]) -> None:
        for suite in Suite.objects.all():
            self.stdout.write(
                f"suite {suite.slug} v{suite.number}: {suite.entries.count()} problems, {suite.licence}"
            )
        for campaign in Campaign.objects.order_by("pk"):
            self.stdout.write(f"campaign {campaign.pk} {campaign.title}: {_progress(campaign)}")

    def _status(self, options: dict[str, Any]) -> None:
        campaign = _campaign(options)
        self.stdout.write(f"{campaign.title}: {_progress(campaign)}")
        for one, spent in zip(
            campaign.configurations.all(), spent_by_configuration(campaign).values(), strict=False
        ):
            halted = f" Halted: {one.halted_why}" if one.halted_why else ""
            self.stdout.write(
                f"  {one.name}: {spent.done} of {spent.cells} runs, {spent.evaluations} evaluations, "
                f"{spent.tokens:.0f} tokens, ${spent.usd:.2f}, {spent.device_s:.0f} s of the device.{halted}"
            )
        for cell in results_of(campaign).unresolved():
            self.stdout.write(f"  {cell.name}, seed {cell.seed}: {cell.why or cell.outcome}")

    def _pause(self, options: dict[str, Any]) -> None:
        self.stdout.write(f"{actions.do_pause_campaign(None, _campaign(options)).state_choice.label}.")

    def _resume(self, options: dict[str, Any]) -> None:
        self.stdout.write(f"{actions.do_resume_campaign(None, _campaign(options)).state_choice.label}.")

    def _stop(self, options: dict[str, Any]) -> None:
        campaign = actions.do_stop_campaign(None, _campaign(options))
        advance_campaign(campaign.pk)
        campaign.refresh_from_db()
        self.stdout.write(f"{campaign.state_choice.label}.")

    def _continue(self, options: dict[str, Any]) -> None:
        campaign = _campaign(options)
        given = asdict(_all_runs(options))
        limits = {kind: limit for kind, limit in given.items() if limit is not None}
        do_continue_campaign(None, campaign, _each_run(options), limits)
        waiting = campaign.cells.filter(is_continuing=True).count()
        live = actions.active_cells(campaign).count()
        self.stdout.write(f"Continued campaign {campaign.pk}: {waiting} runs go on, {live} are under way.")

    def _report(self, options: dict[str, Any]) -> None:
        text = FORMS[options["format"]][2](_campaign(options))
        if options["output"]:
            options["output"].write_text(text)
        else:
            self.stdout.write(text)

    def _retime(self, options: dict[str, Any]) -> None:
        made, is_new = _round(options)
        if options["no_wait"]:
            told = f"Started round {made.pk}" if is_new else f"Round {made.pk} is under way already"
            self.stdout.write(f"{told}: {made.retimings.count()} kernels.")
            return
        if not is_new:
            self.stderr.write(f"Round {made.pk} is under way already and is followed.")
        deadline = time.monotonic() + 60 * options["minutes"]
        while made.finished_at is None and time.monotonic() < deadline:
            # The step is safe to call from here too, so the command works without a timer.
            advance_retiming(made.pk)
            time.sleep(POLL_S)
            made.refresh_from_db()
        if code := self._verdict(made, as_json=options["json"]):
            raise SystemExit(code)

    def _verdict(self, made: RetimeRound, *, as_json: bool) -> int:
        rows = list(made.retimings.select_related("kernel__run"))
        if as_json:
            self.stdout.write(json.dumps([
                {"run": row.run_id, "kernel": row.kernel.number, "verdict": row.verdict or None, "ratio": row.ratio,
                 "text": row.text} for row in rows
            ]))  # fmt: skip
        else:
            for row in rows:
                self.stdout.write(f"{row.verdict_choice.label}: {row.kernel.run} #{row.kernel.number}. {row.text}")
        if any(row.verdict_choice.is_alarm for row in rows):
            return ALARM
        return INCOMPLETE if any(row.verdict in ("", RetimeVerdict.UNKNOWN) for row in rows) else 0


def _suite_options(parser: ArgumentParser) -> None:
    parser.add_argument("path", help="a level, a folder of problems, or `shipped`")
    parser.add_argument("--name", default="", help="name of the suite (default: from the path)")
    parser.add_argument("--licence", default="", help="replaces the first line of the licence file")
    parser.add_argument("--target", default="cpu", help="where references are run")
    parser.add_argument("--run", action="store_true", help="run each reference in its own process")
    parser.add_argument("--no-trace", action="store_true", help="derive no signatures and footprints: much faster")
    parser.add_argument("--timeout-s", type=float, default=60.0, help="limit for one problem")
    parser.add_argument("--most-gib", type=float, help="leave out problems with a larger footprint")


def _start_options(parser: ArgumentParser) -> None:
    parser.add_argument("--suite", required=True, help="name of a suite, or NAME@NUMBER")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="name or pattern of a problem")
    parser.add_argument("--draw", type=int, metavar="N", help="number of problems to draw at random")
    parser.add_argument("--draw-seed", type=int, default=0)
    parser.add_argument("--most-gib", type=float, help="leave out problems with a larger footprint")
    parser.add_argument(
        "--configuration", action="append", default=[], metavar="JSON",
        help='{"name": …, "strategy": …, "settings": {…}, "provider": …, "model": …, "budget": {"evaluations": …}}; '
             '"providers": {ROLE: {…}} in place of provider and model names them by role, as in the API',
    )  # fmt: skip
    parser.add_argument("--set", choices=list(SETS), help="a ready set of configurations")
    parser.add_argument("--provider", default="", help="provider of all roles for configurations that name none")
    parser.add_argument("--model", default="", help="model, or recording of `replay`")
    _budget_options(parser, "budget of each run without one in its configuration")
    parser.add_argument("--seeds", default="0,1,2", help="such as 0,1,5-7")
    parser.add_argument("--baseline", action="append", choices=[one.value for one in Baseline])
    parser.add_argument(
        "--objective", default=Objective.DEVICE.value, choices=[one.value for one in Objective],
        help="time that speedups compare: on the device alone, or of calls with the host",
    )  # fmt: skip
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--dispatcher", default="celery", choices=list(DISPATCHERS))
    parser.add_argument("--team", default="", help="slug (default: the team of this installation)")
    parser.add_argument("--title", default="")
    parser.add_argument("--private", action="store_true", help="visible to the team's owners alone")
    _limit_options(parser)
    parser.add_argument("--parallel", type=int, default=1, help="runs at once")
    parser.add_argument("--order-seed", type=int, default=0)
    parser.add_argument("--wait", action="store_true", help="follow the campaign and print its report")


def _continue_options(parser: ArgumentParser) -> None:
    parser.add_argument("campaign", type=int)
    _budget_options(parser, "larger budget of each run")
    _limit_options(parser)


def _budget_options(parser: ArgumentParser, what: str) -> None:
    parser.add_argument("--evaluations", type=int, help=what)
    parser.add_argument("--run-minutes", type=float, help=f"{what}, in active minutes")
    parser.add_argument("--run-usd", help=f"{what}, in US dollars")
    parser.add_argument("--run-tokens", type=int, help=f"{what}, in tokens")
    parser.add_argument("--run-device-minutes", type=float, help=f"{what}, in device minutes")


def _limit_options(parser: ArgumentParser) -> None:
    parser.add_argument("--usd", help="limit of all runs together, in US dollars")
    parser.add_argument("--tokens", type=int, help="limit of all runs together")
    parser.add_argument("--device-minutes", type=float, help="limit of all runs together")


def _retime_options(parser: ArgumentParser) -> None:
    parser.add_argument("--team", default="", help="slug (default: the team of this installation)")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--reason", default="", help="such as: driver 580.95")
    parser.add_argument("--minutes", type=float, default=120.0, help="longest time to wait")
    parser.add_argument("--no-wait", action="store_true")
    parser.add_argument("--json", action="store_true")


def _new(options: dict[str, Any]) -> NewCampaign:
    most = options["most_gib"]
    return NewCampaign(
        team=_team(options["team"]),
        suite=_suite_of(options["suite"]),
        target=_target(options["target"]),
        configurations=_configurations(options),
        subset=Subset(tuple(options["only"]), options["draw"], options["draw_seed"],
                      None if most is None else int(most * GIB)),
        seeds=parse_seeds(options["seeds"]),
        baselines=options["baseline"] or [Baseline.EAGER.value],
        objective=options["objective"],
        dispatcher=options["dispatcher"],
        limits=_all_runs(options),
        parallel_runs=options["parallel"],
        order_seed=options["order_seed"],
        title=options["title"],
        is_private=options["private"],
    )  # fmt: skip


class _Configuration(ConfigurationIn):
    """Describe a configuration as the API does, or with one answerer of all roles as `provider` and `model`."""

    provider: str = ""
    model: str = ""

    def completed(self, provider: str, model: str, budget: Budget) -> NewConfiguration:
        """Return the configuration, with what the command's options say of all that it leaves out.

        Raises ValueError where it names answerers in two ways, or a model of no provider.
        """
        given = self.model_fields_set
        if "providers" in given and given & {"provider", "model"}:
            raise ValueError("providers: say who answers either by role or as provider and model")
        if self.model and not (self.provider or provider):
            raise ValueError("model: name its provider too")
        # The model of another provider is nobody's.
        shorthand = providers_of(self.provider or provider, self.model or ("" if self.provider else model))
        return replace(
            self.new_configuration(),
            providers=self.providers if "providers" in given else shorthand,
            budget=self.budget.budget() if "budget" in given else budget,
        )


def _configurations(options: dict[str, Any]) -> list[NewConfiguration]:
    budget = _each_run(options)
    provider, model = options["provider"], options["model"]
    ready = SETS[options["set"]].arms if options["set"] else ()
    providers = providers_of(provider, model)
    found = [NewConfiguration(arm.name, arm.strategy, arm.settings, providers, budget) for arm in ready]
    return found + [_configuration(text, provider, model, budget) for text in options["configuration"]]


def _configuration(text: str, provider: str, model: str, budget: Budget) -> NewConfiguration:
    what = f"--configuration {text[:200]}"
    try:
        return _checked(_Configuration, read_json(text), what).completed(provider, model, budget)
    except ValueError as error:
        raise CommandError(f"{what}: {error}") from error


def _each_run(options: dict[str, Any]) -> Budget:
    kinds = ("minutes", "usd", "tokens", "device_minutes")
    limits = {"evaluations": options["evaluations"], **{kind: options[f"run_{kind}"] for kind in kinds}}
    return _checked(RunLimits, limits, "budget of each run").budget()


def _all_runs(options: dict[str, Any]) -> Limits:
    return _checked(TotalLimits, {kind: options[kind] for kind in LIMIT_KINDS}, "limit of all runs").limits()


def _checked(kind: type[Checked], given: Any, what: str) -> Checked:
    """Return what was given as the API would read it. Raises CommandError with the fields at fault."""
    try:
        return kind.model_validate(given)
    except pydantic.ValidationError as error:
        raise CommandError(f"{what}: {'; '.join(map(str, complaints_of(error)))}") from error


def _campaign(options: dict[str, Any]) -> Campaign:
    found = Campaign.objects.filter(pk=options["campaign"]).first()
    if found is None:
        raise CommandError(f"There is no campaign {options['campaign']}.")
    return found


def _suite_of(name: str) -> Suite:
    slug, _, number = name.partition("@")
    rows = Suite.objects.filter(slug=slug)
    found = rows.filter(number=number).first() if number.isdecimal() else rows.order_by("-number").first()
    if found is None:
        known = ", ".join(Suite.objects.order_by("slug").values_list("slug", flat=True).distinct())
        raise CommandError(
            f"There is no suite {name!r}; known are {known or f'none: {settings.SITE_COMMAND} campaign suite PATH'}."
        )
    return found


def _target(key: str) -> Target:
    found = Target.objects.filter(key=key).first()
    if found is None:
        raise CommandError(f"There is no target {key!r}.")
    return found


def _team(slug: str) -> Team:
    if not slug:
        return do_make_default_team()
    found = Team.objects.filter(slug=slug).first()
    if found is None:
        raise CommandError(f"There is no team {slug!r}.")
    return found


def _round(options: dict[str, Any]) -> tuple[RetimeRound, bool]:
    """Return the round of team and target, and whether it is new. Raises CommandError with a code that is not ALARM."""
    try:
        return _started_or_open(_team(options["team"]), _target(options["target"]), options["reason"])
    except ValidationError as refusal:
        code = UNWATCHED if refusal.code == NOTHING_RELEASED else INCOMPLETE
        raise CommandError(" ".join(refusal.messages), returncode=code) from refusal
    except CommandError as refusal:
        raise CommandError(str(refusal), returncode=INCOMPLETE) from refusal


def _started_or_open(team: Team, target: Target, reason: str) -> tuple[RetimeRound, bool]:
    under_way = RetimeRound.objects.filter(team=team, target=target, finished_at=None)
    if (found := under_way.first()) is not None:
        return found, False
    try:
        return do_start_retiming(None, team, target, reason), True
    except ValidationError as refusal:
        # The site may have started one since.
        if refusal.code != UNDER_WAY or (found := under_way.first()) is None:
            raise
        return found, False


def _progress(campaign: Campaign) -> str:
    spent = total(spent_by_configuration(campaign))
    timed = campaign.timings.filter(evaluation__state="done").count()
    # A campaign that goes on still has the timings of its earlier settling.
    is_timed = campaign.settling_at is not None and campaign.timings.exists()
    settling = f", {timed} of {campaign.timings.count()} timings" if is_timed else ""
    open_jobs = Evaluation.objects.filter(
        kernel__run__campaign_cell__campaign=campaign, state__in=["queued", "running"]
    ).count()
    return (
        f"{campaign.state_choice.label.lower()}, {spent.done} of {spent.cells} runs ended, {spent.active} running, "
        f"{open_jobs} evaluations open{settling}"
    )
