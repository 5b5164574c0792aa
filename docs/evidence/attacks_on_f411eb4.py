"""State the eleven points of the attack by the interfaces of commit f411eb4, where every test must fail.

The tests below tests/attack/ import modules that f411eb4 does not have. These are their shortest equivalents there:

    git worktree add --detach /tmp/old f411eb4
    cp docs/evidence/attacks_on_f411eb4.py /tmp/old/tests/test_attacks.py
    cd /tmp/old && python -m pytest -q tests/test_attacks.py
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlparse

import pytest
import yaml
from asgiref.sync import sync_to_async
from channels.auth import AuthMiddlewareStack
from channels.routing import URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from channels.testing import WebsocketCommunicator
from django.conf import settings
from django.core.cache import cache
from django.db import connection
from django.test import Client, override_settings
from optimizer.actions.spool import do_sync_spool
from optimizer.agents.answers import _LABEL
from optimizer.agents.code_blocks import Edit, apply_edits
from optimizer.live import consumers
from optimizer.live.routing import websocket_urlpatterns
from optimizer.llm.addresses import ForbiddenAddressError, check_address
from optimizer.loop import advance
from optimizer.models import ApiToken, Run, TokenScope
from optimizer.views.knowledge import changes_of
from optimizer.views.safe_html import source_lines
from runners import wire
from runners.backends.python import with_tunables
from runners.dispatch.spool import Slip, Spool
from runners.harness import evaluate
from runners.harness.authorship import lacks_own_kernel
from runners.harness.devices import _lock_file
from runners.harness.participant import Participant
from runners.job import Effort, JobResult, JobSpec, Language, Limits, Source, Status
from runners.problems import load
from runners.sandbox import ResourceLimits, SandboxPolicy, orphans, probe, python_paths, run
from tests.factories import make_run, make_team, make_user
from tests.runners import kernels

ROOT = Path(__file__).parents[1]
PROCESSOR_S = 4.0


class TooLongError(Exception):
    """Report a reader that was broken off."""


def read_in_time(read, *arguments):
    def stop(*_):
        raise TooLongError

    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, PROCESSOR_S)
    is_late = False
    try:
        read(*arguments)
    except TooLongError:
        is_late = True
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
    assert not is_late, f"still reading after {PROCESSOR_S} s of processor time"


def test_point_1_problem_module_does_not_reach_the_workers_files(tmp_path):
    (tmp_path / "secret").write_text("key")
    module = f"""import torch, pathlib
pathlib.Path({str(tmp_path / "stolen")!r}).write_text(pathlib.Path({str(tmp_path / "secret")!r}).read_text())
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2
def get_inputs():
    return [torch.randn(32, 64)]
def get_init_inputs():
    return []
"""
    (tmp_path / "mine.py").write_text(module)
    command = [sys.executable, "-m", "runners", "problems", "check", "--run", str(tmp_path / "mine.py")]
    subprocess.run(command, cwd=ROOT, capture_output=True, timeout=300)
    assert not (tmp_path / "stolen").exists()


def spec_of(job_id="1"):
    return JobSpec(job_id, load("softmax_rows"), "cpu", Source(Language.CPP, kernels.HONEST), effort=Effort.QUICK)


def test_point_2_job_that_somebody_puts_into_the_folder_is_not_worked(tmp_path):
    spool = Spool(tmp_path)
    (tmp_path / "jobs" / "1.1.json").write_text(wire.dumps(spec_of()))
    assert spool.take("cpu") is None


def test_point_3_deep_debris_is_removed_without_an_error(tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    here = os.open(tree, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d" * 250, dir_fd=here)
        inner = os.open("d" * 250, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    try:
        orphans.remove_tree(tree)
        assert not tree.exists()
    finally:
        subprocess.run(["rm", "-rf", str(tree)])


def test_point_4_link_that_takes_a_folders_place_does_not_lead_the_sweep_elsewhere(tmp_path, monkeypatch):
    elsewhere, tree = tmp_path / "elsewhere", tmp_path / "tree"
    elsewhere.mkdir(mode=0o755)
    (tree / "folder").mkdir(parents=True)
    honest = Path.is_symlink

    def raced(path):
        found = honest(path)
        if path.name == "folder" and not found:
            path.rmdir()
            path.symlink_to(elsewhere)
        return found

    monkeypatch.setattr(Path, "is_symlink", raced)
    orphans.remove_tree(tree)
    assert elsewhere.stat().st_mode & 0o777 == 0o755


FILLS_SOCKETS = """
import os, socket
held, total = [], 0
while total < 300 << 20:
    one, other = socket.socketpair()
    for each in (one, other):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 20)
        each.setblocking(False)
    try:
        while True:
            total += one.send(b"x" * 65536)
    except BlockingIOError:
        pass
    held.append((one, other))
