"""Evaluations whose result carries the flag already get their column."""

from django.db import migrations

MARK = """UPDATE optimizer_evaluation SET unconfirmed = true WHERE result -> 'flags' @> '["unconfirmed"]'"""


class Migration(migrations.Migration):
    dependencies = [("optimizer", "0007_tags_templates_unconfirmed")]
    operations = [migrations.RunSQL(MARK, migrations.RunSQL.noop)]
