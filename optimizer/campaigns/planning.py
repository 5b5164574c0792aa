"""Decide which runs of a campaign are started next. Pure: figures in, choices out.

Device time is shared evenly. A free place goes to the configuration whose runs will have used the least device time
once those under way have ended, like deficit round robin (Shreedhar and Varghese 1996) with seconds in place of bytes.
By what was used so far alone, one that is a little behind would get every place that becomes free, and be several
runs ahead when they have ended. Within a configuration the order is the campaign's random one. What was used so far
orders the jobs of running runs (`priorities`), so that a strategy that needs little device time never waits behind one
that needs much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

# Job priorities of runs begin here; confirmations, which end a run, go first (-10).
FIRST_PRIORITY = 0
# Room for rounding when amounts of money and minutes are added up.
EPSILON = 1e-9


@dataclass(frozen=True)
class Candidate:
    """Describe a waiting cell: its place in the order, its configuration, and the budget of its run by kind."""

    cell: int
    order: int
    configuration: int
    budget: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Account:
    """Hold what a campaign has spent, what its running runs may still spend, and its limits, by kind.

    A run without a budget of a kind reserves nothing of it.
    """

    spent: Mapping[str, float]
    reserved: Mapping[str, float]
    limits: Mapping[str, float | None]

    def exhausted(self) -> str | None:
        """Return the kind that is used up, or None. A limit of zero is not used up before something is spent."""
        for kind, limit in self.limits.items():
            if limit is not None and self.spent.get(kind, 0.0) >= max(limit - EPSILON, EPSILON):
                return kind
        return None

    def lacking(self, budget: Mapping[str, float | None]) -> str | None:
        """Return the kind of which too little is left for a run with that budget, or None where it may start."""
        for kind, limit in self.limits.items():
            if limit is None:
                continue
            left = limit - self.spent.get(kind, 0.0) - self.reserved.get(kind, 0.0)
            need = budget.get(kind)
            # Without a budget of its own a run may use what is left; it is stopped when the limit is reached. Under a
            # limit of zero dollars, only free models are asked.
            if (left <= EPSILON and limit > 0) if need is None else need > left + EPSILON:
                return kind
        return None

    def with_run(self, budget: Mapping[str, float | None]) -> Account:
        """Return the account after a run with that budget has started."""
        reserved = {kind: self.reserved.get(kind, 0.0) + (budget.get(kind) or 0.0) for kind in self.limits}
        return Account(self.spent, reserved, self.limits)


@dataclass(frozen=True)
class Choice:
    """Hold the cells to start, in order, and the kind of budget that keeps the next one from starting."""

    cells: tuple[int, ...]
    lacking: str | None = None


@dataclass(frozen=True)
class Use:
    """Hold the device time in seconds that a configuration's runs have used, and its number of running runs.

    `ended_s` is the part of those that have ended, of which there are `ended`. A run that is continued counts as
    another one from then on.
    """

    used_s: float = 0.0
    running: int = 0
    ended_s: float = 0.0
    ended: int = 0

    @property
    def run_s(self) -> float:
        """Return what a run takes on average, 0 before the first has ended."""
        return self.ended_s / self.ended if self.ended else 0.0

    @property
    def expected_s(self) -> float:
        """Return what will have been used once the running runs have ended, if they take as long as the others."""
        return max(self.used_s, self.ended_s + self.running * self.run_s)

    def with_run(self) -> Use:
        """Return the use after another run has started."""
        return replace(self, running=self.running + 1)


def choose(waiting: Sequence[Candidate], uses: Mapping[int, Use], free: int, account: Account) -> Choice:
    """Choose the cells for `free` places. `uses` are by configuration; one that is missing has used nothing."""
    queues = _by_configuration(waiting)
    now = {configuration: uses.get(configuration, Use()) for configuration in queues}
    taken: list[int] = []
    lacking: str | None = None
    while len(taken) < free:
        # Runs that are continued need different amounts, so one that fits may wait behind one that does not.
        affordable = [
            one for queue in queues.values()
            if (one := next((one for one in queue if account.lacking(one.budget) is None), None)) is not None
        ]  # fmt: skip
        if not affordable:
            waiting_still = next((queue[0] for queue in queues.values() if queue), None)
            lacking = None if waiting_still is None else account.lacking(waiting_still.budget)
            break
        # Equal use is the rule at the start, when nothing was measured: then the configuration with fewer runs goes
        # first, and at last the random order decides.
        best = min(
            affordable,
            key=lambda one: (now[one.configuration].expected_s, now[one.configuration].running, one.order),
        )
        queues[best.configuration].remove(best)
        taken.append(best.cell)
        now[best.configuration] = now[best.configuration].with_run()
        account = account.with_run(best.budget)
    return Choice(tuple(taken), lacking)


def priorities(used_s: Mapping[int, float]) -> dict[int, int]:
    """Return the priority of each configuration's jobs: the less device time it has used, the lower the number."""
    ranked = sorted(used_s, key=lambda one: (used_s[one], one))
    return {configuration: FIRST_PRIORITY + rank for rank, configuration in enumerate(ranked)}


def _by_configuration(waiting: Sequence[Candidate]) -> dict[int, list[Candidate]]:
    queues: dict[int, list[Candidate]] = {}
    for one in sorted(waiting, key=lambda one: one.order):
        queues.setdefault(one.configuration, []).append(one)
    return queues
