"""Fill in, for evaluations stored before, whom they were compared with and whose outcome they share."""

from django.db import migrations

OPPONENT = """
UPDATE optimizer_evaluation AS evaluation SET opponent_id = link.parent_id
FROM optimizer_kernelparent AS link
WHERE link.kernel_id = evaluation.kernel_id AND link.rank = 0 AND evaluation.parent_speedup IS NOT NULL
"""
SAME_BINARY = """
UPDATE optimizer_evaluation AS evaluation SET copied_from_id = original.id
FROM optimizer_evaluation AS original
WHERE evaluation.result ->> 'duplicate_of' = original.id::text AND original.id <> evaluation.id
"""
SAME_SOURCE = """
UPDATE optimizer_evaluation AS evaluation SET copied_from_id = original.id
FROM optimizer_kernel AS kernel, optimizer_kernel AS twin, optimizer_evaluation AS original
WHERE evaluation.first_of_id = kernel.id AND evaluation.copied_from_id IS NULL
  AND jsonb_typeof(kernel.meta -> 'twin_of') = 'number'
  AND twin.run_id = kernel.run_id AND twin.number::text = kernel.meta ->> 'twin_of'
  AND original.first_of_id = twin.id
"""


class Migration(migrations.Migration):
    dependencies = [("optimizer", "0015_device_and_call_time")]
    operations = [
        migrations.RunSQL(statement, migrations.RunSQL.noop) for statement in (OPPONENT, SAME_BINARY, SAME_SOURCE)
    ]
