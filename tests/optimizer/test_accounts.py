"""Test signing in with one factor and two, from several browsers, and ending what is not one's own."""

from __future__ import annotations

import re

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, hotp_value, yield_hotp_counters_from_time
from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from kernelsci_site.cache import ForgivingRedisCache
from optimizer.models import User
from tests.factories import make_team, make_user

pytestmark = pytest.mark.django_db
PASSWORD, STRONG = "correct horse", "a long and odd sentence 7"


@pytest.fixture
def person() -> User:
    return make_user(make_team(), name="grace")


def sign_in(password: str = PASSWORD, browser: str = "Mozilla/5.0 (X11; Linux) Gecko Firefox/140.0") -> Client:
    client = Client(headers={"User-Agent": browser})
    client.post(reverse("sign_in"), {"username": "grace", "password": password})
    return client


def is_in(client: Client) -> bool:
    return client.get(reverse("runs")).status_code == 200


def code_for(secret: str) -> str:
    """Return what the person's app shows now."""
    code: str = format_hotp_value(hotp_value(secret, next(iter(yield_hotp_counters_from_time()))))
    return code


def switch_on(client: Client) -> str:
    """Set up the second factor through the pages; its secret."""
    client.post(reverse("account_reauthenticate"), {"password": PASSWORD})
    page = client.get(reverse("mfa_activate_totp")).content.decode()
    found = re.search(r'class="secret">([A-Z2-7]+)<', page)
    assert found is not None, page
    answer = client.post(reverse("mfa_activate_totp"), {"code": code_for(found[1])})
    assert answer.status_code == 302, answer.content.decode()
    return found[1]


# sessions


def test_a_person_sees_their_browsers_and_ends_one(person: User) -> None:
    mine, other = sign_in(), sign_in(browser="A library computer")
    page = mine.get(reverse("sessions")).content.decode()
    assert "Firefox on Linux" in page
    assert "A library computer" in page
    row = UserSession.objects.get(user_agent="A library computer")
    mine.post(reverse("session_end", args=[row.pk]))
    assert (is_in(mine), is_in(other)) == (True, False)


def test_a_session_key_is_on_no_page(person: User) -> None:
    client = sign_in()
    key = client.session.session_key
    assert key is not None and key not in client.get(reverse("sessions")).content.decode()


def test_nobody_ends_the_session_of_another(person: User) -> None:
    client = sign_in()
    stranger = Client()
    stranger.force_login(make_user())
    row = UserSession.objects.get(user=person)
    assert stranger.post(reverse("session_end", args=[row.pk])).status_code == 404
    assert is_in(client)


def test_a_new_password_signs_every_other_browser_out(person: User) -> None:
    mine, other = sign_in(), sign_in(browser="B")
    fields = {"old_password": PASSWORD, "new_password1": STRONG, "new_password2": STRONG}
    assert mine.post(reverse("password"), fields).status_code == 302
    assert (is_in(mine), is_in(other), is_in(sign_in(STRONG))) == (True, False, True)
    assert Session.objects.count() == UserSession.objects.count() == 2


def test_guessing_the_old_password_is_slowed_down(person: User) -> None:
    client = sign_in()
    for _ in range(5):
        client.post(
            reverse("password"), {"old_password": "wrong", "new_password1": STRONG, "new_password2": STRONG}
        )
    client.post(reverse("password"), {"old_password": PASSWORD, "new_password1": STRONG, "new_password2": STRONG})
    person.refresh_from_db()
    assert person.check_password(PASSWORD)


# second factor


def test_with_a_second_factor_the_password_is_not_enough(person: User) -> None:
    secret = switch_on(sign_in())
    thief = sign_in()
    assert not is_in(thief)
    assert thief.post(reverse("mfa_authenticate"), {"code": "000000"}).status_code == 200
    assert not is_in(thief)
    cache.clear()  # the code was used a moment ago, and works once
    owner = sign_in()
    owner.post(reverse("mfa_authenticate"), {"code": code_for(secret)})
    assert is_in(owner)


def test_a_recovery_code_works_once(person: User) -> None:
    client = sign_in()
    switch_on(client)
    page = client.get(reverse("mfa_view_recovery_codes")).content.decode()
    code = re.findall(r"<li><code>(\d+)</code>", page)[0]
    first = sign_in()
    first.post(reverse("mfa_authenticate"), {"code": code})
    second = sign_in()
    second.post(reverse("mfa_authenticate"), {"code": code})
    assert (is_in(first), is_in(second)) == (True, False)


def test_the_seed_is_stored_encrypted(person: User) -> None:
    secret = switch_on(sign_in())
    stored = Authenticator.objects.get(user=person, type=Authenticator.Type.TOTP)
    assert secret not in str(stored.data)
    assert TOTP(stored).validate_code(code_for(secret)) in (True, False)


def test_changing_the_second_factor_takes_the_password_again(person: User) -> None:
    client = sign_in()
    answer = client.get(reverse("mfa_activate_totp"))
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith(reverse("account_reauthenticate"))


def test_every_page_of_the_second_factor_is_one_of_ours(person: User) -> None:
    client = sign_in()
    switch_on(client)
    names = ("mfa_index", "mfa_view_recovery_codes", "mfa_generate_recovery_codes", "mfa_deactivate_totp")
    for name in (*names, "account_reauthenticate", "mfa_reauthenticate"):
        page = client.get(reverse(name)).content.decode()
        assert "Kernel Scientist" in page, name
        assert "style=" not in page, name


def test_the_second_factor_is_switched_off_again(person: User) -> None:
    client = sign_in()
    switch_on(client)
    client.post(reverse("mfa_deactivate_totp"))
    assert is_in(sign_in())


# a cache without its server


def test_without_redis_a_process_counts_for_itself() -> None:
    away = ForgivingRedisCache("redis://127.0.0.1:1/0", {})
    assert (away.get("a", 7), away.add("a", 1), away.add("a", 5), away.incr("a")) == (7, True, False, 2)
    assert ForgivingRedisCache("redis://127.0.0.1:1/0", {}).get("a") == 2, "another thread of the process"
    assert (away.delete("a"), away.delete("a"), away.get_many(["a"]), away.incr("a")) == (True, False, {}, 1)
    away.delete("a")


def test_what_processes_share_is_in_redis() -> None:
    from kernelsci_site import settings

    assert settings.CACHES["default"]["BACKEND"] == "kernelsci_site.cache.ForgivingRedisCache"
