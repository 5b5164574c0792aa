"""What can happen in a run: one class an event type, its payload typed and closed. A page that has the state before
an event and the payload has the state after it (`optimizer.live.snapshot`)."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class Payload(BaseModel):
    """Base of all payloads. `type` is the name under which the event is stored."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: ClassVar[str]


class RunStateChanged(Payload):
    """The run entered `state`; `reason` in words."""

    type: ClassVar[str] = "run.state"
    state: str
    reason: str = ""


class RunNoted(Payload):
    """Something worth knowing that changes nothing: no live runner, a step that was refused. `tone` is a colour
    token."""

    type: ClassVar[str] = "run.note"
    text: str
    tone: str = "muted"


class BudgetWarned(Payload):
    """`percent` (50, 80, 100) of the budget `kind` is spent. `spent` and `limit` in the budget's own unit:
    evaluations, minutes, usd, tokens, device_minutes."""

    type: ClassVar[str] = "budget.warned"
    kind: str
    percent: int
    spent: float
    limit: float


class BudgetRaised(Payload):
    """A person changed budgets; None is unlimited."""

    type: ClassVar[str] = "budget.raised"
    limits: dict[str, float | None]


class KernelAdded(Payload):
    """A kernel was written and waits for its evaluation."""

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
    """A worker took the job. `attempt` counts from 1; above 1 an earlier worker was lost."""

    type: ClassVar[str] = "evaluation.started"
    number: int
    evaluation: int
    effort: str
    first: bool = True
    worker: str
    attempt: int


class EvaluationFinished(Payload):
    """The outcome of an evaluation. `first` is False for confirmations and re-runs. `spent_*` are the run's totals
    after it."""

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
    """The run was stopped before the kernel was measured."""

    type: ClassVar[str] = "evaluation.cancelled"
    number: int
    evaluation: int
    first: bool = True


class BestChanged(Payload):
    """Another kernel leads, or the leader's headline figure was confirmed. `announce` is False while statistics do
    not support that it beats the baseline."""

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
    """A confirmation in cold processes spoke against a kernel: its claim did not stand, or kernel number `by` was
    faster side by side. With `led` it was the leader and steps down; another one follows as `best.changed`, if any."""

    type: ClassVar[str] = "best.refuted"
    number: int
    kernel: int
    reason: str
    by: int | None = None
    led: bool = True


class HypothesisAdded(Payload):
    """An avenue, experiment or instruction went on record. Gains in per cent of speed."""

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
    """The kernel of a hypothesis was timed against its parent: `gain` in per cent of speed."""

    type: ClassVar[str] = "hypothesis.measured"
    hypothesis: int
    gain: float


class CallAsked(Payload):
    """A question to a model waits to be sent."""

    type: ClassVar[str] = "call.asked"
    call: int
    key: str
    role: str
    attempt: int
    provider: str
    model: str


class CallEnded(Payload):
    """A question reached a final state; tokens and cost as far as known, and the run's totals after it."""

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


class FindingAdded(Payload):
    """The run learnt something."""

    type: ClassVar[str] = "finding.added"
    finding: int
    kind: str
    text: str


class ReviewPublished(Payload):
    """Somebody's comments became visible, `comments` of them in `threads`, with a verdict on kernel `number` (None: on
    the run as a whole)."""

    type: ClassVar[str] = "review.published"
    review: int
    number: int | None = None
    verdict: str
    by: str
    comments: int
    threads: list[int]


class ThreadChanged(Payload):
    """A thread was resolved, dropped or opened again. `number` is the kernel it was begun on, if any."""

    type: ClassVar[str] = "review.thread"
    thread: int
    state: str
    by: str
    number: int | None = None


class CommentEdited(Payload):
    """A published comment reads differently now; what it said before is kept."""

    type: ClassVar[str] = "review.edited"
    thread: int
    comment: int
    by: str
    number: int | None = None


class GuidanceGiven(Payload):
    """The next prompts will hold `text`; with `number` those about that kernel's lineage."""

    type: ClassVar[str] = "guidance.given"
    guidance: int
    text: str
    by: str
    number: int | None = None


class GuidanceWithdrawn(Payload):
    """No prompt from now on holds it."""

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
        FindingAdded,
        ReviewPublished,
        ThreadChanged,
        CommentEdited,
        GuidanceGiven,
        GuidanceWithdrawn,
    )
}


def parse(type_name: str, payload: dict[str, Any]) -> Payload:
    """A stored event's payload as its class. Raises KeyError or pydantic.ValidationError."""
    return PAYLOADS[type_name].model_validate(payload)
