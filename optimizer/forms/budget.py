"""Define the form that changes the limits of a run."""

from __future__ import annotations

from typing import Any

from django import forms

from optimizer.forms.start_run import BUDGETS, StartRunForm
from optimizer.models import Run
from optimizer.queries.budgets import Budget, budget_of


class BudgetForm(forms.Form):
    """Edit the limits with which a run was started."""

    def __init__(self, run: Run, data: Any = None) -> None:
        limits = budget_of(run)
        super().__init__(data, initial={name: getattr(limits, name.removeprefix("budget_")) for name in BUDGETS})
        self.fields.update({name: StartRunForm.base_fields[name] for name in BUDGETS})

    @property
    def budget(self) -> Budget:
        """Return the entered limits."""
        return Budget(**{name.removeprefix("budget_"): self.cleaned_data.get(name) for name in BUDGETS})
