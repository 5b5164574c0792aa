"""Test where a provider's address may lead, who may write one, and where its key must never appear."""

from __future__ import annotations

import ipaddress
import logging
import socket
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils.html import escape

from optimizer.actions.provider import ProviderFields, do_save_provider
from optimizer.actions.token import do_revoke_token
from optimizer.calls.check import check_provider
from optimizer.calls.choice import ChoiceError, check_choices
from optimizer.calls.record import record_of
from optimizer.calls.worker import answer
from optimizer.forms.price_rows import FIGURES
from optimizer.llm.addresses import RESERVED, ForbiddenAddressError, check_address, check_base_url
from optimizer.llm.endpoint import Endpoint
from optimizer.llm.openai_compatible import OpenAiCompatible
from optimizer.llm.port import CompletionRequest, ProviderRefusedError, Usage
from optimizer.llm.prices import listed, price_of
from optimizer.llm.recording import to_bytes
from optimizer.llm.servers import KNOWN_SERVERS, KnownServer, listed_models
from optimizer.models import ApiToken, LlmCall, Provider, RunEvent, TeamRole, User
from tests.factories import make_provider, make_team, make_user
from tests.llm_server import KEY, LlmServer, Reply, error
from tests.optimizer.clients import signed_in
from tests.optimizer.test_llm_worker import KERNEL, asked_run, first_call

METADATA = "metadata or link-local"
PRIVATE = "private address"
OTHER = "not a public address"


@pytest.mark.parametrize(
    ("address", "public_only", "private_too"),
    [
        ("8.8.8.8", "", ""),
        ("2606:4700::1111", "", ""),
        ("::ffff:8.8.8.8", "", ""),
        ("64:ff9b::808:808", "", ""),
        ("127.0.0.1", PRIVATE, ""),
        ("127.8.8.8", PRIVATE, ""),
        ("10.1.2.3", PRIVATE, ""),
        ("172.31.0.1", PRIVATE, ""),
        ("192.168.1.1", PRIVATE, ""),
        ("100.64.0.1", PRIVATE, ""),
        ("::1", PRIVATE, ""),
        ("fd12:3456::1", PRIVATE, ""),
        ("2002:7f00:1::", PRIVATE, ""),
        ("169.254.169.254", METADATA, METADATA),
        ("169.254.170.2", METADATA, METADATA),
        ("fe80::1", METADATA, METADATA),
        ("fd00:ec2::254", METADATA, METADATA),
        ("fd20:ce::254", METADATA, METADATA),
        ("100.100.100.200", METADATA, METADATA),
        ("168.63.129.16", METADATA, METADATA),
        ("192.0.0.192", METADATA, METADATA),
        ("::ffff:169.254.169.254", "not", "not"),
        ("64:ff9b::a9fe:a9fe", METADATA, METADATA),
        ("2002:a9fe:a9fe::", METADATA, METADATA),
        ("::a9fe:a9fe", METADATA, METADATA),
        ("0.0.0.0", OTHER, OTHER),  # noqa: S104 - an address to refuse
        ("::", OTHER, OTHER),
        ("224.0.0.1", OTHER, OTHER),
        ("ff02::1", OTHER, OTHER),
        ("255.255.255.255", OTHER, OTHER),
        ("192.0.2.1", OTHER, OTHER),
        ("240.0.0.1", OTHER, OTHER),
        ("64:ff9b:1::808:808", OTHER, OTHER),
        ("::ffff:0:7f00:1", PRIVATE, ""),
        ("::ffff:0:a9fe:a9fe", METADATA, METADATA),
    ],
)
def test_each_kind_of_address_is_judged(address: str, public_only: str, private_too: str) -> None:
    for allow_private, expected in ((False, public_only), (True, private_too)):
        if not expected:
            check_address(ipaddress.ip_address(address), allow_private=allow_private)
            continue
        with pytest.raises(ForbiddenAddressError, match=expected):
            check_address(ipaddress.ip_address(address), allow_private=allow_private)


class OnOlderPythons(ipaddress.IPv6Address):
    """Represent an address that the standard library counts as public, as it does some reserved ones before 3.12.4."""

    @property
    def is_global(self) -> bool:
        """Return True."""
        return True


class OnPython3112(ipaddress.IPv6Address):
    """Represent an address that the standard library counts as private, as it does every one of 6to4 in 3.11.2."""

    @property
    def is_global(self) -> bool:
        """Return False."""
        return False


