"""Attack what is shared between jobs: caches, reports and the machine's own reserve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runners.backends import triton
from runners.backends.cache import BuildCache
from runners.backends.resources import from_amdgcn, from_ptxas
from runners.job import BuildReport
from runners.sandbox import KillReason, SandboxPolicy, process, run
from runners.sandbox.meter import UNLIMITED, available_bytes, disk_bytes
from runners.targets import target


def kept(key: str, size_bytes: int, tmp_path: Path) -> None:
    made = tmp_path / "made.so"
    made.write_bytes(bytes(size_bytes))
    BuildCache("attack", key).keep(made, BuildReport(True, 1.0, False, ""))


def test_build_cache_keeps_to_its_bytes_and_the_newest_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELSCI_STATE", str(tmp_path / "state"))
    for number in range(8):
        kept(f"old-{number}", 1 << 20, tmp_path)
    made = tmp_path / "new.so"
    made.write_bytes(bytes(1 << 20))
    BuildCache("attack", "new", most_bytes=3 << 20).keep(made, BuildReport(True, 1.0, False, ""))
    entries = [path.name for path in (tmp_path / "state" / "builds" / "attack").iterdir()]
    assert "new" in entries and len(entries) == 2


# A variant as the recorder reports it.
VARIANT = {"name": "k", "assembly": {"ptx": "// ptx"}, "num_warps": 4, "num_stages": 2, "constants": {"N": 1}}


def reported(variants: list[Any]) -> BuildReport:
    no_request: Any = None  # only builds for AMD's processors read theirs
    return triton._report(no_request, target("sm_90"), {"variants": variants}, 1.0, "")


def test_report_with_thousands_of_variants_is_cut() -> None:
    found = reported([VARIANT] * 20_000)
    assert len(found.kernels) == len(found.assembly) == triton.MOST_VARIANTS


@pytest.mark.parametrize(
    "change",
    [
        {"constants": {"x": "y" * 100_000}},
        {"constants": json.loads("[" * 500 + "]" * 500)},
        {"shared_bytes": 10**400},
        {"name": "n" * 100_000, "assembly": {"k" * 100_000: "text"}},
    ],
    ids=["long constants", "nested constants", "a size of 400 digits", "long names"],
)
def test_claims_of_a_report_that_no_compiler_makes_are_left_out(change: dict[str, Any]) -> None:
    found = reported([{**VARIANT, **change}])
    assert len(json.dumps([found.kernels[0].extra, found.kernels[0].name, *found.assembly])) < 10_000
    assert (found.kernels[0].lds_bytes or 0) < 1 << 31


@pytest.mark.parametrize("assembly", [[1, 2], "text", 7, {"ptx": None}])
def test_report_of_another_shape_is_a_failed_build_or_is_read(assembly: Any) -> None:
    try:
        reported([{**VARIANT, "assembly": assembly}])
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return
    assert isinstance(assembly, dict)


@pytest.mark.processes
def test_job_ends_when_the_machine_runs_short_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the same job while the machine has memory left, as the control."""
    monkeypatch.setattr(process, "available_bytes", lambda: 1 << 20)
    assert run(["/bin/sleep", "20"], SandboxPolicy()).killed_reason is KillReason.HOST
    monkeypatch.undo()
    assert available_bytes() > 1 << 20
    assert run(["/bin/sleep", "1"], SandboxPolicy()).ok


def test_tree_that_is_deeper_than_any_build_counts_as_unlimited(tmp_path: Path) -> None:
    here = tmp_path
    for _ in range(140):
        here = here / "d"
        here.mkdir()
    assert disk_bytes([tmp_path]) == UNLIMITED
    assert disk_bytes([tmp_path / Path(*["d"] * 100)]) < 1 << 20


@pytest.mark.parametrize("digits", ["9" * 5000, "²", "9" * 13])
def test_figures_that_a_source_writes_into_its_listing_are_no_figures(digits: str) -> None:
    """Read figures of too many digits and a superscript, which `isdigit` accepts and `int` does not."""
    listing = (
        "; -- Begin function k\n; NumVgprs: 4\n; Occupancy: " + digits + "\n"
        "\t.amdgpu_metadata\namdhsa.kernels:\n  - .name: k\n    .vgpr_count: " + digits + "\n"
        "    .symbol: k.kd\n"
    )
    for found in (*from_amdgcn(listing), *from_ptxas(f"Compiling entry function 'k'\nUsed {digits} registers")):
        figures = (found.vgpr, found.occupancy, found.registers)
        assert all(figure is None or figure < 1 << 63 for figure in figures)
    with pytest.raises(ValueError, match="int"):
        int(("9" * 5000) if len(digits) != 1 else digits)


@pytest.mark.parametrize("value", [json.loads("[" * 100 + "]" * 100), 10**30, [10**400], {"a": float("inf")}])
def test_constants_that_no_message_carries_are_left_out(value: Any) -> None:
    (kernel,) = reported([{**VARIANT, "constants": value}]).kernels
    assert "constants" not in kernel.extra
    assert "constants" in reported([VARIANT]).kernels[0].extra
