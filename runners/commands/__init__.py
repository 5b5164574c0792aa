"""The commands of `python -m runners`, one module each: `add_parser(subparsers)` declares it, `run` does it."""
