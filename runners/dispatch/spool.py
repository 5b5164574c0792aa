"""Jobs as files in a directory, for machines that reach no network and for Slurm. Standard library only.

    jobs/      waiting        <job>.<fence>.json, a JobSpec
    claimed/   being worked   the same file; its modification time is the worker's heartbeat
    results/   finished       the same name, a JobResult
    done/      taken in       results that the optimizer has read
    refused/   unreadable     results that are none, each with a .reason beside it
    cancel/    wanted stopped an empty file of the job's name
    runners/   who is there   one card a worker

Every step is a rename on one file system, so a reader never sees half a file and of two workers one gets the job.
A file is written under a dotted name, flushed to disk and then renamed. A worker that dies leaves its claim with an
old heartbeat; whoever comes next puts it back. A result is in `results/` before its claim is removed, so a crash in
between repeats work at worst and never loses it.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from runners import wire
from runners.dispatch.base import Beat, Claim, Dispatcher, Receipt, RunnerCard
from runners.job import Effort, JobResult, JobSpec
from runners.sandbox.results import ResultFileError, read_result_file

FOLDERS = ("jobs", "claimed", "results", "done", "refused", "cancel", "runners")
ABANDONED_AFTER_S = 300.0
"""A claim without a heartbeat for so long is put back. Clocks of the machines may differ by less than this."""
BEAT_S = 15.0
MOST_BYTES = 64 << 20
_NAME = re.compile(r"^\d{1,18}\.\d{1,9}\.json$")


class SpoolError(Exception):
    """The directory can't be used as it should; the message says where and why."""


@dataclass(frozen=True)
class Slip:
    """A job's name in the spool."""

    job_id: int
    fence: int

    @property
    def name(self) -> str:
        """File name in every folder."""
        return f"{self.job_id}.{self.fence}.json"

    @classmethod
    def parse(cls, name: str) -> Slip | None:
        """The slip of a file name, None for anything else that lies there."""
        if not _NAME.match(name):
            return None
        job_id, fence, _ = name.split(".")
        return cls(int(job_id), int(fence))


class SpoolDispatcher(Dispatcher):
    """Jobs wait until somebody exports them to a spool directory; nobody needs a bell."""

    name: ClassVar[str] = "spool"
    title: ClassVar[str] = "Spool directory, for machines without a network"

    def queue_for(self, target: str, effort: Effort) -> str:
        """One queue a target."""
        return f"spool.{target}"

    def ring(self, queue: str) -> None:
        """`manage.py spool sync` looks by itself."""


