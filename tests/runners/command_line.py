"""Run commands of `python -m runners` in this process, where torch is imported and the oracle started already.

That commands can be started as a program, `test_harness_cli.py` and `test_mcp.py` show.
"""

from __future__ import annotations

import io
import subprocess
from contextlib import redirect_stderr, redirect_stdout

from runners.__main__ import main


def command(*words: object) -> subprocess.CompletedProcess[str]:
    """Run a command, and return its exit code and what it printed."""
    line, out, err = [str(word) for word in words], io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(line)
        except SystemExit as ended:  # argparse leaves for wrong usage
            code = ended.code if isinstance(ended.code, int) else 1
    return subprocess.CompletedProcess(line, code, out.getvalue(), err.getvalue())
