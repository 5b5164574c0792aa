"""`manage.py prepare`: run after `migrate`, before the site serves. `manage.py up` does it by itself."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from kernelsci_site.first_run import collect_static_files, fill_tables


class Command(BaseCommand):
    """Prepare the installation. Safe to repeat."""

    help = "Collect static files; create administrator, team, targets, notes and problems where missing."

    def handle(self, *args: Any, **options: Any) -> None:
        """Prepare, and print the new administrator's password once."""
        collect_static_files()
        administrator, password = fill_tables()
        if password:
            self.stdout.write(f"Sign in as {administrator.username} with the password {password} (shown only now).")
