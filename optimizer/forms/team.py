"""Define the forms of teams and their members."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.forms import BaseUserCreationForm

from optimizer.actions.team import INVITATION_DAYS
from optimizer.models import Team, TeamRole, User

ROLE_HELP = (
    "Viewers read; reviewers comment and approve; operators start and control runs; owners also manage the team."
)


class NewTeamForm(forms.Form):
    """Enter the name of a new team."""

    name = forms.CharField(max_length=50)


class TeamRulesForm(forms.ModelForm):  # type: ignore[type-arg]  # Django does not subscript it
    """Edit the team's name and its rules for releases."""

    approvals_needed = forms.IntegerField(
        min_value=1, max_value=9, help_text="Approvals that a release needs, by different people."
    )

    class Meta:
        model = Team
        fields = ["name", "approvals_needed", "rerun_needed"]
        labels = {"rerun_needed": "Require a second measurement that confirms the first"}


class RoleForm(forms.Form):
    """Choose a role."""

    role = forms.ChoiceField(choices=TeamRole.choices)


class InviteForm(RoleForm):
    """Enter the details of an invitation for one person."""

    role = forms.ChoiceField(choices=TeamRole.choices, initial=TeamRole.REVIEWER, help_text=ROLE_HELP)
    note = forms.CharField(
        max_length=200, required=False, label="Note", help_text="Optional, for example the invited person."
    )
    days = forms.TypedChoiceField(
        coerce=int, choices=[(days, f"{days} day{'s' if days > 1 else ''}") for days in INVITATION_DAYS], initial=7,
        label="Valid for",
    )  # fmt: skip


class ServiceAccountForm(forms.Form):
    """Enter the details of an account for a program."""

    name = forms.CharField(max_length=60, help_text="For example ci, nightly or dashboard.")
    role = forms.ChoiceField(choices=[pair for pair in TeamRole.choices if pair[0] != TeamRole.OWNER])


class JoinForm(BaseUserCreationForm):  # type: ignore[type-arg]  # generic for the type checker only
    """Enter the name and, twice, the password of a new account."""

    class Meta:
        model = User
        fields = ("username",)

    @property
    def entered(self) -> dict[str, Any]:
        """Return the arguments of `do_register`."""
        return {"username": self.cleaned_data["username"], "password": self.cleaned_data["password1"]}
