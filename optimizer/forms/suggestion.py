"""Define the form for a person's edit of a kernel."""

from __future__ import annotations

from django import forms


class SuggestionForm(forms.Form):
    """Enter the complete text. `seen` is the newest kernel when the person began to edit."""

    text = forms.CharField(
        label="Source",
        required=False,
        strip=False,
        widget=forms.Textarea({"rows": 30, "spellcheck": "false", "autocapitalize": "off", "wrap": "off"}),
    )
    title = forms.CharField(label="Title", required=False, max_length=200)
    why = forms.CharField(label="Reason", required=False, widget=forms.Textarea({"rows": 3}))
    seen = forms.IntegerField(min_value=0, widget=forms.HiddenInput)