def test_a_6to4_address_is_judged_by_what_it_embeds_whatever_the_standard_library_calls_it() -> None:
    check_address(OnPython3112("2002:7f00:1::"), allow_private=True)
    check_address(OnPython3112("2002:808:808::"), allow_private=False)
    for embedding, said in (("2002:7f00:1::", PRIVATE), ("2002:a9fe:a9fe::", METADATA), ("2606:4700::1111", OTHER)):
        with pytest.raises(ForbiddenAddressError, match=said):
            check_address(OnPython3112(embedding), allow_private=False)


@pytest.mark.parametrize("network", [str(network) for network in RESERVED if network.version == 6])
def test_reserved_prefix_is_refused_though_the_standard_library_calls_it_public(network: str) -> None:
    address = OnOlderPythons(ipaddress.ip_network(network)[0x08080808])
    with pytest.raises(ForbiddenAddressError, match=OTHER):
        check_address(address, allow_private=True)
    check_address(OnOlderPythons("2606:4700::1111"), allow_private=False)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "gopher://example.com/1",
        "ftp://example.com",
        "//example.com/v1",
        "example.com/v1",
        "http://",
        "http://user:secret@example.com/v1",
        "http://example.com/v1?x=1",
        "http://example.com/v1#x",
        "http://example.com:99999/",
        "http://exa mple.com/",
        "http://[::1",
    ],
)
def test_anything_but_a_plain_web_address_is_refused(url: str) -> None:
    with pytest.raises(ForbiddenAddressError):
        check_base_url(url)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f000001", "127.1", "[::1]", "[::ffff:7f00:1]"]
)
def test_every_spelling_of_this_machine_is_refused_without_permission(server: LlmServer, host: str) -> None:
    port = server.url.split(":")[2].split("/")[0]
    provider = OpenAiCompatible(Endpoint(f"http://{host}:{port}/v1", KEY))
    with pytest.raises(ProviderRefusedError):
        provider.complete(
            CompletionRequest([{"role": "user", "content": "?"}]), on_token=unheard, cancelled=lambda: False
        )
    assert not server.asked


