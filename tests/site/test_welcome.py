"""Test the first administrator and the link that signs in once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

from kernelsci_site import welcome
from kernelsci_site.welcome import ensure_administrator, make_link
from optimizer.models import User

pytestmark = pytest.mark.django_db


@pytest.fixture
def administrator() -> User:
    return ensure_administrator()[0]


def test_the_first_start_makes_an_administrator_whose_password_works(client: Client) -> None:
    user, password = ensure_administrator()
    assert password is not None
    assert client.login(username=user.username, password=password)


def test_a_later_start_makes_none(administrator: User) -> None:
    assert ensure_administrator() == (administrator, None)
    assert User.objects.count() == 1


def test_a_link_signs_in_once(client: Client, administrator: User) -> None:
    link = make_link(settings.VAR, administrator)
    assert client.get(link).status_code == 200
    assert "_auth_user_id" not in client.session
    assert client.post(link).status_code == 302
    assert client.session["_auth_user_id"] == str(administrator.pk)
    assert Client().post(link).status_code == 404
    assert Client().get(link).status_code == 404


def test_a_link_dies_with_the_hour(client: Client, administrator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    link = make_link(settings.VAR, administrator)
    later = time.time() + welcome.LINK_LIVES_S + 1
    monkeypatch.setattr(time, "time", lambda: later)
    assert client.get(link).status_code == 404
    assert client.post(link).status_code == 404


def test_a_new_link_ends_the_old_one(client: Client, administrator: User) -> None:
    old = make_link(settings.VAR, administrator)
    make_link(settings.VAR, administrator)
    assert client.post(old).status_code == 404


def test_an_invented_link_does_not_sign_in(client: Client, administrator: User) -> None:
    make_link(settings.VAR, administrator)
    assert client.post("/welcome/invented/").status_code == 404


def test_the_token_itself_is_not_stored(administrator: User) -> None:
    token = make_link(settings.VAR, administrator).strip("/").split("/")[1]
    folder = Path(settings.VAR.root / "welcome")
    assert all(token not in path.name and token not in path.read_text() for path in folder.iterdir())


def test_a_link_of_a_deactivated_person_does_not_sign_in(client: Client, administrator: User) -> None:
    link = make_link(settings.VAR, administrator)
    User.objects.update(is_active=False)
    assert client.post(link).status_code == 404


def test_posting_without_the_forms_token_is_refused(administrator: User) -> None:
    link = make_link(settings.VAR, administrator)
    assert Client(enforce_csrf_checks=True).post(link).status_code == 403
