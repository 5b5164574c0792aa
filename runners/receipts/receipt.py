"""Write a verdict as a signed JSON file, and read one that may be forged.

The signature covers the canonical JSON of `statement`. Everything else in the file is bound to it by a hash: the source
of the kernel and of its opponent, the problem's files. They travel along so that others can measure again, and may be
left out. A statement says what was measured with which harness on which machine, and never more than the result says.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from runners import wire
from runners.job import (
    Baseline,
    Effort,
    JobResult,
    JobSpec,
    Objective,
    ProblemBundle,
    Source,
    Speedup,
    Status,
    Verdict,
)
from runners.receipts.keys import is_signed, name_of, public_key_of

FORMAT = "kernelsci-receipt/1"
# Sources, a problem's files, and figures: more is no receipt.
MAX_BYTES = 32 << 20


class ReceiptError(ValueError):
    """Report that a receipt cannot be read or is not what it claims to be. The message says what is wrong."""


@dataclass(frozen=True)
class CaseFigures:
    """Hold the figures of one timed case: medians in µs."""

    name: str
    candidate_us: float | None = None
    baseline_us: float | None = None
    parent_us: float | None = None


@dataclass(frozen=True)
class Statement:
    """State what was measured. Hashes are SHA-256 in hexadecimal; `issued_at` is UTC in ISO 8601."""

    issued_at: str
    issuer: str
    problem: str
    problem_hash: str
    source_hash: str
    parent_hash: str
    target: str
    effort: str
    baseline: Baseline
    objective: Objective
    harness_version: str
    harness_hash: str  # of the code that judged, as the measuring machine had it; empty if it did not say
    environment_hash: str
    environment: dict[str, Any]
    sandbox: str
    status: Status
    verdict: Verdict | None = None
    reasons: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    speedup: Speedup | None = None
    versus_parent: Speedup | None = None
    cases: list[CaseFigures] = field(default_factory=list)
    evaluated_at: str = ""


@dataclass(frozen=True)
class Receipt:
    """Hold a statement with its signature, and what is needed to measure again, if it was not left out."""

    format: str
    statement: Statement
    public_key: str
    signature: str
    source: Source | None = None
    parent: Source | None = None
    bundle: ProblemBundle | None = None


def state(spec: JobSpec, result: JobResult, issuer: str, evaluated_at: str = "") -> Statement:
    """Return what may be stated of a result. Raises ReceiptError where there is nothing to state."""
    if result.status in (Status.INFRA_ERROR, Status.TOO_LARGE) or result.duplicate_of is not None:
        raise ReceiptError("this evaluation says nothing about the kernel itself, so there is no verdict to sign")
    timed = [case for case in result.cases if case.candidate_us is not None]
    environment = json.loads(json.dumps(wire.to_plain(result.environment), allow_nan=False))
    return Statement(
        issued_at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        issuer=issuer,
        problem=spec.problem.name,
        problem_hash=spec.problem.content_hash,
        source_hash=spec.candidate.content_hash,
        parent_hash=spec.parent.content_hash if spec.parent else "",
        target=spec.target,
        effort=spec.effort.value,
        baseline=spec.baseline,
        objective=spec.objective,
        harness_version=result.harness_version,
        harness_hash=str(environment.get("harness_hash", "")),
        environment_hash=_digest(environment),
        environment=environment,
        sandbox=result.sandbox,
        status=result.status,
        verdict=result.verdict,
        reasons=result.reasons,
        flags=[str(flag) for flag in result.flags],
        speedup=result.speedup,
        versus_parent=result.versus_parent,
        cases=[CaseFigures(case.name, case.candidate_us, case.baseline_us, case.parent_us) for case in timed],
        evaluated_at=evaluated_at,
    )


def sign(statement: Statement, key: Ed25519PrivateKey, spec: JobSpec | None = None) -> Receipt:
    """Return the signed receipt, with the files of `spec` so that others can measure again; None leaves them out."""
    # As a reader will decode it: a whole number in a float's place would otherwise be written differently there.
    statement = wire.loads(Statement, wire.dumps(statement))
    return Receipt(
        FORMAT,
        statement,
        public_key_of(key),
        key.sign(canonical(statement)).hex(),
        spec.candidate if spec else None,
        spec.parent if spec else None,
        spec.problem if spec else None,
    )


def dumps(receipt: Receipt) -> str:
    """Return the receipt as the text of a file."""
    return wire.dumps(receipt, indent=1) + "\n"


def loads(data: bytes) -> Receipt:
    """Read a receipt and check that it is whole: the signature, and the hashes of what travels along.

    Raises ReceiptError for a receipt that is malformed, forged or altered. Who signed it is another question.
    """
    if len(data) > MAX_BYTES:
        raise ReceiptError(f"{len(data)} bytes; a receipt has at most {MAX_BYTES}")
    try:
        receipt = wire.loads(Receipt, data)
        message = canonical(receipt.statement)
    except (ValueError, RecursionError) as error:
        raise ReceiptError(f"not a receipt: {str(error)[:300]}") from error
    if receipt.format != FORMAT:
        raise ReceiptError(f"format {receipt.format[:40]!r}; this version reads {FORMAT}")
    if not is_signed(receipt.public_key, receipt.signature, message):
        raise ReceiptError("the signature does not match: the statement was altered, or another key signed it")
    _check_hashes(receipt)
    return receipt


def canonical(statement: Statement) -> bytes:
    """Return the bytes that are signed: JSON with sorted keys, without spaces, ASCII."""
    return _canonical(wire.to_plain(statement))


def spec_to_repeat(receipt: Receipt, job_id: str) -> JobSpec:
    """Return the job that measures the receipt's claim again. Raises ReceiptError where its files were left out."""
    if receipt.source is None or receipt.bundle is None:
        raise ReceiptError("the receipt holds no sources: name them with --candidate and --problem")
    said = receipt.statement
    return JobSpec(
        job_id=job_id,
        problem=receipt.bundle,
        target=said.target,
        candidate=receipt.source,
        parent=receipt.parent,
        effort=Effort(said.effort),
        baseline=said.baseline,
        objective=said.objective,
    )


def with_files(receipt: Receipt, source: Source | None, bundle: ProblemBundle | None) -> Receipt:
    """Return the receipt with files that were left out of it. Raises ReceiptError if they are not those it is of."""
    whole = dataclasses.replace(receipt, source=source or receipt.source, bundle=bundle or receipt.bundle)
    _check_hashes(whole)
    return whole


def signer_in_words(receipt: Receipt) -> str:
    """Return who signed: the name that the statement gives, and the key's."""
    return f"{receipt.statement.issuer or 'unnamed'} (key {name_of(receipt.public_key)})"


def _check_hashes(receipt: Receipt) -> None:
    said = receipt.statement
    bound = [
        ("environment", _digest(said.environment), said.environment_hash),
        ("source of the kernel", receipt.source and receipt.source.content_hash, said.source_hash),
        ("source of its opponent", receipt.parent and receipt.parent.content_hash, said.parent_hash),
        ("problem", receipt.bundle and receipt.bundle.content_hash, said.problem_hash),
    ]
    for what, found, signed in bound:
        if found is not None and found != signed:
            raise ReceiptError(f"the {what} is not the one that was signed")


def _digest(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(value)).hexdigest()


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
