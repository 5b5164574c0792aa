"""Forget the model of signed-in browsers.

Its table stays until a later migration drops it: the version before writes to it while this one is applied. Without
the constraint, rows that nobody deletes any more do not keep an account from being deleted.
"""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("optimizer", "0018_sign_ins_to_allauth")]
    operations = [
        migrations.AlterField(
            model_name="signin",
            name="user",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="sign_ins",
                to=settings.AUTH_USER_MODEL,
                db_constraint=False,
            ),
        ),
        migrations.SeparateDatabaseAndState(state_operations=[migrations.DeleteModel(name="SignIn")]),
    ]
