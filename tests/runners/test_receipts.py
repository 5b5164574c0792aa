"""Test signed receipts: what is signed, what is forged, who is trusted, and measuring again."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from runners.job import CaseResult, JobResult, JobSpec, Language, Source, Speedup, Status, Verdict
from runners.problems import load
from runners.receipts import checking, keys, receipt
from runners.receipts.checking import Finding
from runners.receipts.receipt import ReceiptError
from tests.runners import kernels
from tests.runners.command_line import command

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
SPEC = JobSpec("job", load("softmax_rows"), "cpu", Source(Language.CPP, kernels.HONEST))
ENVIRONMENT = {"device": "CPU", "harness_hash": "ab", "caches": {"L1": 1}, "load": (0.1, 2)}


def result_of(verdict: Verdict = Verdict.FASTER, status: Status = Status.CORRECT) -> JobResult:
    # A whole number where a float is declared: a reader decodes 2 as 2.0, and the signature must not notice.
    ratio = Speedup(2, 1.9, 2.1, "torch_eager", 1.01, verdict)
    case = CaseResult("rows", True, candidate_us=1, baseline_us=2.0)
    return JobResult("job", status, speedup=ratio, verdict=verdict, cases=[case], environment=ENVIRONMENT,
                     harness_version="2.0", sandbox="bubblewrap")  # fmt: skip


def text_of(**changes: Any) -> bytes:
    signed = receipt.sign(receipt.state(SPEC, result_of(), "us"), KEY, SPEC)
    return receipt.dumps(dataclasses.replace(signed, **changes)).encode()


def altered(*path: str, value: Any) -> bytes:
    plain = json.loads(text_of())
    inner = plain
    for name in path[:-1]:
        inner = inner[name]
    assert inner[path[-1]] != value
    inner[path[-1]] = value
    return json.dumps(plain).encode()


def test_receipt_survives_its_file() -> None:
    read = receipt.loads(text_of())
    assert read.statement.verdict is Verdict.FASTER
    assert read.source == SPEC.candidate
    assert receipt.spec_to_repeat(read, "again").problem == SPEC.problem


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("statement", "speedup", "median"), 3.0),
        (("statement", "status"), "suspect"),
        (("statement", "issued_at"), "2020-01-01T00:00:00+00:00"),
        (("statement", "source_hash"), "0" * 64),
        (("public_key",), keys.public_key_of(Ed25519PrivateKey.from_private_bytes(bytes(32)))),
        (("signature",), "00" * 64),
        (("signature",), "no hexadecimal"),
        (("source", "text"), "another kernel"),
        (("bundle", "entry"), "other.toml"),
        (("format",), "kernelsci-receipt/9"),
        (("statement", "environment"), {"device": "H100"}),
    ],
)
def test_receipt_that_was_changed_anywhere_is_refused(path: tuple[str, ...], value: Any) -> None:
    with pytest.raises(ReceiptError):
        receipt.loads(altered(*path, value=value))


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"format": NaN}', b'{"format": "kernelsci-receipt/1"}'],
    ids=["empty", "list", "nothing in it", "no text", "deep", "no JSON", "only a format"],
)
def test_file_that_is_no_receipt_is_refused_in_words(data: bytes) -> None:
    with pytest.raises(ReceiptError, match="not a receipt"):
        receipt.loads(data)


def test_infrastructure_failure_cannot_be_signed() -> None:
    with pytest.raises(ReceiptError, match="no verdict to sign"):
        receipt.state(SPEC, result_of(status=Status.INFRA_ERROR), "us")


def test_receipt_of_an_unknown_key_is_not_accepted() -> None:
    read = receipt.loads(text_of())
    assert checking.objections(read, {read.public_key}, None) == []
    assert "nobody here trusts the key" in checking.objections(read, set(), None)[0]


def test_stale_receipt_and_one_from_the_future_are_not_accepted() -> None:
    old = dataclasses.replace(receipt.state(SPEC, result_of(), "us"), issued_at="2020-01-01T00:00:00+00:00")
    read = receipt.loads(receipt.dumps(receipt.sign(old, KEY)).encode())
    assert "stale" in checking.objections(read, {read.public_key}, dt.timedelta(days=30))[0]
    late = dataclasses.replace(read, statement=dataclasses.replace(old, issued_at="2999-01-01T00:00:00+00:00"))
    assert "future" in checking.objections(late, {read.public_key}, None)[0]
    naive = dataclasses.replace(read, statement=dataclasses.replace(old, issued_at="yesterday"))
    assert "no time of issue" in checking.objections(naive, {read.public_key}, None)[0]


def test_changes_of_harness_and_problem_since_are_named() -> None:
    read = receipt.loads(text_of())
    assert checking.differences(read, "2.0", "ab", SPEC.problem) == []
    assert "harness 2.0; this is 3.0" in checking.differences(read, "3.0", "cd", None)[0]
    assert "another state" in checking.differences(read, "2.0", "cd", None)[0]
    assert "has changed since" in checking.differences(read, "2.0", "ab", load("layernorm_residual"))[0]


@pytest.mark.parametrize(
    ("found", "finding"),
    [
        (result_of(), Finding.HOLDS),
        (result_of(Verdict.SAME), Finding.REFUTED),
        (result_of(status=Status.INCORRECT), Finding.REFUTED),
        (result_of(status=Status.INFRA_ERROR), Finding.NO_VERDICT),
    ],
)
def test_new_measurement_holds_refutes_or_says_nothing(found: JobResult, finding: Finding) -> None:
    read = receipt.loads(text_of())
    assert checking.repeat(read, SPEC, lambda _: found).finding is finding


def test_receipt_without_files_asks_for_them_and_refuses_others() -> None:
    bare = receipt.loads(text_of(source=None, bundle=None))
    with pytest.raises(ReceiptError, match="--candidate and --problem"):
        receipt.spec_to_repeat(bare, "again")
    with pytest.raises(ReceiptError, match="source of the kernel is not the one"):
        receipt.with_files(bare, Source(Language.CPP, "another"), None)
    assert receipt.spec_to_repeat(receipt.with_files(bare, SPEC.candidate, SPEC.problem), "again")


def test_signing_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "receipts.key"
    first = keys.installation_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert keys.public_key_of(keys.installation_key(path)) == keys.public_key_of(first)
    path.write_text("not a key")
    with pytest.raises(keys.KeyFileError) as refused:
        keys.installation_key(path)
    assert "receipts.key" in str(refused.value)


@pytest.mark.evaluates
def test_receipt_is_made_verified_and_refused_on_the_command_line(tmp_path: Path) -> None:
    kernel, file = tmp_path / "kernel.cpp", tmp_path / "receipt.json"
    kernel.write_text(kernels.HONEST)
    made = command("receipt", "--problem", "softmax_rows", "--candidate", kernel, "--quick", "--out", file)
    assert made.returncode == 0, made.stderr
    good = command("verify", file, "--json")
    assert good.returncode in (0, 3), good.stdout + good.stderr
    assert "the baseline" in json.loads(good.stdout)["reasons"][0]
    file.write_bytes(file.read_bytes().replace(b'"status": "correct"', b'"status": "suspect"'))
    assert command("verify", file).returncode == 4
