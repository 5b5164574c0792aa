"""The audit log only grows: the database itself refuses to change or delete a line."""

from django.db import migrations

GUARD = """
CREATE FUNCTION optimizer_audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the audit log is append-only' USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON optimizer_auditentry
  FOR EACH ROW EXECUTE FUNCTION optimizer_audit_refuse();
"""
UNGUARD = """
DROP TRIGGER audit_append_only ON optimizer_auditentry;
DROP FUNCTION optimizer_audit_refuse();
"""


class Migration(migrations.Migration):
    dependencies = [("optimizer", "0010_teams_releases_audit")]
    operations = [migrations.RunSQL(GUARD, UNGUARD)]
