"""Validate who answers for a role: the form of `Run.providers`, and the part of it that reaches a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from optimizer.agents.prompting import ROLES
from optimizer.llm.prices import price_of
from optimizer.models import Provider, Team
from optimizer.models.provider import BUILT_IN
from optimizer.text.complaints import complaints_of

DEFAULT_ROLE = "default"

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


class Parameters(BaseModel):
    """Hold how a question is asked. None leaves a value to the server.

    `expires_minutes` is how long the inbox waits for an answer. `record` is the recording from which `replay`
    answers, with `{problem}` in place of the problem's name.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    temperature: float | None = Field(default=None, ge=0, le=2)
    effort: Effort | None = None
    max_tokens: int | None = Field(default=None, ge=1, le=1_000_000)
    expires_minutes: float | None = Field(default=None, gt=0, le=60 * 24 * 365)
    record: str = Field(default="", max_length=80)


class RoleChoice(Parameters):
    """Hold one role's entry in `Run.providers`; the entry `default` applies to all roles without one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    provider: str = Field(min_length=1, max_length=60)
    model: str = Field(default="", max_length=120)


class ChoiceError(ValueError):
    """Report a choice with which no run can start; the message names the role and the reason."""


def check_choices(team: Team, choices: Mapping[str, Any], *, priced: bool = False) -> dict[str, RoleChoice]:
    """Validate the choices of a run and return them by role.

    Raises ChoiceError for a role that does not exist (its questions would silently go elsewhere), an unknown
    provider, a missing model or recording, an unknown parameter and, where the run is `priced` (it has a limit in
    dollars), an unknown price.
    """
    return {role: _checked(team, role, entry, priced) for role, entry in choices.items()}


def _checked(team: Team, role: str, entry: Any, priced: bool) -> RoleChoice:
    if role not in {DEFAULT_ROLE, *ROLES}:
        raise ChoiceError(f"{role}: there is no such role; there are {', '.join([DEFAULT_ROLE, *ROLES])}")
    try:
        choice = RoleChoice.model_validate({"provider": entry} if isinstance(entry, str) else entry)
    except ValidationError as error:
        raise ChoiceError(f"{role}: {complaints_of(error)[0]}") from error
    if choice.provider == "replay" and not choice.record:
        raise ChoiceError(f"{role}: name the record to answer from")
    if choice.provider in BUILT_IN:
        return choice
    row = Provider.objects.enabled().filter(team=team, name=choice.provider).first()
    if row is None:
        raise ChoiceError(f"{role}: this team has no provider called {choice.provider}")
    if not (choice.model or row.default_model):
        raise ChoiceError(f"{role}: {row.name} has no default model, so name one")
    model = choice.model or row.default_model
    if priced and price_of(model, row.base_url, row.prices) is None:
        raise ChoiceError(f"{role}: the price of {model} is unknown, so a limit in dollars could not hold")
    return choice
