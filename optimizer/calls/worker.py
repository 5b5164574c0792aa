"""Answer a stored question: claim it, build the prompt, ask, validate the answer, store the cost.

Whatever happens, the row enters exactly one final state. A question that may be asked again is asked again in the
same transaction, so that nobody ever sees it closed without an answer.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from optimizer.agents.answer_base import Answer
from optimizer.agents.answers import parse_answer
from optimizer.agents.code_blocks import AnswerError
from optimizer.calls.lifecycle import MAX_ATTEMPTS, do_ask_again, do_claim_call, do_end_call, do_keep_call
from optimizer.calls.prepare import basis_of, prepare, request_of
from optimizer.calls.registry import provider_for_call, row_of
from optimizer.calls.stream import TokenStream
from optimizer.calls.submission import SUBMITTED, requested_tools, submission_in
from optimizer.calls.tool_calls import NewTurn, do_take_turn
from optimizer.enqueue import enqueue_call
from optimizer.llm.inbox import AnsweredLaterError
from optimizer.llm.port import (
    CallCancelledError,
    Completion,
    CompletionRequest,
    InterruptedStreamError,
    ProviderError,
    Usage,
    estimated_tokens,
)
from optimizer.llm.prices import price_of
from optimizer.models import CallState, CampaignCell, LlmCall, Provider, Run, RunState
from optimizer.runs.budget import exhausted
from optimizer.runs.locking import lock_run
from runners.log_context import about

MAX_REPAIRS = 1
BEAT_S = 2.0

logger = logging.getLogger(__name__)


def answer(call_id: int) -> bool:
    """Answer one question. Return False when there was nothing to do now.

    That is the case when another worker has the question, it is closed, the run is paused, or the provider is busy
    (then the worker that frees a slot enqueues it again).
    """
    claimed = _claim(call_id)
    if claimed is None:
        return False
    call, row = claimed
    try:
        with about(run=call.run_id, call=call.pk):
            _ask(call, row)
    except Exception as error:
        logger.exception("call %s of run %s failed with an internal error", call.pk, call.run_id)
        do_end_call(call, CallState.FAILED, error=f"internal error: {type(error).__name__}: {error}"[:2000])
        raise
    # Also after an error: the slot is free and others wait for it.
    finally:
        _enqueue_next(call)
    return True


def _claim(call_id: int) -> tuple[LlmCall, Provider | None] | None:
    """Claim the call while its run is running and its provider has a free slot.

    The provider's row is locked while the questions in progress are counted, so that workers on all machines see the
    same number.
    """
    with transaction.atomic():
        call = LlmCall.objects.select_related("run__team").filter(pk=call_id, state=CallState.QUEUED).first()
        if call is None or call.run.state != RunState.RUNNING:
            return None
        row = row_of(call)
        if row is not None:
            # Two workers that count at the same time would both find a free slot.
            Provider.objects.select_for_update(of=("self",)).get(pk=row.pk)
            if _asking(call).count() >= row.concurrency:
                return None
        claimed = do_claim_call(call.pk, f"{socket.gethostname()}:{os.getpid()}")
    return (claimed, row) if claimed else None


def _asking(call: LlmCall) -> Any:
    """Return the questions that the call's provider is answering now."""
    return LlmCall.objects.filter(
        run__team=call.run.team_id, provider=call.provider, state=CallState.ASKING, lease_until__gt=Now()
    )


def _ask(call: LlmCall, row: Provider | None) -> None:
    """Ask, and store how the call ended."""
    # Check the budget as late as possible: other calls may have spent it while this one waited.
    obstacle = exhausted(call.run) or _unbudgeted(call, row)
    if obstacle is not None:
        do_end_call(call, CallState.FAILED, error=obstacle)
        return
    prepare(call)
    request = request_of(call, row)
    stream = TokenStream(call.run_id, call.pk, call.role, request.turn)
    try:
        provider = provider_for_call(call, row)
        completion = provider.complete(request, on_token=stream.add, cancelled=_beater(call))
    except AnsweredLaterError:
        _leave_waiting(call)
    except InterruptedStreamError as error:
        _interrupted(call, row, request, error)
    except ProviderError as error:
        _failed(call, row, request, error)
    else:
        stream.flush()
        _learn(row, request, completion)
        _conclude(call, row, request, completion)


