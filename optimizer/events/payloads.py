"""Define what can happen in a run: one class per event type, with a typed and closed payload.

A program that has the state before an event and its payload has the state after it (tests/optimizer/snapshot.py).
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class Payload(BaseModel):
    """Provide the base class of all payloads. `type` is the name under which the event is stored."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: ClassVar[str]


class RunStateChanged(Payload):
    """State that the run entered `state`, with `reason` in words."""

    type: ClassVar[str] = "run.state"
    state: str
    reason: str = ""


class RunNoted(Payload):
    """State something worth knowing that changes nothing: no live runner, a step that was refused.

    `tone` is a colour token.
    """

    type: ClassVar[str] = "run.note"
    text: str
    tone: str = "muted"


class BudgetWarned(Payload):
    """State that `percent` (50, 80, 100) of the budget `kind` is spent.

    `spent` and `limit` are in the unit of the budget: evaluations, minutes, usd, tokens, device_minutes.
    """

    type: ClassVar[str] = "budget.warned"
    kind: str
    percent: int
    spent: float
    limit: float


class BudgetRaised(Payload):
    """State that a person changed the budgets; None is unlimited."""

    type: ClassVar[str] = "budget.raised"
    limits: dict[str, float | None]


class AheadFinished(Payload):
    """State that so many variants of a kernel were compiled ahead, of which so many cannot run."""

    type: ClassVar[str] = "ahead.finished"
    compiled: int
    refused: int


class KernelAdded(Payload):
    """State that a kernel was written and waits for its evaluation."""

    type: ClassVar[str] = "kernel.added"
    kernel: int
    number: int
    key: str
    title: str
    author_kind: str
    language: str
    parents: list[int]
    tunables: dict[str, Any] = {}
    hypothesis: int | None = None
    twin_of: int | None = None


class EvaluationStarted(Payload):
    """State that a worker took the job. `attempt` counts from 1; above 1, an earlier worker was lost."""

    type: ClassVar[str] = "evaluation.started"
    number: int
    evaluation: int
    effort: str
    first: bool = True
    worker: str
    attempt: int


class EvaluationFinished(Payload):
    """State the outcome of an evaluation.

    `first` is False for confirmations and re-runs. `spent_*` are the run's totals after it.
    """

    type: ClassVar[str] = "evaluation.finished"
    number: int
    evaluation: int
    effort: str
    first: bool
    status: str
    verdict: str = ""
    reason: str = ""
    time_us: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    parent_speedup: float | None = None
    spent_evaluations: int = 0
    spent_device_s: float = 0.0


class EvaluationCancelled(Payload):
    """State that the run was stopped before the kernel was measured."""

    type: ClassVar[str] = "evaluation.cancelled"
    number: int
    evaluation: int
    first: bool = True


class BestChanged(Payload):
    """State that another kernel leads, or that the leader's headline figure was confirmed.

    `announce` is False while statistics do not support that it beats the baseline.
    """

    type: ClassVar[str] = "best.changed"
    number: int
    kernel: int
    time_us: float
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    confirmed: bool
    announce: bool


class BestRefuted(Payload):
    """State that a confirmation in cold processes spoke against a kernel.

    Either its claim was not supported, or kernel number `by` was faster in a direct comparison. With `led` the kernel
    was the leader and steps down; its successor, if any, follows as `best.changed`.
    """

    type: ClassVar[str] = "best.refuted"
    number: int
    kernel: int
    reason: str
    by: int | None = None
    led: bool = True


class HypothesisAdded(Payload):
    """State that an avenue, experiment or instruction was recorded. Gains are in per cent of speed."""

    type: ClassVar[str] = "hypothesis.added"
    hypothesis: int
    key: str
    kind: str
    title: str
    round: int
    basis: int | None = None
    predicted_min: float | None = None
    predicted_max: float | None = None
    innovation: int | None = None
    chosen: bool = False


class HypothesisMeasured(Payload):
    """State that the kernel of a hypothesis was timed against its parent: `gain` is in per cent of speed."""

    type: ClassVar[str] = "hypothesis.measured"
    hypothesis: int
    gain: float


class CallAsked(Payload):
    """State that a question to a model waits to be sent."""

    type: ClassVar[str] = "call.asked"
    call: int
    key: str
    role: str
    attempt: int
    provider: str
    model: str


class CallEnded(Payload):
    """State that a question reached a final state, with tokens, cost and the run's totals after it."""

    type: ClassVar[str] = "call.ended"
    call: int
    key: str
    role: str
    state: str
    tokens: int | None = None
    cost_usd: float | None = None
    error: str = ""
    spent_tokens: int = 0
    spent_usd: float = 0.0


class ToolCalled(Payload):
    """State that a model called a tool. `order` counts the calls of the question, which `key` names."""

    type: ClassVar[str] = "tool.called"
    call: int
    key: str
    role: str
    tool: str
    order: int
    spent_tokens: int = 0
    spent_usd: float = 0.0


class ToolEnded(Payload):
    """State the outcome of a tool call in a few words. `spent_device_s` is the run's total after it."""

    type: ClassVar[str] = "tool.ended"
    call: int
    key: str
    role: str
    tool: str
    order: int
    state: str
    headline: str = ""
    spent_device_s: float = 0.0


class FindingAdded(Payload):
    """State that the run wrote a finding or note."""

    type: ClassVar[str] = "finding.added"
    finding: int
    kind: str
    text: str


class ReviewPublished(Payload):
    """State that `comments` comments in `threads` became visible, with a verdict on kernel `number` (None: the run)."""

    type: ClassVar[str] = "review.published"
    review: int
    number: int | None = None
    verdict: str
    by: str
    comments: int
    threads: list[int]


class ThreadChanged(Payload):
    """State that a thread was resolved, dropped or reopened. `number` is the kernel on which it was started, if any."""

    type: ClassVar[str] = "review.thread"
    thread: int
    state: str
    by: str
    number: int | None = None


class CommentEdited(Payload):
    """State that a published comment was edited; its earlier text is kept."""

    type: ClassVar[str] = "review.edited"
    thread: int
    comment: int
    by: str
    number: int | None = None


class GuidanceGiven(Payload):
    """State that the next prompts will contain `text`; with `number`, those about that kernel's lineage."""

    type: ClassVar[str] = "guidance.given"
    guidance: int
    text: str
    by: str
    number: int | None = None


class GuidanceWithdrawn(Payload):
    """State that no prompt from now on contains the instruction."""

    type: ClassVar[str] = "guidance.withdrawn"
    guidance: int
    by: str
    number: int | None = None


PAYLOADS: dict[str, type[Payload]] = {
    payload.type: payload
    for payload in (
        RunStateChanged,
        RunNoted,
        BudgetWarned,
        BudgetRaised,
        AheadFinished,
        KernelAdded,
        EvaluationStarted,
        EvaluationFinished,
        EvaluationCancelled,
        BestChanged,
        BestRefuted,
        HypothesisAdded,
        HypothesisMeasured,
        CallAsked,
        CallEnded,
        ToolCalled,
        ToolEnded,
        FindingAdded,
        ReviewPublished,
        ThreadChanged,
        CommentEdited,
        GuidanceGiven,
        GuidanceWithdrawn,
    )
}


def parse(type_name: str, payload: dict[str, Any]) -> Payload:
    """Parse a stored event's payload. Raises KeyError or pydantic.ValidationError."""
    return PAYLOADS[type_name].model_validate(payload)
