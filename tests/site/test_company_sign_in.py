"""Test signing in through a company's OpenID Connect server: a real one on this machine, and the site as a process of
its own that is configured for it by the environment alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urljoin, urlsplit

import psycopg
import pytest
import requests
from allauth.account.internal.flows.login import AUTHENTICATION_METHODS_SESSION_KEY
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore
from oidc_provider_mock import User as Claims
from oidc_provider_mock import run_server_in_thread
from playwright.sync_api import Page, expect
from werkzeug.serving import BaseWSGIServer

from tests.site import served
from tests.site.access_rows import COMPANY, PAGES, Row
from tests.site.test_access_matrix import expectation

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
OWNER = "owner@example.org"
"""The address of a local account that somebody else may claim to have."""
PEOPLE = {
    "sub-grace": {"email": "grace@example.org", "email_verified": True, "preferred_username": "grace"},
    "sub-mallory": {"email": OWNER, "email_verified": False, "preferred_username": "mallory"},
    "sub-vouched": {"email": OWNER, "email_verified": True, "preferred_username": "vouched"},
    "sub-owner": {"email": "o@example.org", "email_verified": True, "preferred_username": "o"},
    "sub-ida": {"email": "ida@example.org", "email_verified": True, "preferred_username": "ida"},
    "sub-joan": {"email": "joan@example.org", "email_verified": True, "preferred_username": "joan"},
    "sub-namesake": {"email": "", "preferred_username": "owner"},
}
LOCAL = {"DJANGO_SUPERUSER_PASSWORD": "correct horse battery", "DJANGO_SUPERUSER_EMAIL": OWNER}
DATABASE = "company_sign_in"
NEW = {"new_password1": "a long and odd sentence 7", "new_password2": "a long and odd sentence 7"}


@dataclass
class Browser:
    """A person's browser without scripts: follows redirects, keeps cookies, sends the forms it is shown."""

    site: str
    http: requests.Session = field(default_factory=requests.Session)

    def submit(self, page: requests.Response, holding: str = "", /, **values: str) -> requests.Response:
        """Send the page's first form that holds this text, with these values."""
        forms = re.findall(r"<form[^>]*>.*?</form>", page.text, re.DOTALL)
        form = next(one for one in forms if holding in one)
        hidden = dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form))
        target = re.search(r'action="([^"]*)"', form.partition(">")[0])
        address = urljoin(page.url, target[1].replace("&amp;", "&") if target else page.url)
        return self.http.post(address, {**hidden, **values}, headers={"Referer": page.url}, timeout=20)

    def get(self, path: str) -> requests.Response:
        return self.http.get(self.site + path, timeout=20)

    def to_the_company(self, query: str = "") -> requests.Response:
        """Go to the company's page that asks who one is."""
        return self.submit(self.get(f"/sign-in/{query}"), "/company/")

    def sign_in(self, subject: str, query: str = "") -> requests.Response:
        """Return where somebody lands whom the company knows."""
        return self.submit(self.to_the_company(query), sub=subject)

    @property
    def name(self) -> str:
        """Return who is signed in; empty for nobody."""
        found = re.search(r"<h1>([^<]+)</h1>", self.get("/profile/").text)
        return found[1] if found and found[1] != "Sign in" else ""


@pytest.fixture(scope="session")
def company() -> Iterator[BaseWSGIServer]:
    """Run the company's server (the library oidc-provider-mock), with the people it knows."""
    claims = [Claims(sub=subject, claims=said) for subject, said in PEOPLE.items()]
    with run_server_in_thread(user_claims=claims) as server:
        yield server


PREPARE = """
import json
import django
from django.core.management import call_command
django.setup()
from tests.site.test_access_matrix import routes
call_command("migrate", verbosity=0)
call_command("createsuperuser", interactive=False, username="owner", verbosity=0)
print(json.dumps(sorted(routes())))
"""
"""Makes the tables and the account in one process, which prints the routes of the site's pages."""


@dataclass(frozen=True)
class Prepared:
    """Hold the site's variables, and the routes of its pages as its own process sees them."""

    variables: dict[str, str]
    routes: set[str]


@pytest.fixture(scope="session")
def variables(prepared: Prepared) -> dict[str, str]:
    return prepared.variables


@pytest.fixture(scope="session")
def prepared(servers: None, company: BaseWSGIServer) -> Iterator[Prepared]:
    """Make a database of its own, with the tables of social accounts and one local account, `owner`."""
    with psycopg.connect(served.database_url("postgres"), autocommit=True) as admin:
        admin.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        admin.execute(f"CREATE DATABASE {DATABASE}")
        given = {"DATABASE_URL": served.database_url(DATABASE), "OIDC_SERVER": f"http://localhost:{company.server_port}",
                 "OIDC_CLIENT_ID": "kernels", "OIDC_SECRET": "secret", "OIDC_NAME": "Example"}  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", PREPARE],
            cwd=settings.BASE_DIR, env=served.environment({**given, **LOCAL}), stdout=subprocess.PIPE, text=True,
            check=True,
        )  # fmt: skip
        yield Prepared(given, set(json.loads(done.stdout.splitlines()[-1])))
        admin.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")


