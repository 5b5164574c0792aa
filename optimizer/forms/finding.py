"""Define the forms for writing and filtering findings."""

from __future__ import annotations

from typing import Any, cast

from django import forms
from django.db.models import Q, QuerySet

from optimizer.models import Finding, Problem, Target, Team, TeamRole, User

ORIGINS = (("", "Any"), ("shipped", "Shipped"), ("agent", "Agents"), ("person", "People"))


class FindingForm(forms.Form):
    """Write a finding or, with `finding`, its next version, which keeps the scopes."""

    team = forms.ModelChoiceField(Team.objects.none(), to_field_name="slug", empty_label=None)
    target = forms.ModelChoiceField(
        Target.objects.none(), to_field_name="key", required=False, empty_label="Every target",
        help_text="Agents read it in runs on this target.",
    )  # fmt: skip
    problem = forms.ModelChoiceField(
        Problem.objects.none(), to_field_name="slug", required=False, empty_label="Every problem",
    )  # fmt: skip
    title = forms.CharField(max_length=200)
    text = forms.CharField(
        max_length=50_000, widget=forms.Textarea(attrs={"rows": 14}),
        help_text="Markdown. Cite the measurement, manual or paper.",
    )  # fmt: skip
    source = forms.CharField(max_length=400, required=False, help_text="Link or reference.")

    def __init__(
        self, user: User, data: Any = None, *, finding: Finding | None = None, initial: Any = None
    ) -> None:
        given = {"title": finding.title, "text": finding.text, "source": finding.source} if finding else initial
        super().__init__(data, initial=given)
        if finding is not None:
            for name in ("team", "target", "problem"):
                del self.fields[name]
            return
        self._offer("team", teams_to_write_in(user))
        self._offer("target", Target.objects.order_by("key"))
        self._offer("problem", Problem.objects.visible_to(user).order_by("title"))

    def _offer(self, name: str, rows: QuerySet[Any]) -> None:
        cast("forms.ModelChoiceField[Any]", self.fields[name]).queryset = rows


class FindingFilterForm(forms.Form):
    """Filter findings; unknown values are ignored."""

    q = forms.CharField(required=False, max_length=100, label="Contains")
    target = forms.ChoiceField(required=False)
    problem = forms.ChoiceField(required=False)
    origin = forms.ChoiceField(required=False, choices=ORIGINS, label="By")
    old = forms.BooleanField(required=False, label="Include superseded")

    def __init__(self, user: User, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        targets = Target.objects.order_by("title").values_list("key", "title")
        problems = Problem.objects.visible_to(user).order_by("title").values_list("slug", "title")
        self.fields["target"].choices = [("", "Any"), *targets]  # type: ignore[attr-defined]
        self.fields["problem"].choices = [("", "Any"), *problems]  # type: ignore[attr-defined]

    def narrow(self, rows: QuerySet[Finding]) -> QuerySet[Finding]:
        """Return the findings that match."""
        self.is_valid()
        values = self.cleaned_data
        paths = {"target": "target__key", "problem": "problem__slug", "origin": "origin"}
        for name, path in paths.items():
            rows = rows.filter(**{path: values[name]}) if values.get(name) else rows
        if text := values.get("q"):
            rows = rows.filter(Q(title__icontains=text) | Q(text__icontains=text))
        return rows if values.get("old") else rows.filter(superseded_by=None)


def teams_to_write_in(user: User) -> QuerySet[Team]:
    """Return the teams to which the person may add findings."""
    if user.is_superuser:
        return Team.objects.order_by("name")
    roles = [role for role in TeamRole if role.rank >= TeamRole.REVIEWER.rank]
    return Team.objects.filter(memberships__user=user, memberships__role__in=roles).order_by("name")
