"""Jobs for KernelBot: a queue a target, served by a worker that needs an account there and no GPU."""

from __future__ import annotations

from typing import Any, ClassVar

from runners.dispatch.base import Dispatcher
from runners.dispatch.celery import ring_worker
from runners.job import Effort
from runners.kernelbot.order import GPUS, MODES, OrderError, read_order

QUEUE_PREFIX = "kernelbot."


class KernelBotDispatcher(Dispatcher):
    """A celery queue a target, served by a worker that has an account at KernelBot."""

    name: ClassVar[str] = "kernelbot"
    title: ClassVar[str] = "KernelBot, an evaluator on the internet"
    settings_help: ClassVar[dict[str, str]] = {
        "leaderboard": "Empty: the one of the problem.",
        "gpu": "KernelBot's name of the device, such as MI300. Empty: the one of the target.",
        "mode": f"One of {', '.join(MODES)}. Empty: benchmark.",
    }

    def queue_for(self, target: str, effort: Effort) -> str:
        """One queue a target."""
        return f"{QUEUE_PREFIX}{target}"

    def ring(self, queue: str) -> None:
        """As for every worker of ours."""
        ring_worker(queue)

    def faults(self, settings: dict[str, Any]) -> list[str]:
        """Unknown settings, and values that KernelBot would refuse."""
        try:
            read_order(settings, target="gfx942", problem="p")
        except OrderError as error:
            return [str(error)]
        return []


def kernelbot_queues() -> list[str]:
    """The queues of all targets that KernelBot has."""
    return [f"{QUEUE_PREFIX}{target}" for target in GPUS]
