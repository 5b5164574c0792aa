"""Run inside the sandbox, beside the candidate: standard library only, and nothing worth finding.

No expected value, reference or seed ever enters this process. Only this folder is bound there, as a package named
`candidate` with nothing else on the import path (`runners.harness.processes.sandboxed_worker` starts it), so the
modules here import each other relatively.
"""
