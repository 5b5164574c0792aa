"""Test end-to-end reports beside a kernel: who stores them, what is refused, and that pages say "no gain" plainly."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from optimizer.actions import endtoend as actions
from optimizer.models import AuditAction, AuditEntry, EndToEndReport, Kernel, Team, TeamRole, TokenScope, User
from tests.factories import make_team, make_user
from tests.optimizer.clients import Call, caller_of, flowing

pytestmark = pytest.mark.django_db


def report(kernel: Kernel, **changes: Any) -> dict[str, Any]:
    """Return a report as the command writes it, of a program that became 1.2 times as fast."""
    figures = {
        "script": "train.py", "function": "step", "packages": ["softmax_rows"], "without_s": 0.12, "with_s": 0.1,
        "speedup": 1.2, "low": 1.15, "high": 1.25, "floor": 1.02, "verdict": "faster", "error": "inf", "own_error": 0.0,
        "where": "", "results": 3, "prints_alike": None, "calls": {"softmax_rows": 42}, "device": "CPU", "sessions": 3,
        "missed": {"softmax_rows": {"shapes that were not measured": 7}}, "rounds": 7, "torch_version": "2.9",
        "kernels": {"softmax_rows": kernel.as_source().content_hash}, "agrees": True, "was_called": True,
    }  # fmt: skip
    return figures | changes


def store(api: Call, kernel: Kernel, **changes: Any) -> Any:
    path = f"/runs/{kernel.run_id}/kernels/{kernel.number}/endtoend"
    return api("POST", path, report(kernel, **changes))


def shown(pages: Client, kernel: Kernel, page: str) -> str:
    return flowing(pages.get(reverse(page, args=[kernel.run_id, kernel.number])).content.decode())


@pytest.mark.parametrize("name", ["release_page", "kernel_page"])
def test_report_is_shown_beside_the_kernel_with_calls_and_interval(
    name: str, api: Call, pages: Client, best: Kernel
) -> None:
    assert "No end-to-end report yet" in shown(pages, best, name)
    assert store(api, best).status_code == 201
    text = shown(pages, best, name)
    for part in (
        "train.py: step",
        "1.20×",
        "1.15–1.25",
        "120 ms without, 100 ms with",
        "42 calls served",
        "7 left to torch",
    ):
        assert part in text, part
    assert "No gain could be shown" not in text


def test_no_gain_is_said_plainly(api: Call, pages: Client, best: Kernel) -> None:
    answer = store(api, best, speedup=1.01, low=0.99, high=1.03, without_s=0.101, with_s=0.1)
    assert answer.json()["finding"] == "No gain"
    assert "No gain could be shown in a whole program." in shown(pages, best, "release_page")


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({"verdict": "faster", "floor": 1.3}, "No gain"),
        ({"agrees": False}, "Wrong: results differ"),
        ({"calls": {"softmax_rows": 0}}, "Never called"),
        ({"speedup": 0.8, "low": 0.75, "high": 0.85, "with_s": 0.15}, "Slower"),
    ],
)
def test_finding_follows_from_the_figures_and_not_from_what_the_report_claims(
    changes: dict[str, Any], finding: str, api: Call, best: Kernel
) -> None:
    assert store(api, best, **changes).json()["finding"] == finding


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"kernels": {"softmax_rows": "0" * 64}}, "not of this kernel"),
        ({"low": 1.3}, "must be within its interval"),
        ({"floor": 0.5}, "noise floor at least 1"),
        ({"with_s": 1e-9}, "contradict each other"),
        ({"without_s": 1e7, "with_s": 1e7 / 1.2}, "at most 86400 s"),
        ({"speedup": "inf"}, "speedup"),
        ({"with_s": 0}, "with_s"),
        ({"calls": {"softmax_rows": -1}}, "calls"),
        ({"script": ""}, "script"),
    ],
)
def test_report_that_cannot_be_true_is_refused(changes: dict[str, Any], told: str, api: Call, best: Kernel) -> None:
    answer = store(api, best, **changes)
    assert (answer.status_code, told in answer.content.decode()) == (422, True), answer.content
    assert not EndToEndReport.objects.exists()


def test_hostile_words_of_a_report_are_escaped_and_shortened(api: Call, pages: Client, best: Kernel) -> None:
    words = "<script>alert(1)</script>\u202e" + "x" * 300
    answer = store(api, best, script=words, device=words, missed={"softmax_rows": {words: 3}})
    assert answer.status_code == 201, answer.content
    assert len(answer.json()["script"]) == 200
    text = shown(pages, best, "kernel_page")
    assert "<script>alert" not in text and "\u202e" not in text


def test_reasons_that_several_packages_share_are_added_up(api: Call, pages: Client, best: Kernel) -> None:
    digest = best.as_source().content_hash
    answer = store(
        api, best, kernels={"one": digest, "two": digest}, calls={"one": 1, "two": 2},
        missed={"one": {"dtype": 3, "x" * 400: 1}, "two": {"dtype": 4, "x" * 401: 1, "shape": 9}},
    )  # fmt: skip
    assert answer.json()["calls"] == 3
    assert answer.json()["missed"] == {"shape": 9, "dtype": 7, "x" * 300: 2}
    text = shown(pages, best, "kernel_page")
    # The database keeps no order of the reasons; the page shows the most frequent ones first.
    assert (
        text.index("9 left to torch: shape") < text.index("7 left to torch: dtype") < text.index("2 left to torch")
    )


def test_report_with_a_nul_character_is_refused(api: Call, best: Kernel) -> None:
    answer = store(api, best, script="train\x00.py")
    assert (answer.status_code, "NUL character" in answer.json()["detail"]) == (400, True)
    assert not EndToEndReport.objects.exists()


def test_reports_are_limited_in_number(api: Call, best: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MAX_REPORTS", 1)
    assert store(api, best).status_code == 201
    assert "at most 1 end-to-end reports" in store(api, best).json()["detail"]


def test_who_stored_it_is_named_and_logged(api: Call, best: Kernel, member: User) -> None:
    assert store(api, best).json()["author"] == member.get_username()
    assert AuditEntry.objects.filter(action=AuditAction.ENDTOEND_STORED, actor_id=member.pk).count() == 1


def test_viewers_outsiders_and_tokens_without_the_scope_store_nothing(
    best: Kernel, team: Team, member: User
) -> None:
    viewer, outsider = make_user(team, TeamRole.VIEWER), make_user(make_team(), TeamRole.OWNER)
    told = [store(caller_of(viewer), best), store(caller_of(outsider), best),
            store(caller_of(member, TokenScope.READ), best)]  # fmt: skip
    assert [one.status_code for one in told] == [404, 404, 403]
    assert not EndToEndReport.objects.exists()


def test_kernel_page_offers_every_format_the_receipt_and_how_to_use_it(pages: Client, best: Kernel) -> None:
    text = shown(pages, best, "kernel_page")
    where = [best.run_id, best.number]
    for kind in ("package", "huggingface", "flashinfer", "kernelbench", "native"):
        assert reverse("kernel_submission", args=[*where, kind]) in text, kind
    assert reverse("api:read_receipt", args=where) in text
    assert f"{reverse('help')}#use-a-kernel" in text
    assert pages.get(reverse("api:read_receipt", args=where)).status_code == 200
    assert 'id="use-a-kernel"' in pages.get(reverse("help")).content.decode()
