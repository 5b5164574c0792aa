"""The form that starts a run. Its fields may all stand in an address; its checks are those of `check_start_run`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields as dataclass_fields
from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import QuerySet

from optimizer.actions.run import Budget, NewRun, check_start_run
from optimizer.forms.strategy_settings import (
    PREFIX,
    settings_errors,
    settings_fields,
    settings_initial,
    settings_values,
)
from optimizer.llm.choice import ChoiceError, check_choices
from optimizer.models import Problem, Provider, Record, Run, Target, Team, TeamRole, User
from optimizer.search import STRATEGIES
from runners.dispatch import DISPATCHERS
from runners.job import Baseline

DEFAULT_STRATEGY = "tune"
DEFAULT_MINUTES = 30
COPIED = ("strategy", "title", "baseline", "seed", "dispatcher", "guidance", "is_private")
ANSWERED_BY = ("provider", "model", "record")
BUDGETS = tuple(f"budget_{field.name}" for field in dataclass_fields(Budget))


class StartRunForm(forms.Form):
    """Problem, target, strategy with its settings, budget. `user` decides which teams there are."""

    problem = forms.ModelChoiceField(Problem.objects.none(), to_field_name="slug", empty_label=None)
    target = forms.ModelChoiceField(Target.objects.none(), to_field_name="key", empty_label=None)
    strategy = forms.ChoiceField()
    title = forms.CharField(max_length=200, required=False, help_text="Empty: named by its number.")
    team = forms.ModelChoiceField(Team.objects.none(), to_field_name="slug", empty_label=None)
    baseline = forms.ChoiceField(help_text="What speedups are measured against.")
    seed = forms.IntegerField(
        initial=0, min_value=0, help_text="The same seed and history give the same decisions."
    )
    budget_evaluations = forms.IntegerField(
        required=False, min_value=1, label="Evaluations", help_text="Kernels to try; seeds come on top."
    )
    budget_minutes = forms.FloatField(
        required=False,
        min_value=0,
        label="Minutes",
        initial=DEFAULT_MINUTES,
        help_text="Of running, pauses left out.",
    )
    budget_usd = forms.DecimalField(
        required=False,
        min_value=0,
        max_digits=10,
        decimal_places=4,
        label="US dollars",
        help_text="For model calls.",
    )
    budget_tokens = forms.IntegerField(
        required=False, min_value=1, label="Tokens", help_text="In and out together."
    )
    budget_device_minutes = forms.FloatField(
        required=False, min_value=0, label="Device minutes", help_text="Of checking and timing."
    )
    guidance = forms.CharField(
        required=False, max_length=8000, widget=forms.Textarea(attrs={"rows": 4}), help_text="Read by the agents."
    )
    provider = forms.ChoiceField(
        required=False, label="Answered by", help_text="Who answers the agents' questions."
    )
    model = forms.CharField(
        required=False, max_length=120, help_text="As the provider names it; empty: its default model."
    )
    record = forms.ChoiceField(required=False, label="Record", help_text="Which recorded answers to replay.")
    dispatcher = forms.ChoiceField(label="Way to the runners")
    is_private = forms.BooleanField(required=False, label="Visible to me and the team's owners only")

    def __init__(
        self, user: User, data: Any = None, *, given: Mapping[str, Any], clone_of: Run | None = None
    ) -> None:
        self.user = user
        self.clone_of = clone_of
        self.strategy_name = _strategy_name(data or given)
        self.strategy_class = STRATEGIES[self.strategy_name]
        initial = {key: value for key, value in given.items() if value != ""}
        super().__init__(data, initial={"strategy": self.strategy_name} | _habits(user) | initial)
        self.settings_names = list(settings_fields(self.strategy_class.Settings))
        self.fields.update(settings_fields(self.strategy_class.Settings))
        self._offer()
        for name in self.fields:
            self.initial[name] = _as_flag(self.fields[name], self.initial.get(name))

    def _offer(self) -> None:
        self._choose("problem", Problem.objects.order_by("title"))
        self._choose("target", Target.objects.order_by("key"))
        self._choose("team", teams_to_start_in(self.user))
        self._offer_answers()
        self.fields["strategy"].choices = [(name, one.title) for name, one in STRATEGIES.items()]  # type: ignore[attr-defined]
        self.fields["baseline"].choices = [(one.value, one.value.replace("_", " ")) for one in Baseline]  # type: ignore[attr-defined]
        self.fields["dispatcher"].choices = [(name, name) for name in DISPATCHERS]  # type: ignore[attr-defined]
        self.fields["budget_evaluations"].initial = self.strategy_class.default_evaluations

    def _offer_answers(self) -> None:
        """Everybody who may answer: the teams' servers, people, records."""
        servers = Provider.objects.usable_by(self.user).enabled().values_list("name", flat=True)
        records = Record.objects.filter(team__in=teams_to_start_in(self.user)).order_by("name")
        people = [("inbox", "People and outside agents, through the inbox")]
        replay = [("replay", "Recorded answers")] if records else []
        self.fields["provider"].choices = [*((name, name) for name in dict.fromkeys(servers)), *people, *replay]  # type: ignore[attr-defined]
        self.fields["record"].choices = [("", "None"), *((row.name, str(row)) for row in records)]  # type: ignore[attr-defined]

    def _choose(self, name: str, rows: QuerySet[Any]) -> None:
        cast("forms.ModelChoiceField[Any]", self.fields[name]).queryset = rows

    def settings_boxes(self) -> list[forms.BoundField]:
        """The strategy's own fields."""
        return [self[name] for name in self.settings_names]

    def budget_boxes(self) -> list[forms.BoundField]:
        """The limits."""
        return [self[name] for name in BUDGETS]

    def clean(self) -> dict[str, Any]:
        """Ask the strategy, then the action. Their complaints land beside the fields they are about."""
        super().clean()
        for name, message in settings_errors(self.strategy_class.Settings, settings_values(self.cleaned_data)):
            self.add_error(name if name in self.fields else None, message)
        if not self.errors:
            self._ask_action()
        return self.cleaned_data

    def _ask_action(self) -> None:
        new = self.new_run()
        try:
            check_choices(new.team, new.providers, priced=new.budget.usd is not None)
        except ChoiceError as refusal:
            self.add_error("provider", str(refusal))
        try:
            check_start_run(self.user, new)
        except ValidationError as refusal:
            for name, messages in refusal.message_dict.items():
                for message in messages:
                    self.add_error(_field_of(name, self.fields), message)

    def new_run(self) -> NewRun:
        """What the action is asked for."""
        values = self.cleaned_data
        return NewRun(
            team=values["team"],
            problem_version=values["problem"].latest(),
            target=values["target"],
            strategy=self.strategy_name,
            settings=settings_values(values),
            providers=self._providers(),
            budget=Budget(**{name.removeprefix("budget_"): values.get(name) for name in BUDGETS}),
            seed=values["seed"],
            baseline=values["baseline"],
            dispatcher=values["dispatcher"],
            title=values["title"],
            guidance=values["guidance"],
            is_private=values["is_private"],
            cloned_from=self.clone_of,
        )

    def _providers(self) -> dict[str, Any]:
        chosen = {key: self.cleaned_data[key] for key in ANSWERED_BY if self.cleaned_data.get(key)}
        return {"default": chosen} if chosen.get("provider") and self.strategy_class.needs_model else {}


