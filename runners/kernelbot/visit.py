"""Carry out one job at KernelBot: at most one active submission per account, none lost, none submitted twice.

State that must survive a crash is stored with the job before it can be lost: the unique file name before the
submission is sent, its number before it is polled. The next worker that claims the job therefore knows one of three
things: nothing was sent; a submission of that name may have been accepted (our list of submissions tells); or which
one to poll.
"""

from __future__ import annotations

import datetime as dt
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from runners.job import JobResult, Status
from runners.job_source import Claim, OutsideSource
from runners.kernelbot import client as bot
from runners.kernelbot.candidate import CandidateRefusedError, submission_of
from runners.kernelbot.client import KernelBotClient
from runners.kernelbot.order import Order, OrderError, read_order
from runners.kernelbot.outcome import has_ended, job_status, result_of

T = TypeVar("T")
PAGES = 3
# A server that accepts requests and loses their answers again and again is not asked for ever.
MOST_DOUBTS = 3
# Words of KernelBot's refusals that concern the submission and not the account or the leaderboard.
BLAME_OF_THE_SOURCE = ("stream", "too large", "UTF-8", "Empty file", "KernelGuard")


class LeftError(Exception):
    """Report that the job was cancelled or its claim lost, so the visit ends."""


@dataclass(frozen=True)
class Pace:
    """Set the waiting times of a visit in seconds.

    `poll_s` passes between looks at a submission. A submission of unknown fate must show in our list within
    `settle_s`. After `patience_s` without one valid answer the visit fails. The job has `afterwards_s` to report its
    final status once a submission is done. A submission without a change for `stale_s` no longer makes others wait.
    """

    poll_s: float = 5.0
    settle_s: float = 30.0
    patience_s: float = 3600.0
    afterwards_s: float = 30.0
    stale_s: float = 3600.0
    longest_pause_s: float = 300.0


