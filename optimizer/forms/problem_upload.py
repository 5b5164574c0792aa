"""Define the form with which people add a problem."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, cast

from django import forms
from django.utils.text import slugify

from optimizer.forms.start_run import teams_to_start_in
from optimizer.models import Team, User
from runners.problems.uploading import ARCHIVES

EXAMPLE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


rows, columns = 4096, 4096


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
"""


class ProblemUploadForm(forms.Form):
    """Enter a problem: a pasted module or a file, exactly one of the two."""

    name = forms.CharField(
        max_length=80, required=False, help_text="Lowercase letters, digits, “-” and “_”. It is part of addresses.",
        widget=forms.TextInput({"placeholder": "my_softmax", "autocomplete": "off", "spellcheck": "false"}),
    )  # fmt: skip
    team = forms.ModelChoiceField(
        Team.objects.none(), required=False, to_field_name="slug", label="Visible to",
        empty_label="Everybody on this site", help_text="Only runs of a team can use that team's problem.",
    )  # fmt: skip
    source = forms.CharField(
        label="PyTorch module", required=False, strip=False,
        widget=forms.Textarea({"rows": 18, "spellcheck": "false", "autocapitalize": "off", "wrap": "off",
                               "class": "code", "placeholder": EXAMPLE}),
        help_text="The form of KernelBench: class Model, get_inputs() and get_init_inputs().",
    )  # fmt: skip
    file = forms.FileField(
        label="Or upload a file", required=False, allow_empty_file=True,
        widget=forms.FileInput({"accept": ",".join((".py", *ARCHIVES))}),
        help_text="A Python module, or an archive (.zip, .tar.gz) of a GPU MODE directory or of a directory with "
                  "problem.toml.",
    )  # fmt: skip

    def __init__(self, user: User, data: Any = None, files: Any = None) -> None:
        super().__init__(data, files)
        teams = teams_to_start_in(user)
        cast("forms.ModelChoiceField[Team]", self.fields["team"]).queryset = teams
        # What somebody pastes may be confidential: a team's problem becomes everybody's only by choice.
        own = teams.filter(memberships__user=user).first()
        self.fields["team"].initial = own.slug if own else ""

    def clean(self) -> dict[str, Any]:
        """Take the name from the file where none is given, and refuse both a module and a file."""
        values = super().clean() or {}
        file, source = values.get("file"), values.get("source", "")
        if file and source.strip():
            self.add_error("source", "Paste a module or choose a file, not both.")
        if not values.get("name") and file:
            values["name"] = slugify(PurePosixPath(file.name).name.split(".")[0])[:80]
        return values

    def upload(self) -> tuple[str, str, bytes, Team | None]:
        """Return name, file name, content and team of a valid form."""
        values = self.cleaned_data
        name, team = values["name"], values["team"]
        if values.get("file"):
            return name, values["file"].name, values["file"].read(), team
        return name, f"{name}.py", values["source"].replace("\r\n", "\n").encode(), team
