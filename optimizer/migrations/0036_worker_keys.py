"""Store the public keys of measuring workers, by token."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("optimizer", "0035_problem_words_and_targets")]

    operations = [
        migrations.CreateModel(
            name="WorkerKey",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("token_digest", models.CharField(max_length=64, unique=True)),
                ("public_key", models.CharField(max_length=64)),
                ("registered_at", models.DateTimeField(auto_now_add=True)),
            ],
        ),
    ]
