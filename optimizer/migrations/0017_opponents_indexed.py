"""Index and validate what 0015 added to evaluations, beside the work: no lock is held from one operation to the next."""

from django.contrib.postgres.operations import ValidateConstraint
from django.db import migrations

COLUMNS = ("copied_from", "opponent")


def index(name: str) -> migrations.RunSQL:
    """Build the index of a foreign key concurrently."""
    return migrations.RunSQL(
        f"CREATE INDEX CONCURRENTLY IF NOT EXISTS optimizer_evaluation_{name}_ix ON optimizer_evaluation ({name}_id)",
        f"DROP INDEX CONCURRENTLY IF EXISTS optimizer_evaluation_{name}_ix",
    )


def valid(name: str) -> migrations.RunSQL:
    """Validate a foreign key; that reads the table and blocks no write to it."""
    return migrations.RunSQL(
        f"ALTER TABLE optimizer_evaluation VALIDATE CONSTRAINT optimizer_evaluation_{name}_fk",
        migrations.RunSQL.noop,
    )


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("optimizer", "0016_opponents_and_copies")]

    operations = [
        *(index(name) for name in COLUMNS),
        *(valid(name) for name in COLUMNS),
        ValidateConstraint(model_name="evaluation", name="evaluation_call_us"),
    ]
