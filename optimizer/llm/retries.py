"""Decide when a failed request is sent again.

The pauses follow exponential back-off with full jitter (Brooker, "Exponential Backoff and Jitter", AWS 2015) and are
never shorter than the server's own Retry-After.
"""

from __future__ import annotations

import datetime as dt
import email.utils
import random
from collections.abc import Mapping
from dataclasses import dataclass

RETRIED_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})


@dataclass(frozen=True)
class RetryPolicy:
    """Hold how often and how long to retry. A server that asks for more than `patience_s` is not waited for."""

    tries: int = 5
    base_s: float = 1.0
    cap_s: float = 30.0
    patience_s: float = 180.0

    def pause_s(self, failures: int, asked_s: float | None, rng: random.Random) -> float | None:
        """Return the seconds to wait after the `failures`-th failure (the first is 1), or None to give up."""
        if failures >= self.tries or (asked_s is not None and asked_s > self.patience_s):
            return None
        # Full jitter spreads the retries of many workers, which a failing server would otherwise get all at once.
        jitter_s = rng.uniform(0, min(self.cap_s, self.base_s * 2 ** (failures - 1)))
        return jitter_s if asked_s is None else asked_s + min(jitter_s, 1.0)


def retry_after_s(headers: Mapping[str, str], now: dt.datetime | None = None) -> float | None:
    """Return the pause that the server asks for, in seconds, or None.

    Reads `retry-after-ms`, or `Retry-After` in seconds or as a date (RFC 9110, section 10.2.3).
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None or not text:
        return seconds
    try:
        when = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=dt.UTC)
    return max(0.0, (when - (now or dt.datetime.now(dt.UTC))).total_seconds())


def _number(text: str | None) -> float | None:
    """Return a finite number of at least zero, or None."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None
