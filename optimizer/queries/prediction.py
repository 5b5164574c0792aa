"""Predict a kernel's time from its machine code and from the kernels of its run that were measured before it.

Only earlier kernels count, so that the page of a measured kernel shows the prediction's real error.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import QuerySet

from optimizer.models import Evaluation, EvaluationState, EvaluationStatus, Kernel, Run
from optimizer.queries.device_time import on_the_same
from optimizer.queries.kernel_resources import spilled_registers
from optimizer.queries.own_builds import own_resources
from optimizer.search.machinery.time_model import MOST, Prediction, TimeModel
from runners.job import BuildReport, KernelResources
from runners.static_features.figures import figures_of_build
from runners.wire import WireError, from_plain

# A prediction is only worth a warning where it is far from the parent's time.
WARN_RATIO = 1.5


@dataclass(frozen=True)
class KernelPrediction:
    """Hold a prediction with what was measured: the kernel's time and its parent's in µs, None where there is none."""

    predicted: Prediction
    measured_us: float | None
    parent_us: float | None
    spills: int

    @property
    def error(self) -> float | None:
        """Return by how much the measured time exceeds the prediction, as a share of it."""
        return self.measured_us / self.predicted.time_us - 1 if self.measured_us else None

    @property
    def error_percent(self) -> float | None:
        """Return the size of the error in per cent."""
        return abs(self.error) * 100 if self.error is not None else None

    @property
    def held(self) -> bool:
        """Return whether the measured time lies in the interval."""
        return self.measured_us is not None and self.predicted.low_us <= self.measured_us <= self.predicted.high_us

    @property
    def slower(self) -> float | None:
        """Return how many times slower than its parent the kernel is expected, where that is worth a warning."""
        if not self.parent_us or self.measured_us:
            return None
        # The interval's lower end must be slower too: a wide guess warns of nothing.
        ratio = self.predicted.time_us / self.parent_us
        return ratio if ratio >= WARN_RATIO and self.predicted.low_us > self.parent_us else None

    def in_words(self, parent: str = "its parent") -> str:
        """Return what agents are told of a kernel that is not measured yet. `parent` names what it is compared with."""
        spills = f" (spills {self.spills} registers)" if self.spills else ""
        head = f"Predicted {self.slower:.1f}× slower than {parent}{spills}" if self.slower else "Predicted"
        one = self.predicted
        return (
            f"{head}: {one.time_us:.2f} µs (80 % interval {one.low_us:.2f} to {one.high_us:.2f} µs), from its machine "
            f"code and {one.measured} measured kernels. A prediction is never a verdict."
        )


def prediction_of(kernel: Kernel) -> KernelPrediction | None:
    """Return the prediction for a kernel; None before it was built, without figures, or with too few measured."""
    report = _newest_build(kernel)
    model = _model_before(kernel) if figures_of_build(report) else None
    return _predicted(model, report, _time_of(kernel), _parent_time(kernel))


def predictions_of_open(run: Run) -> dict[str, KernelPrediction]:
    """Return by key what the run's kernels that are not measured yet are expected to take, as far as it is known."""
    ended = [state.value for state in EvaluationState if state.is_terminal]
    reports = {kernel: _newest_build(kernel) for kernel in run.kernels.exclude(evaluation__state__in=ended)}
    model = model_of(run) if any(map(figures_of_build, reports.values())) else None
    found = {one.key: _predicted(model, report, None, _parent_time(one)) for one, report in reports.items()}
    return {key: one for key, one in found.items() if one is not None}


def prediction_of_build(run: Run, report: BuildReport | None, base: Kernel | None) -> KernelPrediction | None:
    """Return the prediction for a build that is no kernel of the run yet, beside the kernel that it shall improve."""
    model = model_of(run) if figures_of_build(report) else None
    return _predicted(model, report, None, _time_of(base) if base else None)


def _predicted(
    model: TimeModel | None, report: BuildReport | None, measured_us: float | None, parent_us: float | None
) -> KernelPrediction | None:
    predicted = model.predict(figures_of_build(report)) if model else None
    if predicted is None or report is None:
        return None
    return KernelPrediction(predicted, measured_us, parent_us, spilled_registers(report.kernels))


def model_of(run: Run) -> TimeModel | None:
    """Return the model of the run's measured kernels, or where they are too few, of earlier runs' kernels too."""
    return _fitted(Evaluation.objects.filter(first_of__run=run)) or _fitted(on_the_same(run).exclude(first_of=None))


def figures_before_measuring(kernel: Kernel) -> dict[str, float]:
    """Return the static features of a kernel's newest build, empty before it was built."""
    return figures_of_build(_newest_build(kernel))


def _model_before(kernel: Kernel) -> TimeModel | None:
    """Return the model of the run's kernels before this one."""
    return _fitted(Evaluation.objects.filter(first_of__run=kernel.run_id, first_of__number__lt=kernel.number))


def _fitted(found: QuerySet[Evaluation]) -> TimeModel | None:
    """Return the model of the newest kernels whose first evaluation is among these and correct."""
    correct = found.filter(status=EvaluationStatus.CORRECT, unconfirmed=False).exclude(time_us=None)
    # Only the resources are read: results hold assembly too, which is long.
    newest = correct.order_by("-first_of__run", "-first_of__number")[:MOST]
    rows = list(newest.values_list("first_of_id", "result__build__kernels", "time_us"))
    # What was measured elsewhere comes without a build.
    own = own_resources([kernel for kernel, resources, _ in rows if kernel and not resources])
    builds = [
        (figures_of_build(_report(resources or own.get(kernel or 0))), time_us)
        for kernel, resources, time_us in reversed(rows)
        if time_us
    ]
    return TimeModel.fit([figures for figures, _ in builds], [time_us for _, time_us in builds])


def _newest_build(kernel: Kernel) -> BuildReport | None:
    """Return the kernel's newest build, that of a static build before its measurement included."""
    rows = kernel.evaluations.exclude(result={}).order_by("-pk").values_list("result__build__kernels", flat=True)
    reports = [_report(kernels) for kernels in rows]
    return next((report for report in reports if report is not None), None)


def _report(kernels: object) -> BuildReport | None:
    """Return stored resources as a report, or None where another version wrote them."""
    try:
        found = [from_plain(KernelResources, one) for one in kernels] if isinstance(kernels, list) else []
    except WireError:
        return None
    return BuildReport(True, 0.0, False, "", kernels=found) if found else None


def _time_of(kernel: Kernel) -> float | None:
    return Evaluation.objects.filter(first_of=kernel, status=EvaluationStatus.CORRECT).values_list(
        "time_us", flat=True
    ).first()  # fmt: skip


def _parent_time(kernel: Kernel) -> float | None:
    parent = Evaluation.objects.filter(first_of__child_links__kernel=kernel, first_of__child_links__rank=0)
    return parent.filter(status=EvaluationStatus.CORRECT).values_list("time_us", flat=True).first()
