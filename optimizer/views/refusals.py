"""Actions behind one button: do it, say how it went, go back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest


def attempt(request: HttpRequest, act: Callable[[], Any], said: str = "") -> bool:
    """Do it and say `said`, or say why not; whether it was done."""
    try:
        act()
    except ValidationError as refusal:
        messages.error(request, " ".join(refusal.messages))
        return False
    if said:
        messages.success(request, said)
    return True


def filled_in(form: forms.BaseForm, act: Callable[[], Any]) -> Any:
    """What the action gives for a sound form; None where the form has errors, its own or the action's."""
    if not form.is_valid():
        return None
    try:
        return act()
    except ValidationError as refusal:
        known = hasattr(refusal, "error_dict") and set(refusal.error_dict) <= set(form.fields)
        form.add_error(None, refusal if known else " ".join(refusal.messages))
        return None
