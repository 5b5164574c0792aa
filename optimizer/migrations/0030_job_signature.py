from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("optimizer", "0029_jobs_by_worker")]

    operations = [
        migrations.AddField(
            model_name="job",
            name="signature",
            field=models.CharField(blank=True, db_default="", default="", max_length=200),
        ),
    ]
