"""Say of the runs from before there were tools that they have none, since new runs have some by default."""

from django.db import migrations

BATCH = 1000
WITH_WRITERS = ("scientist", "stark", "islands", "sampling", "reflexion")


def say_none(apps, schema_editor):
    """Write the setting in batches, each in a transaction of its own."""
    runs = apps.get_model("optimizer", "Run").objects.filter(strategy__in=WITH_WRITERS)
    last = 0
    while ids := list(runs.filter(pk__gt=last).order_by("pk").values_list("pk", flat=True)[:BATCH]):
        rows = list(runs.filter(pk__in=ids).exclude(settings__has_key="tools").only("settings"))
        for run in rows:
            run.settings = {**run.settings, "tools": "none"}
        runs.bulk_update(rows, ["settings"])
        last = ids[-1]


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("optimizer", "0021_tool_calls")]

    operations = [migrations.RunPython(say_none, migrations.RunPython.noop)]
