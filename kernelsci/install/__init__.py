"""Prepare a machine: check what it has, make a virtual environment, and install the packages into it.

Standard library only, since nothing else is there yet.
"""
