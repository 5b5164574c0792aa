"""Import recorded runs into a team."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.utils.text import slugify

from optimizer.calls.record import shipped
from optimizer.llm.recording import RunRecord, from_bytes
from optimizer.models import Record, Team, TeamRole, User
from optimizer.text.storable import storable


def do_import_record(user: User, team: Team, name: str, data: bytes) -> Record:
    """Store a recording under a name. Raises ValidationError, and RecordError for a malformed file."""
    check_import_record(user, team, name)
    record: RunRecord = from_bytes(data)
    content = storable(record.model_dump(mode="json"))
    return Record.objects.create(
        team=team, name=name, title=storable(record.title), content=content, created_by=user
    )


def check_import_record(user: User, team: Team, name: str) -> None:
    """Check the person's rights and the name. Raises ValidationError."""
    role = user.role_in(team)
    if role is None or role.rank < TeamRole.OPERATOR.rank:
        raise ValidationError("Only operators import recordings.")
    if not name or slugify(name) != name:
        raise ValidationError({"name": "Use lowercase letters, digits and dashes."})
    # Runs refer to a recording by name, so a name must never change its meaning.
    if name in shipped() or Record.objects.filter(team=team, name=name).exists():
        raise ValidationError({"name": "A recording with this name exists."})
