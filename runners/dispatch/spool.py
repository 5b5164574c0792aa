"""Exchange jobs as files in a directory, for machines without a network and for Slurm. Standard library only.

    jobs/      waiting        <job>.<fence>.json, a JobSpec, and <job>.<fence>.turn, its turn
    claimed/   being worked   the same file; its modification time is the worker's heartbeat
    results/   finished       the same name, a JobResult
    done/      taken in       results that the optimizer has read
    refused/   unreadable     results that are none, each with a .reason beside it
    cancel/    cancelled      an empty file of the job's name
    lost/      put back       as many bytes as workers were lost with the job
    runners/   workers        one card for each worker
    keys/      announced      public keys of those who use the directory

Every step is a rename on one file system, so a reader never sees half a file and of two workers one gets the job. A
file is written under a dotted name, flushed to disk and then renamed. A worker that dies leaves its claim with an old
heartbeat; the next worker puts it back, and after `MOST_LOST` times reports that in a result. A result is in
`results/` before its claim is removed, so a crash in between at worst repeats work and never loses it.

The other users of the directory are not trusted. Nothing is read or written through a link. Jobs are signed by a site,
results and cards by a runner, and each end takes only what a key that it trusts has signed: its own, those that were
pinned (`python -m runners keys`), and in a directory to which nobody else can write those that are announced there. The
signature covers the file's kind and name. What a stranger has signed stays where it is until its key is pinned.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar

from runners import wire
from runners.dispatch.base import Dispatcher
from runners.job import PROTOCOL_VERSION, READABLE_VERSIONS, Effort, JobResult, JobSpec, Status
from runners.job_source import Beat, RunnerCard
from runners.sandbox.removal import remove_tree
from runners.sandbox.results import ResultFileError, read_result_file
from runners.signing import envelope
from runners.signing.envelope import EnvelopeError
from runners.signing.keyring import KeyFileError, Keyring, Role, name_of, read_public_key
from runners.state import is_own

FOLDERS = ("jobs", "claimed", "results", "done", "refused", "cancel", "lost", "runners", "keys")
# A claim without a heartbeat for so long is put back; by the file system's clock, which all machines share.
ABANDONED_AFTER_S = 300.0
# A job that ends its worker each time must not circulate for ever.
MOST_LOST = 3
# The other side may be hostile or broken; samples and assembly of a real result stay far below this.
MOST_BYTES = 64 << 20
MOST_CARD_BYTES, MOST_CARDS = 64 << 10, 1000
# A job in one of these folders is known; cancel/ and lost/ hold only marks.
KNOWING = ("jobs", "claimed", "results", "done")
# Anything else in a shared directory is none of our business.
_NAME = re.compile(r"[0-9]{1,18}\.[0-9]{1,9}\.json")


M = TypeVar("M", JobSpec, JobResult)


# Who signs what lies in a folder.
SIGNERS = {"jobs": Role.SITE, "claimed": Role.SITE, "results": Role.RUNNER, "runners": Role.RUNNER}
# What is wrong with a file that is none of ours.
UNREADABLE = (wire.WireError, ResultFileError, EnvelopeError)


class SpoolError(Exception):
    """Report that the directory can't be used as a spool. The message says where and why."""


class StrangerError(Exception):
    """Report that a file is signed by a key that is not trusted here."""


@dataclass(frozen=True)
class Slip:
    """Name a job in the spool."""

    job_id: int
    fence: int

    @property
    def name(self) -> str:
        """Return the file name, which is the same in every folder."""
        return f"{self.job_id}.{self.fence}.json"

    @classmethod
    def parse(cls, name: str) -> Slip | None:
        """Return the slip of a file name, or None for any other file."""
        if not _NAME.fullmatch(name):
            return None
        job_id, fence, _ = name.split(".")
        return cls(int(job_id), int(fence))


class Turn(NamedTuple):
    """Say when a job's turn is: that of the lowest priority number first, then that of the lowest place."""

    priority: int
    place: int


class SpoolDispatcher(Dispatcher):
    """Let jobs wait until they are exported to a spool directory. No message is needed."""

    name: ClassVar[str] = "spool"
    title: ClassVar[str] = "Spool directory, for machines without a network"

    def queue_for(self, target: str, effort: Effort) -> str:
        """Return the queue of a target."""
        return f"spool.{target}"

    def notify(self, queue: str) -> None:
        """Do nothing: `manage.py spool sync` polls."""