def _limit_usd(run: Run) -> Decimal | None:
    """Return the run's limit in dollars, or zero where that is the limit of all runs of its campaign."""
    cell = CampaignCell.objects.filter(run=run).select_related("campaign").first()
    return Decimal(0) if cell is not None and cell.campaign.limit_usd == 0 else run.budget_usd


def _unbudgeted(call: LlmCall, row: Provider | None) -> str | None:
    """Return why a limit in dollars forbids the question, or None.

    Where the price is unknown the limit could not be enforced, and under a limit of zero only free models are asked.
    """
    if row is None or (limit := _limit_usd(call.run)) is None:
        return None
    model = call.model or row.default_model
    price = price_of(model, row.base_url, row.prices)
    if price is not None:
        is_allowed = price.is_free or limit > 0
        return None if is_allowed else f"The run may spend no dollars, and {model} is not free at {row.name}."
    return f"The run has a limit in dollars, and {model} has no known price at {row.name}: enter one there."


def _beater(call: LlmCall) -> Callable[[], bool]:
    """Return a `cancelled` function that extends the lease every few seconds.

    It returns True once the claim is lost or the call was cancelled.
    """
    last_s = time.monotonic()

    def cancelled() -> bool:
        nonlocal last_s
        # Called for every piece of an answer; one database write every few seconds is enough.
        if time.monotonic() - last_s < BEAT_S:
            return False
        last_s = time.monotonic()
        return not do_keep_call(call)

    return cancelled


def _conclude(call: LlmCall, row: Provider | None, request: CompletionRequest, completion: Completion) -> None:
    """Validate the answer and end the call: accepted, or failed with its fault and asked again at most once.

    An answer that calls tools ends nothing: the question goes on with their results.
    """
    outcome = _outcome(call, row, request, completion)
    requested = requested_tools(completion) if request.tools else []
    submitted = submission_in(call, requested)
    if submitted:
        completion = replace(completion, text=submitted, submitted=True)
        outcome["answer_text"] = submitted
    elif requested:
        native = bool(completion.tool_calls)
        do_take_turn(call, NewTurn(completion.text, requested, native, completion.items, outcome))
        return
    outcome["transport"]["submitted"] = completion.submitted
    try:
        answer = _parsed(call, completion)
    except AnswerError as error:
        outcome["transport"]["fault"] = error.fault.value
        _end_and_ask_again(call, CallState.FAILED, error=str(error), again=_may_repair(call, error), **outcome)
        return
    do_end_call(call, CallState.ANSWERED, answer=answer.model_dump(mode="json"), **outcome)


def _parsed(call: LlmCall, completion: Completion) -> Answer:
    """Parse the completion. Raises AnswerError."""
    return parse_answer(
        SUBMITTED if completion.submitted else call.answer_schema,
        completion.text,
        finish=completion.finish,
        refusal=completion.refusal,
        basis=basis_of(call),
    )


def _may_repair(call: LlmCall, error: AnswerError) -> bool:
    earlier = LlmCall.objects.filter(run=call.run_id, key=call.key, attempt__lt=call.attempt)
    repairs = earlier.filter(transport__has_key="fault").count()
    # Each attempt costs, so the fault is named at most once.
    return error.repairable and repairs < MAX_REPAIRS and not _recorded(call)


def _recorded(call: LlmCall) -> bool:
    """Return whether a recording answers, which would repeat the same answer."""
    return bool(call.parameters.get("record"))


def _interrupted(
    call: LlmCall, row: Provider | None, request: CompletionRequest, error: InterruptedStreamError
) -> None:
    """Store an answer that broke off. Its cost is uncertain, and the question is asked again."""
    outcome = _outcome(call, row, request, Completion(error.partial, finish="interrupted", tries=error.tries))
    _end_and_ask_again(call, CallState.UNCERTAIN, error=str(error), again=True, **outcome)


