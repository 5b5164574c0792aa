"""Speak KernelBot's HTTP interface: submit, read back, list our own submissions.

Every answer is checked and every failure has a kind. Three kinds matter to callers: the server refused
(`RefusedError`: nothing was accepted), it asks to wait (`WaitError`), or the outcome is unknown (`UncertainError`: a
request may or may not have been accepted).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import httpx2

from runners.kernelbot.account import Account
from runners.kernelbot.order import Order

TIMEOUT_S = 60.0
# Answers hold logs and are read into memory, so they must end somewhere.
MOST_BYTES = 16 << 20
PAGE = 100
DEFAULT_WAIT_S = 60.0
# Whatever the server asks for, a job must end some day.
LONGEST_WAIT_S = 6 * 3600.0
ACCEPTED, TOO_MANY = 202, 429
_TRY_AGAIN = re.compile(r"try again in (\d+(?:\.\d+)?)\s*s", re.IGNORECASE)


class KernelBotError(Exception):
    """Report that the answer is not what was asked for."""


class RefusedError(KernelBotError):
    """Report that the server understood the request and refused it. `code` is its HTTP status."""

    def __init__(self, code: int, detail: str) -> None:
        super().__init__(f"KernelBot refused ({code}): {detail}")
        self.code = code
        self.detail = detail


class WaitError(KernelBotError):
    """Report that the server asks to try again after `wait_s` seconds."""

    def __init__(self, wait_s: float, detail: str) -> None:
        super().__init__(detail)
        self.wait_s = min(max(wait_s, 1.0), LONGEST_WAIT_S)


class UnreachableError(KernelBotError):
    """Report that no connection was made, so nothing was sent."""


class UncertainError(KernelBotError):
    """Report that the answer was lost, broken, or not KernelBot's (a proxy's HTML page, say)."""


class KernelBotClient:
    """Speak for one account. The client follows no redirect and reads at most `MOST_BYTES`."""

    def __init__(self, account: Account, transport: httpx2.BaseTransport | None = None) -> None:
        self.account = account
        self._http = httpx2.Client(
            base_url=account.url,
            headers={"X-Popcorn-Cli-Id": account.cli_id, "Accept": "application/json"},
            timeout=TIMEOUT_S,
            transport=transport,
            trust_env=transport is None,
        )

    def __enter__(self) -> KernelBotClient:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._http.close()

    def submit(self, order: Order, file_name: str, source: str) -> int:
        """Submit a file and return the submission's number. Raises KernelBotError of every kind."""
        path = f"/submission/{order.leaderboard}/{order.gpu}/{order.mode}"
        answer = self._ask("POST", path, files={"file": (file_name, source.encode(), "text/x-python")})
        details = answer.get("details") if isinstance(answer, dict) else None
        number = details.get("id") if isinstance(details, dict) else None
        # bool is a subclass of int.
        if not isinstance(number, int) or isinstance(number, bool):
            raise UncertainError("KernelBot accepted a submission without saying its number")
        return number

    def submission(self, number: int) -> dict[str, Any]:
        """Return one of our submissions as it stands now."""
        answer = self._ask("GET", f"/user/submissions/{number}")
        if not isinstance(answer, dict) or not isinstance(answer.get("runs"), list):
            raise UncertainError(f"KernelBot's answer about submission {number} is malformed")
        return answer

    def mine(self, leaderboard: str | None = None, pages: int = 1) -> list[dict[str, Any]]:
        """Return our submissions, newest first, of one leaderboard or of all."""
        found: list[dict[str, Any]] = []
        for page in range(pages):
            query = {"limit": PAGE, "offset": page * PAGE, **({"leaderboard": leaderboard} if leaderboard else {})}
            answer = self._ask("GET", "/user/submissions", params=query)
            if not isinstance(answer, list) or not all(isinstance(row, dict) for row in answer):
                raise UncertainError("KernelBot's list of our submissions is malformed")
            found += answer
            if len(answer) < PAGE:
                break
        return found

    def _ask(self, method: str, path: str, **more: Any) -> Any:
        try:
            with self._http.stream(method, path, **more) as response:
                body = _body(response)
        # These happen before a byte is sent; every later failure leaves the outcome open.
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise UnreachableError(f"KernelBot cannot be reached: {error}") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise UncertainError(f"KernelBot's answer was lost: {type(error).__name__}") from error
        return self._understood(response, body)

    def _understood(self, response: httpx2.Response, body: bytes) -> Any:
        """Return the decoded body of a success; raise anything else as the matching exception."""
        code, plain = response.status_code, _decoded(body)
        detail = self.account.without_secret(_detail(plain, body))
        if code == TOO_MANY:
            raise WaitError(_wait_s(response.headers, detail), detail)
        # A server error or a proxy's page says nothing about whether the request was carried out.
        if plain is None or code >= 500 or not (code < 300 or code >= 400):
            raise UncertainError(f"KernelBot answered {code} with {_kind(response)}: {detail}")
        if code >= 400:
            raise RefusedError(code, detail)
        return plain


def _body(response: httpx2.Response) -> bytes:
    body = b""
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > MOST_BYTES:
            raise UncertainError(f"KernelBot answered more than {MOST_BYTES} bytes")
    return body


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _detail(plain: Any, body: bytes) -> str:
    """Return what the server says about an error: `detail` or (its own exceptions) `message`, else the head of its
    page."""
    if isinstance(plain, dict):
        said = plain.get("detail", plain.get("message", ""))
        return (said if isinstance(said, str) else json.dumps(said))[:1000]
    return " ".join(body[:600].decode(errors="replace").split())[:300]


def _wait_s(headers: Mapping[str, str], detail: str) -> float:
    if found := _TRY_AGAIN.search(detail):
        return float(found[1])
    after = headers.get("Retry-After", "")
    return float(after) if after.isdecimal() else DEFAULT_WAIT_S


def _kind(response: httpx2.Response) -> str:
    return response.headers.get("Content-Type", "no content type").partition(";")[0]