print("held", total >> 20)
"""


def test_point_5_sockets_hold_no_more_than_the_memory_limit():
    limits = ResourceLimits(wall_s=120.0, memory_bytes=128 << 20, open_files=4096)
    policy = SandboxPolicy(read_only=python_paths(), limits=limits)
    done = run([sys.executable, "-I", "-S", "-c", FILLS_SOCKETS], policy)
    assert "held" not in done.stdout, done.stdout


READERS = {
    "screening of a=a=…": lambda: lacks_own_kernel(
        Source(Language.TRITON, "a=" * 5_000 + "1\nimport triton\ndef custom_kernel(x):\n    return a(x)\n")
    ),
    "colours of 14 kB of blank lines": lambda: source_lines("\n" * 14_000 + "x", "cuda"),
    "two findings of 48 kB": lambda: changes_of(
        SimpleNamespace(text="a\nb\n" * 12_000), SimpleNamespace(text="b\nb\n" * 12_000)
    ),
    "an answer of 20 kB of newlines": lambda: _LABEL.sub("", "\n" * 20_000 + "x"),
    "4,000 edits in 50,000 lines": lambda: apply_edits(
        "\n".join(f"line {n}" for n in range(50_000)), [Edit((f"line {n}",), ("x",)) for n in range(4_000)]
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_point_6_hostile_text_is_read_in_time(reader):
    read_in_time(READERS[reader])


def test_point_7_time_of_400_digits_is_the_candidates_failure():
    class Broken(Exception):
        pass

    with pytest.raises(Broken):
        Participant._times(SimpleNamespace(_broken=Broken), {"inside_ns": [10**400]}, "inside_ns", 1)


def test_point_7_text_of_8000_minus_signs_is_a_failed_build():
    with pytest.raises((SyntaxError, ValueError, RecursionError)):  # what the backend takes for the candidate's
        with_tunables(Source(Language.PYTHON, "x = " + "-" * 8_000 + "1\n"))


@pytest.mark.django_db
@pytest.mark.parametrize("poison", ["\\ud800", "1" * 4_000, "[" * 950 + "]" * 950])
def test_point_8_poisoned_result_does_not_hold_up_the_exchange(poison, tmp_path):
    made = make_run()
    advance(made.pk)
    spool = Spool(tmp_path)
    Run.objects.filter(pk=made.pk).update(dispatcher="spool")
    text = wire.dumps(JobResult("1", Status.CORRECT))
    value = f'["{poison}"]' if poison.startswith("\\") else poison
    key = "reasons" if poison.startswith("\\") else "environment"
    plain = text.replace(f'"{key}": ', f'"{key}": VALUE, "x": ', 1)
    plain = (
        plain[: plain.index("VALUE")]
        + (value if key == "reasons" else '{"a": ' + value + "}")
        + plain[plain.index(', "x": ') :].replace(', "x": []', "", 1).replace(', "x": {}', "", 1)
    )
    json_text = plain
    (tmp_path / "results" / "1.1.json").write_text(json_text)
    read = list(spool.results())
    assert not read or wire.dumps(read[0][1]).encode("utf-8")
    assert not read, "the poison was taken for a result"
    do_sync_spool(spool, made.target)


@pytest.mark.django_db
def test_point_9_settings_nested_900_deep_are_answered_with_words():
    made = make_run()
    user = make_user(made.team)
    secret = ApiToken.make(user, "x", list(TokenScope))[1]
    nested = "[" * 900 + "]" * 900
    body = f'{{"problem": "softmax_rows", "team": "{made.team.slug}", "settings": {{"sampler": {nested}}}}}'
    answer = Client(raise_request_exception=False).post(
        "/api/v1/runs", body, content_type="application/json", headers={"Authorization": f"Bearer {secret}"}
    )
    assert answer.status_code in (400, 422), answer.content[:300]


async def test_point_9_body_is_not_stored_without_limit_before_sign_in():
    from kernelsci_site.asgi import application

    sent, answers = 0, []

    class Enough(Exception):
        pass

    async def receive():
        nonlocal sent
        if sent > 64 << 20:
            raise Enough
        sent += 1 << 20
        return {"type": "http.request", "body": b"x" * (1 << 20), "more_body": True}

    async def send(message):
        answers.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": "/sign-in/", "raw_path": b"/sign-in/", "query_string": b"", "root_path": "",
        "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    with suppress(Enough):
        await application(scope, receive, send)
    assert sent <= 8 << 20, "the body is read on and on"
    assert answers


def test_point_10_measuring_containers_have_no_secret_of_the_site():
    services = yaml.safe_load((ROOT / "deploy" / "docker-compose.yml").read_text())["services"]
    measuring = {name: one for name, one in services.items() if name.startswith("bench")}
    assert measuring
    for name, one in measuring.items():
        assert not {"SECRET_KEY", "PROVIDER_KEY_SECRETS", "DATABASE_URL"} & set(one.get("environment", {})), name


def test_point_10_redis_has_a_password():
    services = yaml.safe_load((ROOT / "deploy" / "docker-compose.yml").read_text())["services"]
    assert "requirepass" in str(services["redis"]) or "redis_password" in str(services["redis"])


@pytest.mark.django_db(transaction=True)
async def test_point_11_socket_closes_with_its_session(monkeypatch):
    monkeypatch.setattr(consumers, "HEARTBEAT_S", 600.0)
    made = await sync_to_async(make_run)()
    user = await sync_to_async(make_user)(made.team)
    client = Client()
    await sync_to_async(client.force_login)(user)
    cookie = f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}".encode()
    socket = WebsocketCommunicator(
        AuthMiddlewareStack(URLRouter(websocket_urlpatterns)), f"/ws/runs/{made.pk}/", headers=[(b"cookie", cookie)]
    )
    await socket.connect()
    await socket.receive_json_from(10)
    await sync_to_async(client.post)("/sign-out/")
    async with asyncio.timeout(10):
        while (await socket.receive_output(10))["type"] != "websocket.close":
            pass


def test_point_11_origin_has_the_sites_port():
    with override_settings(ALLOWED_HOSTS=["site.example"]):
        validator = AllowedHostsOriginValidator(None)
    assert not validator.valid_origin(urlparse("http://site.example:9000"))


@pytest.mark.django_db(transaction=True)
def test_point_11_24_tries_at_once_are_five():
    user = make_user(make_team())
    cache.clear()
    answers, start = [], threading.Barrier(24)

    def attempt():
        client = Client()
        start.wait()
        answers.append(client.post("/sign-in/", {"username": user.username, "password": "wrong"}).content.decode())
        connection.close()

    tries = [threading.Thread(target=attempt) for _ in range(24)]
    for one in tries:
        one.start()
    for one in tries:
        one.join()
    assert sum("wrong" in answer for answer in answers) <= 5, len(answers)


@pytest.mark.django_db
def test_point_11_titles_keep_their_order():
    made = make_run()
    made.title = "\u202ereversed"
    made.save()
    assert "\u202e" not in Run.objects.get(pk=made.pk).title


def test_point_11_lock_files_cannot_be_written_to(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELSCI_LOCKS", str(tmp_path))
    with _lock_file("cpu-0"):
        pass
    assert not any(path.stat().st_mode & 0o022 for path in tmp_path.iterdir())


def test_point_11_crash_at_load_stores_the_sandbox_level():
    crashes = "#include <cstdlib>\nstruct Early { Early() { std::abort(); } } early;\n" + kernels.HONEST
    limits = Limits(call_s=3.0, total_s=120.0, memory_bytes=1 << 30)
    spec = JobSpec("1", load("softmax_rows"), "cpu", Source(Language.CPP, crashes), Effort.QUICK, limits=limits)
    result = evaluate(spec)
    assert result.status is Status.CRASHED
    assert result.sandbox == probe().value


@pytest.mark.parametrize("address", ["64:ff9b:1::808:808", "::ffff:0:7f00:1"])
def test_point_11_reserved_prefixes_are_refused(address):
    with pytest.raises(ForbiddenAddressError):
        check_address(ipaddress.ip_address(address), allow_private=False)
