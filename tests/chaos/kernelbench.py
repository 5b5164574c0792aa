"""Make a campaign of ten KernelBench problems: `tune` beside agents whose recorded answers are replayed.

KernelBench's files are read from a checkout. A problem has no kernel with tunables of its own, so a copy is made of
each that declares its size for a CPU and parameters to tune. A recording answers with the problem's own module under
another constant: what is evaluated here sleeps, and only differs.
"""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

from django.utils.text import slugify

from optimizer.actions.campaign import NewConfiguration
from optimizer.actions.record import do_import_record
from optimizer.llm.recording import RecordedCall, RunRecord, to_bytes
from optimizer.models import Suite, Team
from optimizer.problems.suites import Reading, read_suite
from optimizer.queries.budgets import Budget
from tests.campaigns import tuned
from tests.factories import make_user

SIZES = {
    "level1/1_Square_matrix_multiplication_": "N=128",
    "level1/12_Matmul_with_diagonal_matrices_": "N=256 M=256",
    "level1/19_ReLU": "batch_size=16 dim=4096",
    "level1/23_Softmax": "batch_size=16 dim=4096",
    "level1/26_GELU_": "batch_size=16 dim=4096",
    "level1/38_L1Norm_": "batch_size=16 dim=4095",
    "level1/47_Sum_reduction_over_a_dimension": "batch_size=4 dim1=256 dim2=255",
    "level1/89_cumsum": "batch_size=16",
    "level2/29_Matmul_Mish_Mish": "batch_size=16 in_features=256 out_features=256",
    "level2/76_Gemm_Add_ReLU": "batch_size=16 in_features=256 out_features=256",
}
TUNABLES = "# @tune TILE 8 16 32 64 128\n# @tune UNROLL 1 2 4 8\n# @tune CHUNKS 1 2 4\n"
TUNED, REPLAYED = 24, 20
"""Evaluations of a run: the two configurations need different times, and each has more than 360 s in all."""


def make_kernelbench_suite(checkout: Path, folder: Path) -> Suite:
    """Store the suite of the reduced copies, which are written into the folder."""
    for name, sizes in SIZES.items():
        copy = folder / f"{name}.py"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(f"# @cpu {sizes}\n{TUNABLES}{_original(checkout, name)}")
    suite, _ = read_suite(str(folder), Reading(trace=False), "kernelbench-reduced", "MIT License")
    return suite


def record_answers(team: Team, suite: Suite) -> None:
    """Import a recording for each problem of the suite."""
    user = make_user(team)
    for entry in suite.entries.select_related("problem_version__problem"):
        assert entry.problem_version is not None, entry.complaint
        slug = entry.problem_version.problem.slug
        text = Path(suite.origin, f"{entry.name}.py").read_text()
        do_import_record(user, team, f"kernelbench-{slugify(slug)}", to_bytes(_record(slug, text)))


def compared() -> list[NewConfiguration]:
    """Return the two configurations."""
    settings = {"confirm": False, "warm_start": False, "tools": "none", "language": "python"}
    providers = {"default": {"provider": "replay", "record": "kernelbench-{problem}"}}
    replayed = NewConfiguration("replay", "sampling", settings, providers, Budget(evaluations=REPLAYED))
    return [tuned("tune", TUNED), replayed]


def _original(checkout: Path, name: str) -> str:
    """Return the text of a problem, in a checkout or in a folder of files such as `L1_19_ReLU.py`."""
    flat = name.replace("level", "L").replace("/", "_")
    places = (checkout / "KernelBench" / f"{name}.py", checkout / f"{name}.py", checkout / f"{flat}.py")
    return next(place for place in places if place.is_file()).read_text()


def _record(problem: str, text: str) -> RunRecord:
    source = re.sub(r"\bModel\b", "ModelNew", re.sub(r"^# @.*\n", "", text, flags=re.MULTILINE))
    answers = [f"Title: answer {n}\n```python\n{source}\nANSWER = {n}\n```" for n in range(1, REPLAYED + 1)]
    calls = [
        RecordedCall(key=f"a{n}.solo", role="solo", attempt=1, state="answered", answer_schema="KernelAnswer",
                     answer_text=answer)
        for n, answer in enumerate(answers, 1)
    ]  # fmt: skip
    today = dt.datetime.now(dt.UTC).date()
    return RunRecord(problem=problem, target="cpu", strategy="sampling", recorded_on=today, calls=calls)
