"""Copy where people are signed in to the table of allauth.usersessions."""

from typing import Any

from django.db import migrations

UNKNOWN_ADDRESS = "::"


def copy(apps: Any, _schema_editor: Any) -> None:
    """Copy every row. A session that has a row already keeps it."""
    sign_ins = apps.get_model("optimizer", "SignIn").objects.all()
    sessions = apps.get_model("usersessions", "UserSession").objects
    sessions.bulk_create(
        [
            sessions.model(
                user_id=row.user_id, session_key=row.key, ip=row.address or UNKNOWN_ADDRESS, user_agent=row.browser,
                created_at=row.created_at, last_seen_at=row.seen_at,
            )
            for row in sign_ins.iterator()
        ],
        ignore_conflicts=True,
        batch_size=1000,
    )


class Migration(migrations.Migration):
    dependencies = [("optimizer", "0017_opponents_indexed"), ("usersessions", "0001_initial")]
    operations = [migrations.RunPython(copy, migrations.RunPython.noop)]
