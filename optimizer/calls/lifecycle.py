"""Store questions to language models through their life: asked by a run, answered once, paid for once.

The request row exists before anything is sent, and the answer is stored afterwards. A row whose worker was lost
becomes `uncertain`, since its tokens may have been spent, and the question is asked again in a new row.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from optimizer.enqueue import enqueue_call, enqueue_run
from optimizer.events.payloads import CallAsked, CallEnded
from optimizer.events.record import record
from optimizer.models import CallState, CallTurn, LlmCall, Run
from optimizer.models.choices import OPEN_CALL_STATES
from optimizer.search.base import Ask
from optimizer.text.storable import storable

LEASE = dt.timedelta(seconds=settings.LEASE_S)
MAX_ATTEMPTS = 3
# Columns of a call, and of a turn, that say what it has cost.
PAID_COLUMNS = ("prompt_tokens", "answer_tokens", "cached_tokens", "cost_usd")


def do_request_call(run: Run, ask: Ask) -> LlmCall:
    """Store a strategy's question and enqueue it after commit. Call under the run's lock."""
    chosen = provider_for(run, ask.role)
    call = LlmCall.objects.create(
        run=run,
        key=ask.key,
        role=ask.role,
        provider=str(chosen.get("provider", "inbox"))[:60],
        model=str(ask.model or chosen.get("model", ""))[:120],
        context=storable(dict(ask.context)),
        parameters=_parameters(chosen, ask),
        answer_schema=ask.answer_schema,
    )
    return _announce(run, call)


def do_ask_again(call: LlmCall) -> LlmCall:
    """Store the same question as a new attempt, after a lost worker or to have a bad answer repaired.

    Call under the run's lock, with the old row in a final state.
    """
    again = LlmCall.objects.create(
        run=call.run,
        key=call.key,
        attempt=call.attempt + 1,
        role=call.role,
        provider=call.provider,
        model=call.model,
        context=call.context,
        parameters=call.parameters,
        answer_schema=call.answer_schema,
    )
    return _announce(call.run, again)


def do_ask_cancelled_again(run: Run) -> None:
    """Ask again what was cancelled when the run ended, so that it goes on with it. Call under the run's lock."""
    newer = LlmCall.objects.filter(run=run, key=OuterRef("key"), attempt__gt=OuterRef("attempt"))
    for call in LlmCall.objects.filter(~Exists(newer), run=run, state=CallState.CANCELLED).order_by("pk"):
        call.run = run
        do_ask_again(call)


def do_claim_call(call_id: int, worker: str, lease: dt.timedelta = LEASE) -> LlmCall | None:
    """Claim a queued question. Return None when somebody else has it or it is closed."""
    # Of several workers only one changes the row; the others see zero updated rows.
    queued = LlmCall.objects.filter(pk=call_id, state=CallState.QUEUED)
    changes: dict[str, Any] = {"state": CallState.ASKING, "worker": worker[:100], "lease_until": Now() + lease}
    if not queued.update(fence=F("fence") + 1, asked_at=Now(), **changes):
        return None
    return LlmCall.objects.select_related("run").get(pk=call_id)


def do_keep_call(call: LlmCall, lease: dt.timedelta = LEASE) -> bool:
    """Extend the lease of a claimed question. Return False when it was cancelled or lost: stop the request then."""
    mine = LlmCall.objects.filter(pk=call.pk, fence=call.fence, state=CallState.ASKING)
    return mine.update(lease_until=Now() + lease) == 1


def do_end_call(call: LlmCall, state: CallState, **outcome: Any) -> bool:
    """Store how a claimed question ended and what it cost, in one transaction and only once.

    `outcome` may contain answer_text, answer, error, messages, prompt_version, prompt_tokens, answer_tokens,
    cached_tokens, cost_usd, answered_by and context_report. Return False when the row was closed meanwhile: its
    tokens are booked nevertheless, and its state stays.
    """
    with transaction.atomic():
        run = Run.objects.select_for_update(of=("self",)).get(pk=call.run_id)
        row = LlmCall.objects.select_for_update(of=("self",)).get(pk=call.pk)
        # A stale worker or a repeated call must not book the tokens twice.
        if row.fence != call.fence or row.answered_at is not None:
            return False
        # A cancelled call may still be answered: the tokens were spent and must be booked.
        was_open = row.state in OPEN_CALL_STATES
        row.state = state if was_open else row.state
        _fill(row, outcome)
        do_book(run, row)
        _add_turns(row)
        if was_open:
            record(run, _ended(run, row))
        enqueue_run(run.pk)
    return was_open


