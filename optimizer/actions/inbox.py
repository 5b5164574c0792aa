"""Let people and outside agents answer prompts: list them, claim one, submit an answer.

A claim is a lease. It keeps others from answering until it expires, and nobody needs one in order to answer. An
unusable answer changes nothing except the list of refused answers; the reasons go back to the sender.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now
from django.http import Http404
from django.utils import timezone

from optimizer.agents.answer_base import Answer
from optimizer.agents.answers import MAX_ANSWER_BYTES, parse_answer
from optimizer.agents.code_blocks import AnswerError
from optimizer.agents.delimiters import cut_middle
from optimizer.calls.choice import Parameters
from optimizer.calls.conversation import toolbox_of
from optimizer.calls.lifecycle import do_end_call
from optimizer.calls.prepare import basis_of
from optimizer.calls.submission import SUBMITTED, submission_in
from optimizer.calls.tool_calls import NewTurn, do_take_turn
from optimizer.models import CallState, LlmCall, Run, TeamRole, User
from optimizer.text.storable import storable_text
from optimizer.tools.text_protocol import parse_calls

LEASE = dt.timedelta(minutes=30)
KEPT_REFUSALS = 20
# Characters per refused answer: enough to see what was tried.
KEPT_OF_REFUSED = 4_000


class PromptTakenError(Exception):
    """Report that somebody else holds the claim on the prompt."""


class PromptClosedError(Exception):
    """Report that the prompt no longer waits: it was answered, it expired, or its run ended."""


def waiting_prompts(user: User) -> QuerySet[LlmCall]:
    """Return the prompts that the person may answer, oldest first. They must be an operator and see the run."""
    waiting = LlmCall.objects.filter(state=CallState.WAITING).select_related("run__team", "run__target")
    return _answerable(waiting, user).order_by("pk")


def access_prompt(user: User, call_id: int) -> LlmCall:
    """Return a prompt, waiting or closed. Raises Http404 for a person who may not answer it."""
    found = LlmCall.objects.filter(pk=call_id).exclude(asked_at=None).select_related("run__team", "run__target")
    prompt = _answerable(found, user).first()
    if prompt is None:
        raise Http404("There is no such prompt.")
    return prompt


def holder_of(call: LlmCall) -> str:
    """Return who has claimed the prompt (`user:<id>`), or an empty text."""
    held = call.lease_until is not None and call.lease_until > timezone.now()
    return call.worker if held else ""


def do_claim_prompt(user: User, call: LlmCall, lease: dt.timedelta = LEASE) -> LlmCall:
    """Claim the prompt for a while; claiming again extends the lease. Raises PromptTakenError or PromptClosedError."""
    # One conditional update with the database's clock decides between people who claim at the same moment.
    free = Q(lease_until=None) | Q(lease_until__lt=Now()) | Q(worker=tag(user))
    mine = LlmCall.objects.filter(free, pk=call.pk, state=CallState.WAITING)
    if not mine.update(worker=tag(user), lease_until=Now() + lease, fence=F("fence") + 1):
        _raise_why(call)
    return access_prompt(user, call.pk)


def do_release_prompt(user: User, call: LlmCall) -> None:
    """Release one's own claim. Does nothing when somebody else holds it."""
    mine = LlmCall.objects.filter(pk=call.pk, state=CallState.WAITING, worker=tag(user))
    mine.update(worker="", lease_until=None)


def check_answer_prompt(user: User, call: LlmCall, text: str, *, submitted: bool = False) -> Answer:
    """Validate an answer and return it parsed. `submitted` means that a tool call named the whole kernel.

    Raises AnswerError, PromptTakenError, PromptClosedError.
    """
    _check_free(user, call)
    schema = SUBMITTED if submitted else call.answer_schema
    return parse_answer(schema, storable_text(text), basis=basis_of(call))


