"""Serve model servers of the caller's teams. Keys are entered on the page only: the API neither takes nor returns
them.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Field, Router, Schema, Status

from optimizer.access import access_team
from optimizer.actions.provider import (
    MAX_CONCURRENCY,
    ProviderFields,
    do_delete_provider,
    do_save_provider,
    owned_provider,
    usable_provider,
)
from optimizer.api.auth import caller, needs
from optimizer.api.body import Body
from optimizer.api.errors import Refusal
from optimizer.calls.check import check_provider
from optimizer.models import Provider, ProviderApi, TeamRole, TokenScope

router = Router(tags=["providers"], auth=needs(TokenScope.READ))
WRITE = needs(TokenScope.PROVIDERS)


class ProviderOut(Schema):
    """Describe a model server that the caller's runs may use. Of a key only its existence is shown."""

    id: int
    name: str
    team: str
    base_url: str
    default_model: str
    api: str
    concurrency: int
    timeout_s: float
    silence_s: float
    prices: dict[str, Any]
    is_enabled: bool
    allow_private: bool
    has_key: bool

    @staticmethod
    def resolve_team(row: Provider) -> str:
        """Return the team's slug."""
        return row.team.slug


class ProviderEdit(Body):
    """Describe a model server without its key.

    The address cannot change while a key is stored, because the key would be sent to the new address.
    """

    name: str = Field(pattern=r"^[-a-z0-9_]{1,60}$")
    base_url: str = Field(min_length=1, max_length=400)
    default_model: str = Field(default="", max_length=120)
    api: ProviderApi = ProviderApi.CHAT
    concurrency: int = Field(default=4, ge=1, le=MAX_CONCURRENCY)
    timeout_s: float = Field(default=900.0, allow_inf_nan=False)
    silence_s: float = Field(default=300.0, allow_inf_nan=False)
    prices: dict[str, Any] = {}
    is_enabled: bool = True
    allow_private: bool = Field(default=False, description="only administrators may set this")

    @property
    def fields(self) -> ProviderFields:
        """Return the fields as the action takes them."""
        return ProviderFields(**self.model_dump(mode="json", exclude={"team"}))


class ProviderIn(ProviderEdit):
    """Describe a new model server, without a key."""

    team: str


class CheckOut(Schema):
    """Describe how a provider answered a test question."""

    answers: bool
    seconds: float
    structured: bool
    understood: bool
    streams: bool
    model: str
    error: str
    summary: str


@router.get("", response=list[ProviderOut])
def list_providers(request: HttpRequest) -> Any:
    """List the model servers of the teams in which the caller may start runs."""
    return Provider.objects.usable_by(caller(request)).select_related("team").order_by("name")


@router.post("", response={201: ProviderOut, 404: Refusal, 422: Refusal}, auth=WRITE)
def add_provider(request: HttpRequest, body: ProviderIn) -> Any:
    """Add a model server. Its key, if it needs one, is entered on its page."""
    team = access_team(caller(request), body.team, TeamRole.OWNER)
    return Status(201, do_save_provider(caller(request), team, body.fields))


@router.put("/{int:provider_id}", response={200: ProviderOut, 422: Refusal}, auth=WRITE)
def edit_provider(request: HttpRequest, provider_id: int, body: ProviderEdit) -> Any:
    """Replace everything except the key."""
    row = owned_provider(caller(request), provider_id)
    return do_save_provider(caller(request), row.team, body.fields, row)


@router.delete("/{int:provider_id}", response={204: None}, auth=WRITE)
def delete_provider(request: HttpRequest, provider_id: int) -> Any:
    """Delete a model server and its key."""
    do_delete_provider(caller(request), owned_provider(caller(request), provider_id))
    return Status(204, None)


@router.post("/{int:provider_id}/check", response=CheckOut, auth=needs(TokenScope.RUNS))
def try_provider(request: HttpRequest, provider_id: int) -> Any:
    """Ask the server for a sum and return the result; takes half a minute at most."""
    return check_provider(usable_provider(caller(request), provider_id))
