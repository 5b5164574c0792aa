"""Test that a token and its key open the jobs of one queue to a measuring worker, and nothing else."""

from __future__ import annotations

import gzip
import http.server
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from celery import current_app
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.test import Client
from kombu.transport.virtual import Channel

from optimizer.actions import job as job_actions
from optimizer.loop import advance
from optimizer.models import Job, JobLog, JobState, ProblemUpload, Runner, UploadState, WorkerKey
from optimizer.secrets.worker_tokens import (
    WorkerTokenError,
    add_token,
    revoke_token,
    token_named,
    token_of,
    tokens,
)
from runners import wire
from runners.dispatch.celery import notify_worker
from runners.dispatch.site_messages import (
    MOST_MESSAGE_BYTES,
    SIGNED,
    Asking,
    Finished,
    Holding,
    Inspected,
    Refused,
    purpose_of,
)
from runners.dispatch.site_source import SiteError, SiteRefusalError, SiteSource, poster
from runners.job import JobResult, Status
from runners.job_source import Beat, Claim, Receipt, RunnerCard
from runners.problems.uploading import Inspection, Upload
from runners.signing.envelope import sealed
from runners.signing.keyring import Keyring, Role
from runners.worker import work_once
from tests.factories import QUEUE, correct_result, fake_evaluate, make_run, make_user

CARD = RunnerCard("bench.cpu@lab", "cpu", (QUEUE,), "EPYC", "bubblewrap", {"access": "token"})


@pytest.fixture(autouse=True)
def token_file(tmp_path: Path, settings: Any) -> Path:
    """Keep the digests of tokens in a file of the test's own."""
    settings.WORKER_TOKENS = str(tmp_path / "secrets" / "worker_tokens")
    return Path(settings.WORKER_TOKENS)


def client_post(token: str) -> Any:
    """Return what `poster` would, answered by Django's client."""
    client = Client()

    def post(verb: str, body: bytes) -> bytes:
        answer = ask(client, token, verb, body)
        if answer.status_code >= 400:
            raise SiteRefusalError(f"{answer.status_code} {answer.json()['detail']}")
        return bytes(answer.content)

    return post


def ask(client: Client, token: str, verb: str, body: bytes) -> Any:
    return client.post(f"/work/{verb}/", body, "application/gzip", headers={"Authorization": f"Bearer {token}"})


def packed(message: Any) -> bytes:
    return gzip.compress(wire.dumps(message).encode())


def signed(verb: str, message: Any, keyring: Keyring | None = None) -> bytes:
    """Return a message as a worker with that key sends it."""
    secret = (keyring or Keyring()).secret(Role.RUNNER)
    return gzip.compress(sealed(secret, purpose_of(verb), wire.dumps(message).encode()))


def source_of(queue: str, keyring: Keyring | None = None) -> SiteSource:
    """Return the queue as a worker with a new token sees it, after its first contact."""
    source = SiteSource(client_post(add_token(queue, f"{queue}-{len(tokens())}")), keyring or Keyring())
    source.register(f"{queue}@lab")
    return source


def registered_token(queue: str = QUEUE) -> str:
    """Return a new token whose workers have our key."""
    secret = add_token(queue, "lab")
    SiteSource(client_post(secret), Keyring()).register(f"{queue}@lab")
    return secret


@pytest.fixture
def waiting(db: None) -> int:
    """Return how many jobs wait on the CPU's queue."""
    advance(make_run().pk)
    return Job.objects.filter(queue=QUEUE, state=JobState.QUEUED).count()


def raiser(error: Exception) -> Callable[..., None]:
    def refuse(*_args: Any, **_options: Any) -> None:
        raise error

    return refuse


def claimed(source: SiteSource) -> Claim:
    claim = source.claim(QUEUE, CARD.name)
    assert claim is not None
    return claim


def test_worker_with_a_token_does_the_jobs_of_its_queue(waiting: int) -> None:
    source = source_of(QUEUE)
    assert source.site_key() == Keyring().public(Role.SITE)
    assert not source.check_in(CARD)
    done = 0
    while work_once(source, QUEUE, CARD.name, fake_evaluate):
        done += 1
    assert done == waiting == Job.objects.filter(state=JobState.DONE).count() > 0
    assert Runner.objects.get().facts == {"access": "token"}
    assert JobLog.objects.filter(text="compiled\n").count() == waiting


def test_worker_hears_that_its_job_is_cancelled_or_lost_and_that_it_shall_drain(waiting: int) -> None:
    source = source_of(QUEUE)
    claim = claimed(source)
    assert source.beat(claim) is Beat.GO_ON
    Job.objects.filter(pk=claim.job_id).update(cancel_requested=True)
    assert source.beat(claim) is Beat.CANCEL
    source.let_go(claim)
    assert Job.objects.get(pk=claim.job_id).state == JobState.CANCELLED
    assert source.beat(claim) is Beat.LOST
    assert source.finish(claim, correct_result(claim.spec, 100.0)) is Receipt.REFUSED
    source.check_in(CARD)
    Runner.objects.update(draining=True)
    assert source.check_in(CARD) and source.claim(QUEUE, CARD.name) is None


