"""Every CUDA and Triton snippet of the knowledge pages on a real GPU, against a result of the CPU.

`python3 -m tests.optimizer.snippets sm_90` does the same on a machine without pytest.
"""

from __future__ import annotations

import subprocess

import pytest

from optimizer.knowledge import Page
from runners.job import Language
from tests.optimizer.snippets import on_gpu, snippets

pytestmark = [pytest.mark.gpu, pytest.mark.nvcc]


@pytest.fixture(scope="module")
def target() -> str:
    """Return the architecture of this machine's GPU, as `sm_90`."""
    asked = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    capability = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()[0]
    return f"sm_{capability.replace('.', '')}"


@pytest.mark.parametrize("page", snippets(Language.CUDA, Language.TRITON), ids=lambda page: page.name)
def test_a_snippet_computes_on_the_gpu_what_the_cpu_computes(page: Page, target: str) -> None:
    if not page.holds_for(target):
        pytest.skip(f"not for {target}")
    outcome = on_gpu(page, target)
    assert outcome.code == 0, outcome.output
