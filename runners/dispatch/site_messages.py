"""Define what a worker and the site say to each other over HTTP, as JSON by `runners.wire`.

Each verb is an address below `/work/`. A request carries a token for one queue, which therefore no message names. What
decides about a job is signed with the runner's key, which the site knows since the token was first used: a token that
somebody else has read opens neither jobs nor results.
"""

from __future__ import annotations

from dataclasses import dataclass

from runners.job import JobResult
from runners.job_source import Claim
from runners.problems.uploading import Inspection

# Bodies are compressed, so that a result with long logs stays below what the site accepts of anybody.
MOST_MESSAGE_BYTES = 32 << 20
# Beats, stages and logs come while a kernel is timed, when arithmetic of a few milliseconds would disturb the referee.
SIGNED = frozenset({"register", "claim", "finish", "let_go", "refuse", "claim_upload", "finish_upload"})


def purpose_of(verb: str) -> str:
    """Return what a message's signature covers beside its content."""
    return f"work/{verb}"


@dataclass(frozen=True)
class Asking:
    """Ask for the next job, or for the next upload to inspect."""

    worker: str


@dataclass(frozen=True)
class Holding:
    """Name the claim that a request is about."""

    job_id: int
    fence: int


@dataclass(frozen=True)
class Staged(Holding):
    """Say which stage of the cascade has begun."""

    stage: str


@dataclass(frozen=True)
class Logged(Holding):
    """Add a chunk to the live log."""

    seq: int
    text: str


@dataclass(frozen=True)
class Finished(Holding):
    """Hand in a result. `job` is the site's signature of the job that was carried out, which names its content."""

    result: JobResult
    job: str


@dataclass(frozen=True)
class Refused(Holding):
    """Say why a job is not carried out."""

    reason: str


@dataclass(frozen=True)
class UploadHeld:
    """Hold an upload to inspect. `content` is in base64."""

    upload_id: int
    fence: int
    name: str
    file_name: str
    content: str


@dataclass(frozen=True)
class Inspected:
    """Hand in what an inspection found."""

    upload_id: int
    fence: int
    inspection: Inspection


@dataclass(frozen=True)
class Answer:
    """Hold the site's answer to any of these: a word, and what was asked for, if there is any."""

    word: str = ""
    claim: Claim | None = None
    upload: UploadHeld | None = None
