"""Define enumerations with label, tone (a colour token of the design system) and terminality."""

from __future__ import annotations

from django.db import models


def refused_change(what: str, state: models.TextChoices, wanted: models.TextChoices) -> str:
    """Return the message of an error: why a run or campaign cannot change from its state to the wanted one."""
    now = state.label.lower()
    if state == wanted:
        return f"this {what} is already {now}"
    return f"this {what} is {now} and cannot become {wanted.label.lower()}"


class RunState(models.TextChoices):
    """List the states of a run."""

    PENDING = "pending", "Pending"
    RUNNING = "running", "Running"
    PAUSED = "paused", "Paused"
    STOPPING = "stopping", "Stopping"
    FINISHED = "finished", "Finished"
    STOPPED = "stopped", "Stopped"
    FAILED = "failed", "Failed"

    @property
    def is_terminal(self) -> bool:
        """Return True when the run has ended."""
        return self in {RunState.FINISHED, RunState.STOPPED, RunState.FAILED}

    @property
    def tone(self) -> str:
        """Return the colour token of the state."""
        return _RUN_TONES[self]


class EvaluationState(models.TextChoices):
    """List the states of an evaluation. Its outcome is `Evaluation.status`.

    `reported` is a kernel whose author says how fast it is, and that nobody has measured here yet.
    """

    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    DONE = "done", "Done"
    CANCELLED = "cancelled", "Cancelled"
    REPORTED = "reported", "Reported, not measured"

    @property
    def is_terminal(self) -> bool:
        """Return True when the outcome will not change."""
        return self in {EvaluationState.DONE, EvaluationState.CANCELLED}

    @property
    def tone(self) -> str:
        """Return the colour token of the state."""
        return {"running": "live", "reported": "warn"}.get(self.value, "muted")


# Reported evaluations have an outcome already, though a measurement may follow.
OPEN_EVALUATION_STATES = [EvaluationState.QUEUED, EvaluationState.RUNNING]


class EvaluationPurpose(models.TextChoices):
    """List what evaluations are for. Only those of the search itself say which kernel leads a run."""

    SEARCH = "", "Search"
    SETTLING = "settling", "Settling of a campaign"
    RETIMING = "retiming", "Regression watch"
    RANKING = "ranking", "Leaderboard"


class EvaluationStatus(models.TextChoices):
    """List the outcomes of an evaluation: `runners.job.Status` with labels."""

    CORRECT = "correct", "Correct"
    INCORRECT = "incorrect", "Incorrect"
    BUILD_FAILED = "build_failed", "Build failed"
    CRASHED = "crashed", "Crashed"
    TIMEOUT = "timeout", "Timed out"
    OUT_OF_MEMORY = "out_of_memory", "Out of memory"
    REJECTED = "rejected", "Rejected"
    SUSPECT = "suspect", "Suspect"
    TOO_LARGE = "too_large", "Too large"
    INFRA_ERROR = "infra_error", "Infrastructure error"

    @property
    def tone(self) -> str:
        """Return the colour token of the outcome."""
        return _STATUS_TONES[self]

    @property
    def judges_kernel(self) -> bool:
        """Return False for the endings that say nothing about the kernel: the machine failed, or lacks the memory."""
        return self not in {EvaluationStatus.TOO_LARGE, EvaluationStatus.INFRA_ERROR}


class VerdictChoice(models.TextChoices):
    """List the verdicts that the statistics support: `runners.job.Verdict` with labels."""

    FASTER = "faster", "Faster"
    SAME = "same", "Same"
    SLOWER = "slower", "Slower"

    @property
    def tone(self) -> str:
        """Return the colour token of the verdict."""
        return {"faster": "good", "same": "muted", "slower": "bad"}[self.value]


class ObjectiveChoice(models.TextChoices):
    """List the times that a run's speedups can compare: `runners.job.Objective` with labels."""

    DEVICE = "device", "Device time"
    CALL = "call", "Call time (host included)"


class JobState(models.TextChoices):
    """List the queue's states of a job."""

    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    DONE = "done", "Done"
    FAILED_INFRA = "failed_infra", "Infrastructure failed"
    CANCELLED = "cancelled", "Cancelled"

    @property
    def is_terminal(self) -> bool:
        """Return True when no worker will claim the job again."""
        return self in {JobState.DONE, JobState.FAILED_INFRA, JobState.CANCELLED}

    @property
    def tone(self) -> str:
        """Return the colour token of the state."""
        return _JOB_TONES[self]


