"""Settle which kernel leads before a run ends, by measuring the top candidates again, together, in cold processes.

Contenders are the leader and those kernels whose interval overlaps the leader's and that no direct comparison has
beaten. Each gets one confirmation: against the common baseline, and in turns with the leader as its opponent (the
leader itself in turns with its parent). Where that changes who leads, the new leader is compared with those that
still overlap. Everything is decided from rows under the run's lock, so it may be repeated after a crash: a question
that was asked is never asked again, whatever its answer was. Confirmations cost no evaluations; their number is
bounded, anew each time that the run is continued.
"""

from __future__ import annotations

from collections.abc import Sequence

from optimizer.events.payloads import RunNoted
from optimizer.events.record import record
from optimizer.models import Evaluation, Kernel, Run, VerdictChoice
from optimizer.runs.best import confirmations, update_best
from optimizer.runs.dispatch import dispatch, priority_in_search
from optimizer.runs.evidence import Evidence, Standing, evidence_of
from runners.job import Effort

# Number of confirmations that a run may always request, so that a refuted leader's successor is confirmed too.
LEAST_JOBS = 3


def settle(run: Run, contenders: int) -> list[Evaluation]:
    """Dispatch the confirmations that are still missing and return them; an empty list when all is settled.

    Call under the run's lock, while nothing of the run is open.
    """
    # What was asked counts and not what was answered: a confirmation that failed would otherwise be repeated
    # forever.
    asked = list(confirmations(run).values_list("kernel_id", "opponent_id"))
    # Twice the contenders, because each may be compared with the first leader and with a second one. A run that was
    # continued settles again, and what it asked before takes no room.
    since = confirmations(run).filter(created_at__gte=run.reopened_at or run.created_at)
    room = max(LEAST_JOBS, 2 * contenders) - since.count()
    missing = _missing(evidence_of(run), contenders, asked)
    return [_ask(run, kernel, opponent) for kernel, opponent in missing[: max(0, room)]]


def conclude(run: Run) -> None:
    """Choose the final leader among the settled kernels and note what was settled. Call under the run's lock."""
    update_best(run, settled=True)
    settled = [one for one in evidence_of(run).standings if one.settled]
    if settled:
        record(
            run, RunNoted(text="Settled in cold processes: " + ", ".join(map(_figures, settled)) + ".", tone="live")
        )


def contenders_of(evidence: Evidence, most: int) -> list[Standing]:
    """Return the leader and at most `most - 1` unbeaten kernels whose interval overlaps its own.

    The list is empty where the leader is not proven faster than the baseline, because there is no claim to settle
    then.
    """
    leader = evidence.leader()
    if leader is None or leader.verdict != VerdictChoice.FASTER:
        return []
    others = [one for one in evidence.unbeaten() if one is not leader and _overlaps(one, leader)]
    return [leader, *others][:most]


def _missing(
    evidence: Evidence, most: int, asked: Sequence[tuple[int, int | None]]
) -> list[tuple[int, int | None]]:
    """Return the pairs of kernel and opponent (ids) that have to be measured; the leader's opponent is left open."""
    contenders = contenders_of(evidence, most)
    if not contenders:
        return []
    leader, *others = (one.kernel for one in contenders)
    # A comparison of two kernels is the same whichever of them is called the opponent.
    known = {frozenset((kernel, opponent)) for kernel, opponent in asked if opponent} | evidence.compared_cold
    confirmed = {kernel for kernel, _ in asked}
    wanted: list[tuple[int, int | None]] = [(leader, None)] if leader not in confirmed else []
    return wanted + [
        (one, leader) for one in others if one not in confirmed or frozenset((one, leader)) not in known
    ]


def _overlaps(one: Standing, leader: Standing) -> bool:
    return one.high is not None and leader.low is not None and one.high >= leader.low


def _ask(run: Run, kernel: int, opponent: int | None) -> Evaluation:
    # Filtered by run: an id that came from elsewhere would fail here instead of measuring another run's kernel.
    rows = Kernel.objects.filter(run=run).select_related("evaluation").in_bulk([kernel, opponent or kernel])
    against = rows[opponent] if opponent else None
    return dispatch(
        run, rows[kernel], Effort.CONFIRM, first=False, opponent=against, priority=priority_in_search(run)
    )


def _figures(one: Standing) -> str:
    if one.speedup is None:
        return f"#{one.number}"
    return f"#{one.number} {one.speedup:.2f}× ({one.low or 0:.2f}–{one.high or 0:.2f})"
