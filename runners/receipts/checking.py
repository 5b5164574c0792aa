"""Check a receipt: who signed it, whether it is stale, and whether a new measurement agrees with it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import IntEnum

from runners.job import JobResult, JobSpec, ProblemBundle, Speedup, Status, Verdict
from runners.receipts.keys import name_of
from runners.receipts.receipt import Receipt


class Finding(IntEnum):
    """List what checking a receipt can find, by the exit code of `verify`."""

    HOLDS = 0
    NO_VERDICT = 1
    REFUTED = 3
    FORGED = 4
    NOT_ACCEPTED = 5


@dataclass(frozen=True)
class Check:
    """Hold a finding, and what led to it in words."""

    finding: Finding
    reasons: list[str]


def objections(receipt: Receipt, trusted: Collection[str], max_age: dt.timedelta | None) -> list[str]:
    """Return why a receipt that is whole is not accepted: an unknown key, or its age."""
    said = receipt.statement
    found = []
    if receipt.public_key not in trusted:
        found.append(f"nobody here trusts the key {name_of(receipt.public_key)} that signed it")
    try:
        age = dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(said.issued_at)
    except (ValueError, TypeError):
        return [*found, f"it has no time of issue: {said.issued_at[:40]!r}"]
    if age < -dt.timedelta(minutes=5):
        found.append(f"it is dated {said.issued_at}, which is in the future")
    if max_age is not None and age > max_age:
        found.append(f"it is stale: issued {age.days} days ago, and at most {max_age.days} are accepted")
    return found


def differences(
    receipt: Receipt, harness_version: str, harness_hash: str, current: ProblemBundle | None
) -> list[str]:
    """Return what has changed since: the harness, or the problem of that name. They do not make a receipt wrong.

    `current` is the shipped problem of the receipt's name, None where there is none.
    """
    said = receipt.statement
    found = []
    if said.harness_version != harness_version:
        found.append(f"measured by harness {said.harness_version}; this is {harness_version}")
    elif said.harness_hash and said.harness_hash != harness_hash:
        found.append("measured by another state of the harness's code")
    if current is not None and current.content_hash != said.problem_hash:
        found.append(f"the problem {said.problem} has changed since: the receipt is of an earlier version")
    return found


def repeat(receipt: Receipt, spec: JobSpec, evaluate: Callable[[JobSpec], JobResult]) -> Check:
    """Measure again, and say whether the result agrees with the receipt."""
    said, result = receipt.statement, evaluate(spec)
    if result.status in (Status.INFRA_ERROR, Status.TOO_LARGE):
        return Check(Finding.NO_VERDICT, [f"it could not be measured again: {'; '.join(result.reasons)}"])
    machine = _elsewhere(said.environment, result.environment)
    if result.status is not said.status:
        reason = f"it is {result.status.value} here: {'; '.join(result.reasons)}" if result.reasons else (
            f"it is {result.status.value} here"
        )  # fmt: skip
        return Check(Finding.REFUTED, [f"the receipt says {said.status.value}, and {reason}", *machine])
    lines = [*_compared("the baseline", said.speedup, result.speedup)]
    lines += _compared("its opponent", said.versus_parent, result.versus_parent)
    refuted = _contradicts(said.speedup, result.speedup) or _contradicts(said.versus_parent, result.versus_parent)
    return Check(Finding.REFUTED if refuted else Finding.HOLDS, [*lines, *machine])


def _contradicts(said: Speedup | None, found: Speedup | None) -> bool:
    """Return whether a claim of a difference was not borne out. `same` claims nothing, so nothing can refute it."""
    if said is None or found is None:
        return False
    return said.verdict is not Verdict.SAME and found.verdict is not said.verdict


def _compared(against: str, said: Speedup | None, found: Speedup | None) -> list[str]:
    if said is None or found is None:
        return []
    then, now = (
        f"{one.median:.3f}× ({one.low:.3f} to {one.high:.3f}), {one.verdict.value}" for one in (said, found)
    )
    return [f"against {against}: {then} in the receipt, {now} now"]


def _elsewhere(then: dict[str, object], now: dict[str, object]) -> list[str]:
    """Say that another kind of machine measured: times, and even verdicts, may differ honestly there."""
    changed = [name for name in ("device", "vector", "threads", "driver") if then.get(name) != now.get(name)]
    return [f"measured on another machine ({', '.join(changed)} differ)"] if changed else []
