"""Test problems that people paste or upload: read and run in a sandbox, previewed, added; refused at the field."""

from __future__ import annotations

import base64
import io
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from optimizer.actions import problem_upload
from optimizer.actions.problem import do_import_problem
from optimizer.actions.problem_upload import check_upload
from optimizer.models import (
    AuditEntry,
    Problem,
    ProblemUpload,
    ProblemVersion,
    Team,
    TeamRole,
    UploadState,
    User,
)
from optimizer.models.problem_upload import origin_of
from optimizer.problems import inspecting
from optimizer.problems.inspecting import inspect_upload
from optimizer.upkeep.sweep import sweep
from runners.problems import SHIPPED, load, uploading
from runners.problems.filters import Examination
from runners.problems.uploading import Upload, inspect
from tests.examined import examine_once
from tests.factories import make_run, make_team, make_user
from tests.optimizer.clients import Call, caller_of

pytestmark = [pytest.mark.django_db, pytest.mark.processes]

MODULE = """import torch
import torch.nn as nn
{top}

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2


def get_inputs():
    return [torch.randn({rows}, 64)]


def get_init_inputs():
    return []
"""
GOOD = MODULE.format(top="", rows=32)
inspect_once = cache(inspect)


@pytest.fixture(autouse=True)
def _inspected_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the worker inspect what several tests upload once in the process: it starts two sandboxes."""
    monkeypatch.setattr(inspecting, "inspect", inspect_once)
    monkeypatch.setattr(uploading, "examine", examine_once)


def paste(pages: Client, source: str, name: str = "my_relu", team: str = "") -> Any:
    return pages.post("/problems/new/", {"name": name, "source": source, "team": team})


def checked(pages: Client, source: str, team: str = "") -> Any:
    """Paste a module, let a worker look at it, and return the page that its author then sees."""
    paste(pages, source, team=team)
    upload = ProblemUpload.objects.get()
    assert inspect_upload(upload.pk)
    return pages.get(f"/problems/new/{upload.pk}/")


def zipped(files: Mapping[str, str | bytes]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return held.getvalue()


def test_a_pasted_module_is_previewed_added_and_ready_to_run(pages: Client, member: User) -> None:
    page = checked(pages, GOOD).content.decode()
    assert not Problem.objects.filter(slug="my_relu").exists()
    assert "32 × 64" in page and "rtol 0.0001" in page and "float32" in page and "16.0 KiB" in page
    assert "as given" in page and "published" not in page  # nobody has published a pasted module
    upload = ProblemUpload.objects.get()
    answer = pages.post(f"/problems/new/{upload.pk}/", {"then": "run"})
    assert answer["Location"] == "/runs/new/?problem=my_relu"
    version = ProblemVersion.objects.get(problem__slug="my_relu")
    assert version.problem.origin == f"uploaded by {member.username}"
    assert "cpp" in version.languages  # its C signature was derived
    assert AuditEntry.objects.filter(action="problem.added", actor_name=member.username).exists()
    upload.refresh_from_db()
    assert upload.state == UploadState.ADDED and not upload.content and upload.inspection is None


def test_the_same_name_becomes_a_new_version_of_ones_own_problem_only(
    pages: Client, member: User, team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked(pages, GOOD, team.slug)
    pages.post(f"/problems/new/{ProblemUpload.objects.get().pk}/")
    monkeypatch.setattr(
        uploading, "examine", lambda _bundle, **_limits: Examination(None)
    )  # it ran as the first did
    paste(pages, GOOD.replace("* 2", "* 3"))
    upload = ProblemUpload.objects.get(state=UploadState.QUEUED)
    inspect_upload(upload.pk)
    assert "becomes version <b>2</b>" in pages.get(f"/problems/new/{upload.pk}/").content.decode()
    pages.post(f"/problems/new/{upload.pk}/")
    problem = Problem.objects.get(slug="my_relu")
    assert problem.versions.count() == 2 and problem.team is None  # shown to everybody now, as was chosen
    pages.force_login(make_user(team, TeamRole.OPERATOR))
    assert "Another problem has this name." in paste(pages, GOOD).content.decode()
    Problem.objects.create(slug="shipped_one", title="Shipped")
    assert "Another problem has this name." in paste(pages, GOOD, "shipped_one").content.decode()


def test_a_new_version_is_seen_by_as_many_as_the_earlier_ones_or_by_more(member: User, team: Team) -> None:
    first = add(member, team)
    other = make_team("others")
    other.memberships.create(user=member, role=TeamRole.OPERATOR)
    with pytest.raises(ValidationError, match=f"is visible to {team}, and so is every version"):
        check_upload(member, first.slug, "model.py", b"x", other)
    check_upload(member, first.slug, "model.py", b"x", team)
    check_upload(member, first.slug, "model.py", b"x", None)
    Problem.objects.filter(pk=first.pk).update(team=None)
    with pytest.raises(ValidationError, match="is visible to everybody"):
        check_upload(member, first.slug, "model.py", b"x", team)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (MODULE.format(top="import signal; signal.pause()", rows=32), "not finished after 4 s while importing it"),
        (
            MODULE.format(top="import urllib.request as r; r.urlopen('http://192.0.2.1/')", rows=32),
            "has no network",
        ),
        ("print('hello')", "no Model"),
        (MODULE.format(top="", rows="100 * 2**30 // 256"), "GiB of memory"),
        (MODULE.format(top="held = torch.ones(25 * 2**30)", rows=32), "at most 6 GiB are allowed here"),
        ("def (", "not Python"),
        ("x = " + "-" * 100_000 + "1", "not Python"),
    ],
)
def test_a_bad_module_is_told_at_the_field_and_nothing_is_kept(
    pages: Client, monkeypatch: pytest.MonkeyPatch, source: str, told: str
) -> None:
    monkeypatch.setattr(inspecting, "inspect", lambda upload: inspect(upload, run_s=4 if "pause" in source else 60))
    page = checked(pages, source).content.decode()
    at_field = page.split('id="id_source_error"', 1)[1].split("</p>", 1)[0]
    assert told in at_field
    assert not Problem.objects.filter(slug="my_relu").exists()
    # what was pasted is there to be corrected, and goes with the next upload
    assert source.splitlines()[0][:20].replace("'", "&#x27;") in page
    paste(pages, GOOD)
    assert ProblemUpload.objects.get().text == GOOD


def test_markup_in_names_is_told_at_the_field_and_shown_as_text(pages: Client) -> None:
    page = paste(pages, GOOD, "<img src=x onerror=alert(1)>").content.decode()
    assert 'id="id_name_error"' in page and "<img src=x" not in page
    assert not ProblemUpload.objects.exists()
    held = zipped({"<script>alert(1)</script>.py": GOOD})
    pages.post("/problems/new/", {"name": "marked", "file": SimpleUploadedFile("a.zip", held)})
    upload = ProblemUpload.objects.get()
    inspect_upload(upload.pk)
    page = pages.get(f"/problems/new/{upload.pk}/").content.decode()
    assert "names of files have letters" in page and "<script>alert" not in page


def test_an_archive_of_our_own_format_is_previewed_with_its_cases() -> None:
    folder = SHIPPED / "softmax_rows"
    files = {path.relative_to(SHIPPED).as_posix(): path.read_bytes() for path in folder.rglob("*.*")}
    # Another test may have left bytecode there, as a user's own folder often has: it is left out.
    files["softmax_rows/__pycache__/reference.cpython-311.pyc"] = b"\xa7\r\r\n"
    found = inspect(Upload("rows", "rows.zip", zipped(files)))
    assert not found.complaints and found.reading.bundle is not None and found.reading.bundle.name == "rows"
    assert {case.purpose for case in found.reading.cases} == {"test", "benchmark", "hidden"}
    assert found.examination is not None and found.examination.footprint_bytes["1024x256"] == 2 << 20


def test_a_problem_that_is_small_enough_for_a_cpu_names_both_kinds_of_targets_for_its_cases() -> None:
    text = (
        "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n"
        "        return x.abs()\n\n\ndef get_inputs():\n    return [torch.randn(257, 31)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    found = inspect(Upload("small", "small.py", text.encode()))
    assert not found.complaints and found.reading.cases
    assert all(set(case.targets) == {"cpu", "gpu"} for case in found.reading.cases)


GPU_MODE = {
    "double/task.yml": "description: Double it.\nlang: py\nfiles:\n  - {name: reference.py, source: reference.py}\n"
    "  - {name: submission.py, source: '@SUBMISSION@'}\ntests:\n  - {size: 64, seed: 1}\n"
    "benchmarks:\n  - {size: 1024, seed: 2}\n",
    "double/reference.py": "import torch\n\ndef generate_input(size, seed):\n    g = torch.Generator()\n"
    "    g.manual_seed(seed)\n    return torch.rand(size, generator=g)\n\n"
    "def ref_kernel(data):\n    return data * 2\n\n"
    "def check_implementation(data, output):\n"
    "    return '' if torch.allclose(output, ref_kernel(data)) else 'differs'\n",
}


def test_an_archive_of_a_gpu_mode_directory_is_read() -> None:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as archive:
        for name, text in GPU_MODE.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    found = inspect(Upload("double", "double.tar.gz", held.getvalue()))
    assert not found.complaints and found.reading.bundle is not None and found.reading.bundle.format == "gpumode"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"PK\x03\x04 broken", "cannot be opened"),
        (zipped({"../../escape.py": GOOD}), "names of files"),
        (zipped({f"{n}.py": "x" for n in range(300)}), "More than 200 files"),
        (zipped({"a.py": GOOD, "b.py": GOOD}), "several problems"),
        (zipped({"readme.txt": "nothing"}), "no problem.toml"),
        (zipped({"bomb.py": "#" * (8 << 20)}), "at most"),
    ],
)
def test_a_bad_archive_says_what_is_wrong(content: bytes, told: str) -> None:
    found = inspect(Upload("bad", "bad.zip", content))
    assert found.reading.bundle is None and told in " ".join(found.complaints)


def test_links_in_an_archive_are_not_followed() -> None:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        link = tarfile.TarInfo("leak.py")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    assert inspect(Upload("leak", "leak.tar", held.getvalue())).reading.bundle is None


def test_nobody_else_sees_an_upload(pages: Client, team: Team) -> None:
    paste(pages, GOOD)
    upload = ProblemUpload.objects.get()
    pages.force_login(make_user(team, TeamRole.OWNER))
    assert pages.get(f"/problems/new/{upload.pk}/").status_code == 404
    assert "my_relu" not in pages.get("/problems/new/").content.decode()


def add(member: User, team: Team | None, name: str = "secret_relu") -> Problem:
    """Add a problem as a worker that has tried it would, without trying it."""
    bundle = replace(load("softmax_rows"), name=name)
    version, _ = do_import_problem(bundle, origin_of(member), (), team)
    return version.problem


def test_a_teams_problem_is_seen_and_run_by_that_team_alone(pages: Client, team: Team, member: User) -> None:
    problem, client = add(member, team), Client()
    make_run(team, member)
    other = make_team("others")
    outsider = make_user(other, TeamRole.OPERATOR)
    client.force_login(outsider)
    api, theirs = caller_of(member), caller_of(outsider)
    for path in (f"/problems/{problem.slug}/", f"/leaderboards/{problem.slug}/cpu/"):
        assert (pages.get(path).status_code, client.get(path).status_code) == (200, 404), path
    for path in ("/problems/", "/runs/new/", "/knowledge/", "/knowledge/new/", "/runs/", "/search/?q=softmax"):
        shown = [problem.slug in one.get(path).content.decode() for one in (pages, client)]
        assert shown == [True, False], path
    for path in (f"/problems/{problem.slug}", f"/problems/{problem.slug}/task",
                 f"/leaderboard?problem={problem.slug}&target=cpu"):  # fmt: skip
        assert (api("GET", path).status_code, theirs("GET", path).status_code) == (200, 404), path
    listed = [{row["slug"]: row["team"] for row in one("GET", "/problems").json()} for one in (api, theirs)]
    assert listed[0][problem.slug] == team.slug and problem.slug not in listed[1]
    assert listed[0]["softmax_rows"] is None
    start = {"problem": problem.slug, "budget": {"evaluations": 2}}
    assert theirs("POST", "/runs", start | {"team": other.slug}).status_code == 422
    # Whoever is in both teams cannot carry a problem from one to the other.
    other.memberships.create(user=member, role=TeamRole.OPERATOR)
    refused = api("POST", "/runs", start | {"team": other.slug})
    assert refused.json()["fields"] == {"problem": ["This problem belongs to another team."]}
    assert api("POST", "/runs", start | {"team": team.slug}).status_code == 201
    assert f"only {team}" in pages.get(f"/problems/{problem.slug}/").content.decode()


def test_an_upload_is_for_the_own_team_unless_everybody_is_chosen(pages: Client, team: Team) -> None:
    form = pages.get("/problems/new/").context["form"]
    assert form["team"].value() == team.slug
    pages.post("/problems/new/", {"name": "ours", "source": GOOD, "team": team.slug})
    pages.post("/problems/new/", {"name": "everybodys", "source": GOOD, "team": ""})
    assert list(ProblemUpload.objects.order_by("pk").values_list("team__slug", flat=True)) == [team.slug, None]
    foreign = pages.post("/problems/new/", {"name": "theirs", "source": GOOD, "team": make_team("others").slug})
    assert foreign.context["form"].errors["team"] and ProblemUpload.objects.count() == 2


def test_a_refused_upload_keeps_only_what_its_field_shows(pages: Client) -> None:
    paste(pages, GOOD)
    text = problem_upload.do_claim_upload(ProblemUpload.objects.get().pk)
    assert text is not None and problem_upload.do_refuse_upload(text, ["bad"])
    assert ProblemUpload.objects.get().text == GOOD
    ProblemUpload.objects.update(created_at=timezone.now() - 1.1 * problem_upload.REFUSED_KEPT)
    assert sweep()["dropped_uploads"] == 1 and not ProblemUpload.objects.exists()
    pages.post("/problems/new/", {"name": "packed", "file": SimpleUploadedFile("a.zip", zipped({"a.py": GOOD}))})
    packed = problem_upload.do_claim_upload(ProblemUpload.objects.get().pk)
    assert packed is not None and problem_upload.do_refuse_upload(packed, ["bad"])
    assert bytes(ProblemUpload.objects.get().content) == b""


def test_viewers_cannot_add_problems(pages: Client, team: Team) -> None:
    pages.force_login(make_user(team, TeamRole.VIEWER))
    assert "Only operators and owners" in paste(pages, GOOD).content.decode()
    assert not ProblemUpload.objects.exists()


def ready(member: User) -> ProblemUpload:
    """Return an upload that a worker has found good, without running one."""
    return ProblemUpload.objects.create(
        created_by=member, name="mine", file_name="mine.py", content=b"x", state=UploadState.READY
    )


def test_who_lost_the_role_since_the_upload_cannot_add_it(member: User, pages: Client) -> None:
    upload = ready(member)
    member.memberships.update(role=TeamRole.VIEWER)
    with pytest.raises(ValidationError, match="Only operators and owners"):
        problem_upload.do_add_uploaded_problem(member, upload.pk)


def test_an_upload_that_is_discarded_meanwhile_is_told_so_and_ends_no_worker(
    member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = ready(member)
    problem_upload.do_discard_upload(member, upload.pk)
    with pytest.raises(ValidationError, match="was discarded"):
        problem_upload.do_add_uploaded_problem(member, upload.pk)
    waiting = ready(member)
    ProblemUpload.objects.update(state=UploadState.QUEUED)
    # Its author is faster than the worker between its two queries.
    monkeypatch.setattr(ProblemUpload.objects, "filter", lambda **_: ProblemUpload.objects.none())
    assert problem_upload.do_claim_upload(waiting.pk) is None


def test_pages_of_uploads_read_neither_the_file_nor_every_team(
    pages: Client, member: User, django_assert_max_num_queries: Any
) -> None:
    ready(member)
    for _ in range(10):
        make_team()
    with django_assert_max_num_queries(8) as seen:
        pages.get("/problems/new/")
    uploads = [query["sql"] for query in seen.captured_queries if "optimizer_problemupload" in query["sql"]]
    assert uploads and all('"content"' not in sql for sql in uploads)


def test_a_flood_of_uploads_is_refused(pages: Client) -> None:
    for _ in range(4):
        answer = paste(pages, GOOD)
    assert "still being checked" in answer.content.decode()
    assert ProblemUpload.objects.count() == 3


def test_a_lost_worker_is_replaced_and_cannot_overwrite_the_result(
    pages: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    paste(pages, GOOD)
    pk = ProblemUpload.objects.get().pk
    lost = problem_upload.do_claim_upload(pk)
    assert lost is not None and problem_upload.do_claim_upload(pk) is None
    ProblemUpload.objects.update(lease_until=timezone.now() - problem_upload.LEASE)
    assert problem_upload.do_claim_upload(pk) is not None
    assert not problem_upload.do_refuse_upload(lost, ["late"])
    ProblemUpload.objects.update(lease_until=timezone.now() - problem_upload.LEASE, fence=problem_upload.MAX_CLAIMS)
    assert problem_upload.do_claim_upload(pk) is None
    assert ProblemUpload.objects.get().state == UploadState.REFUSED


def test_old_uploads_go_and_waiting_ones_are_announced_again(
    pages: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    paste(pages, GOOD)
    ProblemUpload.objects.update(created_at=timezone.now() - 2 * problem_upload.KEPT / 24)
    assert sweep()["enqueued_uploads"] == 1
    ProblemUpload.objects.update(created_at=timezone.now() - 2 * problem_upload.KEPT)
    assert sweep()["dropped_uploads"] == 1 and not ProblemUpload.objects.exists()


def test_the_api_takes_shows_and_adds_a_problem(api: Call) -> None:
    refused = api("POST", "/problem-uploads", {"name": "New problem", "source": GOOD})
    assert refused.status_code == 422 and "name" in refused.json()["fields"]
    # The same problem as is pasted elsewhere in this module, so it runs once.
    packed = base64.b64encode(zipped({"my_relu.py": GOOD})).decode()
    for archive in ("ß", "a"):
        faulty = api("POST", "/problem-uploads", {"name": "my_relu", "archive": archive})
        assert (faulty.status_code, "not Base64" in faulty.content.decode()) == (422, True)
    sent = api("POST", "/problem-uploads", {"name": "my_relu", "archive": packed})
    assert sent.status_code == 202
    place = f"/problem-uploads/{sent.json()['id']}"
    assert api("POST", f"{place}/add", {}).status_code == 422  # not checked yet
    inspect_upload(sent.json()["id"])
    found = api("GET", place).json()
    assert found["state"] == "ready" and found["preview"]["inputs"][0]["shape"] == [32, 64]
    assert api("POST", f"{place}/add", {}).json()["problem"] == "my_relu"
    assert api("POST", f"{place}/add", {}).json()["problem"] == "my_relu"
    assert api("GET", "/problems/my_relu").json()["versions"] == [1]
