"""Store what is compiled ahead, and let a job's place in its queue differ from its id."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("optimizer", "0032_problems_of_teams")]

    operations = [
        migrations.CreateModel(
            name="AheadBatch",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(max_length=100)),
                ("variants", models.JSONField()),
                ("builds", models.JSONField(blank=True, default=list)),
                ("error", models.TextField(blank=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                (
                    "basis",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="optimizer.kernel"
                    ),
                ),
                (
                    "job",
                    models.OneToOneField(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="ahead_batch",
                        to="optimizer.job",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="ahead_batches", to="optimizer.run"
                    ),
                ),
            ],
            options={"ordering": ["pk"]},
        ),
        migrations.AddIndex(
            model_name="aheadbatch",
            index=models.Index(
                condition=models.Q(("finished_at__isnull", True)), fields=["run"], name="ahead_batch_open"
            ),
        ),
        migrations.AddConstraint(
            model_name="aheadbatch",
            constraint=models.UniqueConstraint(fields=("run", "key"), name="one_ahead_batch_per_key"),
        ),
        # Without a default, so that no row of the table is written.
        migrations.AddField(
            model_name="job", name="place", field=models.BigIntegerField(blank=True, null=True)
        ),
    ]
