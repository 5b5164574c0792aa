"""Run the `problems` command by itself: `python -m runners.problems`."""

from __future__ import annotations

import argparse
import sys

from runners.problems.commands import add_arguments, run

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m runners.problems")
    add_arguments(parser)
    sys.exit(run(parser.parse_args()))
