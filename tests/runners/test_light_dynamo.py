"""Test that modules are traced without importing TorchDynamo, and with it where one needs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from runners.job import ProblemBundle
from runners.problems.filters import with_signature
from runners.problems.signature import FILE

pytestmark = pytest.mark.processes
MODULE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return {call}

def get_inputs():
    return [torch.rand(4, 8)]

def get_init_inputs():
    return []
"""
# Prints which modules of dynamo a derivation has loaded, and whether the real one works after it.
PROGRAM = """
import sys
from runners.job import ProblemBundle
from runners.problems.deriving import derive
text = sys.stdin.read()
signature = derive(ProblemBundle("p", "kernelbench", "p.py", {"p.py": text}))
loaded = [name for name in sys.modules if name.startswith("torch._dynamo")]
import torch
kept = [one for one in vars(torch._subclasses.FakeTensorMode).values() if hasattr(one, "__dynamo_disable")]
doubled = torch.compile(lambda x: x + x, backend="eager")(torch.ones(2))
print(signature.refused or "derived", len(loaded), len(kept), doubled.tolist())
"""


def test_a_module_is_traced_without_dynamo_which_works_afterwards() -> None:
    text = MODULE.format(call="torch.relu(self.linear(x))")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=text, capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.splitlines()[-1] == "derived 0 0 [2.0, 2.0]"


@pytest.mark.parametrize(
    "call",
    [
        'torch.compile(torch.relu, backend="eager")(self.linear(x))',
        "torch.compiler.disable(recursive=False)(torch.relu)(self.linear(x))",
        "self.linear(x) if torch._dynamo.utils.counters is not None else x",
    ],
    ids=["compiles", "disables", "looks inside"],
)
def test_a_module_that_uses_dynamo_is_traced(call: str) -> None:
    text = MODULE.format(call=call)
    bundle = with_signature(ProblemBundle("p", "kernelbench", "p.py", {"p.py": text}))
    assert '"x"' in bundle.files[FILE]
