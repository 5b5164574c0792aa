"""Report attempts and holes at the end of `make attack`."""

from __future__ import annotations

from typing import Any

import pytest

ATTACKS = ("tests/attack/", "tests/runners/test_sandbox_escapes.py")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Count every attack that ran as an attempt, and every one whose test failed as a hole."""
    held, holes, skipped = (_attacks(terminalreporter, outcome) for outcome in ("passed", "failed", "skipped"))
    if attempts := held + holes:
        terminalreporter.write_line(
            f"attacks: {attempts} attempts, {holes} holes, {skipped} could not be tried here"
        )


def _attacks(reporter: Any, outcome: str) -> int:
    reports: list[pytest.TestReport] = reporter.getreports(outcome)
    return sum(report.nodeid.startswith(ATTACKS) for report in reports)