OPEN_JOB_STATES = [state for state in JobState if not state.is_terminal]


class CallState(models.TextChoices):
    """List the states of a call to a language model.

    `uncertain` means that the call's worker was lost before an answer was stored, so tokens may have been spent.
    `tools` means that the model called tools whose results are awaited.
    """

    QUEUED = "queued", "Queued"
    ASKING = "asking", "Asking"
    WAITING = "waiting", "Waiting for an answer"
    TOOLS = "tools", "Using tools"
    ANSWERED = "answered", "Answered"
    FAILED = "failed", "Failed"
    UNCERTAIN = "uncertain", "Uncertain"
    CANCELLED = "cancelled", "Cancelled"

    @property
    def is_terminal(self) -> bool:
        """Return True when the row will not change any more."""
        return self in {CallState.ANSWERED, CallState.FAILED, CallState.UNCERTAIN, CallState.CANCELLED}

    @property
    def tone(self) -> str:
        """Return the colour token of the state."""
        return {"answered": "good", "failed": "bad", "uncertain": "warn", "asking": "live", "waiting": "live",
                "tools": "live"}.get(self.value, "muted")  # fmt: skip


OPEN_CALL_STATES = [state for state in CallState if not state.is_terminal]


class ToolState(models.TextChoices):
    """List the states of a tool call.

    `refused` means that the call was not carried out: an unknown tool, unusable arguments, or no budget left. `failed`
    means that the infrastructure failed; what the tool says about a kernel, good or bad, is `done`.
    """

    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    DONE = "done", "Done"
    REFUSED = "refused", "Refused"
    FAILED = "failed", "Failed"
    CANCELLED = "cancelled", "Cancelled"

    @property
    def is_terminal(self) -> bool:
        """Return True when the result will not change."""
        return self not in {ToolState.QUEUED, ToolState.RUNNING}

    @property
    def tone(self) -> str:
        """Return the colour token of the state."""
        return {"running": "live", "refused": "warn", "failed": "bad"}.get(self.value, "muted")


OPEN_TOOL_STATES = [state for state in ToolState if not state.is_terminal]


class AuthorKind(models.TextChoices):
    """List the kinds of authors of a kernel."""

    SEED = "seed", "Seed"
    AGENT = "agent", "Agent"
    TUNER = "tuner", "Tuner"
    PERSON = "person", "Person"


class HypothesisKind(models.TextChoices):
    """List the kinds of hypotheses: the scientist has avenues and experiments, STARK has grounded instructions."""

    AVENUE = "avenue", "Avenue"
    EXPERIMENT = "experiment", "Experiment"
    INSTRUCTION = "instruction", "Instruction"
    DEBUG = "debug", "Debug"
    TUNING = "tuning", "Tuning"
    SUGGESTION = "suggestion", "Suggested edit"


class TeamRole(models.TextChoices):
    """List the roles of a member; each role includes the rights of those before it."""

    VIEWER = "viewer", "Viewer"
    REVIEWER = "reviewer", "Reviewer"
    OPERATOR = "operator", "Operator"
    OWNER = "owner", "Owner"

    @property
    def rank(self) -> int:
        """Return the position of the role; a higher rank has more rights."""
        return list(TeamRole).index(self)


_RUN_TONES = {
    RunState.PENDING: "muted",
    RunState.RUNNING: "live",
    RunState.PAUSED: "warn",
    RunState.STOPPING: "warn",
    RunState.FINISHED: "good",
    RunState.STOPPED: "muted",
    RunState.FAILED: "bad",
}
_STATUS_TONES = {
    EvaluationStatus.CORRECT: "good",
    EvaluationStatus.INCORRECT: "bad",
    EvaluationStatus.BUILD_FAILED: "bad",
    EvaluationStatus.CRASHED: "bad",
    EvaluationStatus.TIMEOUT: "bad",
    EvaluationStatus.OUT_OF_MEMORY: "bad",
    EvaluationStatus.REJECTED: "warn",
    EvaluationStatus.SUSPECT: "warn",
    EvaluationStatus.TOO_LARGE: "muted",
    EvaluationStatus.INFRA_ERROR: "muted",
}
_JOB_TONES = {
    JobState.QUEUED: "muted",
    JobState.RUNNING: "live",
    JobState.DONE: "good",
    JobState.FAILED_INFRA: "bad",
    JobState.CANCELLED: "muted",
}
