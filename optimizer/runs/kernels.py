"""Add kernels to a run: number them, link their parents, and evaluate them unless they are duplicates."""

from __future__ import annotations

from collections.abc import Callable

from django.db.models import Max

from optimizer.events.payloads import KernelAdded
from optimizer.events.record import record
from optimizer.models import (
    Evaluation,
    EvaluationState,
    EvaluationStatus,
    Hypothesis,
    Kernel,
    KernelParent,
    LlmCall,
    Run,
    RunState,
)
from optimizer.models.evaluation import CANDIDATE
from optimizer.models.team import User
from optimizer.runs.dispatch import begin_evaluation, queue_job
from optimizer.runs.evaluation import do_copy_outcome, finished
from optimizer.search.base import Draft
from optimizer.text.hostile_text import sanitized_line, sanitized_text
from optimizer.text.storable import storable, storable_text

# How a new kernel's first evaluation is created: `begin_evaluation`, `hold_evaluation` for a kernel that is only
# reported, or for seeds `optimizer.loop.shared_seeds.begin_or_wait`.
Begin = Callable[[Run, Kernel], Evaluation]

# States in which a run may still begin an evaluation for what it has open.
GOING_ON = (RunState.RUNNING, RunState.PAUSED)


def add_kernel(run: Run, draft: Draft, author: User | None = None, *, begin: Begin = begin_evaluation) -> Kernel:
    """Store the draft and start its evaluation. Call under the run's lock.

    A kernel whose text, tunables and flags the run has measured already is not measured again: it takes over the
    outcome of the original. `begin` creates the evaluation of any other: see `Begin`.
    """
    original = _original_of(run, draft.source.content_hash)
    kernel = _create(run, draft, author, original)
    record(run, _added(kernel, original))
    if original is not None:
        _follow(run, kernel, original)
    else:
        begin(run, kernel)
    return kernel


def settle_duplicates(run: Run, evaluation: Evaluation) -> None:
    """Pass the outcome of an evaluation that has just ended on to the duplicates that wait for it.

    A failure that was not the kernel's own (its parent's build, the machine) is not shared: the oldest duplicate is
    evaluated itself, and the others wait for it.
    """
    waiting = Evaluation.objects.filter(
        first_of__run=run, first_of__meta__twin_of=evaluation.kernel.number, state=EvaluationState.QUEUED
    )
    followers = list(waiting.select_related("kernel").order_by("kernel__number"))
    if followers and not may_be_shared(evaluation) and run.state in GOING_ON:
        return _promote(run, followers)
    for follower in followers:
        do_copy_outcome(follower, evaluation)
        record(run, finished(run, follower))
    return None


def may_be_shared(evaluation: Evaluation) -> bool:
    """Return True for an outcome that the same source has again: its own verdict, or a problem that is too large."""
    if evaluation.state == EvaluationState.CANCELLED:
        return True
    return evaluation.judges_kernel or evaluation.status == EvaluationStatus.TOO_LARGE


def _promote(run: Run, followers: list[Evaluation]) -> None:
    first, *others = followers
    _follow_instead(first.kernel, None)
    for other in others:
        _follow_instead(other.kernel, first.kernel)
    queue_job(run, first)


def _follow_instead(kernel: Kernel, original: Kernel | None) -> None:
    """Let a duplicate wait for another original, or for none."""
    kernel.meta = {name: value for name, value in kernel.meta.items() if name != "twin_of"}
    if original is not None:
        kernel.meta["twin_of"] = original.number
    kernel.save(update_fields=["meta"])


def _follow(run: Run, kernel: Kernel, original: Kernel) -> None:
    follower = Evaluation.objects.create(
        kernel=kernel, target=run.target, first_of=kernel, effort=original.evaluation.effort
    )
    if EvaluationState(original.evaluation.state).is_terminal:
        do_copy_outcome(follower, original.evaluation)
        record(run, finished(run, follower))


