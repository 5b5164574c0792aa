"""Implement the provider that repeats the answers of a recording and marks them as recorded."""

from __future__ import annotations

from dataclasses import replace

from optimizer.llm.port import (
    Cancelled,
    Completion,
    CompletionRequest,
    OnToken,
    Provider,
    ProviderRefusedError,
    RequestedTool,
    Usage,
)
from optimizer.llm.recording import RecordedCall, RecordedTurn, RunRecord, prompt_hash

# A prompt is a message of the system and one of the user.
PROMPT_MESSAGES = 2


class Replay(Provider):
    """Answer by (key, role) from one recording. Kernels are built and timed anew; no tokens are spent."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record

    def complete(self, request: CompletionRequest, *, on_token: OnToken, cancelled: Cancelled) -> Completion:
        """Return the recorded answer. Raises ProviderRefusedError for a question that the recording does not answer.

        The completion says whether the answer was given to the same prompt: measured times differ between machines, and
        prompts between versions.
        """
        found = self.record.answer_to(request.key, request.role)
        if found is None:
            raise ProviderRefusedError(f"the record has no answer to {request.key} ({request.role})")
        # Compare the prompt alone: the tools' results after it belong to this machine.
        prompt = list(request.messages)[:PROMPT_MESSAGES] if request.turn else list(request.messages)
        same_prompt = prompt_hash(prompt) == found.prompt_sha256
        turns = self.record.turns_to(request.key, request.role) if request.tools else []
        if request.turn < len(turns):
            return _turn(found, turns[request.turn], same_prompt, on_token)
        answered = _completion(found, found.answer_text, same_prompt, on_token)
        return replace(answered, submitted=found.submitted)


def _turn(call: RecordedCall, turn: RecordedTurn, same_prompt: bool, on_token: OnToken) -> Completion:
    """Return a recorded turn. Its tools are called again, since builds and times belong to this machine."""
    calls = tuple(RequestedTool(one.name, one.arguments, f"recorded_{n}") for n, one in enumerate(turn.calls, 1))
    return replace(_completion(call, turn.text, same_prompt, on_token), tool_calls=calls)


def _completion(call: RecordedCall, text: str, same_prompt: bool, on_token: OnToken) -> Completion:
    on_token(text)
    return Completion(
        text=text,
        # Zero instead of unknown: a recorded answer costs nothing, and budgets must not estimate it.
        usage=Usage(prompt=0, answer=0),
        model=call.model,
        finish="stop",
        recorded=True,
        same_prompt=same_prompt,
    )