def test_job_that_was_altered_on_its_way_is_refused_and_said_so(waiting: int) -> None:
    post = client_post(registered_token())

    def altering(verb: str, body: bytes) -> bytes:
        return bytes(post(verb, body)).replace(b'"effort": "full"', b'"effort": "quick"')

    assert SiteSource(altering, Keyring()).claim(QUEUE, CARD.name) is None
    job = Job.objects.exclude(error="").get()
    assert job.state == JobState.QUEUED and "refused: the job's signature is wrong" in job.error
    assert SiteSource(post, Keyring()).claim(QUEUE, CARD.name) is not None, "the control: as it was sent"


def test_worker_that_does_not_trust_the_site_carries_nothing_out(waiting: int, tmp_path: Path) -> None:
    stranger = Keyring(tmp_path / "keys")
    source = source_of(QUEUE, stranger)
    assert not stranger.trusts(Role.SITE, source.site_key())
    assert source.claim(QUEUE, CARD.name) is None
    stranger.trust(Role.SITE, source.site_key())
    assert source.claim(QUEUE, CARD.name) is not None


@pytest.fixture
def stranger(tmp_path: Path) -> Keyring:
    """Provide the keys of somebody who has read a token of ours: they trust the site, and have a key of their own."""
    keyring = Keyring(tmp_path / "keys")
    keyring.trust(Role.SITE, Keyring().public(Role.SITE))
    return keyring


def decisive(claim: Claim) -> dict[str, Any]:
    """Return a message for each verb that has to be signed."""
    return {
        "register": Asking(CARD.name),
        "claim": Asking(CARD.name),
        "finish": Finished(claim.job_id, claim.fence, correct_result(claim.spec, 100.0), claim.signature),
        "let_go": Holding(claim.job_id, claim.fence),
        "refuse": Refused(claim.job_id, claim.fence, "no"),
        "claim_upload": Asking(CARD.name),
        "finish_upload": Inspected(1, 1, Inspection(())),
    }


@pytest.mark.parametrize("verb", sorted(SIGNED))
def test_whoever_has_read_a_token_decides_nothing_without_its_workers_key(
    waiting: int, stranger: Keyring, verb: str
) -> None:
    secret = registered_token()
    claim = claimed(SiteSource(client_post(secret), Keyring()))
    message = decisive(claim)[verb]
    before = list(Job.objects.order_by("pk").values())
    other_verb = next(one for one in sorted(SIGNED) if one != verb)
    forged = [packed(message), signed(verb, message, stranger), signed(other_verb, message)]
    for body in forged:
        answer = ask(Client(), secret, verb, body)
        assert answer.status_code == 403 and answer.json()["detail"]
    assert list(Job.objects.order_by("pk").values()) == before
    assert WorkerKey.objects.get().public_key == Keyring().public(Role.RUNNER)
    control = ask(Client(), secret, verb, signed(verb, message))
    assert control.status_code == 200 or "uploads are inspected by" in control.json()["detail"]


def test_token_that_no_worker_has_used_gets_no_job(waiting: int) -> None:
    secret = add_token(QUEUE, "lab")
    source = SiteSource(client_post(secret), Keyring())
    with pytest.raises(SiteRefusalError, match="403"):
        source.claim(QUEUE, CARD.name)
    source.register(CARD.name)
    assert source.claim(QUEUE, CARD.name) is not None


def test_result_of_another_job_or_of_the_same_job_with_other_content_is_refused(waiting: int) -> None:
    source = source_of(QUEUE)
    claim = claimed(source)
    result = correct_result(claim.spec, 100.0)
    assert source.finish(replace(claim, signature="ab" * 96), result) is Receipt.REFUSED
    assert source.finish(claim, replace(result, job_id="another")) is Receipt.REFUSED
    assert Job.objects.get(pk=claim.job_id).state == JobState.RUNNING
    assert source.finish(claim, result) is Receipt.RECORDED, "the control"


def test_result_that_was_altered_on_its_way_is_refused(waiting: int) -> None:
    post = client_post(registered_token())

    def altering(verb: str, body: bytes) -> bytes:
        return bytes(post(verb, gzip.compress(gzip.decompress(body).replace(b"100.0", b"1.0"))))

    claim = claimed(SiteSource(post, Keyring()))
    assert SiteSource(altering, Keyring()).finish(claim, correct_result(claim.spec, 100.0)) is Receipt.REFUSED
    assert SiteSource(post, Keyring()).finish(claim, correct_result(claim.spec, 100.0)) is Receipt.RECORDED


