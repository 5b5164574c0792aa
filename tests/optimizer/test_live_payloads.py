"""Test that sockets send everything that scripts of pages read of an event."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings

from optimizer.events.payloads import PAYLOADS
from optimizer.live.tail import USED_BY_PAGES

SCRIPTS = [
    script
    for script in sorted((Path(settings.BASE_DIR) / "static/js").glob("*.js"))
    if re.search(r"\bpayload\.", script.read_text())
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_sockets_send_what_a_script_reads_of_its_events(script: Path) -> None:
    text = script.read_text()
    read = set(re.findall(r"\bpayload\.(\w+)", text))
    heard = [name for name in re.findall(r'"([a-z]+\.[a-z_]+)"', text) if name in PAYLOADS]
    sent = {field for name in heard for field in USED_BY_PAGES.get(name, ())}
    assert heard
    assert read <= sent


def test_what_sockets_send_are_fields_of_the_event() -> None:
    assert {
        name: [field for field in fields if field not in PAYLOADS[name].model_fields]
        for name, fields in USED_BY_PAGES.items()
    } == {name: [] for name in USED_BY_PAGES}
