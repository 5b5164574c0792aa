"""Present the site as the queue that a worker sees. A token for its queue is all that the worker needs of the site.

Standard library only: a machine that measures has torch and nothing else. Jobs that no trusted site has signed as they
are are refused, so that whoever is on the way, or writes to the site's database, can't have them carried out. Results
are signed with this user's runner key, so that nobody else can hand in one.
"""

from __future__ import annotations

import base64
import gzip
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from runners import wire
from runners.dispatch.site_messages import (
    SIGNED,
    Answer,
    Asking,
    Finished,
    Holding,
    Inspected,
    Logged,
    Refused,
    Staged,
    UploadHeld,
    purpose_of,
)
from runners.job import JobResult
from runners.job_source import Beat, Claim, Receipt, RunnerCard
from runners.problems.uploading import Inspection, Upload
from runners.signing.envelope import EnvelopeError, sealed
from runners.signing.jobs import check_signed
from runners.signing.keyring import Keyring, Role

TIMEOUT_S = 60.0
MOST_ANSWER_BYTES = 64 << 20
LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})

Post = Callable[[str, bytes], bytes]
logger = logging.getLogger(__name__)


class SiteError(Exception):
    """Report that the site cannot be reached or has failed. Asking again may help."""


class SiteRefusalError(SiteError):
    """Report that the site refuses a request. Asking again does not help."""


class SiteSource:
    """Implement `runners.job_source.JobSource` by requests to the site."""

    def __init__(self, post: Post, keyring: Keyring) -> None:
        self._post = post
        self._keyring = keyring

    def site_key(self) -> str:
        """Return the public key with which the site says that it signs its jobs."""
        return self._ask("key", Asking("")).word

    def register(self, worker: str) -> None:
        """Register our runner key for the token at its first use. Raises SiteRefusalError where it has another key."""
        self._ask("register", Asking(worker))

    def claim(self, queue: str, worker: str) -> Claim | None:
        """Claim the next job of the token's queue. Refuse one that no trusted site has signed, and return None."""
        claim = self._ask("claim", Asking(worker)).claim
        if claim is None:
            return None
        try:
            check_signed(claim.spec, claim.signature, self._keyring)
        except EnvelopeError as error:
            logger.error("job %s is refused: %s", claim.job_id, error)
            self._ask("refuse", Refused(claim.job_id, claim.fence, str(error)))
            return None
        return claim

    def beat(self, claim: Claim) -> Beat:
        """Extend the lease."""
        return Beat(self._ask("beat", _holding(claim)).word)

    def progress(self, claim: Claim, stage: str) -> None:
        """Say which stage of the cascade has begun."""
        self._ask("progress", Staged(claim.job_id, claim.fence, stage))

    def log(self, claim: Claim, seq: int, text: str) -> None:
        """Add a chunk to the live log."""
        self._ask("log", Logged(claim.job_id, claim.fence, seq, text))

    def finish(self, claim: Claim, result: JobResult) -> Receipt:
        """Hand in the result. One that the site cannot record is lost, and the job's lease will run out."""
        try:
            return Receipt(self._ask("finish", Finished(claim.job_id, claim.fence, result, claim.signature)).word)
        except SiteRefusalError as error:
            logger.error("job %s: the site does not take the result: %s", claim.job_id, error)
            return Receipt.REFUSED

    def let_go(self, claim: Claim) -> None:
        """Say that work on a cancelled job has stopped."""
        self._ask("let_go", _holding(claim))

    def detach(self) -> None:
        """Do nothing, because requests hold nothing for a thread."""

    def check_in(self, card: RunnerCard) -> bool:
        """Send the worker's own heartbeat. Return whether to drain."""
        return self._ask("check_in", card).word == "drain"

    def next_upload(self, worker: str) -> tuple[UploadHeld, Upload] | None:
        """Claim the next uploaded problem to inspect, for a worker of the build queue."""
        held = self._ask("claim_upload", Asking(worker)).upload
        return (held, Upload(held.name, held.file_name, base64.b64decode(held.content))) if held else None

    def finish_upload(self, held: UploadHeld, inspection: Inspection) -> None:
        """Hand in what an inspection found."""
        self._ask("finish_upload", Inspected(held.upload_id, held.fence, inspection))

    def _ask(self, verb: str, message: Any) -> Answer:
        """Send a message and return the answer. Raises SiteError."""
        body = wire.dumps(message).encode()
        if verb in SIGNED:
            body = sealed(self._keyring.secret(Role.RUNNER), purpose_of(verb), body)
        answered = self._post(verb, gzip.compress(body, compresslevel=1))
        try:
            return wire.loads(Answer, answered)
        except wire.WireError as error:
            raise SiteError(f"the site's answer to {verb} cannot be read: {error}") from error


def poster(site: str, token: str, *, allow_http: bool = False) -> Post:
    """Return what sends a message to a site, with the token. Raises SiteRefusalError for an address without TLS."""
    parts = urlsplit(site)
    if parts.scheme not in ("http", "https"):
        raise SiteRefusalError(f"{site}: write the address of the site, https://…")
    if parts.scheme == "http" and parts.hostname not in LOCAL_HOSTS and not allow_http:
        raise SiteRefusalError(f"{site}: anybody on the way could read the token; use https, or --allow-http")
    opener = urllib.request.build_opener(_NoRedirects)

    def post(verb: str, body: bytes) -> bytes:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/gzip"}
        request = urllib.request.Request(f"{site.rstrip('/')}/work/{verb}/", body, headers)  # noqa: S310  # checked above
        try:
            with opener.open(request, timeout=TIMEOUT_S) as answer:
                return bytes(answer.read(MOST_ANSWER_BYTES))
        except urllib.error.HTTPError as error:
            kind = SiteRefusalError if 300 <= error.code < 500 else SiteError
            raise kind(f"{verb}: {error.code}, {_reason(error)}") from error
        except OSError as error:
            raise SiteError(f"{site} cannot be reached: {error}") from error

    return post


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follow no redirect, which could lead the token elsewhere."""

    def redirect_request(self, *_args: Any, **_options: Any) -> None:
        """Return no request, so that the answer counts as an error."""


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(10_000))["detail"])[:500]
    except (OSError, ValueError, LookupError, TypeError):
        return str(error.reason)


def _holding(claim: Claim) -> Holding:
    return Holding(claim.job_id, claim.fence)
