"""Hand jobs to measuring workers that have a token for their queue and nothing else (`runners.dispatch.site_source`).

A token's queue decides what a request may touch: jobs of that queue, and the runner's row of a worker of that queue.
What decides about a job must be signed with the key that the token's first worker has registered.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache as remembered
from typing import Any

from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.module_loading import import_string
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from optimizer.actions.problem_upload import do_claim_upload, do_finish_inspection
from optimizer.actions.spool import UNRECORDABLE
from optimizer.actions.worker_key import do_register_worker_key
from optimizer.models import Job, ProblemUpload, Runner, WorkerKey
from optimizer.runs.locking import RUN_OF_JOB
from optimizer.secrets.worker_tokens import WorkerToken, token_of
from runners import wire
from runners.dispatch.celery import BUILD_QUEUE, drop_messages
from runners.dispatch.site_messages import (
    MOST_MESSAGE_BYTES,
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
from runners.job_source import RunnerCard, ServedSource
from runners.signing.envelope import EnvelopeError, opened
from runners.signing.keyring import Keyring, Role


@dataclass(frozen=True)
class HeldJob:
    """Name a claim on a job of the token's queue."""

    job_id: int
    fence: int
    run_id: int


# Messages that wake Celery's workers would pile up in a queue that has none.
MESSAGES_KEPT_S = 60


class RefusedError(Exception):
    """Answer a request with a status and a reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@csrf_exempt
@require_POST
def work(request: HttpRequest, verb: str) -> HttpResponse:
    """Answer one request of a worker."""
    try:
        token = _token(request)
        kind, carry_out = VERBS.get(verb) or _refuse(404, "There is no such verb.")
        body = _unpacked(request)
        if verb in SIGNED:
            body = _checked(token, verb, body)
        answer = carry_out(token.queue, _message(kind, body))
    except RefusedError as refusal:
        return JsonResponse({"detail": str(refusal)}, status=refusal.status)
    return HttpResponse(wire.dumps(answer), content_type="application/json")


def _token(request: HttpRequest) -> WorkerToken:
    """Return the request's token."""
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    token = token_of(secret.strip()) if scheme.lower() == "bearer" else None
    return token or _refuse(401, f"Send the token of a worker: {settings.SITE_COMMAND} worker_token makes one.")


def _unpacked(request: HttpRequest) -> bytes:
    """Unpack a body, which may not take more memory than a message of ours."""
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        body = unpacking.decompress(request.body, MOST_MESSAGE_BYTES)
    except zlib.error as error:
        raise RefusedError(400, f"This message cannot be read: {error}") from error
    if unpacking.unconsumed_tail:
        _refuse(413, f"A message holds at most {MOST_MESSAGE_BYTES >> 20} MiB.")
    return body


def _checked(token: WorkerToken, verb: str, body: bytes) -> bytes:
    """Return a message that the token's own workers have signed. The first of them registers its key."""
    try:
        public, message = opened(body, purpose_of(verb))
    except EnvelopeError as error:
        raise RefusedError(403, f"This message {error}; a worker of this version signs it.") from error
    known = do_register_worker_key(token.digest, public) if verb == "register" else _key_of(token)
    if public != known:
        _refuse(
            403,
            "Another runner uses this token. To accept this one: "
            f"{settings.SITE_COMMAND} worker_token forget-key {token.name}",
        )
    return message


def _key_of(token: WorkerToken) -> str | None:
    return WorkerKey.objects.filter(token_digest=token.digest).values_list("public_key", flat=True).first()


def _message(kind: type, body: bytes) -> Any:
    try:
        return wire.loads(kind, body)
    except wire.WireError as error:
        raise RefusedError(400, f"This message cannot be read: {error}") from error


def _key(_queue: str, _asked: Asking) -> Answer:
    return Answer(Keyring().public(Role.SITE))


def _register(queue: str, asked: Asking) -> Answer:
    _check_name(queue, asked.worker)
    return Answer()


def _claim(queue: str, asked: Asking) -> Answer:
    _check_name(queue, asked.worker)
    claim = _source().claim(queue, asked.worker)
    if claim is None and cache.add(f"work:{queue}", 1, MESSAGES_KEPT_S):
        drop_messages(queue)
    return Answer(claim=claim)


def _beat(queue: str, held: Holding) -> Answer:
    return Answer(_source().beat(_held(queue, held)).value)


