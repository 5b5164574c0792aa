"""Run the command `kernelsci`, which has the commands of the site and of the runners under one name.

kernelsci up                 # everything on this machine, until Ctrl-C
kernelsci evaluate …         # build, check and time one kernel, without a site
kernelsci doctor             # what this machine can do, and what to install for more
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

OVERVIEW = """\
kernelsci COMMAND …

  up          start servers, pages and workers on this machine; Ctrl-C stops them
  doctor      what this machine can build, time and sandbox, and what to install for more
  evaluate    build, check and time one kernel
  build, gate, receipt, verify, submit, probe, mcp
              the other commands of the runners, which need no site
  backup, restore, run, runners, provider, inbox
              commands of a site

kernelsci COMMAND --help explains one; kernelsci help lists all commands of a site."""
# Where both have a command of that name, the site's knows more.
OF_THE_SITE = ("doctor", "problems")


def main() -> int:
    """Run the command named on the command line, and return its exit code."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(OVERVIEW)
        return 0 if arguments else 2
    if _is_runners(arguments[0]):
        from runners.__main__ import main as run_runners

        return run_runners(arguments)
    run_site(["kernelsci", *arguments])
    return 0


def run_site(argv: Sequence[str]) -> None:
    """Run a management command. What a person can mend ends in a sentence, not in a traceback: a setting, a folder, a
    database that does not answer or whose disk is full."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kernelsci_site.settings")
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line
    from django.db import OperationalError

    from kernelsci_site.services.var import UnwritableFolderError
    from runners.commands.pipes import until_the_reader_leaves

    try:
        with until_the_reader_leaves():
            execute_from_command_line(list(argv))
    except (ImproperlyConfigured, UnwritableFolderError) as error:
        sys.exit(str(error))
    except OperationalError as error:
        # Imported when asked: it reads the settings, which may be what is wrong.
        from kernelsci_site.database_failures import in_words

        if "--traceback" in argv or not (said := in_words(error)):
            raise
        sys.exit(said)


def _is_runners(name: str) -> bool:
    """Return whether the runners answer a command."""
    from runners.__main__ import COMMANDS

    return name in COMMANDS and name not in OF_THE_SITE


if __name__ == "__main__":
    sys.exit(main())
