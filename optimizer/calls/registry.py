"""Find the provider that answers a call. A new kind of provider is a class and one line in BUILDERS."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from optimizer.calls.record import load_record, record_name
from optimizer.llm.endpoint import Endpoint
from optimizer.llm.inbox import Inbox
from optimizer.llm.port import Provider, ProviderRefusedError
from optimizer.llm.recording import RecordError
from optimizer.llm.replay import Replay
from optimizer.models import LlmCall, ProviderKind
from optimizer.models import Provider as ProviderRow
from optimizer.models.provider import BUILT_IN
from optimizer.secrets.keys import UnreadableKeyError

Builder = Callable[[LlmCall, ProviderRow | None], Provider]


def row_of(call: LlmCall) -> ProviderRow | None:
    """Return the team's provider of that name, or None for built-in and deleted ones."""
    return ProviderRow.objects.enabled().filter(team=call.run.team_id, name=call.provider).first()


def provider_for_call(call: LlmCall, row: ProviderRow | None) -> Provider:
    """Return the provider that answers. Raises ProviderRefusedError when there is none."""
    if row is None and call.provider not in BUILT_IN:
        raise ProviderRefusedError(f"this team has no provider called {call.provider}, or it is disabled")
    kind = row.kind if row else call.provider
    return BUILDERS[ProviderKind(kind)](call, row)


def endpoint_of(row: ProviderRow, model: str) -> Endpoint:
    """Return the network settings of a provider. Raises ProviderRefusedError when its key cannot be decrypted."""
    try:
        key = row.read_key()
    except UnreadableKeyError as error:
        raise ProviderRefusedError(str(error)) from error
    return Endpoint(
        base_url=row.base_url,
        key=key,
        allow_private=row.allow_private,
        silence_s=row.silence_s,
        without=row.refuses(model),
    )


def _openai_compatible(call: LlmCall, row: ProviderRow | None) -> Provider:
    if row is None:
        raise ProviderRefusedError(f"{call.provider} has no address")
    # Importing OpenAI's client takes a second, and most processes of a site never ask a model.
    from optimizer.llm.openai_compatible import OpenAiCompatible

    return OpenAiCompatible(endpoint_of(row, call.model or row.default_model))


def _inbox(call: LlmCall, row: ProviderRow | None) -> Provider:
    return Inbox()


def _replay(call: LlmCall, row: ProviderRow | None) -> Provider:
    try:
        name = record_name(call.run, str(call.parameters.get("record", "")))
        return Replay(load_record(call.run.team, name))
    except RecordError as error:
        raise ProviderRefusedError(str(error)) from error


BUILDERS: Mapping[ProviderKind, Builder] = {
    ProviderKind.OPENAI_COMPATIBLE: _openai_compatible,
    ProviderKind.INBOX: _inbox,
    ProviderKind.REPLAY: _replay,
}
