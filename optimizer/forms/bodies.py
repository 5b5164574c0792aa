"""Define the base of request bodies, and those that the API and the commands share."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from ninja import Field, Schema
from pydantic import ConfigDict

from optimizer.actions.campaign import Limits as CampaignLimits
from optimizer.actions.campaign import NewConfiguration
from optimizer.queries.budgets import Budget

# The length of texts whose field states none: names, choices and addresses.
MOST_CHARACTERS = 1000


class Body(Schema):
    """Validate the body of a request. Unknown fields are refused and never ignored silently."""

    # A misspelled limit that is ignored would start an unlimited run.
    model_config = ConfigDict(extra="forbid", str_max_length=MOST_CHARACTERS)


class Limits(Body):
    """Hold budgets; null is unlimited. A dollar budget of 0 allows only models that cost nothing."""

    evaluations: int | None = Field(default=None, le=2**31 - 1)
    minutes: float | None = Field(default=None, allow_inf_nan=False)
    usd: Decimal | None = Field(default=None, max_digits=10, decimal_places=4)
    tokens: int | None = Field(default=None, lt=2**63)
    device_minutes: float | None = Field(default=None, allow_inf_nan=False)

    def budget(self) -> Budget:
        """Return the limits of one run."""
        return Budget(**self.model_dump())


class ConfigurationIn(Body):
    """Describe one configuration to compare; `budget` holds for each of its runs."""

    name: str = Field(min_length=1, max_length=60)
    strategy: str
    settings: dict[str, Any] = {}
    providers: dict[str, Any] = {}
    budget: Limits = Limits()

    def new_configuration(self) -> NewConfiguration:
        """Return the configuration as campaigns are started with it."""
        return NewConfiguration(self.name, self.strategy, self.settings, self.providers, self.budget.budget())


class TotalLimits(Body):
    """Hold the limits of all runs together; null is unlimited."""

    usd: Decimal | None = Field(default=None, max_digits=10, decimal_places=4)
    tokens: int | None = Field(default=None, lt=2**63)
    device_minutes: float | None = Field(default=None, allow_inf_nan=False)

    def limits(self) -> CampaignLimits:
        """Return the limits as campaigns are started with them."""
        return CampaignLimits(self.usd, self.tokens, self.device_minutes)
