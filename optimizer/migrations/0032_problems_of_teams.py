"""Let problems that people add belong to a team; those that exist stay visible to everybody."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("optimizer", "0031_sign_waiting_jobs")]

    operations = [
        migrations.AddField(
            "problem",
            "team",
            models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="problems",
                to="optimizer.team",
            ),
        ),
        migrations.AddField(
            "problemupload",
            "team",
            models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="optimizer.team"
            ),
        ),
    ]