class Spool:
    """Read and write the directory. Creating a Spool makes the folders, and checks whose they are.

    `strangers` holds the public keys that were met and are not trusted, with their roles.
    """

    def __init__(self, root: Path, keyring: Keyring | None = None) -> None:
        self.root = root
        self.keyring = keyring or Keyring()
        self.strangers: dict[str, Role] = {}
        try:
            for folder in FOLDERS:
                (root / folder).mkdir(mode=0o775, parents=True, exist_ok=True)
            self._check_folders()
        except OSError as error:
            raise SpoolError(f"{error.filename}: {error.strerror}") from error

    def _check_folders(self) -> None:
        """Raise SpoolError for a folder that anybody can write to, or that is not of the spool's owner."""
        owners = {0, os.geteuid(), self.root.stat().st_uid}
        for place in (self.root, *(self.root / folder for folder in FOLDERS)):
            found = place.lstat() if place != self.root else place.stat()
            if not stat.S_ISDIR(found.st_mode):
                raise SpoolError(f"{place}: is a link; a spool's folders are plain ones")
            if found.st_mode & stat.S_IWOTH:
                raise SpoolError(f"{place}: everybody can write to it (chmod o-w)")
            if found.st_uid not in owners:
                raise SpoolError(f"{place}: belongs to user {found.st_uid}, not to the owner of {self.root}")

    @property
    def is_private(self) -> bool:
        """Return whether nobody but this user can write to the directory."""
        return is_own(self.root) and all(is_own(self.root / folder) for folder in FOLDERS)

    def announce(self, role: Role) -> None:
        """Put our public key of that role there, for others to pin or, in a private directory, to trust."""
        public = self.keyring.public(role)
        name = f"{role}-{name_of(public)}.pub"
        if not (self.root / "keys" / name).exists():
            self._write("keys", name, f"{public}\n".encode())

    def _trusts(self, role: Role, public: str) -> bool:
        return self.keyring.trusts(role, public) or (self.is_private and self._is_announced(role, public))

    def _is_announced(self, role: Role, public: str) -> bool:
        name = f"{role}-{name_of(public)}.pub"
        with suppress(ResultFileError, KeyFileError):
            text = read_result_file(self.root / "keys", name, MOST_CARD_BYTES, os.geteuid()).decode(
                "ascii", "replace"
            )
            return read_public_key(text) == public
        return False

    def offer(self, slip: Slip, spec: JobSpec, turn: Turn | None = None) -> None:
        """Put a job there, once: a job that is anywhere in the spool already is left as it is.

        Raises SpoolError, for example on a full disk; nothing half-written stays.
        """
        if any(os.path.lexists(self.root / folder / slip.name) for folder in KNOWING):
            return
        # The turn comes first, or a worker could see the job without it.
        if turn is not None:
            self._write_signed("jobs", _turn_name(slip), f"{turn.priority} {turn.place}")
        self._write_signed("jobs", slip.name, wire.dumps(spec))

    def take(self, target: str | None = None) -> tuple[Slip, JobSpec] | None:
        """Claim the job whose turn it is (of that target), or None.

        A file that is no job is moved to refused/, and a job of a site that is not trusted is left alone.
        """
        for slip in sorted(self._slips("jobs"), key=self._turn_of):
            try:
                spec = self._spec("jobs", slip)
            except StrangerError:
                continue
            except UNREADABLE as error:
                self.refuse(slip, "jobs", str(error))
                continue
            if target in (None, spec.target) and self._claim(slip):
                return slip, spec
        return None

    def beat(self, slip: Slip) -> Beat:
        """Renew the claim; hear whether it is wanted stopped or was given to another."""
        try:
            os.utime(self.root / "claimed" / slip.name, follow_symlinks=False)
        except FileNotFoundError:
            return Beat.LOST
        return Beat.CANCEL if self._is_cancelled(slip) else Beat.GO_ON

    def deliver(self, slip: Slip, result: JobResult) -> None:
        """Put the result there, then drop the claim. Raises SpoolError; repeating is safe."""
        self._write_signed("results", slip.name, wire.dumps(result))
        self._drop("claimed", slip.name)

    def let_go(self, slip: Slip) -> None:
        """Release a claim whose worker has stopped: drop a cancelled job, count any other as lost once more."""
        if self._is_cancelled(slip):
            self._drop("claimed", slip.name)
        else:
            self._lose(slip)

    def give_back(self, slip: Slip) -> None:
        """Return a claim whose worker ends before its job. It does not count as lost."""
        self._move(slip.name, "claimed", "jobs")

    def put_back_abandoned(self, after_s: float = ABANDONED_AFTER_S) -> int:
        """Return claims without a recent heartbeat to the queue, and return how many."""
        now, returned = self._now(), 0
        for slip in self._slips("claimed"):
            try:
                age_s = now - (self.root / "claimed" / slip.name).lstat().st_mtime
            except FileNotFoundError:
                continue
            returned += age_s > after_s and self._lose(slip)
        return returned

    def results(self) -> Iterator[tuple[Slip, JobResult]]:
        """Yield the results that wait to be taken in.

        A file that is none (a link, garbage, too large, not signed) goes to refused/, and a result of a runner that is
        not trusted is left alone.
        """
        for slip in self._slips("results"):
            try:
                result = _spoken(wire.loads(JobResult, self._read_signed("results", slip.name)))
            except StrangerError:
                continue
            except UNREADABLE as error:
                self.refuse(slip, "results", str(error))
            else:
                yield slip, result

    def acknowledge(self, slip: Slip) -> None:
        """Record that a result was taken in."""
        self._move(slip.name, "results", "done")
        self.forget(slip)

    def refuse(self, slip: Slip, folder: str, reason: str) -> None:
        """Put a file aside with the reason beside it, as far as the disk allows.

        A file that another process has taken away meanwhile is left alone.
        """
        with suppress(SpoolError):
            # A folder of that name would keep the file from being moved there, and the queue from going on.
            remove_tree(self.root / "refused" / slip.name)
            if self._move(slip.name, folder, "refused"):
                self._write("refused", _reason_name(slip), wire.storable_text(reason[:4000]).encode())

    def refused(self) -> Iterator[tuple[Slip, str]]:
        """Yield the files that were put aside, with the reasons."""
        for slip in self._slips("refused"):
            try:
                yield slip, self._read("refused", _reason_name(slip)).decode(errors="replace")
            except ResultFileError:
                yield slip, "unreadable"

    def cancel(self, slip: Slip) -> None:
        """Withdraw a waiting job, or ask its worker to stop."""
        self._write("cancel", slip.name, b"")
        if self._move(slip.name, "jobs", "done"):
            self.forget(slip)

    def forget(self, slip: Slip) -> None:
        """Drop the marks of a job that nobody asks about any more."""
        self._drop("cancel", slip.name)
        self._drop("lost", slip.name)
        self._drop("jobs", _turn_name(slip))

    def holds(self, slip: Slip) -> bool:
        """Return whether the job still waits or is worked on here."""
        return any(os.path.lexists(self.root / folder / slip.name) for folder in ("jobs", "claimed", "results"))

    def introduce(self, card: RunnerCard) -> bool:
        """Write or renew a worker's card. Return whether the worker should drain."""
        name = _card_name(card.name)
        self._write_signed("runners", f"{name}.json", wire.dumps(card))
        return os.path.lexists(self.root / "runners" / f"{name}.drain")

    def drain(self, worker: str, wanted: bool) -> None:
        """Ask a worker to claim no more, or to go on."""
        mark = f"{_card_name(worker)}.drain"
        if wanted:
            self._write("runners", mark, b"")
        else:
            (self.root / "runners" / mark).unlink(missing_ok=True)

    def cards(self) -> Iterator[tuple[RunnerCard, float]]:
        """Yield the workers' cards with the time of their last renewal. Those of strangers and unreadable ones are
        skipped."""
        for path in sorted((self.root / "runners").glob("[!.]*.json"))[:MOST_CARDS]:
            try:
                seen = path.lstat().st_mtime
                card = wire.loads(RunnerCard, self._read_signed("runners", path.name, MOST_CARD_BYTES))
            except (*UNREADABLE, StrangerError, OSError):
                continue
            yield card, seen

    def _turn_of(self, slip: Slip) -> Turn:
        """Return a job's turn as its site has signed it, or else by its number: the oldest job goes first."""
        try:
            text = self._read_signed("jobs", _turn_name(slip), MOST_CARD_BYTES)
            priority, place = map(int, text.split())
        except (*UNREADABLE, StrangerError, ValueError):
            return Turn(0, slip.job_id)
        return Turn(priority, place)

    def _claim(self, slip: Slip) -> bool:
        """Claim a job. The heartbeat comes before the move, or another worker could return the claim for its old
        heartbeat."""
        try:
            os.utime(self.root / "jobs" / slip.name, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return self._move(slip.name, "jobs", "claimed")

    def _lose(self, slip: Slip) -> bool:
        """Return a claim whose worker is gone; after the last attempt, deliver a result that says so."""
        try:
            lost = len(self._read("lost", slip.name)) + 1
        except ResultFileError:
            lost = 1
        if lost >= MOST_LOST:
            return self._give_up(slip)
        self._write("lost", slip.name, b"." * lost)
        return self._move(slip.name, "claimed", "jobs")

    def _give_up(self, slip: Slip) -> bool:
        try:
            job_id = self._spec("claimed", slip).job_id
        except (*UNREADABLE, StrangerError) as error:
            self.refuse(slip, "claimed", str(error))
            return False
        reason = f"spool: its worker was lost {MOST_LOST} times"
        self.deliver(slip, JobResult(job_id, Status.INFRA_ERROR, reasons=[reason]))
        return True

    def _is_cancelled(self, slip: Slip) -> bool:
        return os.path.lexists(self.root / "cancel" / slip.name)

    def _now(self) -> float:
        """Return the time by the clock that stamps the files, which on a network file system is the server's."""
        mark = self.root / "runners" / f".clock.{socket.gethostname()}.{os.getpid()}"
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
            os.utime(mark, follow_symlinks=False)
            return mark.lstat().st_mtime
        except OSError:
            return time.time()
        finally:
            with suppress(OSError):
                mark.unlink()

    def _slips(self, folder: str) -> list[Slip]:
        try:
            found = [Slip.parse(path.name) for path in (self.root / folder).iterdir()]
        except OSError as error:
            raise SpoolError(f"{self.root / folder}: {error.strerror}") from error
        return sorted((slip for slip in found if slip), key=lambda slip: (slip.job_id, slip.fence))

    def _spec(self, folder: str, slip: Slip) -> JobSpec:
        return _spoken(wire.loads(JobSpec, self._read_signed(folder, slip.name)))

    def _read_signed(self, folder: str, name: str, most_bytes: int = MOST_BYTES) -> bytes:
        """Return a message that a key which is trusted for that folder has signed. Raises StrangerError for another
        key, EnvelopeError and ResultFileError."""
        role = SIGNERS[folder]
        public, message = envelope.opened(self._read(folder, name, most_bytes), _purpose(folder, name))
        if not self._trusts(role, public):
            self.strangers[public] = role
            raise StrangerError(f"{name}: signed by the {role} {name_of(public)}, which is not trusted here")
        return message

    def _read(self, folder: str, name: str, most_bytes: int = MOST_BYTES) -> bytes:
        """Read a file, but never through a link, because the other machine is not trusted."""
        path = self.root / folder / name
        try:
            owner = path.lstat().st_uid
        except OSError as error:
            raise ResultFileError(f"{path}: {error.strerror}") from error
        return read_result_file(path.parent, name, most_bytes, owner)

    def _move(self, name: str, source: str, to: str) -> bool:
        """Move a file between folders. Return False if it was not there. Raises SpoolError."""
        try:
            (self.root / source / name).rename(self.root / to / name)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise SpoolError(f"{self.root / source / name}: {error.strerror}") from error
        return True

    def _drop(self, folder: str, name: str) -> None:
        try:
            (self.root / folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise SpoolError(f"{self.root / folder / name}: {error.strerror}") from error

    def _write_signed(self, folder: str, name: str, text: str) -> None:
        sealed = envelope.sealed(self.keyring.secret(SIGNERS[folder]), _purpose(folder, name), text.encode())
        self._write(folder, name, sealed)

    def _write(self, folder: str, name: str, data: bytes) -> None:
        """Write a file whole or not at all. Raises SpoolError.

        The temporary name is random, so nobody can have put a link there.
        """
        final = self.root / folder / name
        part = final.with_name(f".{name}.{secrets.token_hex(8)}")
        try:
            descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                # Renaming before the data is on disk could leave an empty file after a crash.
                file.flush()
                os.fsync(file.fileno())
            part.rename(final)
        except OSError as error:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            raise SpoolError(f"{final}: {error.strerror}") from error


def _spoken(message: M) -> M:
    """Return a message of a version of our protocol that we read. Raises WireError for any other."""
    if message.protocol_version not in READABLE_VERSIONS:
        raise wire.WireError(f"protocol version {message.protocol_version}; this side speaks {PROTOCOL_VERSION}")
    return message


def _purpose(folder: str, name: str) -> str:
    """Return what a signature of a file covers beside its content. A claimed job is the job that was offered."""
    return f"{'jobs' if folder == 'claimed' else folder}/{name}"


def _card_name(worker: str) -> str:
    return re.sub(r"[^\w.-]", "_", worker)[:100]


def _turn_name(slip: Slip) -> str:
    return slip.name.replace(".json", ".turn")


def _reason_name(slip: Slip) -> str:
    return slip.name.replace(".json", ".reason")