def _progress(queue: str, staged: Staged) -> Answer:
    _source().progress(_held(queue, staged), staged.stage)
    return Answer()


def _log(queue: str, logged: Logged) -> Answer:
    _source().log(_held(queue, logged), logged.seq, logged.text)
    return Answer()


def _finish(queue: str, finished: Finished) -> Answer:
    held = _held(queue, finished)
    _check_is_of_its_job(finished)
    try:
        return Answer(_source().finish(held, finished.result).value)
    except UNRECORDABLE as error:
        raise RefusedError(422, f"This result cannot be recorded: {type(error).__name__}: {error}") from error


def _let_go(queue: str, held: Holding) -> Answer:
    _source().let_go(_held(queue, held))
    return Answer()


def _refuse_job(queue: str, refused: Refused) -> Answer:
    _source().refuse(_held(queue, refused), refused.reason)
    return Answer()


def _check_in(queue: str, card: RunnerCard) -> Answer:
    _check_name(queue, card.name)
    if list(card.queues) != [queue] or queue != f"bench.{card.target}":
        raise RefusedError(403, f"This token is for {queue} alone.")
    return Answer("drain" if _source().check_in(card) else "")


def _claim_upload(queue: str, _asked: Asking) -> Answer:
    _check_builds(queue)
    waiting = ProblemUpload.objects.claimable().order_by("pk").values_list("pk", flat=True)[:1]
    upload = do_claim_upload(waiting[0]) if waiting else None
    if upload is None:
        return Answer()
    content = base64.b64encode(bytes(upload.content)).decode()
    return Answer(upload=UploadHeld(upload.pk, upload.fence, upload.name, upload.file_name, content))


def _finish_upload(queue: str, inspected: Inspected) -> Answer:
    _check_builds(queue)
    upload = ProblemUpload.objects.filter(pk=inspected.upload_id).first() or _refuse(
        404, "There is no such upload."
    )
    bundle = inspected.inspection.reading.bundle
    if bundle is not None and bundle.name != upload.name:
        _refuse(422, "This is the inspection of another problem.")
    # A worker that was believed lost has an older fence, and changes nothing.
    upload.fence = inspected.fence
    do_finish_inspection(upload, inspected.inspection)
    return Answer()


VERBS: dict[str, tuple[type, Callable[[str, Any], Answer]]] = {
    "key": (Asking, _key),
    "register": (Asking, _register),
    "claim": (Asking, _claim),
    "beat": (Holding, _beat),
    "progress": (Staged, _progress),
    "log": (Logged, _log),
    "finish": (Finished, _finish),
    "let_go": (Holding, _let_go),
    "refuse": (Refused, _refuse_job),
    "check_in": (RunnerCard, _check_in),
    "claim_upload": (Asking, _claim_upload),
    "finish_upload": (Inspected, _finish_upload),
}


def _check_builds(queue: str) -> None:
    if queue != BUILD_QUEUE:
        _refuse(403, f"This token is for {queue}; uploads are inspected by workers of {BUILD_QUEUE}.")


def _check_name(queue: str, worker: str) -> None:
    """Keep a worker from speaking for a runner of another queue."""
    if Runner.objects.filter(name=worker[:120]).exclude(queues=[queue]).exists():
        _refuse(409, f"A runner of another queue is called {worker[:120]}.")


def _held(queue: str, holding: Holding) -> HeldJob:
    """Return the claim that a request is about, if the job is in the token's queue. Its fence is checked later."""
    runs = Job.objects.filter(pk=holding.job_id, queue=queue).values_list(RUN_OF_JOB, flat=True)
    run_id = runs.first() or _refuse(404, f"{queue} has no such job.")
    return HeldJob(holding.job_id, holding.fence, run_id)


def _check_is_of_its_job(finished: Finished) -> None:
    """Refuse a result of another job, or of the same job with other content."""
    known = Job.objects.filter(pk=finished.job_id).values_list("signature", "spec__job_id").first()
    if known != (finished.job, finished.result.job_id):
        _refuse(422, "This is the result of another job.")


def _refuse(status: int, reason: str) -> Any:
    raise RefusedError(status, reason)


@remembered
def _source() -> ServedSource:
    """Return the queue, from the class that the setting names, since it stands above the pages."""
    source: ServedSource = import_string(settings.KERNELSCI_JOB_SOURCE)()
    return source