def test_key_is_pinned_when_the_token_is_made_or_forgotten_for_a_new_machine(
    db: None, stranger: Keyring, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs, ours = stranger.public(Role.RUNNER), Keyring().public(Role.RUNNER)
    call_command("worker_token", "create", QUEUE, "lab", "--runner-key", theirs)
    source = SiteSource(client_post(capsys.readouterr().out.strip()), Keyring())
    with pytest.raises(SiteRefusalError, match="forget-key lab"):
        source.register(CARD.name)
    call_command("worker_token", "list")
    assert capsys.readouterr().out == f"{QUEUE}\tlab\t{theirs}\n"
    call_command("worker_token", "forget-key", "lab")
    source.register(CARD.name)
    assert WorkerKey.objects.get().public_key == ours
    call_command("worker_token", "revoke", "lab")
    assert token_named("lab") is None and not WorkerKey.objects.exists()
    for words in (("forget-key", "lab"), ("revoke", "lab"), ("create", QUEUE, "x", "--runner-key", "short")):
        with pytest.raises(CommandError):
            call_command("worker_token", *words)
    assert not tokens(), "a token whose key cannot be read is not made"


@pytest.mark.parametrize("verb", ["beat", "progress", "log", "finish", "let_go", "refuse"])
def test_token_of_another_queue_does_not_reach_a_job(waiting: int, verb: str) -> None:
    mine, other = source_of(QUEUE), source_of("bench.sm_90")
    claim = claimed(mine)
    before = Job.objects.values().get(pk=claim.job_id)
    calls: dict[str, Any] = {
        "beat": lambda: other.beat(claim),
        "progress": lambda: other.progress(claim, "timing"),
        "log": lambda: other.log(claim, 1, "x"),
        "finish": lambda: other._ask(verb, Finished(claim.job_id, claim.fence, JobResult("x", Status.CORRECT), "")),
        "let_go": lambda: other.let_go(claim),
        "refuse": lambda: other._ask(verb, {"job_id": claim.job_id, "fence": claim.fence, "reason": "x"}),
    }
    with pytest.raises(SiteRefusalError, match="404"):
        calls[verb]()
    assert Job.objects.values().get(pk=claim.job_id) == before
    assert mine.beat(claim) is Beat.GO_ON, "the control: with the token of its queue"


def test_token_of_another_queue_gets_no_job_of_this_one(waiting: int) -> None:
    assert source_of("bench.sm_90").claim(QUEUE, "bench.sm_90@x") is None
    assert source_of(QUEUE).claim("whatever it says", CARD.name) is not None


def test_worker_cannot_speak_for_a_runner_of_another_queue(waiting: int) -> None:
    source_of(QUEUE).check_in(CARD)
    other = source_of("bench.sm_90")
    for trick in (
        lambda: other.check_in(RunnerCard(CARD.name, "sm_90", ("bench.sm_90",))),
        lambda: other.claim(QUEUE, CARD.name),
        lambda: other.check_in(RunnerCard("mine", "cpu", (QUEUE,))),
        lambda: other.check_in(RunnerCard("mine", "sm_90", ("bench.sm_90", QUEUE))),
    ):
        with pytest.raises(SiteRefusalError, match=r"40[39]"):
            trick()
    assert list(Runner.objects.values_list("name", "queues")) == [(CARD.name, [QUEUE])]


def test_workers_token_opens_no_page_and_no_api(waiting: int) -> None:
    header = {"Authorization": f"Bearer {add_token(QUEUE, 'lab')}"}
    client = Client(headers=header)
    pages = ("/runs/", "/api/v1/runs", "/api/v1/providers", "/api/v1/runners")
    assert [client.get(path).status_code for path in pages] == [302, 401, 401, 401]
    assert client.post("/mcp", b"{}", "application/json").status_code in (401, 404)


def test_worker_in_a_private_network_is_not_sent_to_https(db: None, settings: Any) -> None:
    """The second is the control: a page is."""
    settings.SECURE_SSL_REDIRECT = True
    client = Client()
    assert ask(client, add_token(QUEUE, "lab"), "key", packed(Asking("x"))).status_code == 200
    assert client.get("/sign-in/").status_code == 301


def test_nobody_without_a_token_is_answered(db: None) -> None:
    client = Client()
    for header in (
        {},
        {"Authorization": "Bearer kw_wrong"},
        {"Authorization": "Basic x"},
        {"Authorization": "Bearer"},
    ):
        assert client.post("/work/key/", packed(Asking("x")), "application/gzip", headers=header).status_code == 401
    secret = add_token(QUEUE, "lab")
    assert ask(client, secret, "key", packed(Asking("x"))).status_code == 200
    assert revoke_token("lab") and not revoke_token("lab")
    assert ask(client, secret, "key", packed(Asking("x"))).status_code == 401


@pytest.mark.parametrize(
    ("verb", "body", "status"),
    [
        ("nonsense", packed(Asking("x")), 404),
        ("claim", b"not gzip", 400),
        ("key", packed({"worker": 3}), 400),
        ("key", packed({"worker": "x", "queue": "bench.sm_90"}), 400),
        ("beat", packed(Holding(10**18, 1)), 404),
        ("claim", gzip.compress(b" " * (MOST_MESSAGE_BYTES + 1)), 413),
        ("progress", gzip.compress(b"[" * 100_000), 400),
    ],
    # Not by their bytes, which contain the time: each process of a run must give a test the same name.
    ids=["no verb", "no gzip", "a number", "a queue", "no job", "too long", "too deep"],
)
def test_hostile_message_is_refused_with_words(db: None, verb: str, body: bytes, status: int) -> None:
    answer = ask(Client(), registered_token(), verb, body)
    assert answer.status_code == status and answer.json()["detail"]


def test_result_that_no_column_takes_is_refused_and_the_next_one_is_taken(
    waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(QUEUE)
    claim = claimed(source)
    with monkeypatch.context() as changed:
        changed.setattr(job_actions, "do_store_result", raiser(OverflowError("too large for any column")))
        assert source.finish(claim, correct_result(claim.spec, 100.0)) is Receipt.REFUSED
    claim = claimed(source)
    assert source.finish(claim, correct_result(claim.spec, 100.0)) is Receipt.RECORDED


def test_messages_to_celery_do_not_pile_up_in_a_queue_without_its_workers(db: None) -> None:
    source = source_of("bench.sm_90")
    cache.delete("work:bench.sm_90")
    with current_app.connection_for_write() as connection:
        channel = connection.default_channel
        assert isinstance(channel, Channel)
        for _ in range(3):
            notify_worker("bench.sm_90")
        assert channel._size("bench.sm_90") == 3
        source.claim("bench.sm_90", "bench.sm_90@lab")
        assert channel._size("bench.sm_90") == 0


def test_uploads_are_inspected_by_workers_of_the_build_queue_alone(db: None) -> None:
    upload = ProblemUpload.objects.create(
        created_by=make_user(), name="mine", file_name="mine.py", content=b"x = 1"
    )
    with pytest.raises(SiteRefusalError, match="403"):
        source_of(QUEUE).next_upload("x")
    source = source_of("build")
    taken = source.next_upload("build@x")
    assert taken is not None and taken[1] == Upload("mine", "mine.py", b"x = 1")
    assert source.next_upload("build@x") is None
    source.finish_upload(taken[0], Inspection(("It is wrong.",)))
    upload.refresh_from_db()
    assert (upload.state, upload.complaints) == (UploadState.REFUSED, ["It is wrong."])


def test_file_holds_digests_that_only_its_owner_reads_and_bad_lines_are_skipped(token_file: Path) -> None:
    secret = add_token("bench.gfx942", "mi300-0")
    assert secret not in token_file.read_text() and token_file.stat().st_mode & 0o777 == 0o600
    token_file.write_text("nonsense\n# bench.cpu\n" + token_file.read_text() + "bench.cpu short\n")
    found = token_of(secret)
    assert found is not None and found.queue == "bench.gfx942" and token_of("") is None
    assert [(token.queue, token.name) for token in tokens()] == [("bench.gfx942", "mi300-0")]
    for queue, name in (("agents", "x"), ("bench.cpu", "mi300-0"), ("bench.cpu", "a b"), ("timer", "x")):
        with pytest.raises(WorkerTokenError):
            add_token(queue, name)


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, list[str]]]:
    """Provide a server that redirects, and the list of the requests that reached it."""
    seen: list[str] = []

    class Redirecting(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.path)
            self.send_response(307)
            self.send_header("Location", "/elsewhere/")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Redirecting)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    server.server_close()


def test_token_is_not_carried_to_where_a_redirect_leads(elsewhere: tuple[str, list[str]]) -> None:
    address, seen = elsewhere
    with pytest.raises(SiteRefusalError):
        poster(address, "kw_secret")("claim", b"")
    assert seen == ["/work/claim/"]


def test_token_travels_by_tls_unless_somebody_asks_for_less() -> None:
    for address in ("http://kernels.example.org", "ftp://x", "kernels.example.org", "file:///etc"):
        with pytest.raises(SiteRefusalError):
            poster(address, "kw_secret")
    poster("https://kernels.example.org", "kw_secret")
    poster("http://web:8000", "kw_secret", allow_http=True)
    with pytest.raises(SiteError, match="cannot be reached"):
        poster("http://127.0.0.1:9", "kw_secret")("claim", b"")
