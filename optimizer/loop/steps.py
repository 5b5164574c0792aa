"""Turn a strategy's steps into rows, each at most once: a step whose key the run knows is not taken again."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import QuerySet

from optimizer.calls.lifecycle import do_request_call
from optimizer.events.hypotheses import record_hypothesis
from optimizer.events.payloads import FindingAdded
from optimizer.events.record import record
from optimizer.models import Finding, Hypothesis, Kernel, LlmCall, Run
from optimizer.runs.ahead import request_ahead
from optimizer.runs.budget import evaluations_left
from optimizer.runs.kernels import add_kernel
from optimizer.search.base import Ask, Draft, Hypothesise, Note, Step
from optimizer.search.compiled import CompileAhead
from optimizer.text.hostile_text import sanitized_line, sanitized_text

KINDS_OF_NOTES = {"run": "note", "digest": "digest"}
NOTED_SINCE = "*Noted by the agents since:*"


def take_steps(run: Run, steps: Iterable[Step]) -> int:
    """Take the new steps in order and return how many there were. Call under the run's lock."""
    return sum(_take(run, step) for step in steps)


def _take(run: Run, step: Step) -> bool:
    """Return True when the step was new and was taken. `Finish` is left to the caller."""
    match step:
        case Ask():
            return _ask(run, step)
        case Hypothesise():
            return _hypothesise(run, step)
        case Draft():
            return _draft(run, step)
        case Note():
            return _note(run, step)
        case CompileAhead():
            return request_ahead(run, step)
    return False


def _ask(run: Run, step: Ask) -> bool:
    if LlmCall.objects.filter(run=run, key=step.key).exists():
        return False
    do_request_call(run, step)
    return True


def _draft(run: Run, step: Draft) -> bool:
    """Add the kernel unless it exists or exceeds the budget; the strategy repeats a refused draft at its next
    decision.
    """
    # Checked again here: several drafts of one decision share what is left.
    if run.kernels.filter(key=step.key).exists() or evaluations_left(run) == 0:
        return False
    add_kernel(run, step)
    return True


def _hypothesise(run: Run, step: Hypothesise) -> bool:
    if Hypothesis.objects.filter(run=run, key=step.key).exists():
        return False
    hypothesis = Hypothesis.objects.create(
        run=run,
        key=step.key,
        kind=step.kind,
        round=step.round,
        title=sanitized_line(step.title)[:300],
        description=sanitized_text(step.description),
        rubric=sanitized_text(step.rubric),
        basis=_kernel(run, step.basis_key),
        reference=_kernel(run, step.reference_key),
        call=_call(run, step.call_key),
        predicted_min=step.predicted_min,
        predicted_max=step.predicted_max,
        innovation=step.innovation,
        chosen=step.chosen,
        chosen_why=sanitized_line(step.chosen_why)[:200],
    )
    record_hypothesis(run, hypothesis)
    return True


def _note(run: Run, step: Note) -> bool:
    """Store a finding, digest or note unless it exists. `source` names the run.

    Scope `run` and `digest` apply to this run only, scope `problem` and `target` to every run of the team there.
    Recorded words stay in the run that replays them, because their figures come from another machine. A note that
    supersedes another becomes the next version of that note's current version; a person's text is kept above the new
    note. A note that consolidates supersedes the findings that its prompt showed.
    """
    noted = Finding.objects.filter(source=source_of(run))
    if noted.filter(key=step.key).exists():
        return False
    older, call = _newest_version(noted, step.supersedes), _call(run, step.call_key)
    # A recording's figures come from another machine and must not become knowledge of this team.
    recorded = call is not None and call.provider == "replay"
    finding = Finding.objects.create(
        team=run.team,
        run=run if recorded or step.scope in {"run", "digest"} else None,
        problem=run.problem_version.problem if step.scope == "problem" else None,
        target=run.target if step.scope in {"problem", "target"} else None,
        key=step.key,
        kind=KINDS_OF_NOTES.get(step.scope, "finding"),
        title=older.title if older else "",
        text=_with_what_people_wrote(older, sanitized_text(step.text)),
        source=source_of(run),
        call=call,
    )
    if older is not None:
        Finding.objects.filter(pk=older.pk).update(superseded_by=finding)
    if step.consolidates and call is not None and not recorded:
        _shown_findings(run, call).exclude(pk=finding.pk).update(superseded_by=finding)
    record(run, FindingAdded(finding=finding.pk, kind=finding.kind, text=finding.text[:500]))
    return True


def _shown_findings(run: Run, call: LlmCall) -> QuerySet[Finding]:
    """Return the current findings of the team's agents that the call's prompt showed."""
    refs = [str(entry["ref"]) for entry in call.context_report.get("taken", [])]
    shown = [int(ref.removeprefix("finding-")) for ref in refs if ref.startswith("finding-")]
    return Finding.objects.filter(
        pk__in=shown, team=run.team, kind="finding", origin="agent", superseded_by__isnull=True
    )


def _newest_version(noted: QuerySet[Finding], key: str | None) -> Finding | None:
    """Return the current version of the note with that key, locked against a concurrent edit, or None."""
    row = noted.filter(key=key).first() if key else None
    while row is not None:
        # Lock before reading `superseded_by`: an edit that commits in between would be lost otherwise.
        row = Finding.objects.select_for_update(of=("self",)).get(pk=row.pk)
        if row.superseded_by is None:
            return row
        row = row.superseded_by
    return None


def _with_what_people_wrote(older: Finding | None, text: str) -> str:
    """Return the text, appended to the newest version of `older` that a person wrote."""
    row = older
    while row is not None and row.origin != "person":
        row = Finding.objects.filter(superseded_by=row).first()
    return f"{row.text}\n\n{NOTED_SINCE}\n\n{text}" if row else text


def source_of(run: Run) -> str:
    """Return how the findings of a run name it as their source."""
    return f"run {run.pk}"


def _kernel(run: Run, key: str | None) -> Kernel | None:
    return run.kernels.filter(key=key).first() if key else None


def _call(run: Run, key: str | None) -> LlmCall | None:
    return LlmCall.objects.filter(run=run, key=key).order_by("-attempt").first() if key else None
