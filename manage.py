#!/usr/bin/env python
"""Django's command line for Kernel Scientist: `manage.py up` starts everything, `manage.py help` lists the rest."""

import sys

from kernelsci.__main__ import run_site

if __name__ == "__main__":
    run_site(sys.argv)
