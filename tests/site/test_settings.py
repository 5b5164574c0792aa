"""Settings: what must hold on every installation."""

from __future__ import annotations

import pytest
from django.db import connection


@pytest.mark.django_db
def test_the_database_is_a_real_postgresql() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version_num')::int")
        assert cursor.fetchone()[0] >= 150000
