"""Sign a kernel's newest verdict with the key of this installation."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.core.exceptions import ValidationError

from optimizer.models import Evaluation, EvaluationState, Kernel
from runners import wire
from runners.job import Baseline, Effort, JobSpec, Objective
from runners.receipts import keys, receipt


def signed_receipt(kernel: Kernel, *, with_files: bool) -> str:
    """Return the receipt as the text of a file. Raises ValidationError where there is nothing to sign.

    It is of the newest evaluation that measured: a confirmation in cold processes where there is one.
    """
    evaluation = _newest(kernel)
    if evaluation is None:
        raise ValidationError("This kernel has no verdict of its own yet, so there is nothing to sign.")
    try:
        spec, result = _spec(kernel, evaluation), evaluation.as_result()
        if result is None:
            raise ValidationError("This kernel has no verdict yet, so there is nothing to sign.")
        at = evaluation.finished_at.isoformat(timespec="seconds") if evaluation.finished_at else ""
        statement = receipt.state(
            spec, result, f"Kernel Scientist, run {kernel.run_id}, kernel #{kernel.number}", at
        )
    except (receipt.ReceiptError, wire.WireError) as error:
        raise ValidationError(f"This verdict cannot be signed: {error}.") from error
    key = keys.installation_key(key_file())
    return receipt.dumps(receipt.sign(statement, key, spec if with_files else None))


def has_receipt(kernel: Kernel) -> bool:
    """Return whether the kernel has a verdict of its own that can be signed."""
    evaluation = _newest(kernel)
    return evaluation is not None and evaluation.judges_kernel


def installation_public_key() -> str:
    """Return the public key of this installation in hexadecimal."""
    return keys.public_key_of(keys.installation_key(key_file()))


def key_file() -> Path:
    """Return where this installation keeps its signing key."""
    return Path(settings.RECEIPT_KEY)


def _newest(kernel: Kernel) -> Evaluation | None:
    # A duplicate's outcome was measured on another kernel: what was not measured is not signed.
    own = kernel.evaluations.filter(state=EvaluationState.DONE, copied_from=None).exclude(effort=Effort.BUILD.value)
    return own.select_related("opponent").order_by("-finished_at", "-pk").first()


def _spec(kernel: Kernel, evaluation: Evaluation) -> JobSpec:
    run = kernel.run
    return JobSpec(
        job_id=f"evaluation-{evaluation.pk}",
        problem=run.problem_version.as_bundle(),
        target=run.target.key,
        candidate=kernel.as_source(),
        effort=Effort(evaluation.effort),
        baseline=Baseline(run.baseline),
        parent=evaluation.opponent.as_source() if evaluation.opponent else None,
        objective=Objective(run.objective),
    )
