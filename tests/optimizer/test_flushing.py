"""Test that nothing is left of a test that commits, the audit log included, which the database protects."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.core.management import call_command

from optimizer.models import AuditEntry
from tests.driven_runs import make_finished_run


@pytest.mark.django_db(transaction=True)
def test_a_flush_leaves_no_row_and_all_triggers() -> None:
    make_finished_run()
    assert AuditEntry.objects.exists()
    # As pytest-django calls it after a test that commits.
    call_command("flush", verbosity=0, interactive=False, reset_sequences=False, inhibit_post_migrate=True)
    assert [model.__name__ for model in apps.get_models() if model._base_manager.exists()] == []
    make_finished_run()
    with pytest.raises(Exception, match="audit"):
        AuditEntry.objects.all().delete()
