"""Define the Celery tasks. Each takes an id, reads the rows, and may be called twice."""

from __future__ import annotations

import time
from importlib import import_module

from celery import shared_task

from optimizer.campaigns.advance import advance_campaign
from optimizer.campaigns.retiming import advance_retiming
from optimizer.campaigns.watching import start_due_rounds
from optimizer.enqueue import AGENTS_QUEUE, BUILD_QUEUE, TIMER_QUEUE, enqueue_campaign, enqueue_run
from optimizer.loop.advance import Outcome, advance
from optimizer.problems.inspecting import inspect_upload
from optimizer.upkeep.sweep import sweep

BUSY_PAUSE_S = 0.2


@shared_task(name="optimizer.advance", queue=TIMER_QUEUE, ignore_result=True)
def advance_run(run_id: int) -> str:
    """Advance a run, and enqueue it again when somebody else holds it."""
    outcome = advance(run_id)
    if outcome is Outcome.BUSY:
        # Wait before trying again, or a long transaction would keep the queue spinning.
        time.sleep(BUSY_PAUSE_S)
        enqueue_run(run_id)
    return outcome.value


@shared_task(name="optimizer.advance_campaign", queue=TIMER_QUEUE, ignore_result=True)
def advance_one_campaign(campaign_id: int) -> bool:
    """Advance a campaign, and enqueue it again when somebody else holds it."""
    if advance_campaign(campaign_id):
        return True
    time.sleep(BUSY_PAUSE_S)
    enqueue_campaign(campaign_id)
    return False


@shared_task(name="optimizer.advance_retiming", queue=TIMER_QUEUE, ignore_result=True)
def advance_one_retiming(round_id: int) -> bool:
    """Advance a round of the regression watch; the sweep returns to one that somebody else holds."""
    return advance_retiming(round_id)


@shared_task(name="optimizer.answer_call", queue=AGENTS_QUEUE, ignore_result=True)
def answer_call(call_id: int) -> None:
    """Answer a question with its provider."""
    # Import late: only the agents' workers need the model SDK, which is slow to load.
    import_module("optimizer.calls.worker").answer(call_id)


@shared_task(name="optimizer.inspect_upload", queue=BUILD_QUEUE, ignore_result=True)
def inspect_uploaded_problem(upload_id: int) -> bool:
    """Read and try an uploaded problem in sandboxes."""
    return inspect_upload(upload_id)


@shared_task(name="optimizer.deliver", queue=AGENTS_QUEUE, ignore_result=True)
def deliver_webhook(delivery_id: int) -> str:
    """Deliver a webhook if it is due."""
    # Import late: the HTTP client is needed by the agents' workers only.
    return str(import_module("optimizer.upkeep.webhook_sender").deliver(delivery_id))


@shared_task(name="optimizer.sweep", queue=TIMER_QUEUE, ignore_result=True)
def sweep_up() -> dict[str, int]:
    """Revive lost work."""
    return sweep()


@shared_task(name="optimizer.mail_digests", queue=TIMER_QUEUE, ignore_result=True)
def mail_digests() -> int:
    """Mail unread notifications."""
    return int(import_module("optimizer.upkeep.digest").mail_digests())


@shared_task(name="optimizer.watch_releases", queue=TIMER_QUEUE, ignore_result=True)
def watch_releases() -> list[int]:
    """Time released kernels again where new software or the schedule asks for it."""
    return start_due_rounds()
