"""Define the form with which people add a problem."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from django import forms
from django.utils.text import slugify

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

    def clean(self) -> dict[str, Any]:
        """Take the name from the file where none is given, and refuse both a module and a file."""
        values = super().clean() or {}
        file, source = values.get("file"), values.get("source", "")
        if file and source.strip():
            self.add_error("source", "Paste a module or choose a file, not both.")
        if not values.get("name") and file:
            values["name"] = slugify(PurePosixPath(file.name).name.split(".")[0])[:80]
        return values

    def upload(self) -> tuple[str, str, bytes]:
        """Return name, file name and content of a valid form."""
        values = self.cleaned_data
        if values.get("file"):
            return values["name"], values["file"].name, values["file"].read()
        return values["name"], f"{values['name']}.py", values["source"].replace("\r\n", "\n").encode()
