"""Save a filled-in start form as a team's template, and delete it."""

from __future__ import annotations

from collections.abc import Mapping

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import Http404

from optimizer.models import RunTemplate, Team, TeamRole, User
from optimizer.text.storable import storable, storable_text

MAX_TEMPLATES = 200
MAX_FIELDS = 200


def templates_of(user: User) -> QuerySet[RunTemplate]:
    """Return the templates of the teams in which the person may start runs."""
    listed = RunTemplate.objects.select_related("team").order_by("team__name", "name")
    if user.is_superuser:
        return listed
    roles = [role for role in TeamRole if role.rank >= TeamRole.OPERATOR.rank]
    mine = Team.objects.filter(memberships__user=user, memberships__role__in=roles)
    return listed.filter(team__in=mine)


def access_template(user: User, template_id: int) -> RunTemplate:
    """Return the template if the person may use it. Raises Http404."""
    row = templates_of(user).filter(pk=template_id).first()
    if row is None:
        raise Http404("There is no such template.")
    return row


def check_save_template(user: User, team: Team, name: str, values: Mapping[str, str]) -> str:
    """Validate a template and return its cleaned name. Raises ValidationError with a text for the person."""
    name = storable_text(name).strip()
    role = user.role_in(team)
    if role is None or role.rank < TeamRole.OPERATOR.rank:
        raise ValidationError("Only operators save templates for this team.")
    if not 1 <= len(name) <= 80:
        raise ValidationError("A template has a name of 1 to 80 characters.")
    if len(values) > MAX_FIELDS:
        raise ValidationError(f"A template has {MAX_FIELDS} fields at most.")
    others = RunTemplate.objects.filter(team=team).exclude(name=name)
    if others.count() >= MAX_TEMPLATES:
        raise ValidationError(f"A team has {MAX_TEMPLATES} templates at most: delete one.")
    return name


def do_save_template(user: User, team: Team, name: str, values: Mapping[str, str]) -> RunTemplate:
    """Save the values under a name, replacing the team's template of the same name. Raises ValidationError."""
    name = check_save_template(user, team, name, values)
    row, _ = RunTemplate.objects.update_or_create(
        team=team, name=name, defaults={"values": storable(dict(values)), "created_by": user}
    )
    return row


def do_delete_template(row: RunTemplate) -> None:
    """Delete the template. Runs that were started from it are unaffected."""
    row.delete()
