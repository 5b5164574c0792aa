"""Static files under names with the hash of their content."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.test import Client, RequestFactory

from kernelsci_site.collected import CollectedStorage, collect, late_file
from kernelsci_site.static_finders import NpmFinder
from kernelsci_site.templatetags.npm import npm_scripts


def names(folder: Path) -> dict[str, str]:
    return dict(json.loads((folder / "staticfiles.json").read_text())["paths"])


def test_every_file_gets_a_name_of_its_content_and_collecting_again_changes_nothing(tmp_path: Path) -> None:
    count = collect(tmp_path, "/static/")
    first = names(tmp_path)
    assert len(first) == count > 20
    assert {"js/site.js", "css/tokens.css", "plotly/plotly.min.js"} <= set(first)
    assert all((tmp_path / hashed).exists() for hashed in first.values())
    assert collect(tmp_path, "/static/") == count
    assert names(tmp_path) == first


def test_a_changed_file_gets_another_name_and_the_old_one_stays(tmp_path: Path) -> None:
    collect(tmp_path, "/static/")
    before = names(tmp_path)["js/site.js"]
    old = tmp_path / "js/site.js"
    old.write_text("// an older version\n")  # as if this folder had been written by an earlier release
    (tmp_path / "staticfiles.json").unlink()
    collect(tmp_path, "/static/")
    assert names(tmp_path)["js/site.js"] == before
    assert (tmp_path / before).exists() and old.read_text() != "// an older version\n"


def test_a_file_added_under_a_running_site_goes_by_its_plain_name_and_is_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    collect(tmp_path, "/static/")
    manifest = json.loads((tmp_path / "staticfiles.json").read_text())
    hashed = manifest["paths"].pop("js/site.js")  # as if this file had come after the site had started
    (tmp_path / "staticfiles.json").write_text(json.dumps(manifest))
    running = CollectedStorage(location=tmp_path, base_url="/static/")
    assert running.url("js/live.js") == f"/static/{manifest['paths']['js/live.js']}"
    assert running.url("js/site.js") == "/static/js/site.js" != f"/static/{hashed}"
    assert "js/site.js was not collected" in caplog.text
    served = late_file(RequestFactory().get("/static/js/site.js"), "js/site.js")
    assert served.status_code == 200 and b"use strict" in served.getvalue()
    with pytest.raises(ValueError, match="no_such_file"):
        running.url("js/no_such_file.js")


@pytest.mark.parametrize("path", ["js/no_such_file.js", "../manage.py", "%2e%2e/manage.py", "//etc/passwd"])
def test_what_is_no_static_file_is_not_there(path: str, client: Client) -> None:
    assert client.get(f"/static/{path}").status_code in (400, 404)


def test_all_scripts_of_all_pages_but_plotly_are_at_most_120_kilobytes_on_the_wire(tmp_path: Path) -> None:
    collect(tmp_path, "/static/")
    scripts = [tmp_path / f"{hashed}.gz" for name, hashed in names(tmp_path).items()
               if name.startswith(("js/", "npm/")) or name == "django_htmx/htmx-2.min.js"]  # fmt: skip
    assert len(scripts) > 10
    assert sum(script.stat().st_size for script in scripts) <= 120_000


@pytest.mark.npm
def test_pages_leave_out_scripts_that_npm_could_not_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert npm_scripts("morph").count("<script") == 1
    assert npm_scripts("zoom").count("<script") == 9
    assert len(list(NpmFinder().list([]))) == 10
    monkeypatch.setattr(NpmFinder, "folder", tmp_path)
    assert npm_scripts("morph") == npm_scripts("zoom") == ""
    assert list(NpmFinder().list([])) == []
