"""Dispatch jobs to KernelBot: one queue for each target, served by a worker that needs an account there and no GPU."""

from __future__ import annotations

from typing import Any, ClassVar

from runners.dispatch.base import Dispatcher
from runners.dispatch.celery import notify_worker
from runners.job import Effort
from runners.kernelbot.order import GPUS, MODES, OrderError, read_order

QUEUE_PREFIX = "kernelbot."


class KernelBotDispatcher(Dispatcher):
    """Send jobs to workers that have an account at KernelBot."""

    name: ClassVar[str] = "kernelbot"
    title: ClassVar[str] = "KernelBot, an evaluator on the internet"
    settings_help: ClassVar[dict[str, str]] = {
        "leaderboard": "Empty: the one of the problem.",
        "gpu": "KernelBot's name of the device, such as MI300. Empty: the one of the target.",
        "mode": f"One of {', '.join(MODES)}. Empty: benchmark.",
    }

    def queue_for(self, target: str, effort: Effort) -> str:
        """Return the queue of a target."""
        return f"{QUEUE_PREFIX}{target}"

    def notify(self, queue: str) -> None:
        """Send the message that every Celery worker gets."""
        notify_worker(queue)

    def faults(self, settings: dict[str, Any]) -> list[str]:
        """Return unknown settings, and values that KernelBot would refuse."""
        try:
            read_order(settings, target="gfx942", problem="p")
        except OrderError as error:
            return [str(error)]
        return []


def kernelbot_queues() -> list[str]:
    """Return the queues of all targets that KernelBot has."""
    return [f"{QUEUE_PREFIX}{target}" for target in GPUS]