def _original_of(run: Run, content_hash: str) -> Kernel | None:
    """Return the first kernel with the same content that is measured or certain to be.

    Failures that were not the kernel's own are left out, because they say nothing about its copies: those of the
    machine, and those that the parent or the baseline caused.
    """
    # A duplicate never has duplicates of its own, or a chain of them would wait for each other.
    same = run.kernels.filter(content_hash=content_hash).exclude(meta__has_key="twin_of")
    known = same.exclude(evaluation__status=EvaluationStatus.INFRA_ERROR)
    known = known.filter(evaluation__failed_side__in=("", CANDIDATE))
    return (
        known.exclude(evaluation__state__in=[EvaluationState.CANCELLED, EvaluationState.REPORTED])
        .select_related("evaluation")
        .order_by("number")
        .first()
    )


def _create(run: Run, draft: Draft, author: User | None, original: Kernel | None) -> Kernel:
    last = run.kernels.aggregate(last=Max("number"))["last"]
    meta = storable(dict(draft.meta)) | ({"twin_of": original.number} if original else {})
    kernel = Kernel.objects.create(
        run=run,
        number=0 if last is None else last + 1,
        key=draft.key,
        title=sanitized_line(draft.title)[:200],
        author_kind=draft.author_kind,
        author=author,
        # Texts come from a model: `storable` removes what PostgreSQL cannot store, such as NUL characters.
        language=draft.source.language.value,
        source=storable_text(draft.source.text),
        tunables=storable(draft.source.tunables),
        flags=storable(draft.source.flags),
        content_hash=draft.source.content_hash,
        hypothesis=_hypothesis_of(run, draft),
        call=_call_of(run, draft),
        report=sanitized_text(draft.report),
        meta=meta,
    )
    _link(kernel, draft.parent_keys)
    _note_rubric(kernel)
    return kernel


def _hypothesis_of(run: Run, draft: Draft) -> Hypothesis | None:
    # Seeds and tuned kernels name none: most kernels cost no query here.
    return Hypothesis.objects.filter(run=run, key=draft.hypothesis_key).first() if draft.hypothesis_key else None


def _call_of(run: Run, draft: Draft) -> LlmCall | None:
    """Return the last attempt of the question that the draft answers, or None for a draft of no model."""
    if not draft.call_key:
        return None
    return LlmCall.objects.filter(run=run, key=draft.call_key).order_by("-attempt").first()


def _note_rubric(kernel: Kernel) -> None:
    """Store on the hypothesis whether the writer says it followed the rubric; the last kernel's statement counts."""
    followed = str((kernel.call.answer or {}).get("rubric_followed", "")) if kernel.call else ""
    if kernel.hypothesis and followed:
        kernel.hypothesis.rubric_followed = sanitized_line(followed)[:400]
        kernel.hypothesis.save(update_fields=["rubric_followed"])


def _link(kernel: Kernel, parent_keys: tuple[str, ...]) -> None:
    """Link the parents in the order named, without repetitions and keys that the run does not know."""
    by_key = {parent.key: parent for parent in Kernel.objects.filter(run=kernel.run, key__in=parent_keys)}
    parents = [by_key[key] for key in dict.fromkeys(parent_keys) if key in by_key and key != kernel.key]
    KernelParent.objects.bulk_create(
        KernelParent(kernel=kernel, parent=parent, rank=rank) for rank, parent in enumerate(parents)
    )


def _added(kernel: Kernel, original: Kernel | None) -> KernelAdded:
    return KernelAdded(
        kernel=kernel.pk,
        number=kernel.number,
        key=kernel.key,
        title=kernel.title,
        author_kind=kernel.author_kind,
        language=kernel.language,
        parents=list(kernel.parent_links.order_by("rank").values_list("parent__number", flat=True)),
        tunables=kernel.tunables,
        hypothesis=kernel.hypothesis_id,
        twin_of=original.number if original else None,
    )