def do_book(run: Run, row: LlmCall | CallTurn) -> None:
    """Add what a call, or one of its turns, has cost to the run's spending. Call under the run's lock."""
    run.spent_tokens += (row.prompt_tokens or 0) + (row.answer_tokens or 0)
    run.spent_usd += Decimal(row.cost_usd or 0)
    run.save(update_fields=["spent_tokens", "spent_usd"])


def do_cancel_waiting_calls(run: Run) -> None:
    """Cancel the questions that no model is answering at this moment. Call under the run's lock."""
    _close(run, [CallState.QUEUED, CallState.WAITING, CallState.TOOLS])


def do_cancel_calls(run: Run) -> None:
    """Cancel all open questions. A worker that is answering one notices at its next heartbeat. Call under the run's
    lock.
    """
    _close(run, OPEN_CALL_STATES)


def do_give_up_lost_call(call_id: int) -> None:
    """Mark a question whose worker is lost as `uncertain`, and ask again while attempts are left."""
    run_id = LlmCall.objects.values_list("run_id", flat=True).get(pk=call_id)
    with transaction.atomic():
        run = Run.objects.select_for_update(of=("self",)).get(pk=run_id)
        lost = LlmCall.objects.filter(pk=call_id, state=CallState.ASKING, lease_until__lt=Now())
        # Conditional: the worker may have answered between the query and the lock.
        if not lost.update(state=CallState.UNCERTAIN, error="Its worker was lost; tokens may have been spent."):
            return
        call = LlmCall.objects.select_related("run").get(pk=call_id)
        call.run = run
        record(run, _ended(run, call))
        if call.attempt < MAX_ATTEMPTS and not run.state_choice.is_terminal:
            do_ask_again(call)
        enqueue_run(run.pk)


def open_calls(run: Run) -> QuerySet[LlmCall]:
    """Return the questions of the run that have no answer yet."""
    return LlmCall.objects.filter(run=run, state__in=OPEN_CALL_STATES)


def provider_for(run: Run, role: str) -> dict[str, Any]:
    """Return the run's choice for a role (`provider`, `model` and parameters), else its default, else the inbox."""
    chosen = run.providers.get(role) or run.providers.get("default") or {"provider": "inbox"}
    return dict(chosen) if isinstance(chosen, dict) else {"provider": str(chosen)}


def _parameters(chosen: dict[str, Any], ask: Ask) -> dict[str, Any]:
    """Merge the strategy's temperature with the parameters of the role; those that the run names take precedence."""
    # Merging in this order lets the run's explicit choice override the strategy's default.
    own = {} if ask.temperature is None else {"temperature": ask.temperature}
    return own | {key: value for key, value in chosen.items() if key not in {"provider", "model"}}


def _announce(run: Run, call: LlmCall) -> LlmCall:
    record(
        run,
        CallAsked(
            call=call.pk,
            key=call.key,
            role=call.role,
            attempt=call.attempt,
            provider=call.provider,
            model=call.model,
        ),
    )
    enqueue_call(call.pk)
    return call


def _fill(row: LlmCall, outcome: dict[str, Any]) -> None:
    for name, value in outcome.items():
        setattr(row, name, storable(value))
    row.answered_at = timezone.now()
    row.lease_until = None
    row.save()


def _add_turns(row: LlmCall) -> None:
    """Add the turns with tool calls, which are booked already, to the row's own tokens and cost."""
    turns = list(row.turns.values(*PAID_COLUMNS))
    for name in PAID_COLUMNS:
        known = [value for value in (getattr(row, name), *(turn[name] for turn in turns)) if value is not None]
        setattr(row, name, sum(known[1:], known[0]) if known else None)
    if turns:
        row.save(update_fields=list(PAID_COLUMNS))


def _close(run: Run, states: list[CallState]) -> None:
    for call in LlmCall.objects.filter(run=run, state__in=states).select_for_update(of=("self",)):
        call.state = CallState.CANCELLED
        call.save(update_fields=["state"])
        record(run, _ended(run, call))


def _ended(run: Run, call: LlmCall) -> CallEnded:
    counted = [tokens for tokens in (call.prompt_tokens, call.answer_tokens) if tokens is not None]
    return CallEnded(
        call=call.pk,
        key=call.key,
        role=call.role,
        state=call.state,
        tokens=sum(counted) if counted else None,
        cost_usd=None if call.cost_usd is None else float(call.cost_usd),
        error=call.error[:500],
        spent_tokens=run.spent_tokens,
        spent_usd=float(run.spent_usd),
    )
