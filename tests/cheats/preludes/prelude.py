# @tune CHEAT 0 1 default=1
import sys

import torch

CHEAT = 1


def honest(x):
    """Softmax in double precision and five steps: several times slower than torch's own."""
    shifted = x.double() - x.double().amax(dim=-1, keepdim=True)
    weights = shifted.exp()
    return (weights / weights.sum(dim=-1, keepdim=True)).float()


def program(name):
    """A module of the program that runs this kernel, or None."""
    files = {module: getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    return next((module for module, file in files.items() if file.endswith(f"/candidate/{name}.py")), None)


def succeeded(what):
    """The attack got through: say so in a way that no table can mistake for an honest result."""
    raise SystemExit(f"the attack succeeded: {what}")