def _failed(call: LlmCall, row: Provider | None, request: CompletionRequest, error: ProviderError) -> None:
    """Store that nobody answered. Tokens are counted only where a request was under way."""
    if not error.maybe_spent:
        do_end_call(call, CallState.FAILED, error=str(error), transport={**call.transport, **_told(error.tries)})
        return
    finish = "cancelled" if isinstance(error, CallCancelledError) else "failed"
    outcome = _outcome(call, row, request, Completion(error.partial, finish=finish, tries=error.tries))
    do_end_call(call, CallState.FAILED, error=str(error), **outcome)


def _end_and_ask_again(call: LlmCall, state: CallState, *, again: bool, **outcome: Any) -> None:
    """Close the row and, while the run wants it and attempts are left, open the next attempt in the
    same transaction.
    """
    with transaction.atomic():
        # Run first, then call: the lock order everywhere.
        lock_run(call.run_id)
        ended = do_end_call(call, state, **outcome)
        run = Run.objects.get(pk=call.run_id)
        if ended and again and call.attempt < MAX_ATTEMPTS and run.state == RunState.RUNNING:
            call.run = run
            do_ask_again(call)


def _outcome(call: LlmCall, row: Provider | None, request: CompletionRequest, got: Completion) -> dict[str, Any]:
    """Return what is stored of a completion: text, tokens, cost, and transport details.

    Where the server did not count, tokens are estimated and marked as such, so that the budget holds.
    """
    estimated = got.usage.prompt is None or got.usage.answer is None
    usage = _estimate(request, got) if estimated else got.usage
    price = price_of(request.model, row.base_url, row.prices) if row else None
    cost = 0 if got.recorded else price.cost_usd(usage) if price else None
    transport = {
        **call.transport,
        **_told(got.tries),
        "finish": got.finish,
        "served_by": got.model,
        "request_id": got.request_id,
        "first_token_s": got.first_token_s,
        "duration_s": got.duration_s,
        "dropped": list(got.dropped),
        "reasoning_tokens": got.usage.reasoning,
        "recorded": got.recorded,
        "same_prompt": got.same_prompt,
        "estimated": estimated,
        "price": price.model_dump(mode="json") if price else None,
    }
    return {
        "answer_text": got.text,
        "prompt_tokens": usage.prompt,
        "answer_tokens": usage.answer,
        "cached_tokens": usage.cached,
        "cost_usd": cost,
        "transport": transport,
    }


def _estimate(request: CompletionRequest, got: Completion) -> Usage:
    """Estimate the tokens from the texts."""
    return Usage(prompt=estimated_tokens(request.messages, ""), answer=estimated_tokens([], got.text))


def _told(tries: Any) -> dict[str, Any]:
    return {"tries": [{"error": item.error, "waited_s": item.waited_s} for item in tries]}


def _learn(row: Provider | None, request: CompletionRequest, completion: Completion) -> None:
    """Remember the parameters that the server refused, now that it has answered without them."""
    if row is not None and completion.dropped:
        row.learn(request.model, completion.dropped)


def _leave_waiting(call: LlmCall) -> None:
    """Hand the prompt over to the inbox, where people and outside agents see it."""
    mine = LlmCall.objects.filter(pk=call.pk, fence=call.fence, state=CallState.ASKING)
    mine.update(state=CallState.WAITING, worker="", lease_until=None)


def _enqueue_next(call: LlmCall) -> None:
    """Enqueue the provider's oldest waiting question, as a slot is free now."""
    waiting = LlmCall.objects.filter(
        run__team=call.run.team_id, run__state=RunState.RUNNING, provider=call.provider, state=CallState.QUEUED
    )
    oldest = waiting.order_by("pk").values_list("pk", flat=True).first()
    if oldest is not None:
        enqueue_call(oldest)
