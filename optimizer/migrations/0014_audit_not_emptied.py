"""The audit log is not emptied whole either. Test runs, which empty every table between tests, say so in a setting of
their connections (tests/settings.py); no other connection has it."""

from django.db import migrations

GUARD = """
CREATE FUNCTION optimizer_audit_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('kernelsci.may_empty_audit', true) IS DISTINCT FROM 'on' THEN
    RAISE EXCEPTION 'the audit log is append-only' USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER audit_not_emptied BEFORE TRUNCATE ON optimizer_auditentry
  FOR EACH STATEMENT EXECUTE FUNCTION optimizer_audit_keep();
"""
UNGUARD = """
DROP TRIGGER audit_not_emptied ON optimizer_auditentry;
DROP FUNCTION optimizer_audit_keep();
"""


class Migration(migrations.Migration):
    dependencies = [("optimizer", "0013_indexes_for_large_tables")]
    operations = [migrations.RunSQL(GUARD, UNGUARD)]
