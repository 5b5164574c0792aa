"""Define the form that starts a run. An address can hold all its fields; `check_start_run` validates them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields as dataclass_fields
from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import QuerySet

from optimizer.actions.run import NewRun, check_start_run, has_call_time
from optimizer.calls.choice import ChoiceError, check_choices
from optimizer.forms.answering import (
    DEFAULT,
    OF_A_ROLE,
    OF_ALL_ROLES,
    Choices,
    answer_fields,
    answers_chosen,
    answers_initial,
    field_name,
    roles_named,
)
from optimizer.forms.plain_select import PlainSelect
from optimizer.forms.strategy_settings import (
    PREFIX,
    settings_errors,
    settings_fields,
    settings_initial,
    settings_values,
)
from optimizer.llm.prices import price_of
from optimizer.models import ObjectiveChoice, Problem, Provider, Record, Run, Target, Team, TeamRole, User
from optimizer.queries.budgets import Budget
from optimizer.search import STRATEGIES
from runners.dispatch import DISPATCHERS
from runners.job import Baseline

DEFAULT_STRATEGY = "tune"
DEFAULT_MINUTES = 30
DEFAULT_USD = 5
COPIED = ("strategy", "title", "baseline", "objective", "seed", "dispatcher", "guidance", "is_private")
DISPATCH_PREFIX = "dispatch."
MOST_ROLES = 20
BUDGETS = tuple(f"budget_{field.name}" for field in dataclass_fields(Budget))


class StartRunForm(forms.Form):
    """Enter problem, target, strategy with its settings, and budget. `user` determines the offered teams."""

    problem = forms.ModelChoiceField(
        Problem.objects.none(), to_field_name="slug", empty_label=None, widget=PlainSelect
    )
    target = forms.ModelChoiceField(Target.objects.none(), to_field_name="key", empty_label=None)
    strategy = forms.ChoiceField()
    title = forms.CharField(max_length=200, required=False, help_text="Optional.")
    team = forms.ModelChoiceField(Team.objects.none(), to_field_name="slug", empty_label=None)
    baseline = forms.ChoiceField(help_text="Speedups are relative to this.")
    objective = forms.ChoiceField(
        required=False,
        label="Optimise",
        choices=ObjectiveChoice.choices,
        initial=ObjectiveChoice.DEVICE,
        help_text="Call time includes the host.",
    )
    seed = forms.IntegerField(initial=0, min_value=0, help_text="Optional.")
    budget_evaluations = forms.IntegerField(
        required=False, min_value=1, label="Evaluations", help_text="Seeds are not counted."
    )
    budget_minutes = forms.FloatField(
        required=False,
        min_value=0,
        label="Minutes",
        initial=DEFAULT_MINUTES,
        help_text="Without pauses.",
    )
    budget_usd = forms.DecimalField(
        required=False,
        min_value=0,
        max_digits=10,
        decimal_places=4,
        label="US dollars",
        help_text="For model calls.",
    )
    budget_tokens = forms.IntegerField(required=False, min_value=1, label="Tokens", help_text="Input and output.")
    budget_device_minutes = forms.FloatField(
        required=False, min_value=0, label="Device minutes", help_text="Checking and timing."
    )
    guidance = forms.CharField(
        required=False, max_length=8000, widget=forms.Textarea(attrs={"rows": 4}), help_text="Part of every prompt."
    )
    dispatcher = forms.ChoiceField(label="Run on")
    is_private = forms.BooleanField(required=False, label="Private: visible to you and the team's owners")

    def __init__(
        self, user: User, data: Any = None, *, given: Mapping[str, Any], clone_of: Run | None = None
    ) -> None:
        self.user = user
        self.clone_of = clone_of
        # The strategy decides which fields exist, so it is read before the fields are bound to the data.
        self.strategy_name = _strategy_name(data or given)
        self.strategy_class = STRATEGIES[self.strategy_name]
        # An empty limit in an address means "no limit" and must replace the default; any other empty value means
        # "not given".
        initial = {key: value for key, value in given.items() if value != "" or key in BUDGETS}
        super().__init__(data, initial={"strategy": self.strategy_name} | _habits(user) | initial)
        self.settings_names = list(settings_fields(self.strategy_class.Settings))
        self.fields.update(settings_fields(self.strategy_class.Settings))
        self.roles = list(dict.fromkeys([*self.strategy_class.roles, *roles_named(data or given)[:MOST_ROLES]]))
        self.fields.update(answer_fields(self.roles, *self._answerers()))
        self.fields.update(dispatch_fields())
        self._offer()
        for name in self.fields:
            self.initial[name] = _as_flag(self.fields[name], self.initial.get(name))

    def _offer(self) -> None:
        self._choose("problem", Problem.objects.visible_to(self.user).order_by("title"))
        self._choose("target", Target.objects.order_by("key"))
        teams = teams_to_start_in(self.user)
        self._choose("team", teams)
        # The page hides the only team there is, and a hidden field sends nothing but its initial value.
        if len(only := teams[:2]) == 1:
            self.fields["team"].initial = only[0].slug
        self.fields["strategy"].choices = [(name, one.title) for name, one in STRATEGIES.items()]  # type: ignore[attr-defined]
        self.fields["baseline"].choices = [(one.value, one.value.replace("_", " ")) for one in Baseline]  # type: ignore[attr-defined]
        self.fields["dispatcher"].choices = [(name, one.title) for name, one in DISPATCHERS.items()]  # type: ignore[attr-defined]
        # A default of the strategy, since a sensible number of evaluations depends on the search.
        self.fields["budget_evaluations"].initial = self.strategy_class.default_evaluations
        if self.strategy_class.needs_model and self.costs_money():
            self.fields["budget_usd"].initial = DEFAULT_USD

    def _answerers(self) -> tuple[Choices, Choices]:
        """Return everybody who may answer (servers of the teams, people, recordings), and the recordings."""
        servers = self._servers().values_list("name", flat=True)
        records = Record.objects.filter(team__in=teams_to_start_in(self.user)).order_by("name")
        people = [("inbox", "Inbox: people and external agents")]
        replay = [("replay", "Recorded answers")] if records else []
        # Servers of several teams may share a name, which stands for the server of the run's own team.
        named = [(name, name) for name in dict.fromkeys(servers)]
        return [*named, *people, *replay], [("", "None"), *((row.name, str(row)) for row in records)]

    def _servers(self) -> QuerySet[Provider]:
        return Provider.objects.usable_by(self.user).enabled()

    def costs_money(self) -> bool:
        """Return whether the server that is offered first has a price: only then can a limit in dollars hold."""
        first = self._servers().first()
        return first is not None and price_of(first.default_model, first.base_url, first.prices) is not None

    def known_models(self) -> list[str]:
        """Return the models that the offered servers have by default or a price for, for completion."""
        rows = self._servers().values_list("default_model", "prices")
        return sorted({model for default, prices in rows for model in (default, *(prices or {})) if model})

    def _choose(self, name: str, rows: QuerySet[Any]) -> None:
        cast("forms.ModelChoiceField[Any]", self.fields[name]).queryset = rows

    def settings_boxes(self) -> list[forms.BoundField]:
        """Return the strategy's own fields."""
        return [self[name] for name in self.settings_names]

    def answer_rows(self) -> list[tuple[str, list[forms.BoundField]]]:
        """Return the fields for who answers, by role; all roles come first."""
        parts = [(DEFAULT, OF_ALL_ROLES), *((role, OF_A_ROLE) for role in self.roles)]
        return [(role, [self[field_name(role, part)] for part in names]) for role, names in parts]

    def differs_by_role(self) -> bool:
        """Return whether any role has an entry of its own."""
        return any(box.value() or box.errors for _, boxes in self.answer_rows()[1:] for box in boxes)

    def has_advanced_errors(self) -> bool:
        """Return whether a field of the folded part is at fault, which then opens."""
        return any(self[name].errors for name in ("baseline", "objective", "seed", "dispatcher", "is_private"))

    def dispatch_boxes(self) -> dict[str, list[forms.BoundField]]:
        """Return the fields of the dispatchers that have settings, by the dispatcher's title."""
        return {
            one.title: [self[f"{DISPATCH_PREFIX}{one.name}.{name}"] for name in one.settings_help]
            for one in DISPATCHERS.values()
            if one.settings_help
        }

    def budget_boxes(self) -> list[forms.BoundField]:
        """Return the fields of the limits."""
        return [self[name] for name in BUDGETS]

    def clean(self) -> dict[str, Any]:
        """Validate with the strategy, then with the action, and attach each complaint to its field."""
        super().clean()
        for name, message in settings_errors(self.strategy_class.Settings, settings_values(self.cleaned_data)):
            self.add_error(name if name in self.fields else None, message)
        # The action needs complete values, so it is asked only when every field is valid on its own.
        if not self.errors:
            self._ask_action()
        return self.cleaned_data

    def _ask_action(self) -> None:
        new = self.new_run()
        try:
            # Both checks run, so that the person sees all complaints at once.
            check_choices(new.team, new.providers, priced=new.budget.usd is not None)
        except ChoiceError as refusal:
            self.add_error(self._answer_field(str(refusal)), str(refusal))
        try:
            check_start_run(self.user, new)
        except ValidationError as refusal:
            for name, messages in refusal.message_dict.items():
                for message in messages:
                    self.add_error(_field_of(name, self.fields), message)

    def sound(self, name: str) -> Any:
        """Return a field's value if it is valid, bound or not, else None."""
        try:
            return self.fields[name].clean(self[name].value())
        except ValidationError:
            return None

    def sound_budget(self) -> Budget:
        """Return the limits that are valid so far."""
        return Budget(**{name.removeprefix("budget_"): self.sound(name) for name in BUDGETS})

    def sound_providers(self) -> dict[str, Any]:
        """Return who would answer, as far as it is valid."""
        values = {box.name: self.sound(box.name) for _, boxes in self.answer_rows() for box in boxes}
        return answers_chosen(values, self.roles) if self.strategy_class.needs_model else {}

    def as_address(self) -> dict[str, str]:
        """Return the values as they would appear in an address: a ticked box is 1, an empty limit stays empty."""
        values = {name: self[name].value() for name in self.fields}
        return {
            name: str(int(value)) if isinstance(value, bool) else str("" if value is None else value)
            for name, value in values.items()
            if value not in (None, "") or name in BUDGETS
        }

    def new_run(self) -> NewRun:
        """Return the arguments of `do_start_run`."""
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
            objective=self._objective(values),
            dispatcher=values["dispatcher"],
            dispatch_settings=self._dispatch_settings(),
            title=values["title"],
            guidance=values["guidance"],
            is_private=values["is_private"],
            cloned_from=self.clone_of,
        )

    def _objective(self, values: Mapping[str, Any]) -> str:
        """Return the chosen objective; the field is hidden for a target that has no call time of its own."""
        chosen = values.get("objective") or ObjectiveChoice.DEVICE
        return str(chosen if has_call_time(values["target"].key) else ObjectiveChoice.DEVICE)

    def _providers(self) -> dict[str, Any]:
        return answers_chosen(self.cleaned_data, self.roles) if self.strategy_class.needs_model else {}

    def _dispatch_settings(self) -> dict[str, str]:
        """Return the settings of the chosen dispatcher, without what was entered for another one."""
        prefix = f"{DISPATCH_PREFIX}{self.cleaned_data['dispatcher']}."
        named = {
            key.removeprefix(prefix): value for key, value in self.cleaned_data.items() if key.startswith(prefix)
        }
        return {name: value for name, value in named.items() if value}

    def _answer_field(self, complaint: str) -> str:
        """Return the field for a complaint about who answers, which begins with the role."""
        name = field_name(complaint.partition(":")[0], "provider")
        return name if name in self.fields else "provider"


