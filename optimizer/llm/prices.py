"""Compute what a call cost: a team's own prices first, then list prices from prices.toml, else None."""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from optimizer.llm.port import Usage

TABLE = Path(__file__).parent / "prices.toml"
MILLION = Decimal(1_000_000)
_SNAPSHOT = re.compile(r"-\d{4}-\d{2}-\d{2}$")


class Price(BaseModel):
    """Hold prices in USD per million tokens.

    Without `cached`, cached tokens cost as much as others. `second_hand` marks a price that was quoted by somebody
    else and not read on the vendor's page.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: Decimal = Field(ge=0, le=100_000)
    output: Decimal = Field(ge=0, le=100_000)
    cached: Decimal | None = Field(default=None, ge=0, le=100_000)
    source: str = "entered by the team"
    date: dt.date | None = None
    second_hand: bool = False

    @field_validator("input", "output", "cached", mode="before")
    @classmethod
    def _exact(cls, value: Any) -> Any:
        """Keep a decimal such as 0.15 exact instead of the nearest float."""
        return str(value) if isinstance(value, float) else value

    @property
    def is_free(self) -> bool:
        """Return True where no answer costs anything."""
        return not (self.input or self.output or self.cached)

    def cost_usd(self, usage: Usage) -> Decimal | None:
        """Return the price of one answer in USD, or None without both token counts."""
        if usage.prompt is None or usage.answer is None:
            return None
        # An inconsistent report must not make the cost negative.
        cached = min(usage.cached or 0, usage.prompt)
        cached_price = self.input if self.cached is None else self.cached
        total = self.input * (usage.prompt - cached) + cached_price * cached + self.output * usage.answer
        return (total / MILLION).quantize(Decimal("0.000001"))


def price_of(model: str, base_url: str, own: Mapping[str, Any]) -> Price | None:
    """Return the team's own price for the model, else the list price at the server's host, else None.

    A dated snapshot (`gpt-4.1-2025-04-14`) costs what its model costs.
    """
    bare = _SNAPSHOT.sub("", model)
    # The exact name first: a team may price one snapshot differently.
    for name in (model, bare):
        if name in own:
            return Price.model_validate(own[name])
    host = urlsplit(base_url).hostname or ""
    return listed().get((host, model)) or listed().get((host, bare))


@cache
def listed() -> Mapping[tuple[str, str], Price]:
    """Return the price table by host and model."""
    entries = tomllib.loads(TABLE.read_text(), parse_float=Decimal)["price"]
    prices: dict[tuple[str, str], Price] = {}
    for entry in entries:
        host, models = entry.pop("host"), entry.pop("models")
        prices |= {(host, model): Price.model_validate(entry) for model in models}
    return prices
