"""What runs inside the sandbox, beside the candidate: standard library only, and nothing worth finding.

No expected value, reference or seed ever enters this process. `main.py` is started as a script with this folder as
its only import path, so the modules here import each other by bare name.
"""