def test_a_name_that_changes_its_address_is_connected_to_where_it_was_checked(
    server: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: the second look-up, if there were one, would lead to the forbidden address."""
    looked_up: list[str] = []
    real = socket.getaddrinfo

    def rebinding(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host != "model.test":
            return real(host, port, *args, **kwargs)
        looked_up.append(host)
        address = "127.0.0.1" if len(looked_up) == 1 else "169.254.169.254"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    url = server.url.replace("127.0.0.1", "model.test")
    provider = OpenAiCompatible(Endpoint(url, KEY, allow_private=True))
    question = CompletionRequest([{"role": "user", "content": "?"}], model="m")
    assert provider.complete(question, on_token=unheard, cancelled=lambda: False).text == "An answer."
    assert looked_up == ["model.test"] and server.asked[0].headers["host"].startswith("model.test:")
    with pytest.raises(ProviderRefusedError, match="metadata"):
        provider.complete(question, on_token=unheard, cancelled=lambda: False)


def test_one_forbidden_address_among_several_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 443)) for ip in ("8.8.8.8", "169.254.169.254")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: mixed)
    provider = OpenAiCompatible(Endpoint("https://mixed.test/v1", KEY, allow_private=True))
    with pytest.raises(ProviderRefusedError, match="metadata"):
        provider.complete(
            CompletionRequest([{"role": "user", "content": "?"}]), on_token=unheard, cancelled=lambda: False
        )


def unheard(text: str) -> None:
    """Take a piece of an answer and forget it."""


def fields(**changes: Any) -> ProviderFields:
    return ProviderFields(**({"name": "mine", "base_url": "https://8.8.8.8/v1", "key": KEY} | changes))


@pytest.mark.django_db
def test_a_stored_key_does_not_travel_to_a_new_address() -> None:
    team = make_team()
    owner = make_user(team, TeamRole.OWNER)
    row = do_save_provider(owner, team, fields())
    with pytest.raises(ValidationError) as caught:
        do_save_provider(owner, team, fields(key="", base_url="https://8.8.4.4/v1"), row)
    assert "enter the key again" in str(caught.value.message_dict["key"])
    do_save_provider(owner, team, fields(key="sk-for-the-other", base_url="https://8.8.4.4/v1"), row)
    assert row.read_key() == "sk-for-the-other"
    do_save_provider(owner, team, fields(key="", base_url="https://8.8.4.4/v1/", default_model="m"), row)
    assert row.read_key() == "sk-for-the-other"


@pytest.mark.django_db
def test_only_an_administrator_lets_a_provider_into_the_private_network() -> None:
    team = make_team()
    owner = make_user(team, TeamRole.OWNER)
    private = fields(base_url="http://127.0.0.1:11434/v1", allow_private=True)
    with pytest.raises(ValidationError, match="private"):
        do_save_provider(owner, team, private)
    administrator = User.objects.create_superuser("root")
    row = do_save_provider(administrator, team, private)
    do_save_provider(owner, team, fields(base_url="http://127.0.0.1:11434/v1", key="", default_model="m"), row)
    assert row.allow_private
    do_save_provider(owner, team, fields(base_url="https://8.8.8.8/v1"), row)
    row.refresh_from_db()
    assert not row.allow_private, "permission was for the old address"


@pytest.mark.django_db
@pytest.mark.parametrize("role", [None, TeamRole.VIEWER, TeamRole.REVIEWER, TeamRole.OPERATOR])
def test_only_owners_write_providers(role: TeamRole | None) -> None:
    team = make_team()
    row = do_save_provider(make_user(team, TeamRole.OWNER), team, fields())
    user = make_user() if role is None else make_user(team, role)
    client = signed_in(user)
    assert client.get(f"/providers/{row.pk}/").status_code == 404
    assert client.post(f"/providers/{row.pk}/delete/").status_code == 404
    assert client.get("/providers/new/").status_code == 404
    with pytest.raises(ValidationError):
        do_save_provider(user, team, fields(name="other"))
    seen = "mine" in client.get("/providers/").content.decode()
    assert seen == (role == TeamRole.OPERATOR)


@pytest.mark.django_db
def test_the_form_takes_a_key_and_never_gives_one_back() -> None:
    team = make_team()
    client = signed_in(make_user(team, TeamRole.OWNER))
    entered = {
        "team": team.slug, "name": "mine", "base_url": "https://8.8.8.8/v1", "key": KEY, "api": "chat",
        "concurrency": "2", "timeout_s": "60", "silence_s": "60", "is_enabled": "on",
        "prices-TOTAL_FORMS": "0", "prices-INITIAL_FORMS": "0",
    }  # fmt: skip
    assert client.post("/providers/new/", entered | {"concurrency": "-1"}).status_code == 200
    assert KEY not in client.post("/providers/new/", entered | {"concurrency": "-1"}).content.decode()
    assert client.post("/providers/new/", entered).status_code == 302
    row = Provider.objects.get()
    assert row.read_key() == KEY and KEY not in row.key_encrypted
    for path in ("/providers/", f"/providers/{row.pk}/"):
        assert KEY not in client.get(path).content.decode()
    assert "stored" in client.get("/providers/").content.decode()


def priced(*rows: tuple[str, str, str, str]) -> dict[str, str]:
    """Return price rows as the form sends them: model, input, cached, output."""
    sent = {"prices-TOTAL_FORMS": str(len(rows)), "prices-INITIAL_FORMS": "0"}
    for n, row in enumerate(rows):
        sent |= {f"prices-{n}-{name}": value for name, value in zip(("model", *FIGURES), row, strict=True)}
    return sent


@pytest.mark.django_db
def test_prices_are_entered_in_rows_and_keep_their_source_while_they_stay_the_same() -> None:
    team = make_team()
    client = signed_in(make_user(team, TeamRole.OWNER))
    entered = {
        "team": team.slug, "name": "mine", "base_url": "https://8.8.8.8/v1", "api": "chat", "concurrency": "2",
        "timeout_s": "60", "silence_s": "60", "is_enabled": "on",
    }  # fmt: skip
    for faulty, told in [
        (priced(("", "1", "", "2")), "Name the model."),
        (priced(("m1", "", "", "2")), "Enter a price; 0 is free."),
        (priced(("m1", "1", "", "2"), ("m1", "3", "", "4")), "One row per model."),
        (priced(("m1", "-1", "", "2")), "greater than or equal to 0"),
        (priced(("m1", "1e9", "", "2")), "less than or equal to"),
    ]:
        page = client.post("/providers/new/", entered | faulty).content.decode()
        assert told in page and "Nothing was saved" in page and not Provider.objects.exists()
    assert (
        client.post("/providers/new/", entered | priced(("m1", "0.15", "", "2"), ("", "", "", ""))).status_code
        == 302
    )
    row = Provider.objects.get()
    assert row.prices == {"m1": {"input": 0.15, "output": 2.0}}
    Provider.objects.update(prices={"m1": row.prices["m1"] | {"source": "bill of May"}})
    assert 'value="0.15"' in client.get(f"/providers/{row.pk}/").content.decode()
    client.post(f"/providers/{row.pk}/", entered | priced(("m1", "0.15", "", "2"), ("m2", "1", "0.1", "3")))
    row.refresh_from_db()
    assert row.prices["m1"]["source"] == "bill of May" and row.prices["m2"]["cached"] == 0.1


@pytest.mark.django_db
@pytest.mark.parametrize("known", KNOWN_SERVERS, ids=lambda known: known.name)
def test_a_well_known_server_fills_in_the_form(known: KnownServer) -> None:
    page = (
        signed_in(make_user(make_team(), TeamRole.OWNER))
        .get(f"/providers/new/?server={known.name}")
        .content.decode()
    )
    assert f'value="{known.base_url}"' in page and f'value="{known.name}"' in page
    assert f'<option value="{known.api}" selected' in page
    assert all(f'<option value="{model}">' in page for model, _ in listed_models(known.base_url))
    check_base_url(known.base_url)


def test_vendors_with_list_prices_offer_their_models() -> None:
    with_models = {server.name for server in KNOWN_SERVERS if listed_models(server.base_url)}
    assert with_models >= {"openai", "anthropic", "gemini"}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("reply", "answers", "structured", "words"),
    [
        (Reply(text='{"sum": 42}'), True, True, "structured output works"),
        (Reply(text='{"sum": 42}', refuses=("response_format",)), True, False, "in words"),
        (Reply(text="forty-two"), True, False, "came out wrong"),
        (error(401, f"bad key {KEY}"), False, False, "Does not answer: HTTP 401"),
        (error(503, "overloaded"), False, False, "overloaded"),
        (
            Reply(body="<html>hello</html>", headers={"Content-Type": "text/html"}),
            False,
            False,
            "check the address",
        ),
    ],
)
def test_the_test_button_says_what_a_server_can_do(
    server: LlmServer, reply: Reply, answers: bool, structured: bool, words: str
) -> None:
    server.script(reply)
    check = check_provider(make_provider(server, make_team()))
    assert (check.answers, check.structured) == (answers, structured) and words in check.summary
    assert KEY not in check.summary


@pytest.mark.django_db
def test_the_test_button_on_the_page(server: LlmServer) -> None:
    server.script(Reply(text='{"sum": 42}'))
    team = make_team()
    row = make_provider(server, team)
    client = signed_in(make_user(team, TeamRole.OPERATOR))
    page = client.post(f"/providers/{row.pk}/check/", headers={"hx-request": "true"}).content.decode()
    assert "structured output works" in page
    client.force_login(make_user())
    assert client.post(f"/providers/{row.pk}/check/").status_code == 404


@pytest.mark.django_db(transaction=True)
def test_a_canary_key_is_found_nowhere(server: LlmServer, caplog: pytest.LogCaptureFixture) -> None:
    """The server repeats the key in an error, an answer and a refusal; it must not reach what we store or show."""
    caplog.set_level(logging.DEBUG)
    server.script(
        error(500, f"cannot use {KEY}"),
        Reply(text=f"{KEY} is no kernel"),
        Reply(text=KERNEL.format(title=KEY)),
    )
    run = asked_run(server)
    answer(first_call(run).pk)
    answer(LlmCall.objects.get(run=run, attempt=2).pk)
    assert LlmCall.objects.filter(run=run, answer_text__contains="[key]").count() == 2
    assert KEY not in caplog.text
    assert KEY not in str(list(RunEvent.objects.values_list("payload", flat=True)))
    assert KEY not in str(list(LlmCall.objects.values_list("messages", flat=True)))
    assert KEY.encode() not in to_bytes(record_of(run)) and KEY not in record_of(run).model_dump_json()
    assert KEY not in database_text()


def database_text() -> str:
    """Return every row of every table as text."""
    with connection.cursor() as cursor:
        tables = connection.introspection.table_names(cursor)
        texts = []
        for table in tables:
            name = connection.ops.quote_name(table)
            cursor.execute(f"SELECT coalesce(string_agg(t::text, E'\n'), '') FROM {name} t")  # noqa: S608
            texts.append(cursor.fetchone()[0])
    return "\n".join(texts)


@pytest.mark.django_db
def test_the_canary_search_would_find_a_key(server: LlmServer) -> None:
    row = make_provider(server, make_team())
    Provider.objects.filter(pk=row.pk).update(default_model=KEY)
    assert KEY in database_text()


def test_prices_are_dated_sourced_and_bound_to_their_host() -> None:
    assert all(price.date and price.source for price in listed().values())
    price = price_of("gpt-4.1-2025-04-14", "https://api.openai.com/v1", {})
    assert price is not None and price.cost_usd(Usage(prompt=1_000_000, answer=500_000)) == Decimal("6")
    assert price_of("gpt-4.1", "https://elsewhere.example/v1", {}) is None
    own = price_of("gpt-4.1", "https://api.openai.com/v1", {"gpt-4.1": {"input": 0.15, "output": 1}})
    assert own is not None and own.input == Decimal("0.15")
    assert price.cost_usd(Usage(prompt=10)) is None


def test_a_price_that_somebody_quoted_is_marked_second_hand() -> None:
    quoted = {price.second_hand for price in listed().values() if " by " in price.source}
    read = {price.second_hand for price in listed().values() if " by " not in price.source}
    assert (quoted, read) == ({True}, {False})


@pytest.mark.django_db
def test_the_page_lists_every_price_with_its_day_and_its_source() -> None:
    client = signed_in(make_user(make_team()))
    shown = client.get("/providers/").content.decode()
    assert all(escape(price.source) in shown for price in listed().values())
    assert shown.count("Second-hand</span>") == sum(price.second_hand for price in listed().values())


def test_cached_tokens_cost_their_own_price_where_it_is_known() -> None:
    own = {"m": {"input": 2, "cached": 1, "output": 4}}
    price = price_of("m", "", own)
    assert price is not None
    assert price.cost_usd(Usage(prompt=1_000_000, answer=0, cached=400_000)) == Decimal("1.6")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"writer": {"provider": "nobody"}}, "writer: this team has no provider called nobody"),
        ({"default": "inbox", "wirter": "inbox"}, "wirter: there is no such role"),
        ({"default": {"provider": "replay"}}, "name the record"),
        ({"default": {"provider": "inbox", "temperature": 9}}, "temperature"),
        ({"default": {"provider": "inbox", "tolerance": 1}}, "tolerance"),
    ],
)
def test_choices_no_run_can_start_with_are_refused_in_words(choices: dict[str, Any], words: str) -> None:
    with pytest.raises(ChoiceError, match=words):
        check_choices(make_team(), choices)


@pytest.mark.django_db
def test_a_limit_in_dollars_needs_known_prices(server: LlmServer) -> None:
    team = make_team()
    row = make_provider(server, team)
    with pytest.raises(ChoiceError, match="price of m1 is unknown"):
        check_choices(team, {"default": "tiny"}, priced=True)
    Provider.objects.filter(pk=row.pk).update(prices={"m1": {"input": 0, "output": 0}})
    check_choices(team, {"default": "tiny"}, priced=True)


@pytest.mark.django_db
def test_keys_are_encrypted_anew_by_command_and_lost_ones_named(
    server: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = make_team()
    row = make_provider(server, team)
    monkeypatch.setattr(settings, "PROVIDER_KEY_SECRETS", ["new", *settings.PROVIDER_KEY_SECRETS])
    assert "1 keys" in ran("provider", "rotate-keys")
    monkeypatch.setattr(settings, "PROVIDER_KEY_SECRETS", ["new"])
    row.refresh_from_db()
    assert row.read_key() == KEY
    monkeypatch.setattr(settings, "PROVIDER_KEY_SECRETS", ["third"])
    with pytest.raises(CommandError, match=f"{team.slug}/tiny"):
        ran("provider", "rotate-keys")


@pytest.mark.django_db
def test_the_command_lists_and_tries_providers_without_their_keys(server: LlmServer) -> None:
    server.script(Reply(text='{"sum": 42}'))
    row = make_provider(server, make_team())
    listed = ran("provider", "list")
    assert "key stored" in listed and KEY not in listed
    assert "structured output works" in ran("provider", "check", str(row.pk))


@pytest.mark.django_db
def test_tokens_are_made_listed_and_revoked_by_command() -> None:
    User.objects.create_superuser("root")
    secret = ran("token", "create", "outside agent", "--scope", "inbox", "--days", "7").strip()
    row = ApiToken.find(secret)
    assert row is not None and row.scopes == ["inbox"] and row.expires_at is not None
    assert "outside agent" in ran("token", "list") and secret not in ran("token", "list")
    ran("token", "revoke", str(row.pk))
    assert ApiToken.find(secret) is None
    with pytest.raises(ValidationError):
        do_revoke_token(make_user(), row)


def ran(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


@pytest.mark.django_db
def test_sound_choices_pass(server: LlmServer) -> None:
    team = make_team()
    make_provider(server, team)
    checked = check_choices(team, {"default": "inbox", "writer": {"provider": "tiny", "effort": "high"}})
    assert checked["writer"].effort == "high" and checked["default"].provider == "inbox"
