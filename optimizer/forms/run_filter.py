"""Define how the runs table is filtered, sorted and reduced to columns. The address holds all of it."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any, ClassVar, cast

from django import forms
from django.db.models import F, Q, QuerySet
from django.http import QueryDict

from optimizer.actions.run_labels import TAG_CHARS
from optimizer.forms.plain_select import PlainSelect
from optimizer.models import Problem, Run, RunState, Target, User
from optimizer.search import strategy_titles

COLUMNS = {
    "problem": "Problem",
    "target": "Target",
    "strategy": "Strategy",
    "state": "State",
    "best": "Best speedup",
    "evaluations": "Evaluations",
    "cost": "Cost",
    "started": "Started",
    "duration": "Active",
    "by": "By",
    "seed": "Seed",
    "team": "Team",
    "tags": "Tags",
    "notes": "Notes",
}
DEFAULT_COLUMNS = ("problem", "target", "strategy", "state", "best", "evaluations", "started", "tags")
SORTS = {
    "id": "pk",
    "title": "title",
    "problem": "problem_version__problem__title",
    "target": "target__title",
    "strategy": "strategy",
    "state": "state",
    "best": "best_speedup_low",
    "evaluations": "spent_evaluations",
    "cost": "spent_usd",
    "started": "created_at",
    "duration": "active_s",
    "by": "created_by__username",
    "seed": "seed",
    "team": "team__name",
    "tags": "tags",
    "notes": "notes",
}
# Where the search box looks for a text.
SEARCHED = (
    "title__icontains", "notes__icontains", "strategy__icontains", "problem_version__problem__title__icontains",
    "problem_version__problem__slug__icontains", "target__title__icontains", "target__key__icontains",
)  # fmt: skip
GROUPS = {
    "problem": "problem_version__problem__title",
    "target": "target__title",
    "strategy": "strategy",
    "tag": "tags",
}
DEFAULT_SORT = "-started"


class RunFilterForm(forms.Form):
    """Filter runs. Unknown values are ignored, because addresses are shared and grow old."""

    q = forms.CharField(required=False, label="Search", max_length=100)
    state = forms.ChoiceField(required=False, choices=[("", "Any"), ("active", "Active"), *RunState.choices])
    problem = forms.ChoiceField(required=False, widget=PlainSelect)
    target = forms.ChoiceField(required=False)
    strategy = forms.CharField(required=False, max_length=40)
    tag = forms.CharField(required=False, max_length=TAG_CHARS)
    mine = forms.BooleanField(required=False, label="Mine only")
    archived = forms.BooleanField(required=False, label="Archived")
    group = forms.ChoiceField(
        required=False, label="Group by", choices=[("", "None"), *((key, key.capitalize()) for key in GROUPS)]
    )
    cols = forms.MultipleChoiceField(required=False, choices=list(COLUMNS.items()), label="Columns")

    exact: ClassVar[dict[str, str]] = {
        "problem": "problem_version__problem__slug",
        "target": "target__key",
        "strategy": "strategy",
    }

    def __init__(self, user: User, *args: Any, strategies: dict[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        problems = Problem.objects.visible_to(user).order_by("title").values_list("slug", "title")
        targets = Target.objects.order_by("title").values_list("key", "title")
        self._choose("problem", list(problems))
        self._choose("target", list(targets))
        self.fields["strategy"] = forms.ChoiceField(
            required=False, choices=[("", "Any"), *strategies.items()], label="Strategy"
        )

    def _choose(self, name: str, choices: list[tuple[str, str]]) -> None:
        field = cast(forms.ChoiceField, self.fields[name])
        field.choices = [("", "Any"), *choices]

    @property
    def values(self) -> dict[str, Any]:
        """Return the valid values; faulty ones are left out."""
        self.is_valid()
        return self.cleaned_data

    @property
    def columns(self) -> list[str]:
        """Return the columns to show, in the table's order."""
        wanted = self.values.get("cols") or DEFAULT_COLUMNS
        return [key for key in COLUMNS if key in wanted]

    def narrow(self, runs: QuerySet[Run], user_id: int | None) -> QuerySet[Run]:
        """Return the runs that match."""
        values = self.values
        runs = runs.filter(is_archived=bool(values.get("archived")))
        for name, path in self.exact.items():
            if values.get(name):
                runs = runs.filter(**{path: values[name]})
        if state := values.get("state"):
            ended = [choice for choice in RunState if choice.is_terminal]
            runs = runs.exclude(state__in=ended) if state == "active" else runs.filter(state=state)
        if tag := values.get("tag"):
            runs = runs.filter(tags__contains=[tag])
        if text := values.get("q"):
            runs = runs.filter(Q(tags__contains=[text]) | reduce(or_, (Q(**{path: text}) for path in SEARCHED)))
        return runs.filter(created_by_id=user_id) if values.get("mine") else runs


def runs_selected_by(query: QueryDict, user: User) -> QuerySet[Run]:
    """Return the runs that an address's query selects, of those that the person may see, in the requested order."""
    form = RunFilterForm(user, query, strategies=strategy_titles())
    mine = Run.objects.filter(pk__in=Run.objects.visible_to(user).order_by().values("pk"))
    return ordered(form.narrow(mine, user.pk), query.get("sort", DEFAULT_SORT))


def ordered(runs: QuerySet[Run], sort: str, group: str = "") -> QuerySet[Run]:
    """Sort by a key of SORTS, `-` for descending; rows without a value come last, ties are newest first.

    With a key of GROUPS, the groups come one after the other, each sorted.
    """
    key = SORTS.get(sort.removeprefix("-"))
    if key is None:
        return ordered(runs, DEFAULT_SORT, group)
    first = F(key).desc(nulls_last=True) if sort.startswith("-") else F(key).asc(nulls_last=True)
    # A unique last key keeps the pages of the table stable.
    return runs.order_by(*([GROUPS[group]] if group in GROUPS else []), first, "-pk")
