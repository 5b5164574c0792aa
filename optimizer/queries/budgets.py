"""Read a run's limits, and how much of them is spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

from optimizer.models import Run

WARN_AT_PERCENT = (50, 80, 100)
LABELS = {
    "evaluations": "evaluations",
    "minutes": "active minutes",
    "usd": "dollars",
    "tokens": "tokens",
    "device_minutes": "device minutes",
}

# The largest limit of each kind. What is larger does not fit the database or cannot be multiplied any more.
MOST = {"evaluations": 2**31 - 1, "minutes": 10**9, "usd": 999_999, "tokens": 2**63 - 1, "device_minutes": 10**9}


def limit_faults(limits: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Return the faults of limits by kind, under the names of their fields.

    A limit must be above zero; dollars may be zero, which allows free models only.
    """
    return {
        f"{prefix}{kind}": f"A limit must be above zero and at most {MOST[kind]:,}." for kind, limit in limits.items()
        if limit is not None and not _is_sound(kind, limit)
    }  # fmt: skip


def _is_sound(kind: str, limit: Any) -> bool:
    # NaN equals nothing. It is not below anything either, and as a limit it would never be reached.
    return limit == limit and (0 < limit <= MOST[kind] or (kind == "usd" and limit == 0))


@dataclass(frozen=True)
class Budget:
    """Hold the limits of a run; None is unlimited."""

    evaluations: int | None = None
    minutes: float | None = None
    usd: Decimal | None = None
    tokens: int | None = None
    device_minutes: float | None = None


def budget_of(run: Run) -> Budget:
    """Return the run's limits."""
    return Budget(**{kind: getattr(run, f"budget_{kind}") for kind in asdict(Budget())})


@dataclass(frozen=True)
class BudgetLine:
    """Hold one budget; `spent` and `limit` are in the unit that `kind` names."""

    kind: str
    spent: float
    limit: float

    @property
    def percent(self) -> float:
        """Return the share spent in per cent. A limit of zero is used up by whatever is spent."""
        if self.limit > 0:
            return 100.0 * self.spent / self.limit
        return 100.0 if self.spent > 0 else 0.0


def budget_lines(run: Run) -> list[BudgetLine]:
    """Return the budgets that the run has."""
    spent: dict[str, float | Decimal] = {
        "evaluations": run.spent_evaluations,
        "minutes": run.elapsed_s() / 60,
        "usd": run.spent_usd,
        "tokens": run.spent_tokens,
        "device_minutes": run.spent_device_s / 60,
    }
    limits = asdict(budget_of(run))
    return [
        BudgetLine(kind, float(spent[kind]), float(limit)) for kind, limit in limits.items() if limit is not None
    ]