def dispatch_fields() -> dict[str, forms.Field]:
    """Return one text field per setting of a dispatcher, named `dispatch.<dispatcher>.<setting>`."""
    return {
        f"{DISPATCH_PREFIX}{one.name}.{name}": forms.CharField(
            required=False, max_length=120, label=name.capitalize(), help_text=text
        )
        for one in DISPATCHERS.values()
        for name, text in one.settings_help.items()
    }


def teams_to_start_in(user: User) -> QuerySet[Team]:
    """Return the teams in which the person may start runs."""
    if user.is_superuser:
        return Team.objects.order_by("name")
    # Roles are stored by name, so "operator or more" cannot be a comparison in SQL.
    roles = [role for role in TeamRole if role.rank >= TeamRole.OPERATOR.rank]
    return Team.objects.filter(memberships__user=user, memberships__role__in=roles).order_by("name")


def values_of(run: Run) -> dict[str, Any]:
    """Return the form's values for a clone of a run."""
    values: dict[str, Any] = {name: getattr(run, name) for name in BUDGETS}
    values |= {
        "problem": run.problem_version.problem.slug,
        "target": run.target.key,
        "team": run.team.slug,
        **{name: getattr(run, name) for name in COPIED},
        **{f"{DISPATCH_PREFIX}{run.dispatcher}.{name}": value for name, value in run.dispatch_settings.items()},
    }
    return values | dict(answers_initial(run.providers)) | dict(settings_initial(run.settings, PREFIX))


def _habits(user: User) -> dict[str, Any]:
    """Return what the person, or anybody whose runs they see, ran last, as the likeliest choice."""
    seen = Run.objects.visible_to(user).order_by("-created_at")
    # Only runs that the person may see: a default must not reveal what another team works on.
    rows = seen.values_list("problem_version__problem__slug", "target__key", "created_at")
    latest = rows.filter(created_by=user).first() or rows.first()
    return {"problem": latest[0], "target": latest[1]} if latest else {}


def _field_of(name: str, fields: Mapping[str, forms.Field]) -> str | None:
    """Return the form's field for a complaint of the action."""
    name = {"providers": "provider"}.get(name, name)
    return name if name in fields else None


def _strategy_name(values: Mapping[str, Any]) -> str:
    wanted = values.get("strategy") or DEFAULT_STRATEGY
    return wanted if wanted in STRATEGIES else DEFAULT_STRATEGY


def _as_flag(field: forms.Field, value: Any) -> Any:
    """Convert 1, true or on in an address to a ticked box."""
    if isinstance(field, forms.BooleanField) and isinstance(value, str):
        return value.lower() in ("1", "true", "on")
    return field.initial if value is None else value
