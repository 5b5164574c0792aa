"""Test that signed-in browsers keep their place in the list when allauth takes it over."""

from __future__ import annotations

import datetime as dt
from importlib import import_module
from types import SimpleNamespace

import pytest
from allauth.usersessions.models import UserSession
from django.utils import timezone

from optimizer.models import User
from tests.factories import make_user

copy = import_module("optimizer.migrations.0018_sign_ins_to_allauth").copy
SINCE = timezone.now() - dt.timedelta(days=3)


class OldRows:
    """Represent the application registry before the migration, with the rows of the model that is gone."""

    def __init__(self, *rows: SimpleNamespace) -> None:
        self.objects = SimpleNamespace(all=lambda: SimpleNamespace(iterator=lambda: iter(rows)))

    def get_model(self, app: str, _name: str) -> object:
        return UserSession if app == "usersessions" else self


def row(user: User, key: str, address: str | None) -> SimpleNamespace:
    return SimpleNamespace(
        user_id=user.pk, key=key, address=address, browser="curl", created_at=SINCE, seen_at=SINCE
    )


@pytest.mark.django_db
def test_every_browser_is_copied_once_and_a_newer_row_stays() -> None:
    user = make_user()
    UserSession.objects.create(user=user, session_key="b", ip="192.0.2.2", user_agent="Firefox")
    copy(OldRows(row(user, "a", "192.0.2.1"), row(user, "b", "192.0.2.9"), row(user, "c", None)), None)
    found = UserSession.objects.order_by("session_key").values_list("session_key", "ip", "user_agent")
    assert list(found) == [("a", "192.0.2.1", "curl"), ("b", "192.0.2.2", "Firefox"), ("c", "::", "curl")]
    assert UserSession.objects.get(session_key="a").last_seen_at == SINCE
