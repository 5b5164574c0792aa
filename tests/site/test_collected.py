"""Static files under names with the hash of their content."""

from __future__ import annotations

import json
from pathlib import Path

from kernelsci_site.collected import collect


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
