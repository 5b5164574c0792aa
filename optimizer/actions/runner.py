"""Taking runners out of service and back."""

from __future__ import annotations

from optimizer.models import Runner, User


def do_drain_runner(user: User, runner: Runner, note: str) -> None:
    """Let the runner finish what it has and claim no more; the note says why, and by whom."""
    _set(
        runner,
        draining=True,
        note=f"{user.get_username()}: {note}" if note else f"Drained by {user.get_username()}.",
    )


def do_undrain_runner(user: User, runner: Runner) -> None:
    """Let the runner claim jobs again."""
    _set(runner, draining=False, note="")


def _set(runner: Runner, *, draining: bool, note: str) -> None:
    runner.draining, runner.drain_note = draining, note[:300]
    runner.save(update_fields=["draining", "drain_note"])
