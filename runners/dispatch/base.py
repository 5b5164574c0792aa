"""Define how a job reaches the machine that evaluates it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from runners.job import Effort


class Dispatcher(ABC):
    """A way for jobs to reach a machine. Registered in `runners.dispatch.DISPATCHERS`."""

    name: ClassVar[str]
    title: ClassVar[str]
    settings_help: ClassVar[dict[str, str]] = {}
    """What a run may say to it, each an optional text: name and help."""

    def faults(self, settings: dict[str, Any]) -> list[str]:
        """What is wrong with a run's settings for this dispatcher; most have none."""
        return [f"there is no setting {name!r}" for name in sorted(settings)]

    @abstractmethod
    def queue_for(self, target: str, effort: Effort) -> str:
        """The queue on which such a job waits."""

    @abstractmethod
    def ring(self, queue: str) -> None:
        """Tell whoever serves the queue to look. Never raises: a bell that is not heard costs latency only."""