class Spool:
    """The directory. Creating it makes the folders."""

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            for folder in FOLDERS:
                (root / folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SpoolError(f"{error.filename}: {error.strerror}") from error

    def offer(self, slip: Slip, spec: JobSpec) -> None:
        """Put a job there, once: a job that is anywhere in the spool already is left as it is. Raises SpoolError
        (a full disk, say); nothing half-written stays."""
        if not any((self.root / folder / slip.name).exists() for folder in ("jobs", "claimed", "results", "done")):
            self._write("jobs", slip.name, wire.dumps(spec))

    def take(self) -> tuple[Slip, JobSpec] | None:
        """Claim the oldest job, or None. A file that is no job is moved to refused/."""
        for slip in self._slips("jobs"):
            if not self._move(slip.name, "jobs", "claimed"):
                continue
            self.beat(slip)
            try:
                return slip, wire.loads(JobSpec, self._read("claimed", slip.name))
            except (wire.WireError, ResultFileError) as error:
                self.refuse(slip, "claimed", str(error))
        return None

    def beat(self, slip: Slip) -> Beat:
        """Renew the claim; hear whether it is wanted stopped or was given to another."""
        try:
            os.utime(self.root / "claimed" / slip.name)
        except FileNotFoundError:
            return Beat.LOST
        return Beat.CANCEL if (self.root / "cancel" / slip.name).exists() else Beat.GO_ON

    def deliver(self, slip: Slip, result: JobResult) -> None:
        """Put the result there, then drop the claim. Raises SpoolError; repeating is safe."""
        self._write("results", slip.name, wire.dumps(result))
        (self.root / "claimed" / slip.name).unlink(missing_ok=True)

    def let_go(self, slip: Slip) -> None:
        """A cancelled job is dropped; any other claim goes back to the jobs."""
        if (self.root / "cancel" / slip.name).exists():
            (self.root / "claimed" / slip.name).unlink(missing_ok=True)
        else:
            self._move(slip.name, "claimed", "jobs")

    def put_back_abandoned(self, after_s: float = ABANDONED_AFTER_S) -> int:
        """Return claims whose worker has not been heard of; how many."""
        now, returned = time.time(), 0
        for slip in self._slips("claimed"):
            try:
                age_s = now - (self.root / "claimed" / slip.name).stat().st_mtime
            except FileNotFoundError:
                continue
            if age_s > after_s:
                returned += self._move(slip.name, "claimed", "jobs")
        return returned

    def results(self) -> Iterator[tuple[Slip, JobResult]]:
        """Results that wait to be taken in. What is none (a link, garbage, too large) goes to refused/."""
        for slip in self._slips("results"):
            try:
                yield slip, wire.loads(JobResult, self._read("results", slip.name))
            except (wire.WireError, ResultFileError) as error:
                self.refuse(slip, "results", str(error))

    def acknowledge(self, slip: Slip) -> None:
        """A result was taken in."""
        self._move(slip.name, "results", "done")
        (self.root / "cancel" / slip.name).unlink(missing_ok=True)

    def refuse(self, slip: Slip, folder: str, reason: str) -> None:
        """Put a file aside with the reason beside it."""
        self._move(slip.name, folder, "refused")
        self._write("refused", slip.name.replace(".json", ".reason"), reason)

    def refused(self) -> Iterator[tuple[Slip, str]]:
        """What was put aside, with the reasons."""
        for slip in self._slips("refused"):
            reason = self.root / "refused" / slip.name.replace(".json", ".reason")
            yield slip, reason.read_text(errors="replace") if reason.is_file() else "unreadable"

    def cancel(self, slip: Slip) -> None:
        """Withdraw a waiting job, or ask its worker to stop."""
        (self.root / "cancel" / slip.name).touch()
        if self._move(slip.name, "jobs", "done"):
            (self.root / "cancel" / slip.name).unlink(missing_ok=True)

    def holds(self, slip: Slip) -> bool:
        """True while the job waits or is worked on here."""
        return any((self.root / folder / slip.name).exists() for folder in ("jobs", "claimed", "results"))

    def introduce(self, card: RunnerCard) -> None:
        """Leave a worker's card, with the time."""
        name = re.sub(r"[^\w.-]", "_", card.name)[:100]
        self._write("runners", f"{name}.json", json.dumps({**asdict(card), "seen": time.time()}))

    def cards(self) -> Iterator[tuple[RunnerCard, float]]:
        """Cards of the workers, with the time each was last seen. Unreadable ones are passed over."""
        for path in sorted((self.root / "runners").glob("[!.]*.json")):
            try:
                plain = json.loads(read_result_file(path.parent, path.name, 1 << 20, path.lstat().st_uid))
                seen = float(plain.pop("seen"))
                yield wire.from_plain(RunnerCard, plain), seen
            except (ValueError, KeyError, OSError, AttributeError):
                continue

    def _slips(self, folder: str) -> list[Slip]:
        found = (Slip.parse(path.name) for path in (self.root / folder).iterdir())
        return sorted((slip for slip in found if slip), key=lambda slip: (slip.job_id, slip.fence))

    def _read(self, folder: str, name: str) -> bytes:
        """Never through a link: the other machine's files are not to be trusted."""
        path = self.root / folder / name
        try:
            owner = path.lstat().st_uid
        except OSError as error:
            raise ResultFileError(f"{path}: {error.strerror}") from error
        return read_result_file(path.parent, name, MOST_BYTES, owner)

    def _move(self, name: str, source: str, to: str) -> bool:
        try:
            (self.root / source / name).rename(self.root / to / name)
        except FileNotFoundError:
            return False
        return True

    def _write(self, folder: str, name: str, text: str) -> None:
        final = self.root / folder / name
        part = final.with_name(f".{name}.{socket.gethostname()}.{os.getpid()}")
        try:
            with part.open("w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            part.rename(final)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise SpoolError(f"{final}: {error.strerror}") from error


class SpoolSource:
    """The spool as the queue that a worker sees (`runners.dispatch.base.JobSource`)."""

    def __init__(self, spool: Spool) -> None:
        self.spool = spool

    def claim(self, queue: str, worker: str) -> Claim | None:
        """The oldest waiting job, after putting back what others abandoned."""
        self.spool.put_back_abandoned()
        taken = self.spool.take()
        if taken is None:
            return None
        slip, spec = taken
        return Claim(slip.job_id, slip.fence, spec, ABANDONED_AFTER_S, BEAT_S)

    def beat(self, claim: Claim) -> Beat:
        """See `Spool.beat`."""
        return self.spool.beat(_slip(claim))

    def progress(self, claim: Claim, stage: str) -> None:
        """Nobody watches a spool live."""

    def log(self, claim: Claim, seq: int, text: str) -> None:
        """Nobody watches a spool live; the stages' logs are in the result."""

    def finish(self, claim: Claim, result: JobResult) -> Receipt:
        """See `Spool.deliver`. Whether it counts is decided where it is taken in."""
        self.spool.deliver(_slip(claim), result)
        return Receipt.RECORDED

    def let_go(self, claim: Claim) -> None:
        """See `Spool.let_go`."""
        self.spool.let_go(_slip(claim))

    def detach(self) -> None:
        """Files hold nothing for a thread."""

    def check_in(self, card: RunnerCard) -> bool:
        """See `Spool.introduce`."""
        self.spool.introduce(card)
        return False


def _slip(claim: Claim) -> Slip:
    return Slip(claim.job_id, claim.fence)