@pytest.fixture(scope="session")
def site(variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served.daphne(tmp_path_factory.mktemp("daphne"), variables) as address:
        yield address


@pytest.fixture
def visitor(site: str) -> Browser:
    return Browser(site)


def test_whom_the_company_vouches_for_is_signed_in_and_is_in_no_team(site: str) -> None:
    grace, again = Browser(site), Browser(site)
    assert grace.sign_in("sub-grace", "?next=/profile/sessions/").url == f"{site}/profile/sessions/"
    assert grace.name == "grace"
    assert "No teams" in grace.get("/teams/").text
    again.sign_in("sub-grace")
    assert again.name == "grace", "the same account the second time"


@pytest.mark.parametrize("subject", ["sub-mallory", "sub-vouched"])
def test_an_address_in_a_token_opens_nobodys_account(visitor: Browser, subject: str) -> None:
    page = visitor.sign_in(subject)
    assert "Choose a name" in page.text
    refused = visitor.submit(page, username="owner", email=OWNER)
    assert "A user with that username already exists" in refused.text
    assert "An account already exists with this email address" in refused.text
    assert visitor.name == ""
    visitor.submit(refused, username=f"new-{subject}", email="")
    assert visitor.name == f"new-{subject}"


def test_a_name_that_is_taken_opens_nobodys_account(visitor: Browser) -> None:
    visitor.sign_in("sub-namesake")
    assert visitor.name not in ("", "owner")


def test_who_has_signed_in_with_a_password_connects_the_two(site: str) -> None:
    owner, later = Browser(site), Browser(site)
    owner.submit(owner.get("/sign-in/"), username="owner", password=LOCAL["DJANGO_SUPERUSER_PASSWORD"])
    assert owner.name == "owner"
    there = owner.submit(owner.get("/company/"), "process=connect")
    assert "Connected since" in owner.submit(there, sub="sub-owner").text
    later.sign_in("sub-owner")
    assert later.name == "owner"


def an_hour_later(variables: dict[str, str], browser: Browser) -> None:
    """Make that browser's sign-in an hour old."""
    key, store = browser.http.cookies["sessionid"], SessionStore()
    with psycopg.connect(variables["DATABASE_URL"]) as database:
        row = database.execute("SELECT session_data FROM django_session WHERE session_key = %s", [key]).fetchone()
        assert row is not None
        held = store.decode(row[0])
        for record in held[AUTHENTICATION_METHODS_SESSION_KEY]:
            record["at"] -= 3600
        changed = [store.encode(held), key]
        database.execute("UPDATE django_session SET session_data = %s WHERE session_key = %s", changed)


def test_who_has_no_password_sets_one_right_after_the_companys_sign_in(
    site: str, variables: dict[str, str]
) -> None:
    ida, another = Browser(site), Browser(site)
    ida.sign_in("sub-ida")
    an_hour_later(variables, ida)
    stale = ida.get("/profile/password/")
    assert "Sign in there again" in stale.text
    assert "new_password1" not in stale.text
    token = {"csrfmiddlewaretoken": ida.http.cookies["csrftoken"]}
    crafted = ida.http.post(stale.url, {**NEW, **token}, headers={"Referer": stale.url}, timeout=20)
    assert (crafted.status_code, "changed" in crafted.text) == (200, False)
    form = ida.submit(ida.submit(stale, "/company/"), sub="sub-ida")
    assert form.url == f"{site}/profile/password/"
    assert "Password changed" in ida.submit(form, "new_password1", **NEW).text
    another.submit(another.get("/sign-in/"), username="ida", password=NEW["new_password1"])
    assert (ida.name, another.name) == ("ida", "ida")
    assert "old_password" in ida.get("/profile/password/").text


def test_a_second_factor_asks_those_without_a_password_to_come_through_the_company_again(
    site: str, variables: dict[str, str]
) -> None:
    joan = Browser(site)
    joan.sign_in("sub-joan")
    an_hour_later(variables, joan)
    asked = joan.get("/profile/second-factor/on/")
    assert "Is it you?" in asked.text
    there = joan.submit(asked, "/company/")
    assert parse_qs(urlsplit(there.url).query)["prompt"] == ["login"]
    assert 'class="secret"' in joan.submit(there, sub="sub-joan").text


def test_somebody_else_at_the_company_confirms_nothing_for_whom_left_a_session_open(
    site: str, variables: dict[str, str]
) -> None:
    open_session = Browser(site)
    open_session.sign_in("sub-joan")
    an_hour_later(variables, open_session)
    there = open_session.submit(open_session.get("/profile/password/"), "/company/")
    open_session.submit(there, sub="sub-grace")
    assert open_session.name == "grace", "signed in as themselves, out of the other's session"


@pytest.mark.parametrize("elsewhere", ["https://evil.example/", "//evil.example/", "javascript:alert(1)"])
def test_confirming_leads_to_no_other_site(site: str, elsewhere: str) -> None:
    joan = Browser(site)
    joan.sign_in("sub-joan")
    page = joan.http.get(f"{site}/profile/confirm/", params={"next": elsewhere}, timeout=20)
    assert "evil" not in page.text.partition("<form")[2]
    assert joan.submit(joan.submit(page, "/company/"), sub="sub-joan").url == f"{site}/profile/"


# who is let in where


def test_every_address_that_comes_with_the_company_has_a_row(prepared: Prepared) -> None:
    assert prepared.routes == {row.route for row in [*PAGES, *COMPANY]}


@pytest.mark.parametrize("row", COMPANY, ids=lambda row: f"{row.method} {row.route}")
def test_at_the_companys_addresses_everybody_gets_what_the_table_says(site: str, row: Row) -> None:
    for person in ("anonymous", "outsider"):  # no role in a team counts for more here
        browser = Browser(site)
        browser.get("/sign-in/") if person == "anonymous" else browser.sign_in("sub-grace")
        answer = send(browser, row)
        assert answer.status_code == expectation(row, person), person
        if person == "anonymous" and row.needs != "public":
            assert answer.headers["Location"].startswith("/sign-in/")


def send(browser: Browser, row: Row) -> requests.Response:
    """Send the row's request, whose answer is not followed."""
    address = f"{browser.site}/{row.route.replace('<str:provider_id>', 'company')}"
    if row.method == "GET":
        return browser.http.get(address, allow_redirects=False, timeout=20)
    data = {**row.data, "csrfmiddlewaretoken": browser.http.cookies["csrftoken"]}
    return browser.http.post(address, data, headers={"Referer": address}, allow_redirects=False, timeout=20)


@pytest.mark.browser
def test_a_browser_with_its_policies_goes_there_and_back(site: str, page: Page) -> None:
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(f"{site}/sign-in/")
    page.get_by_role("button", name="Sign in with Example").click()
    page.get_by_role("button", name="sub-grace").click()
    expect(page).to_have_url(f"{site}/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Get started")
    page.goto(f"{site}/company/")
    expect(page.locator("main")).to_contain_text("Connected since")
    page.get_by_role("button", name="Disconnect").click()
    expect(page.get_by_role("alert")).to_contain_text("no password")
    assert not [words for words in said if "Security Policy" in words]


def test_whom_the_company_turns_away_is_told_and_is_nobody_here(visitor: Browser) -> None:
    page = visitor.submit(visitor.to_the_company(), "deny", action="deny")
    assert (page.status_code, visitor.name) == (401, "")
    assert "rejected you" in page.text


@pytest.mark.parametrize("state", ["its own", "another browser's"])
def test_a_forged_answer_signs_nobody_in(site: str, visitor: Browser, state: str) -> None:
    began = visitor if state == "its own" else Browser(site)
    value = parse_qs(urlsplit(began.to_the_company().url).query)["state"][0]
    page = visitor.get(f"/company/oidc/company/login/callback/?code=guessed&state={value}")
    assert (page.status_code, visitor.name) == (401, "")


def test_nobody_is_led_to_another_site_afterwards(site: str, visitor: Browser) -> None:
    assert visitor.sign_in("sub-grace", "?next=https://evil.example/").url.startswith(f"{site}/")


@pytest.mark.parametrize(("status", "body"), [("503 Away", b"no"), ("200 OK", b"{}"), ("200 OK", b"<html>")])
def test_a_server_that_is_away_or_is_no_such_server_is_said_in_words(
    company: BaseWSGIServer, visitor: Browser, monkeypatch: pytest.MonkeyPatch, status: str, body: bytes
) -> None:
    def answer(_environment: WSGIEnvironment, start: StartResponse) -> list[bytes]:
        start(status, [("Content-Type", "text/plain")])
        return [body]

    state = parse_qs(urlsplit(visitor.to_the_company().url).query)["state"][0]
    monkeypatch.setattr(company, "app", answer)
    for page in (
        visitor.to_the_company(),
        visitor.get(f"/company/oidc/company/login/callback/?code=c&state={state}"),
    ):
        assert page.status_code == 503
        assert "cannot be reached, or its address is not that of an OpenID Connect server" in page.text


@pytest.mark.parametrize(
    ("server", "client", "words"),
    [("http://login.example.org", "kernels", "https://"), ("https://login.example.org", "", "OIDC_CLIENT_ID")],
)
def test_a_mistake_in_the_settings_stops_the_start(server: str, client: str, words: str) -> None:
    variables = served.environment({"OIDC_SERVER": server, "OIDC_CLIENT_ID": client})
    done = subprocess.run(
        [sys.executable, "-c", "import tests.settings"],
        cwd=settings.BASE_DIR, env=variables, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode != 0
    assert words in done.stderr.splitlines()[-1]
