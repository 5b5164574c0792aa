"""Write providers on behalf of a team's owners. API keys can be set and never read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import Http404
from pydantic import ValidationError as PriceError

from optimizer.actions.audit import log_action
from optimizer.llm.addresses import ForbiddenAddressError, check_base_url, check_host
from optimizer.llm.prices import Price
from optimizer.models import AuditAction, Provider, ProviderApi, ProviderKind, Team, TeamRole, User
from optimizer.models.provider import BUILT_IN
from optimizer.secrets import keys
from optimizer.text.complaints import complaints_of

MAX_CONCURRENCY = 256
MAX_TIMEOUT_S = 4 * 3600.0


@dataclass(frozen=True)
class ProviderFields:
    """Hold what a person enters. An empty `key` keeps the stored one unless the address changes."""

    name: str
    base_url: str
    key: str = ""
    default_model: str = ""
    api: str = ProviderApi.CHAT.value
    concurrency: int = 4
    timeout_s: float = 900.0
    silence_s: float = 300.0
    prices: Mapping[str, Any] = field(default_factory=dict)
    is_enabled: bool = True
    allow_private: bool = False
    forget_key: bool = False


def owned_provider(user: User, provider_id: int) -> Provider:
    """Return a provider whose team the person owns. Raises Http404."""
    row = Provider.objects.select_related("team").filter(pk=provider_id).first()
    if row is None or user.role_in(row.team) != TeamRole.OWNER:
        raise Http404("There is no such provider.")
    return row


def usable_provider(user: User, provider_id: int) -> Provider:
    """Return a provider with which the person may start runs. Raises Http404."""
    row = Provider.objects.usable_by(user).select_related("team").filter(pk=provider_id).first()
    if row is None:
        raise Http404("There is no such provider.")
    return row


def check_provider_fields(
    user: User, team: Team, new: ProviderFields, old: Provider | None = None
) -> ProviderFields:
    """Validate the fields and return them. Raises ValidationError with the fields at fault."""
    faults: dict[str, str] = {}
    _check_name(team, new, old, faults)
    _check_address(user, new, old, faults)
    _check_key(new, old, faults)
    _check_numbers(new, faults)
    _check_prices(new, faults)
    if user.role_in(team) != TeamRole.OWNER:
        faults["team"] = "Only owners of the team manage its providers."
    if faults:
        raise ValidationError(faults)
    return new


def do_save_provider(user: User, team: Team, new: ProviderFields, old: Provider | None = None) -> Provider:
    """Create or change a provider. Raises ValidationError."""
    check_provider_fields(user, team, new, old)
    row = old or Provider(team=team, created_by=user, kind=ProviderKind.OPENAI_COMPATIBLE)
    moved = old is not None and not same_server(old.base_url, new.base_url)
    for name in ("name", "default_model", "api", "concurrency", "timeout_s", "silence_s", "is_enabled"):
        setattr(row, name, getattr(new, name))
    row.base_url = check_base_url(new.base_url)
    row.prices = dict(new.prices)
    if user.is_superuser:
        row.allow_private = new.allow_private
    # An administrator allowed one private address; whoever changes the address does not inherit that permission.
    elif moved:
        row.allow_private = False
    if new.key or new.forget_key or moved:
        row.set_key("" if new.forget_key else new.key)
        # Another server, or another account on it, may accept what the old one refused.
        row.without = {}
    with transaction.atomic():
        row.save()
        # The log says what happened to the key and never contains it.
        key = "forgotten" if new.forget_key else "entered" if new.key else "kept" if row.has_key else "none"
        log_action(AuditAction.PROVIDER_SAVED, user, team, row.name, address=row.base_url, key=key)
    return row


def do_delete_provider(user: User, row: Provider) -> None:
    """Delete a provider and its key; past calls keep its name. Raises ValidationError for anybody but an owner."""
    if user.role_in(row.team) != TeamRole.OWNER:
        raise ValidationError("Only owners of the team manage its providers.")
    with transaction.atomic():
        log_action(AuditAction.PROVIDER_DELETED, user, row.team, row.name)
        row.delete()


def do_rotate_keys() -> tuple[int, list[str]]:
    """Re-encrypt every stored key with the newest secret. Return how many, and the names of unreadable ones."""
    done, lost = 0, []
    for row in Provider.objects.exclude(key_encrypted="").select_related("team"):
        try:
            row.key_encrypted = keys.rotated(row.key_encrypted)
        except keys.UnreadableKeyError:
            lost.append(f"{row.team.slug}/{row.name}")
            continue
        row.save(update_fields=["key_encrypted"])
        done += 1
    return done, lost


def same_server(old: str, new: str) -> bool:
    """Return whether two base URLs send a key to the same place."""
    return urlsplit(old.strip().rstrip("/")) == urlsplit(new.strip().rstrip("/"))


def _check_name(team: Team, new: ProviderFields, old: Provider | None, faults: dict[str, str]) -> None:
    taken = Provider.objects.filter(team=team, name=new.name)
    taken = taken.exclude(pk=old.pk) if old else taken
    if new.name in BUILT_IN:
        faults["name"] = f"“{new.name}” is built in: choose another name."
    elif taken.exists():
        faults["name"] = "This team has a provider of that name."


def _check_address(user: User, new: ProviderFields, old: Provider | None, faults: dict[str, str]) -> None:
    """Check the form of the address and where its name resolves now. The connection checks again each time."""
    allowed = (
        new.allow_private
        if user.is_superuser
        else bool(old and old.allow_private and same_server(old.base_url, new.base_url))
    )
    try:
        host = urlsplit(check_base_url(new.base_url)).hostname or ""
        check_host(host, allow_private=allowed)
    except ForbiddenAddressError as error:
        faults["base_url"] = f"{str(error)[:1].upper()}{str(error)[1:]}."


def _check_key(new: ProviderFields, old: Provider | None, faults: dict[str, str]) -> None:
    """Check the key. A stored key is never sent to a new address, or an owner could read it by redirecting the
    provider.
    """
    # A key is sent in an HTTP header, where control characters could start a new one.
    if any(char.isspace() or not 32 < ord(char) < 127 for char in new.key.strip()):
        faults["key"] = "A key cannot contain spaces or special characters."
    if old is None or not old.has_key or new.key or new.forget_key:
        return
    if not same_server(old.base_url, new.base_url):
        faults["key"] = "The address has changed: enter the key again."


def _check_numbers(new: ProviderFields, faults: dict[str, str]) -> None:
    if not 1 <= new.concurrency <= MAX_CONCURRENCY:
        faults["concurrency"] = f"Between 1 and {MAX_CONCURRENCY} questions at the same time."
    for name in ("timeout_s", "silence_s"):
        if not 1 <= getattr(new, name) <= MAX_TIMEOUT_S:
            faults[name] = f"Between 1 and {MAX_TIMEOUT_S:.0f} seconds."


def _check_prices(new: ProviderFields, faults: dict[str, str]) -> None:
    for model, entry in new.prices.items():
        try:
            Price.model_validate(entry)
        except PriceError as error:
            faults["prices"] = f"{model}: {complaints_of(error)[0]}"
