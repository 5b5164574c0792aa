"""Sign what was measured, and check what others signed: `python -m runners receipt` and `verify`."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runners.commands.evaluate import add_job_arguments, job_of
from runners.commands.reading import UsageError, read_problem, read_source
from runners.harness import evaluate
from runners.harness.timing.environment import HARNESS_VERSION, harness_hash
from runners.job import Status
from runners.problems import load, shipped
from runners.problems.base import ProblemError

# `cryptography` is imported late: machines that only measure have torch and nothing else.
if TYPE_CHECKING:
    from runners.receipts.checking import Check
    from runners.receipts.receipt import Receipt


def add_parser(subparsers: Any) -> None:
    """Declare `receipt`, which evaluates and signs."""
    parser = subparsers.add_parser("receipt", help="evaluate one kernel and sign the verdict")
    add_job_arguments(parser)
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="where the receipt is written")
    parser.add_argument("--issuer", default="", help="a name that goes into the receipt")
    parser.add_argument("--without-files", action="store_true", help="leave out sources and the problem's files")
    parser.set_defaults(run=run_receipt)


def add_verify_parser(subparsers: Any) -> None:
    """Declare `verify`, which checks a receipt and measures again."""
    parser = subparsers.add_parser("verify", help="check a signed receipt, and measure again what it claims")
    parser.add_argument("receipt", type=Path, metavar="FILE")
    parser.add_argument(
        "--trust", action="append", default=[], metavar="KEY|FILE", help="a public key to accept beside one's own"
    )
    parser.add_argument("--max-age-days", type=float, help="refuse receipts that are older")
    parser.add_argument("--no-rerun", action="store_true", help="check the signature alone")
    parser.add_argument("--candidate", type=Path, metavar="FILE", help="the kernel, if the receipt holds no files")
    parser.add_argument("--problem", metavar="NAME|PATH", help="the problem, if the receipt holds no files")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run_verify)


def add_key_parser(subparsers: Any) -> None:
    """Declare `receipt-key`, which prints this installation's public key."""
    parser = subparsers.add_parser("receipt-key", help="print this installation's public key for --trust")
    parser.set_defaults(run=run_key)


def run_receipt(arguments: argparse.Namespace) -> int:
    """Evaluate, sign and write. Return 0 if there is a receipt, 1 if there is no verdict, 2 for wrong usage."""
    from runners.receipts import keys, receipt

    try:
        spec = job_of(arguments)
        key = keys.installation_key(keys.default_key_file())
        result = evaluate(spec)
        statement = receipt.state(spec, result, arguments.issuer)
        signed = receipt.sign(statement, key, None if arguments.without_files else spec)
        arguments.out.write_text(receipt.dumps(signed), encoding="utf-8")
    except (UsageError, ProblemError, keys.KeyFileError, OSError) as error:
        return _complain("receipt", error)
    except receipt.ReceiptError as error:
        print(f"python -m runners receipt: {error}: {'; '.join(result.reasons)}", file=sys.stderr)
        return 1
    verdict = f", {statement.verdict.value}" if statement.verdict else ""
    print(f"{arguments.out}: {statement.status.value}{verdict}, signed by {receipt.signer_in_words(signed)}")
    return 0


def run_key(arguments: argparse.Namespace) -> int:
    """Print the public key. Return 0, or 2 if the key file cannot be read."""
    from runners.receipts import keys

    try:
        print(keys.public_key_of(keys.installation_key(keys.default_key_file())))
    except (keys.KeyFileError, OSError) as error:
        return _complain("receipt-key", error)
    return 0


def run_verify(arguments: argparse.Namespace) -> int:
    """Check and print. Return 0 if it holds, 3 if a new measurement refutes it, 4 if it is forged or altered, 5 if its
    key or age is not accepted, 1 if it could not be measured, 2 for wrong usage."""
    from runners.receipts import keys
    from runners.receipts.checking import Check, Finding
    from runners.receipts.receipt import ReceiptError, loads

    try:
        data = arguments.receipt.read_bytes()
        trusted = {*map(keys.read_public_key, arguments.trust), _own_key()}
    except (OSError, keys.KeyFileError) as error:
        return _complain("verify", error)
    try:
        found = loads(data)
    except ReceiptError as error:
        return _report(arguments, Check(Finding.FORGED, [str(error)]), None)
    try:
        return _report(arguments, _check(arguments, found, trusted), found)
    except (UsageError, ProblemError, ReceiptError) as error:
        return _complain("verify", error)


def _check(arguments: argparse.Namespace, found: Receipt, trusted: set[str]) -> Check:
    """Check key and age first: what nobody accepts is not executed."""
    from runners.receipts import checking, receipt

    max_age = dt.timedelta(days=arguments.max_age_days) if arguments.max_age_days is not None else None
    if refused := checking.objections(found, trusted, max_age):
        return checking.Check(checking.Finding.NOT_ACCEPTED, refused)
    name = found.statement.problem
    current = load(name) if name in shipped() else None
    changed = checking.differences(found, HARNESS_VERSION, harness_hash(), current)
    if arguments.no_rerun:
        return checking.Check(
            checking.Finding.HOLDS, [*changed, "the signature is good; nothing was measured again"]
        )
    source = read_source(arguments.candidate) if arguments.candidate else None
    bundle = read_problem(arguments.problem) if arguments.problem else None
    spec = receipt.spec_to_repeat(receipt.with_files(found, source, bundle), uuid.uuid4().hex)
    outcome = checking.repeat(found, spec, evaluate)
    return checking.Check(outcome.finding, [*outcome.reasons, *changed])


def _own_key() -> str:
    from runners.receipts import keys

    return keys.public_key_of(keys.installation_key(keys.default_key_file()))


def _report(arguments: argparse.Namespace, check: Check, found: Receipt | None) -> int:
    from runners.receipts.receipt import signer_in_words

    headline = check.finding.name.lower().replace("_", " ")
    if arguments.json:
        print(json.dumps({"finding": headline, "exit_code": int(check.finding), "reasons": check.reasons}))
        return int(check.finding)
    print(f"{arguments.receipt}: {headline}")
    if found is not None:
        said = found.statement
        verdict = f", {said.verdict.value}" if said.verdict and said.status is Status.CORRECT else ""
        print(f"  {said.problem} on {said.target}: {said.status.value}{verdict}, {said.issued_at}")
        print(f"  signed by {signer_in_words(found)}")
    print(*(f"  {reason}" for reason in check.reasons), sep="\n")
    return int(check.finding)


def _complain(command: str, error: Exception) -> int:
    print(f"python -m runners {command}: {error}", file=sys.stderr)
    return 2
