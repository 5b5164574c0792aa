"""Serve run templates of a team."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

from django.core.exceptions import ValidationError
from django.http import HttpRequest
from ninja import Field, Router, Schema, Status

from optimizer.access import access_team
from optimizer.actions.run_template import access_template, do_delete_template, do_save_template, templates_of
from optimizer.api.auth import caller, needs
from optimizer.api.body import Body
from optimizer.api.errors import Refusal
from optimizer.forms.start_run import StartRunForm
from optimizer.models import RunTemplate, TeamRole, TokenScope

router = Router(tags=["templates"], auth=needs(TokenScope.READ))
WRITE = needs(TokenScope.RUNS)
# Characters of one value; guidance is the longest.
LONGEST = 8_000


class TemplateOut(Schema):
    """Describe a template: `values` are the fields of the start form, as in its query string."""

    id: int
    team: str
    name: str
    values: dict[str, str]
    created_by: str | None
    created_at: dt.datetime

    @staticmethod
    def resolve_team(row: RunTemplate) -> str:
        """Return the team's slug."""
        return row.team.slug

    @staticmethod
    def resolve_created_by(row: RunTemplate) -> str | None:
        """Return the name of the person who saved it."""
        return row.created_by.get_username() if row.created_by else None


class TemplateIn(Body):
    """Describe a template to save. Values are validated when a run is started; unknown fields are refused."""

    team: str
    name: str = Field(min_length=1, max_length=80)
    values: dict[str, Annotated[str, Field(max_length=LONGEST)]]


@router.get("", response=list[TemplateOut], summary="Templates by team and name")
def list_templates(request: HttpRequest) -> Any:
    """List the templates of the teams in which the caller may start runs."""
    return templates_of(caller(request)).select_related("created_by")


@router.post("", response={201: TemplateOut, 404: Refusal, 422: Refusal}, auth=WRITE, summary="Save a template")
def keep_template(request: HttpRequest, body: TemplateIn) -> Any:
    """Save a template, replacing the team's template of the same name. Omitted fields get the form's defaults."""
    user = caller(request)
    team = access_team(user, body.team, TeamRole.OPERATOR)
    form = StartRunForm(user, given=body.values | {"team": team.slug})
    if unknown := sorted(set(body.values) - set(form.fields)):
        raise ValidationError({"values": f"The form has no field {', '.join(unknown)[:200]}."})
    return Status(201, do_save_template(user, team, body.name, form.as_address()))


@router.delete("/{int:template_id}", response={204: None}, auth=WRITE, summary="Forget a template")
def delete_template(request: HttpRequest, template_id: int) -> Any:
    """Delete a template. Runs that were started with it are unaffected."""
    do_delete_template(access_template(caller(request), template_id))
    return Status(204, None)