def do_answer_prompt(user: User, call: LlmCall, text: str, answered_with: str = "") -> Answer | None:
    """Store an answer and let the run continue. `answered_with` names the model that wrote it, if one did.

    Returns None for an answer that calls tools (see `optimizer.tools.text_protocol`): the prompt waits again when they
    have answered. Raises what `check_answer_prompt` raises. An unusable answer is recorded with the prompt, which keeps
    waiting.
    """
    # A longer text is refused below, whatever it contains.
    readable = bool(toolbox_of(call).tools) and len(text) <= MAX_ANSWER_BYTES
    requested = parse_calls(storable_text(text)) if readable else []
    submitted = submission_in(call, requested)
    if requested and not submitted:
        _do_call_tools(user, call, NewTurn(text, requested, answered_by=user))
        return None
    text = submitted or text
    try:
        answer = check_answer_prompt(user, call, text, submitted=bool(submitted))
    except AnswerError as error:
        _note_refusal(call, text, answered_with, error)
        raise
    transport = {
        **call.transport,
        "finish": "stop",
        "submitted": bool(submitted),
        "served_by": storable_text(answered_with)[:120],
    }
    # `do_end_call` decides races between two answers; the check above only gives an early, precise error.
    ended = do_end_call(
        call,
        CallState.ANSWERED,
        answer=answer.model_dump(mode="json"),
        answer_text=text,
        answered_by=user,
        transport=transport,
    )
    if not ended:
        _raise_why(call)
    return answer


def _do_call_tools(user: User, call: LlmCall, new: NewTurn) -> None:
    _check_free(user, call)
    if not do_take_turn(call, new):
        _raise_why(call)


def _check_free(user: User, call: LlmCall) -> None:
    """Raise PromptClosedError or PromptTakenError unless the person may answer the prompt now."""
    if call.state != CallState.WAITING:
        raise PromptClosedError
    if holder_of(call) not in {"", tag(user)}:
        raise PromptTakenError


def do_expire_prompts() -> int:
    """Fail the prompts that waited longer than their run allows and that nobody has claimed. Return how many."""
    waiting = LlmCall.objects.filter(state=CallState.WAITING, parameters__has_key="expires_minutes")
    # The limit is a parameter inside JSON, so it is compared in Python after the cheap conditions.
    expired = [call for call in waiting.exclude(lease_until__gt=Now()).select_related("run") if _is_expired(call)]
    for call in expired:
        do_end_call(call, CallState.FAILED, error="Expired without an answer.")
    return len(expired)


def tag(user: User) -> str:
    """Return how a person's claim is written into `LlmCall.worker`."""
    return f"user:{user.pk}"


def _answerable(calls: QuerySet[LlmCall], user: User) -> QuerySet[LlmCall]:
    if user.is_superuser:
        return calls
    operators = [role for role in TeamRole if role.rank >= TeamRole.OPERATOR.rank]
    teams = user.memberships.filter(role__in=operators).values("team")
    # Both conditions: a member of the team may still not see a private run.
    return calls.filter(run__team__in=teams, run__in=Run.objects.visible_to(user).values("pk"))


def _note_refusal(call: LlmCall, text: str, answered_with: str, error: AnswerError) -> None:
    refused: list[Any] = list(call.transport.get("refused", []))
    refused.append({
        "at": timezone.now().isoformat(), "fault": error.fault.value, "error": storable_text(str(error))[:1000],
        "text": cut_middle(storable_text(text), KEPT_OF_REFUSED), "model": storable_text(answered_with)[:120],
    })  # fmt: skip
    call.transport = {**call.transport, "refused": refused[-KEPT_REFUSALS:]}
    # Conditional, so that a refusal cannot overwrite an answer that was accepted meanwhile.
    LlmCall.objects.filter(pk=call.pk, state=CallState.WAITING).update(transport=call.transport)


def _raise_why(call: LlmCall) -> None:
    """Raise the reason why a waiting prompt could not be claimed or answered."""
    call.refresh_from_db(fields=["state", "worker", "lease_until"])
    raise PromptTakenError if call.state == CallState.WAITING else PromptClosedError


def _is_expired(call: LlmCall) -> bool:
    minutes = Parameters.model_validate(call.parameters).expires_minutes
    return minutes is not None and (timezone.now() - call.created_at).total_seconds() > minutes * 60
