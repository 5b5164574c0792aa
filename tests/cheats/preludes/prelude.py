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


def calls_of_request():
    """Return how many calls the referee's request has, by the frames above the kernel that asks; 1 if none tells."""
    frame = sys._getframe(2)
    while frame is not None:
        if "calls" in frame.f_locals and isinstance(frame.f_locals["calls"], list):
            return len(frame.f_locals["calls"])
        frame = frame.f_back
    return 1


def succeeded(what):
    """The attack got through: say so in a way that no table can mistake for an honest result."""
    raise SystemExit(f"the attack succeeded: {what}")


