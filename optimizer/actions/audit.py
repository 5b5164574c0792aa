"""Write the audit log.

Call `log_action` inside the transaction of the action itself, so that both are committed or neither.
"""

from __future__ import annotations

from optimizer.models import AuditAction, AuditEntry, Kernel, Run, Team, User


def log_action(
    action: AuditAction,
    user: User | None,
    about: Team | Run | Kernel | None = None,
    subject: str = "",
    **details: object,
) -> AuditEntry:
    """Append an entry about a team, run or kernel, or about none of them. `details` are small facts, never secrets."""
    # Entries about a kernel or run also belong to its team, whose owners read the log.
    run = about.run if isinstance(about, Kernel) else about if isinstance(about, Run) else None
    team = run.team if run is not None else about if isinstance(about, Team) else None
    words = subject or (f"{run} {about}" if isinstance(about, Kernel) else str(run) if run is not None else "")
    return AuditEntry.add(action, user, team, words, run.pk if run is not None else None, details)
