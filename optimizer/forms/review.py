"""Define the forms of reviews. They check the form of the input; actions decide what is allowed."""

from __future__ import annotations

import re
from typing import Any

from django import forms

from optimizer.actions.review import MAX_COMMENT, Words
from optimizer.models import ReviewVerdict, Side, ThreadState

_PLACE = re.compile(r"(\d{1,12})\.(\d{1,9})")
GUIDANCE = (("", "no"), ("run", "guidance for the run"), ("lineage", "guidance for this lineage"))


def place_of(text: str) -> tuple[int, int] | None:
    """Return run and number of a kernel written as `12.3`, or None for anything else."""
    found = _PLACE.fullmatch(text)
    return (int(found[1]), int(found[2])) if found else None


def text_area(label: str, rows: int, **attributes: Any) -> forms.CharField:
    """Return a field for Markdown. The action checks its length and gives a readable message."""
    widget = forms.Textarea({"rows": rows, **attributes})
    return forms.CharField(label=label, required=False, strip=False, widget=widget)


class WordsForm(forms.Form):
    """Enter one comment: its text, its audience, and whether it is published at once."""

    body = text_area("Comment", 4, placeholder="Markdown; @name mentions a member of the team")
    guidance = forms.ChoiceField(label="For the agents", required=False, choices=GUIDANCE)
    now = forms.BooleanField(required=False)

    @property
    def words(self) -> Words:
        """Return the comment. Call after `is_valid`."""
        scope = self.cleaned_data["guidance"]
        return Words(self.cleaned_data["body"], bool(scope), scope == "lineage")


class ThreadForm(WordsForm):
    """Enter a comment that starts a thread. Kernels are given by number; `old` by `run.number`."""

    kernel = forms.IntegerField(required=False, min_value=0, widget=forms.HiddenInput)
    old = forms.RegexField(_PLACE, required=False, widget=forms.HiddenInput)
    hypothesis = forms.IntegerField(required=False, widget=forms.HiddenInput)
    side = forms.ChoiceField(label="Side", required=False, choices=[("", "The whole kernel"), *Side.choices])
    first = forms.IntegerField(label="From line", required=False, min_value=1)
    last = forms.IntegerField(label="to line", required=False, min_value=1)

    def old_place(self) -> tuple[int, int] | None:
        """Return run and number of the kernel on the old side, or None."""
        return place_of(self.cleaned_data.get("old") or "")


class PublishForm(forms.Form):
    """Publish drafts with a verdict."""

    verdict = forms.ChoiceField(
        label="Verdict", choices=ReviewVerdict.choices, initial=ReviewVerdict.COMMENT, widget=forms.RadioSelect
    )
    summary = text_area("Summary", 3, placeholder="Optional")


class StateForm(forms.Form):
    """Resolve, drop or reopen a thread."""

    state = forms.ChoiceField(choices=ThreadState.choices)


class EditForm(forms.Form):
    """Change the text of a comment."""

    body = text_area("Comment", 6, maxlength=MAX_COMMENT)
