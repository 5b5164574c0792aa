"""Implement the strategy `external`: whoever optimises elsewhere submits kernels, which this site measures.

Coding agents, scripts and people submit by MCP, the API, or a folder that `manage.py observe` watches. The run measures
as any other, with lineage, hypotheses, review and budgets, and ends with its budget or when somebody finishes it.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from optimizer.search.base import History, Step, Strategy, StrategySettings


class ExternalSettings(StrategySettings):
    """Define the settings of `external`, which limit what can be submitted."""

    open_kernels: int = Field(
        8,
        ge=1,
        le=64,
        description="Submitted kernels that may wait for their evaluation at a time; more are refused.",
    )
    reported_kernels: int = Field(
        200, ge=0, le=2000, description="Kernels that may be reported with times of their author's own, unmeasured."
    )


class External(Strategy):
    """Propose nothing, and wait for what is submitted."""

    name: ClassVar[str] = "external"
    title: ClassVar[str] = "External optimiser"
    summary: ClassVar[str] = (
        "Kernels come from a coding agent, script or person outside; this site measures, compares and keeps them."
    )
    Settings: ClassVar[type[StrategySettings]] = ExternalSettings
    needs_model: ClassVar[bool] = False
    waits_outside: ClassVar[bool] = True

    def decide(self, history: History) -> list[Step]:
        """Return nothing: the next kernel comes from outside."""
        return []