def teams_to_start_in(user: User) -> QuerySet[Team]:
    """Teams in which the person may start runs."""
    if user.is_superuser:
        return Team.objects.order_by("name")
    roles = [role for role in TeamRole if role.rank >= TeamRole.OPERATOR.rank]
    return Team.objects.filter(memberships__user=user, memberships__role__in=roles).order_by("name")


def values_of(run: Run) -> dict[str, Any]:
    """The form's values for a clone of a run."""
    values: dict[str, Any] = {name: getattr(run, name) for name in BUDGETS}
    values |= {
        "problem": run.problem_version.problem.slug,
        "target": run.target.key,
        "team": run.team.slug,
        **{name: getattr(run, name) for name in COPIED},
        **{name: value for name, value in _default_choice(run).items() if name in ANSWERED_BY},
    }
    return values | dict(settings_initial(run.settings, PREFIX))


def _habits(user: User) -> dict[str, Any]:
    """What the person, or anybody whose runs they see, ran last: the likeliest choice."""
    seen = Run.objects.visible_to(user).order_by("-created_at")
    rows = seen.values_list("problem_version__problem__slug", "target__key", "created_at")
    latest = rows.filter(created_by=user).first() or rows.first()
    return {"problem": latest[0], "target": latest[1]} if latest else {}


def _default_choice(run: Run) -> dict[str, Any]:
    choice = run.providers.get("default", {})
    return choice if isinstance(choice, dict) else {"provider": choice}


def _field_of(name: str, fields: Mapping[str, forms.Field]) -> str | None:
    """The form's field for a complaint of the action."""
    name = {"providers": "provider"}.get(name, name)
    return name if name in fields else None


def _strategy_name(values: Mapping[str, Any]) -> str:
    wanted = values.get("strategy") or DEFAULT_STRATEGY
    return wanted if wanted in STRATEGIES else DEFAULT_STRATEGY


def _as_flag(field: forms.Field, value: Any) -> Any:
    """In an address a ticked box is 1, true or on."""
    if isinstance(field, forms.BooleanField) and isinstance(value, str):
        return value.lower() in ("1", "true", "on")
    return field.initial if value is None else value
