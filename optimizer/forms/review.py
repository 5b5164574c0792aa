"""What people say, as forms: shape only; whether it is allowed is decided by the actions."""

from __future__ import annotations

import re
from typing import Any

from django import forms

from optimizer.actions.review import MAX_COMMENT, Words
from optimizer.models import ReviewVerdict, Side, ThreadState

_PLACE = re.compile(r"(\d{1,12})\.(\d{1,9})")
GUIDANCE = (("", "for people"), ("run", "guidance for the whole run"), ("lineage", "guidance for this lineage"))


def place_of(text: str) -> tuple[int, int] | None:
    """Run and number of a kernel that is written as `12.3`; None for anything else."""
    found = _PLACE.fullmatch(text)
    return (int(found[1]), int(found[2])) if found else None


def text_area(label: str, rows: int, **attributes: Any) -> forms.CharField:
    """A field for markdown. Its length is checked by the action, which says so in words."""
    widget = forms.Textarea({"rows": rows, **attributes})
    return forms.CharField(label=label, required=False, strip=False, widget=widget)


class WordsForm(forms.Form):
    """One comment: what is said, to whom, and whether it is published at once."""

    body = text_area("Comment", 4, placeholder="Markdown; @name mentions somebody of the team")
    guidance = forms.ChoiceField(label="For the agents", required=False, choices=GUIDANCE)
    now = forms.BooleanField(required=False)

    @property
    def words(self) -> Words:
        """What is said. Call after `is_valid`."""
        scope = self.cleaned_data["guidance"]
        return Words(self.cleaned_data["body"], bool(scope), scope == "lineage")


class ThreadForm(WordsForm):
    """A comment that begins a thread. Kernels are named by number; `old` by `run.number`."""

    kernel = forms.IntegerField(required=False, min_value=0, widget=forms.HiddenInput)
    old = forms.RegexField(_PLACE, required=False, widget=forms.HiddenInput)
    hypothesis = forms.IntegerField(required=False, widget=forms.HiddenInput)
    side = forms.ChoiceField(label="Side", required=False, choices=[("", "The whole kernel"), *Side.choices])
    first = forms.IntegerField(label="From line", required=False, min_value=1)
    last = forms.IntegerField(label="to line", required=False, min_value=1)

    def old_place(self) -> tuple[int, int] | None:
        """Run and number of the kernel on the old side."""
        return place_of(self.cleaned_data.get("old") or "")


class PublishForm(forms.Form):
    """Drafts become visible, with a verdict."""

    verdict = forms.ChoiceField(
        label="Verdict", choices=ReviewVerdict.choices, initial=ReviewVerdict.COMMENT, widget=forms.RadioSelect
    )
    summary = text_area("Summary", 3, placeholder="What you think of it as a whole (not needed)")


class StateForm(forms.Form):
    """Resolve, drop or open a thread again."""

    state = forms.ChoiceField(choices=ThreadState.choices)


class EditForm(forms.Form):
    """Other words for a comment."""

    body = text_area("Comment", 6, maxlength=MAX_COMMENT)
