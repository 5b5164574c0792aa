"""Where a provider's server is and how patiently it is asked. Apart from the client, which takes a second to import."""

from __future__ import annotations

from dataclasses import dataclass, field

from optimizer.llm.retries import RetryPolicy


@dataclass(frozen=True)
class Endpoint:
    """A server as a team configured it. `silence_s` is how long it may send nothing at all; `without` names the
    optional parameters it is known to refuse."""

    base_url: str
    key: str = ""
    allow_private: bool = False
    connect_s: float = 10.0
    silence_s: float = 300.0
    without: frozenset[str] = frozenset()
    policy: RetryPolicy = field(default_factory=RetryPolicy)
