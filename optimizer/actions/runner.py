"""Drain and undrain runners, and remember what they report."""

from __future__ import annotations

from optimizer.models import Runner, User
from optimizer.text.storable import storable
from runners import wire
from runners.job import NoiseFloor


def do_note_noise_floor(name: str, floor: NoiseFloor | None) -> None:
    """Remember the noise floor that a runner reported with a result; nothing where it reported none."""
    if floor is not None:
        Runner.objects.filter(name=name).update(noise_floor=storable(wire.to_plain(floor)))


def do_drain_runner(user: User, runner: Runner, note: str) -> None:
    """Let the runner finish its job and claim no more. The note records the reason and the person."""
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


DEPLOY_NOTE = "Drained for a deploy."


def do_drain_for_deploy() -> int:
    """Drain every worker that is not drained yet and return how many. Workers drained by people keep their note."""
    return Runner.objects.filter(draining=False).update(draining=True, drain_note=DEPLOY_NOTE)


def do_undrain_after_deploy() -> int:
    """Undrain the workers of `do_drain_for_deploy` and return how many. Workers drained by people stay drained."""
    return Runner.objects.filter(draining=True, drain_note=DEPLOY_NOTE).update(draining=False, drain_note="")
