"""Write findings. An edit adds a row that supersedes the old one, so that every past prompt can still be explained."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import transaction

from optimizer.models import Finding, Problem, Target, Team, TeamRole, User
from optimizer.text.storable import storable_text

MAX_TEXT = 50_000


class FindingSupersededError(ValueError):
    """Report that somebody has written a newer version in the meantime."""

    def __str__(self) -> str:
        return "Someone else edited this. See the newer version first."


def may_edit(user: User, finding: Finding) -> bool:
    """Return whether the person may edit the finding: reviewers of its team; administrators where it ships with the
    product.
    """
    return user.is_superuser if finding.team is None else may_write(user, finding.team)


def may_write(user: User, team: Team) -> bool:
    """Return whether the person may add findings to the team."""
    role = user.role_in(team)
    return role is not None and role.rank >= TeamRole.REVIEWER.rank


def do_write_finding(
    user: User, team: Team, title: str, text: str, source: str = "", *,
    target: Target | None = None, problem: Problem | None = None,
) -> Finding:  # fmt: skip
    """Store a new finding by a person. Raises ValidationError."""
    if not may_write(user, team):
        raise ValidationError({"team": "Only reviewers of the team add findings."})
    title, text = _checked(title, text)
    return Finding.objects.create(
        team=team, target=target, problem=problem, title=title, text=text, origin="person",
        source=storable_text(source)[:400], author=user,
    )  # fmt: skip


@transaction.atomic
def do_edit_finding(user: User, finding: Finding, title: str, text: str, source: str = "") -> Finding:
    """Store a newer version with the same scopes. Raises ValidationError, FindingSupersededError."""
    if not may_edit(user, finding):
        raise ValidationError("Only reviewers of the team edit findings.")
    title, text = _checked(title, text)
    # Lock, then check: of two people who edit the same version at once, the second must see the first one's edit.
    locked = Finding.objects.select_for_update().get(pk=finding.pk)
    if not locked.is_current:
        raise FindingSupersededError
    newer = Finding.objects.create(
        team=locked.team, target=locked.target, problem=locked.problem, run=locked.run, kind=locked.kind,
        title=title, text=text, origin="person", source=storable_text(source)[:400], author=user,
    )  # fmt: skip
    locked.superseded_by = newer
    locked.save(update_fields=["superseded_by"])
    return newer


def _checked(title: str, text: str) -> tuple[str, str]:
    title, text = storable_text(title).strip(), storable_text(text).strip()
    faults = {}
    if not title or len(title) > 200:
        faults["title"] = "Enter a title of at most 200 characters."
    if not text or len(text) > MAX_TEXT:
        faults["text"] = f"A text, in at most {MAX_TEXT:,} characters."
    if faults:
        raise ValidationError(faults)
    return title, text
