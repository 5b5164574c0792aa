"""Writing the audit log. Call in the transaction of what it tells of: both happen, or neither."""

from __future__ import annotations

from optimizer.models import AuditAction, AuditEntry, Kernel, Run, Team, User


def note(
    action: AuditAction,
    user: User | None,
    about: Team | Run | Kernel | None = None,
    subject: str = "",
    **details: object,
) -> AuditEntry:
    """One more line about a team, a run, a kernel or nothing of these. `details` are small facts, never secrets."""
    run = about.run if isinstance(about, Kernel) else about if isinstance(about, Run) else None
    team = run.team if run is not None else about if isinstance(about, Team) else None
    words = subject or (f"{run} {about}" if isinstance(about, Kernel) else str(run) if run is not None else "")
    return AuditEntry.add(action, user, team, words, run.pk if run is not None else None, details)
