"""Define how a job reaches the machine that evaluates it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from runners.job import Effort


class Dispatcher(ABC):
    """Bring jobs to a machine. Every dispatcher is registered in `runners.dispatch.DISPATCHERS`."""

    name: ClassVar[str]
    title: ClassVar[str]
    settings_help: ClassVar[dict[str, str]] = {}
    """What a run may say to it, each an optional text: name and help."""

    def faults(self, settings: dict[str, Any]) -> list[str]:
        """Return what is wrong with a run's settings for this dispatcher. Most dispatchers have no settings."""
        return [f"there is no setting {name!r}" for name in sorted(settings)]

    @abstractmethod
    def queue_for(self, target: str, effort: Effort) -> str:
        """Return the queue on which a job of that target and effort waits."""

    @abstractmethod
    def notify(self, queue: str) -> None:
        """Tell the workers of a queue to look at it. Never raises, because a lost message costs only latency."""
