"""Index waiting jobs in the order of their place, in which a claim takes them."""

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models
from django.db.models.functions import Coalesce


class Migration(migrations.Migration):
    atomic = False  # the index is built beside the work

    dependencies = [("optimizer", "0033_compiled_ahead")]

    operations = [
        AddIndexConcurrently(
            model_name="job",
            index=models.Index(
                models.F("queue"),
                models.F("priority"),
                Coalesce("place", "id"),
                condition=models.Q(("state", "queued")),
                name="job_in_turn",
            ),
        ),
        RemoveIndexConcurrently(model_name="job", name="job_waiting"),
    ]
