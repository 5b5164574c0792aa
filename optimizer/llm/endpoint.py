"""Define the settings of a provider's server.

The module is separate from the client, because importing the client takes a second.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from optimizer.llm.retries import RetryPolicy


@dataclass(frozen=True)
class Endpoint:
    """Hold a server as a team configured it.

    `silence_s` is how long it may send nothing at all. `without` names the optional parameters that it is known to
    refuse.
    """

    base_url: str
    key: str = ""
    allow_private: bool = False
    connect_s: float = 10.0
    silence_s: float = 300.0
    without: frozenset[str] = frozenset()
    policy: RetryPolicy = field(default_factory=RetryPolicy)
