"""Run the short form of chaos, in which everything is real but the evaluation. It takes a minute.

The runs are shorter than those of `make chaos`, and one fault in four of the matrix strikes.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from django.conf import settings

from tests.site.site_process import environment, free_port

JOBS, FAULTS = 16, 6


@pytest.mark.slow
@pytest.mark.site
def test_under_faults_nothing_is_lost_doubled_or_stuck(tmp_path_factory: pytest.TempPathFactory) -> None:
    var = tmp_path_factory.mktemp("chaos")
    command = [sys.executable, "-m", "tests.chaos", "--seed", "1", "--bench", "2"]
    command += ["--jobs", str(JOBS), "--faults", str(FAULTS), "--evaluations", "4"]
    done = subprocess.run(
        [*command, "--port", str(free_port())], cwd=settings.BASE_DIR, env=environment(var),
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    told = dict(re.findall(r"^(lost|faults|jobs)\s+(\d+)", done.stdout, re.MULTILINE))
    assert int(told["lost"]) == 0
    assert int(told["jobs"]) >= JOBS
    assert int(told["faults"]) >= FAULTS
    assert "BROKEN" not in done.stdout
