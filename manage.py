#!/usr/bin/env python
"""Django's command line for Kernel Scientist: `manage.py up` starts everything, `manage.py help` lists the rest."""

import os
import sys


def main() -> None:
    """Run the management command named on the command line."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kernelsci_site.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
