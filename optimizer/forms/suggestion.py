"""A person's edit of a kernel, as a form."""

from __future__ import annotations

from django import forms


class SuggestionForm(forms.Form):
    """The whole text; what of it is changed is worked out. `seen` is the newest kernel when the person began."""

    text = forms.CharField(
        label="Source",
        required=False,
        strip=False,
        widget=forms.Textarea({"rows": 30, "spellcheck": "false", "autocapitalize": "off", "wrap": "off"}),
    )
    title = forms.CharField(label="Title", required=False, max_length=200)
    why = forms.CharField(
        label="Why it should be faster, or right", required=False, widget=forms.Textarea({"rows": 3})
    )
    seen = forms.IntegerField(min_value=0, widget=forms.HiddenInput)
