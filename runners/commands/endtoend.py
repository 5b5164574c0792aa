"""Measure a program with and without exported kernels: `python -m runners endtoend`."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runners.job import Verdict
from runners.program import ProgramError

if TYPE_CHECKING:
    from runners.endtoend.measuring import EndToEnd

REPORT = "endtoend.json"
DIFFERS, NOT_CALLED, NOT_STORED = 4, 5, 6
# The address of a kernel's page, as a person copies it from the browser.
_PAGE = re.compile(r"(?P<site>https?://[^/\s]+)/runs/(?P<run>\d+)/kernels/(?P<number>\d+)(?:[/?#]\S*)?")
STORED_WITHIN_S = 30.0


def add_parser(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "endtoend", help="run a program with and without exported kernels: same results, faster, called?"
    )
    parser.add_argument("script", type=Path, help="its own arguments come last, after --")
    parser.add_argument("--package", action="append", required=True, metavar="FOLDER|NAME", help="may be repeated")
    parser.add_argument("--call", default="", metavar="FUNCTION", help="time this function of the script")
    parser.add_argument("--sessions", type=int, default=3, help="fresh processes (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="of four calls in each (default: %(default)s)")
    parser.add_argument("--timeout-s", type=float, default=1800.0, help="limit for one process")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the report as well")
    parser.add_argument(
        "--store", type=_page, metavar="ADDRESS",
        help="store the report beside the kernel with this page; the variable KERNELSCI_TOKEN holds an API token",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure and print.

    Return 0, 1 if the program fails, 4 if results differ, 5 if a kernel was never called, 6 if all is well but for the
    site, which did not store the report.
    """
    from runners.endtoend.measuring import Order, measure

    # Before the program runs, which may take hours.
    token = os.environ.get("KERNELSCI_TOKEN", "")
    if arguments.store and not token:
        print("python -m runners endtoend: --store needs an API token in KERNELSCI_TOKEN", file=sys.stderr)
        return 2

    order = Order(
        arguments.script, tuple(arguments.package), tuple(arguments.arguments), arguments.call,
        max(arguments.sessions, 1), max(arguments.rounds, 1), arguments.timeout_s,
    )  # fmt: skip
    try:
        found = measure(order)
    except ProgramError as error:
        print(f"python -m runners endtoend: {error}", file=sys.stderr)
        return 1
    print(in_words(found))
    report = json.dumps(found.as_json(), indent=1) + "\n"
    # Beside the kernel, so that the package carries what it is worth.
    places = [Path(package) / REPORT for package in arguments.package if (Path(package) / "src").is_dir()]
    for place in [*places, *([arguments.json] if arguments.json else [])]:
        place.write_text(report)
    is_stored = not arguments.store or _store(arguments.store, report, token)
    if not found.agrees or not found.was_called:
        return NOT_CALLED if found.agrees else DIFFERS
    return 0 if is_stored else NOT_STORED


def _page(text: str) -> str:
    """Return the address to which reports of a kernel's page are sent. Raises ArgumentTypeError."""
    found = _PAGE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text}: not a kernel's page, such as https://SITE/runs/3/kernels/7/")
    return f"{found['site']}/api/v1/runs/{found['run']}/kernels/{found['number']}/endtoend"


def _store(address: str, report: str, token: str) -> bool:
    """Send the report to the site and print what became of it. Return whether it is stored."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(address, report.encode(), headers)  # noqa: S310 - `_page` let http(s) through
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=STORED_WITHIN_S):
            print("  stored beside the kernel")
            return True
    except urllib.error.HTTPError as error:
        print(f"python -m runners endtoend: not stored: {_refusal(error)}", file=sys.stderr)
    except OSError as error:
        print(f"python -m runners endtoend: not stored: {error}", file=sys.stderr)
    return False


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follow no redirect: urllib would send a GET, token included, and what that answers says nothing of the report."""

    def redirect_request(self, *_: Any) -> None:
        """Return None, which makes the redirect an error."""


def _refusal(error: urllib.error.HTTPError) -> str:
    """Return the site's reason, or the status alone where the answer is not one of its API."""
    if place := error.headers.get("Location"):
        return f"the site is at {place[:200]}: name the kernel's page there"
    try:
        detail = json.loads(error.read(100_000))["detail"]
    except (OSError, ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}"
    return str(detail)[:1000]


def in_words(found: EndToEnd) -> str:
    """Return the report for people: the verdict first, then results, calls and times."""
    interval = f"{found.speedup:.3f}× ({found.low:.3f} to {found.high:.3f}, noise floor {found.floor:.3f})"
    lines = [f"{_verdict(found)}: {interval}"]
    lines.append(f"  {1e3 * found.without_s:.2f} ms without, {1e3 * found.with_s:.2f} ms with, on {found.device}")
    lines.append(f"  results: {_results(found)}")
    for name, count in found.calls.items():
        lines.append(
            f"  {name}: the kernel served {count} calls" if count else f"  {name}: THE KERNEL WAS NEVER CALLED"
        )
        lines += [f"    {times} left to torch: {reason}" for reason, times in found.missed[name].items()]
    return "\n".join(lines)


def _verdict(found: EndToEnd) -> str:
    if not found.agrees:
        return "WRONG: the results differ"
    if not found.was_called:
        return "nothing was compared: a kernel was never called"
    return {
        Verdict.FASTER: "faster end to end",
        Verdict.SAME: "no gain could be shown end to end",
        Verdict.SLOWER: "slower end to end",
    }[found.verdict]


def _results(found: EndToEnd) -> str:
    if not found.results:
        alike = {True: "the same text was printed", False: "other text was printed", None: "nothing to compare"}
        return f"no tensors were returned; {alike[found.prints_alike]}"
    if found.error == 0:
        return f"{found.results} tensors, bit for bit the same"
    own = f"; the program against itself {found.own_error:.2g}" if found.own_error else ""
    word = "agree" if found.agrees else "DIFFER"
    return f"{found.results} tensors {word}: at most {found.error:.2g} of the tolerance, at {found.where}{own}"
