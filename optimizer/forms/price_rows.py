"""Enter the prices of a provider's models, one row per model, in place of JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

PREFIX = "prices"
FIGURES = ("input", "cached", "output")
BLANK_ROWS = 2
MAX_MODELS = 100


class PriceForm(forms.Form):
    """Enter the price of one model in USD per million tokens. A row without any entry is left out."""

    model = forms.CharField(
        required=False,
        max_length=120,
        widget=forms.TextInput(attrs={"list": "known-models", "spellcheck": "false"}),
    )
    input = forms.DecimalField(required=False, min_value=0, max_value=100_000, max_digits=12, decimal_places=6)
    cached = forms.DecimalField(required=False, min_value=0, max_value=100_000, max_digits=12, decimal_places=6)
    output = forms.DecimalField(required=False, min_value=0, max_value=100_000, max_digits=12, decimal_places=6)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name, field in self.fields.items():
            field.widget.attrs |= {"aria-label": "Model" if name == "model" else f"{name.capitalize()}, USD"}

    def clean(self) -> dict[str, Any]:
        """Refuse a price without its model, and a model without input and output price."""
        values = super().clean() or {}
        entered = [name for name in FIGURES if values.get(name) is not None]
        if entered and not values.get("model"):
            self.add_error("model", "Name the model.")
        for name in ("input", "output"):
            if values.get("model") and values.get(name) is None and name not in self.errors:
                self.add_error(name, "Enter a price; 0 is free.")
        return values


class _PriceRows(forms.BaseFormSet):  # type: ignore[type-arg]
    def clean(self) -> None:
        models = [form.cleaned_data["model"] for form in self.forms if form.cleaned_data.get("model")]
        if len(set(models)) < len(models):
            raise ValidationError("One row per model.")


PriceRows = forms.formset_factory(
    PriceForm, formset=_PriceRows, extra=BLANK_ROWS, max_num=MAX_MODELS, absolute_max=MAX_MODELS, validate_max=True
)


def price_rows(data: Any, stored: Mapping[str, Any]) -> Any:
    """Return the rows, filled in with what is stored."""
    initial = [{"model": model} | {name: entry.get(name) for name in FIGURES} for model, entry in stored.items()]
    return PriceRows(data, initial=initial, prefix=PREFIX)


def prices_in(rows: Any, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entered prices by model. An entry whose figures stay the same keeps its source and date."""
    prices: dict[str, Any] = {}
    for values in (form.cleaned_data for form in rows.forms):
        if model := values.get("model"):
            figures = {name: float(values[name]) for name in FIGURES if values.get(name) is not None}
            known = stored.get(model, {})
            is_same = {name: float(known[name]) for name in FIGURES if known.get(name) is not None} == figures
            prices[model] = known if is_same else figures
    return prices
