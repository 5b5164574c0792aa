"""Run an action behind a button or form, and report its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.text import capfirst


def attempt(request: HttpRequest, act: Callable[[], Any], said: str = "") -> bool:
    """Run the action and show `said`, or the reason of a refusal. Return whether it was done."""
    try:
        act()
    except ValidationError as refusal:
        messages.error(request, " ".join(refusal.messages))
        return False
    if said:
        messages.success(request, said)
    return True


def filled_in(form: forms.BaseForm, act: Callable[[], Any]) -> Any:
    """Return the action's result for a valid form, or None where the form or the action found errors."""
    if not form.is_valid():
        return None
    try:
        return act()
    except ValidationError as refusal:
        # Errors of fields that the form does not have are shown above it.
        known = hasattr(refusal, "error_dict") and set(refusal.error_dict) <= set(form.fields)
        form.add_error(None, refusal if known else " ".join(refusal.messages))
        return None


def as_sentence(refusal: Exception) -> str:
    """Return an error's message as a sentence. Messages of the product's errors start in lower case, without a full
    stop."""
    return f"{capfirst(str(refusal))}."
