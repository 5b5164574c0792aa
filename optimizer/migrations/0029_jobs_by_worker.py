"""Index jobs by the worker that did them, for the history on a runner's page."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # the index is built beside the work

    dependencies = [("optimizer", "0028_leaderboard_and_views")]

    operations = [
        AddIndexConcurrently(
            model_name="job", index=models.Index(fields=["worker", "-id"], name="job_of_worker")
        ),
    ]
