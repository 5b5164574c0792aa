"""Process the queue of jobs for KernelBot."""

from __future__ import annotations

from dataclasses import replace

from runners.job_source import OutsideSource
from runners.kernelbot.account import account_from_environment
from runners.kernelbot.client import KernelBotClient
from runners.kernelbot.visit import Pace, Visit
from runners.worker import work_on

# Rate limits and other people's submissions may cost hours; a visit that never ends must not hold the queue.
LONGEST_VISIT_S = 24 * 3600.0


def work_at_kernelbot(source: OutsideSource, queue: str, worker: str, pace: Pace | None = None) -> bool:
    """Take the queue's next job through KernelBot. Return False if there was none.

    Raises NotConfiguredError before a job is claimed.
    """
    account = account_from_environment()
    claim = source.claim(queue, worker)
    if claim is None:
        return False
    claim = replace(claim, limit_s=LONGEST_VISIT_S)
    with KernelBotClient(account) as client:
        work_on(source, claim, Visit(client, source, claim, pace).evaluate)
    return True
