"""Define how far a writer may test a kernel before submitting it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from optimizer.search.base import StrategySettings

ToolLevel = Literal["none", "build", "measure"]


class WriterSettings(StrategySettings):
    """Define the settings of strategies whose agents write kernels.

    The papers' agents have no tools: they submit what they have written. The limits hold for one question, that is for
    one kernel.
    """

    tools: ToolLevel = Field(
        "build",
        description="Tools of the agents that write kernels. None: as in the papers. Build: compile and check before "
        "submitting. Measure: time and profile too.",
    )
    tool_calls: int = Field(12, ge=1, le=100, description="Tool calls for one kernel at most.")
    tool_device_s: float = Field(
        120.0, gt=0, le=3600, description="Seconds of the device that the tools may take for one kernel."
    )
    tool_tokens: int = Field(
        300_000, ge=1000, le=10_000_000, description="Tokens for one kernel, after which it has to be submitted."
    )
