"""Test the loop of a worker with a token: when it begins, goes on, waits and ends."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from runners.commands import work_site
from runners.dispatch.site_messages import UploadHeld
from runners.dispatch.site_source import SiteError, SiteRefusalError, SiteSource
from runners.problems.uploading import Inspection, Upload
from runners.sandbox import SandboxError
from runners.signing.keyring import Keyring, Role

AWAY, REFUSED = SiteError("away"), SiteRefusalError("401")
UPLOAD = (UploadHeld(1, 2, "mine", "mine.py", ""), Upload("mine", "mine.py", b""))


class Script(SiteSource):
    """Answer from a list, raising what is an exception, and end the worker when the list is empty."""

    def __init__(self, told: threading.Event, *answers: Any) -> None:
        self._told = told
        self._answers = list(answers)
        self.inspected: list[Inspection] = []
        self.registered: list[str] = []

    def _next(self) -> Any:
        answer = self._answers.pop(0)
        if not self._answers:
            self._told.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def site_key(self) -> str:
        return str(self._next())

    def register(self, worker: str) -> None:
        self.registered.append(worker)
        if self._answers and isinstance(self._answers[0], Exception):
            raise self._answers.pop(0)

    def next_upload(self, worker: str) -> Any:
        return self._next()

    def finish_upload(self, held: UploadHeld, inspection: Inspection) -> None:
        self.inspected.append(inspection)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    monkeypatch.setattr(work_site, "AWAY_PAUSE_S", 0.0)
    monkeypatch.setattr(work_site, "POLL_S", 0.0)
    return threading.Event()


def working(monkeypatch: pytest.MonkeyPatch, script: Script) -> None:
    monkeypatch.setattr(work_site, "work_once", lambda source, *_: source._next())


def test_worker_waits_for_the_site_and_begins_if_it_trusts_its_key(told: threading.Event, tmp_path: Path) -> None:
    keyring = Keyring(tmp_path)
    trusted, stranger = keyring.public(Role.SITE), "ab" * 32
    script = Script(told, AWAY, AWAY, trusted, AWAY, trusted, None)
    assert work_site._may_begin(script, keyring, "x", told) and script.registered == ["x", "x"]
    strange = Script(told, stranger, None)
    with pytest.raises(SiteRefusalError, match=f"keys trust site {stranger}"):
        work_site._may_begin(strange, keyring, "x", told)
    assert not strange.registered, "a site that is not trusted learns no key"
    for refused in (Script(told, REFUSED, None), Script(told, trusted, REFUSED, None)):
        with pytest.raises(SiteRefusalError, match="401"):
            work_site._may_begin(refused, keyring, "x", told)
    assert not work_site._may_begin(Script(told, AWAY), keyring, "x", told), "told to end while the site was away"


def test_worker_counts_its_jobs_and_goes_on_when_the_site_was_away(
    told: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(told, True, AWAY, False, True, False)
    working(monkeypatch, script)
    assert work_site._work_until_told(script, "bench.cpu", "x", told, once=False) == 2


def test_worker_ends_at_once_when_its_token_is_revoked_and_when_no_job_is_left(
    told: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(told, True, REFUSED, True, False, None)
    working(monkeypatch, script)
    with pytest.raises(SiteRefusalError):
        work_site._work_until_told(script, "bench.cpu", "x", told, once=False)
    assert work_site._work_until_told(script, "bench.cpu", "x", told, once=True) == 1


@pytest.mark.parametrize("trouble", [None, SandboxError("no sandbox")])
def test_worker_of_builds_inspects_uploads_too(
    told: threading.Event, monkeypatch: pytest.MonkeyPatch, trouble: Exception | None
) -> None:
    answers = iter([Inspection(("It is wrong.",))])

    def inspect(_upload: Upload) -> Inspection:
        if trouble:
            raise trouble
        return next(answers)

    monkeypatch.setattr(work_site, "inspect", inspect)
    script = Script(told, False, UPLOAD, False, None)
    working(monkeypatch, script)
    assert work_site._work_until_told(script, "build", "x", told, once=False) == 1
    assert ["sandbox" in text or "wrong" in text for one in script.inspected for text in one.complaints] == [True]