class Visit:
    """Process one claim. `evaluate` has the harness's interface, so that `runners.worker` can drive it."""

    def __init__(
        self, client: KernelBotClient, source: OutsideSource, claim: Claim, pace: Pace | None = None
    ) -> None:
        self._client = client
        self._source = source
        self._claim = claim
        self._pace = pace or Pace()
        self._notes = dict(claim.notes)
        self._cancel: Callable[[], bool] = lambda: False
        self._say: Callable[[str, str], None] = lambda stage, text: None

    def evaluate(
        self,
        _spec: object,
        *,
        cancel: Callable[[], bool] | None = None,
        on_progress: Callable[[str, str], None] | None = None,
    ) -> JobResult:
        """Have the job done at KernelBot. Every failure there becomes a result."""
        self._cancel, self._say = cancel or self._cancel, on_progress or self._say
        spec = self._claim.spec
        try:
            order = read_order(self._claim.settings, target=spec.target, problem=spec.problem.name)
            text = submission_of(spec)
            result = result_of(spec, order, self._answer(order, text))
        except CandidateRefusedError as error:
            return self._ended(Status.REJECTED, str(error))
        except bot.RefusedError as error:
            source_is_at_fault = any(word in error.detail for word in BLAME_OF_THE_SOURCE)
            return self._ended(Status.REJECTED if source_is_at_fault else Status.INFRA_ERROR, str(error))
        except (OrderError, bot.KernelBotError) as error:
            return self._ended(Status.INFRA_ERROR, str(error))
        except LeftError:
            return self._ended(Status.INFRA_ERROR, "the visit was broken off")
        if result.status is Status.INFRA_ERROR:
            self._forget_submission(self._notes["id"])
        return result

    def _answer(self, order: Order, text: str) -> dict[str, Any]:
        """Return KernelBot's answer, submitting or resuming as needed."""
        self._note()
        with self._alone():
            number = self._notes.get("id") or self._found_again(order) or self._handed_in(order, text)
            return self._awaited(int(number))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Allow one visit per account in this installation; others wait here, in no particular order."""
        while True:
            with self._source.alone(self._client.account.lock_name) as mine:
                if mine:
                    yield
                    return
            self._pause(self._pace.poll_s, "waiting for another submission of this account")

    def _handed_in(self, order: Order, text: str) -> int:
        """Submit until it succeeds. Raises UncertainError if KernelBot lists us but keeps losing submissions."""
        doubts = 0
        while True:
            self._wait_for_turn()
            file_name = self._notes.get("file") or f"kernel_{secrets.randbelow(10**12):012d}.py"
            # Stored before sending: after a crash the name tells whether the submission arrived.
            self._note(file=file_name, sent=time.time())
            try:
                number = self._client.submit(order, file_name, text)
            except bot.WaitError as wait:
                self._note(sent=None)
                self._pause(wait.wait_s, str(wait))
            except bot.RefusedError:
                self._note(sent=None)
                raise
            except bot.UnreachableError as error:
                self._note(sent=None)
                self._pause(self._pace.poll_s, str(error))
            except bot.UncertainError as error:
                self._say("submit", f"{error}; looking whether the submission arrived\n")
                if found := self._found_again(order):
                    return found
                doubts += 1
                if doubts >= MOST_DOUBTS:
                    raise
            else:
                return self._remembered(number)

    def _found_again(self, order: Order) -> int | None:
        """Return the number of a submission that was sent and never acknowledged, if it arrived.

        The search goes on until `settle_s` after it was sent, since a request may outlive its sender.
        """
        sent = self._notes.get("sent")
        if sent is None:
            return None
        while True:
            # Asked before the list is fetched, so that the list is newer than the deadline when the search ends.
            too_late = time.time() > float(sent) + self._pace.settle_s
            mine = self._persist(lambda: self._client.mine(order.leaderboard, PAGES), "looking for a submission")
            for row in mine:
                if row.get("file_name") == self._notes["file"] and isinstance(row.get("id"), int):
                    return self._remembered(row["id"])
            if too_late:
                self._note(sent=None)
                return None
            self._pause(self._pace.poll_s, "looking for a submission whose fate is unknown")

    def _wait_for_turn(self) -> None:
        """Wait until no submission of our account is active, whoever sent it."""
        while True:
            mine = self._persist(self._client.mine, "looking at the submissions under way")
            busy = [row for row in mine if row.get("done") is False and self._is_fresh(row)]
            # Our own rule: one active submission per account.
            if not busy:
                return
            self._pause(self._pace.poll_s, f"waiting for submission {busy[0].get('id')} of this account")

    def _is_fresh(self, row: dict[str, Any]) -> bool:
        try:
            sent = dt.datetime.fromisoformat(str(row.get("submission_time")))
        except ValueError:
            return True
        sent = sent if sent.tzinfo else sent.replace(tzinfo=dt.UTC)
        return (dt.datetime.now(dt.UTC) - sent).total_seconds() < self._pace.stale_s

    def _awaited(self, number: int) -> dict[str, Any]:
        """Poll until KernelBot has finished.

        It may call a submission done a moment before its job reports the final status. A job that ended badly may
        never be called done, and one whose server was killed never changes again.
        """
        changed, last, done_since = time.monotonic(), "", 0.0
        while True:
            answer = self._persist(lambda: self._client.submission(number), f"asking for submission {number}")
            if has_ended(answer):
                return answer
            now, sign = time.monotonic(), f"{answer.get('done')} {answer.get('job')}"
            changed, last = (changed, last) if sign == last else (now, sign)
            done_since = done_since or (now if answer.get("done") is True else 0.0)
            if done_since and now - done_since >= self._pace.afterwards_s:
                return answer
            if now - changed >= self._pace.stale_s:
                self._forget_submission(number)
                raise bot.UncertainError(f"KernelBot has not touched submission {number} for {now - changed:.0f} s")
            self._pause(self._pace.poll_s, f"submission {number} is {job_status(answer) or 'known'}")

    def _persist(self, ask: Callable[[], T], what: str) -> T:
        """Repeat a question until it is answered.

        Raises RefusedError at once, and the last failure if no valid answer came within `patience_s`.
        """
        deadline, pause_s = time.monotonic() + self._pace.patience_s, self._pace.poll_s
        while True:
            try:
                return ask()
            except bot.WaitError as wait:
                pause_s = wait.wait_s
            except (bot.UnreachableError, bot.UncertainError) as error:
                if time.monotonic() >= deadline:
                    raise
                self._say("wait", f"{what}: {error}\n")
            self._pause(pause_s, what)
            pause_s = min(2 * pause_s, self._pace.longest_pause_s)

    def _pause(self, seconds: float, why: str) -> None:
        """Wait, and raise LeftError once nobody wants the result."""
        self._say("wait", f"{why}\n")
        deadline = time.monotonic() + seconds
        while (left_s := deadline - time.monotonic()) > 0:
            if self._cancel():
                raise LeftError
            time.sleep(min(left_s, 1.0))

    def _remembered(self, number: int) -> int:
        self._note(id=number)
        self._say("submitted", f"KernelBot's submission {number}\n")
        return number

    def _forget_submission(self, number: int) -> None:
        """Discard the submission, because KernelBot failed and not the kernel; the next attempt submits anew."""
        earlier = [*self._notes.get("earlier", []), number]
        self._notes = {}
        self._note(earlier=earlier)

    def _note(self, **changes: Any) -> None:
        """Store what is known with the job. Raises LeftError if the claim is lost."""
        self._notes |= changes
        attempts = 1 + len(self._notes.get("earlier", []))
        if self._cancel() or not self._source.note(self._claim, self._notes, attempts):
            raise LeftError

    def _ended(self, status: Status, reason: str) -> JobResult:
        return JobResult(self._claim.spec.job_id, status, reasons=[reason[:1000]], sandbox="kernelbot")
