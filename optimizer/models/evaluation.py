"""Store what the harness measured. A re-run adds a row; existing rows are never edited."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from optimizer.models.choices import EvaluationPurpose, EvaluationState, EvaluationStatus, VerdictChoice
from optimizer.models.kernel import Kernel
from optimizer.models.target import Target
from runners import wire
from runners.job import JobResult

# The side of `runners.job.Failure` that is the kernel itself.
CANDIDATE = "candidate"


class Evaluation(models.Model):
    """Store one evaluation of one kernel on one target.

    The first evaluation of a kernel is `Kernel.evaluation`; confirmations and re-runs leave `first_of` empty.
    `result` is a `runners.job.JobResult` as JSON without the raw samples, which are `Measurement` rows. `time_us` and
    `call_us` are geometric means of the medians of all cases: time on the device, and time of a call including the
    host. `speedup*` and `parent_speedup*` compare the time that the run optimises, `call_speedup*` always compares
    call time; both call figures are None on a CPU. `opponent` is the kernel that `parent_speedup` compares with: the
    parent, or the leader when leaders are measured against each other. `unconfirmed` marks a speedup that the
    candidate's own clock claims and the referee's clock does not confirm: such figures are shown but never ranked.
    `failed_side` names who caused a failure; it is empty where the harness did not say. `copied_from` is the
    evaluation whose outcome a duplicate shares, or for which a seed in a campaign waits. Evaluations with a `purpose`
    belong to a campaign or to the regression watch: they neither rank the kernel in its run nor count as the run's
    spending.
    """

    kernel = models.ForeignKey(Kernel, on_delete=models.CASCADE, related_name="evaluations")
    target = models.ForeignKey(Target, on_delete=models.PROTECT, related_name="evaluations")
    first_of = models.OneToOneField(
        Kernel, null=True, blank=True, on_delete=models.CASCADE, related_name="evaluation"
    )
    effort = models.CharField(max_length=10)
    purpose = models.CharField(
        max_length=10, choices=EvaluationPurpose.choices, default=EvaluationPurpose.SEARCH, blank=True
    )
    state = models.CharField(max_length=10, choices=EvaluationState.choices, default=EvaluationState.QUEUED)
    status = models.CharField(max_length=16, choices=EvaluationStatus.choices, blank=True)
    verdict = models.CharField(max_length=8, choices=VerdictChoice.choices, blank=True)
    unconfirmed = models.BooleanField(default=False)
    time_us = models.FloatField(null=True, blank=True)
    speedup = models.FloatField(null=True, blank=True)
    speedup_low = models.FloatField(null=True, blank=True)
    speedup_high = models.FloatField(null=True, blank=True)
    parent_speedup = models.FloatField(null=True, blank=True)
    parent_speedup_low = models.FloatField(null=True, blank=True)
    parent_speedup_high = models.FloatField(null=True, blank=True)
    parent_verdict = models.CharField(max_length=8, choices=VerdictChoice.choices, blank=True)
    opponent = models.ForeignKey(Kernel, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    call_us = models.FloatField(null=True, blank=True)
    call_speedup = models.FloatField(null=True, blank=True)
    call_speedup_low = models.FloatField(null=True, blank=True)
    call_speedup_high = models.FloatField(null=True, blank=True)
    roofline_share = models.FloatField(null=True, blank=True)
    failed_side = models.CharField(max_length=12, blank=True)
    copied_from = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="copies")
    result = models.JSONField(default=dict, blank=True)
    sandbox = models.CharField(max_length=20, blank=True)
    harness_version = models.CharField(max_length=20, blank=True)
    artefact_hash = models.CharField(max_length=64, blank=True)
    device_s = models.FloatField(default=0)
    stage = models.CharField(max_length=30, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(time_us__isnull=True) | Q(time_us__gt=0), name="evaluation_time_us"),
            models.CheckConstraint(condition=Q(call_us__isnull=True) | Q(call_us__gt=0), name="evaluation_call_us"),
        ]
        indexes = [
            # what is at work in a run: a few open evaluations among many ended ones
            models.Index(fields=["kernel"], condition=Q(state__in=["queued", "running"]), name="evaluation_open"),
            # how the kernels of a run came out, counted from the index alone: rows are wide
            models.Index(fields=["first_of", "state", "status"], name="evaluation_outcomes"),
        ]

    def __str__(self) -> str:
        return f"{self.kernel}: {self.status or self.state}"

    @property
    def judges_kernel(self) -> bool:
        """Return False where the machine, the parent or the baseline ended the evaluation, and not the kernel."""
        if not self.status:
            return False
        return EvaluationStatus(self.status).judges_kernel and self.failed_side in ("", CANDIDATE)

    def as_result(self) -> JobResult | None:
        """Return the stored result without raw samples, or None before there is one.

        Raises WireError when a version with another contract stored it.
        """
        return wire.from_plain(JobResult, self.result) if self.result else None

    @property
    def state_choice(self) -> EvaluationState:
        """Return the state with its label, tone and whether it is final."""
        return EvaluationState(self.state)

    def as_readable_result(self) -> JobResult | None:
        """Return the stored result, or None when it cannot be decoded by this version.

        The row's own columns still hold the outcome in that case.
        """
        try:
            return self.as_result()
        except wire.WireError:
            return None

    def mark_started(self, fence: int) -> bool:
        """Mark the evaluation as running on behalf of the worker with this fencing token.

        Keeps the first start time when a job is claimed again. Returns False when the token is out of date.
        """
        # One conditional update, so a worker that lost its lease cannot restart an evaluation that another worker
        # holds.
        current = Evaluation.objects.filter(pk=self.pk, job__fence=fence, job__state="running")
        return current.update(state=EvaluationState.RUNNING, started_at=Coalesce("started_at", Now())) == 1

    def mark_finished(self, status: EvaluationStatus) -> None:
        """Store the outcome and save the whole row. The caller has set the figures."""
        self.state = EvaluationState.DONE
        self.status = status
        self.stage = ""
        self.finished_at = timezone.now()
        self.save()

    def mark_queued(self) -> None:
        """Let a kernel that was only reported be measured: its job is made next."""
        self.state = EvaluationState.QUEUED
        self.save(update_fields=["state"])

    def mark_cancelled(self) -> None:
        """Mark the evaluation as cancelled, so that no result is accepted for it."""
        self.state = EvaluationState.CANCELLED
        self.stage = ""
        self.finished_at = timezone.now()
        self.save(update_fields=["state", "stage", "finished_at"])


class Measurement(models.Model):
    """Store the raw times of one case and one subject: every sample, the median and its interval, in µs."""

    evaluation = models.ForeignKey(Evaluation, on_delete=models.CASCADE, related_name="measurements")
    case = models.CharField(max_length=120)
    subject = models.CharField(max_length=12)
    samples_us = models.JSONField(default=list)
    median_us = models.FloatField()
    low_us = models.FloatField(null=True, blank=True)
    high_us = models.FloatField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["evaluation", "case", "subject"], name="one_measurement_per_subject"),
            models.CheckConstraint(condition=Q(median_us__gt=0), name="measurement_median_us"),
        ]

    def __str__(self) -> str:
        return f"{self.case} {self.subject}: {self.median_us:.2f} µs"
