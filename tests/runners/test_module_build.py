"""Python candidates that compile: built once, in a stage of their own, whatever the compilers or the module do."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import time
from pathlib import Path

import pytest

from runners.backends.cache import BuildCache
from runners.candidate import caches
from runners.candidate.caches import CacheError, read_index
from runners.harness import evaluate
from runners.harness.building import module_build
from runners.harness.processes import compilers
from runners.harness.stages import Stages
from runners.job import BuildReport, Effort, JobResult, JobSpec, Language, Limits, Source, StageResult, Status
from runners.problems import load
from runners.sandbox import SandboxLevel
from runners.sandbox.probe import why_not

LIMITS = Limits(build_s=120.0, call_s=10.0, total_s=120.0, memory_bytes=1 << 30)

# A real extension through ninja and g++, but without torch's headers, which alone take g++ half a minute.
INLINE = '''
import ctypes, os, pathlib, torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <cmath>
#include <cstdint>
extern "C" void rows_softmax(const float* x, float* out, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r, x += cols, out += cols) {
    float top = x[0];
    double sum = 0;
    for (int64_t c = 1; c < cols; ++c) top = std::fmax(top, x[c]);
    for (int64_t c = 0; c < cols; ++c) sum += out[c] = std::exp(x[c] - top);
    for (int64_t c = 0; c < cols; ++c) out[c] /= sum;
  }
}
"""
LIBRARY = pathlib.Path(os.environ["TORCH_EXTENSIONS_DIR"], "inline_softmax", "inline_softmax.so")
made_at = LIBRARY.stat().st_mtime_ns if LIBRARY.exists() else None
load_inline("inline_softmax", SOURCE, is_python_module=False, no_implicit_headers=True)
if made_at not in (None, LIBRARY.stat().st_mtime_ns):
    raise SystemExit("compiled again, although it was there")
function = ctypes.CDLL(str(LIBRARY)).rows_softmax
function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]


def custom_kernel(x):
    out = torch.empty_like(x)
    function(x.data_ptr(), out.data_ptr(), *x.shape)
    return out
'''
PLAIN = "import torch\n\n\ndef custom_kernel(x):\n    return torch.softmax(x, 1)\n"
RAISES = "# load_inline\nraise ValueError('the parent is broken')\n" + PLAIN
# Those that never end sleep, which their limit does not care about and a neighbour on the same processor does.
NEVER_IMPORTS = "# load_inline\nimport time\ntime.sleep(900)\n" + PLAIN
EATS_MEMORY = "# load_inline\nkept = []\nwhile True:\n    kept.append(b'x' * (64 << 20))\n" + PLAIN
# A little more than it may, and not more and more until it is stopped.
EATS_DISK = """# load_inline
import os, time
for number in range(5):
    with open(os.path.join(os.environ["TMPDIR"], str(number)), "wb") as file:
        file.write(bytes(64 << 20))
time.sleep(900)
""" + PLAIN  # fmt: skip
NEVER_RETURNS = "# load_inline\nimport time\ndef custom_kernel(x):\n    time.sleep(900)\n"
DOUBLE = "# load_inline\n" + PLAIN.replace("(x, 1)", "(x, 1).double()")


@pytest.fixture(autouse=True, scope="module")
def state(fresh_state: None) -> None:
    """Build everything here once more."""


def outcome(text: str, parent: str | None = None, limits: Limits = LIMITS) -> JobResult:
    ancestor = None if parent is None else Source(Language.PYTHON, parent)
    source = Source(Language.PYTHON, text)
    return evaluate(
        JobSpec("job", load("softmax_rows"), "cpu", source, Effort.QUICK, parent=ancestor, limits=limits)
    )


def reason(result: JobResult) -> str:
    return " ".join(result.reasons)


def stage(result: JobResult, name: str) -> StageResult:
    (found,) = [stage for stage in result.stages if stage.name == name]
    return found


@pytest.fixture(scope="module")
def forgiven_s() -> list[float]:
    """Return the seconds that did not count against the limit of the first evaluation."""
    return []


@pytest.fixture(scope="module")
def first(state: None, forgiven_s: list[float]) -> JobResult:
    forgive = Stages.forgive

    def noted(stages: Stages, waited_s: float) -> None:
        forgiven_s.append(waited_s)
        forgive(stages, waited_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stages, "forgive", noted)
        return outcome(INLINE, parent=RAISES)


@pytest.fixture(scope="module")
def second(first: JobResult) -> JobResult:
    return outcome(INLINE, parent=INLINE)


@pytest.mark.evaluates
def test_inline_extension_is_built_in_the_build_stage_and_timed(first: JobResult) -> None:
    assert first.status is Status.CORRECT, first.reasons
    assert first.build is not None and first.build.ok and not first.build.cached
    assert stage(first, "build").seconds >= first.build.seconds > 0.5
    assert first.speedup is not None


@pytest.mark.evaluates
def test_seconds_of_the_build_do_not_count_against_the_evaluation(
    first: JobResult, forgiven_s: list[float]
) -> None:
    assert stage(first, "build").seconds in forgiven_s


@pytest.mark.evaluates
def test_second_evaluation_of_it_compiles_nothing(first: JobResult, second: JobResult) -> None:
    assert second.status is Status.CORRECT, second.reasons
    assert second.build is not None and second.build.cached
    assert stage(second, "build").seconds < 10
    assert first.build is not None and second.build.artefact_hash == first.build.artefact_hash


@pytest.mark.evaluates
def test_parent_that_fails_to_build_drops_its_comparison_alone(first: JobResult) -> None:
    assert "parent_failed" in first.flags and first.versus_parent is None and first.speedup is not None
    (failure,) = first.failures
    assert (failure.side, failure.stage) == ("parent", "build parent")
    assert "importing the module" in failure.reason and "the parent is broken" in failure.reason
    assert not stage(first, "build parent").ok and stage(first, "build parent").seconds > 0.1


@pytest.mark.evaluates
def test_parent_that_was_built_as_a_candidate_is_not_built_again(second: JobResult) -> None:
    assert second.versus_parent is not None
    assert stage(second, "build parent").seconds < 1


@pytest.mark.long
@pytest.mark.evaluates
@pytest.mark.slow
def test_caches_stay_valid_where_paths_are_not_private(monkeypatch: pytest.MonkeyPatch) -> None:
    """ninja would build again at another path, where the candidate ends itself. The parent, of the same text, is there
    at the same time."""
    if why := why_not(SandboxLevel.LANDLOCK):
        pytest.skip(why)
    monkeypatch.setenv("KERNELSCI_SANDBOX", "landlock")
    result = outcome(INLINE, parent=INLINE)
    assert result.status is Status.CORRECT and not result.failures, (result.reasons, result.failures)
    assert result.sandbox == "landlock" and result.versus_parent is not None


@pytest.mark.processes
def test_syntax_error_in_the_inline_source_shows_the_compilers_message() -> None:
    result = outcome(INLINE.replace("double sum = 0;", "double sum = ;"))
    assert result.status is Status.BUILD_FAILED, result.reasons
    assert "expected primary-expression before ‘;’ token" in reason(result)
    assert "main.cpp:7" in reason(result) and len(reason(result)) < 1000
    assert result.build is not None and not result.build.ok and "ninja: build stopped" in result.build.log
    assert [(f.side, f.stage) for f in result.failures] == [("candidate", "build")]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (NEVER_IMPORTS, Status.TIMEOUT, "importing the module did not end within the build's 3 s"),
        (NEVER_RETURNS, Status.TIMEOUT, "the first call of case"),
        (EATS_MEMORY, Status.OUT_OF_MEMORY, "importing the module: needed more than"),
        (EATS_DISK, Status.CRASHED, "importing the module: wrote too much to disk"),
        # A second way for a first call to fail; what it says is shown by `test_candidate_calls.py`.
        pytest.param(DOUBLE, Status.INCORRECT, "expected float32", marks=pytest.mark.long),
    ],
    ids=["never imports", "never returns", "memory", "disk", "wrong output"],
)
def test_build_that_fails_ends_as_its_own_verdict_within_its_limit(
    text: str, status: Status, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilers, "JOB_BYTES", 64 << 20)
    monkeypatch.setattr(module_build, "SCRATCH_BYTES", 64 << 20)
    build_s = {NEVER_IMPORTS: 3.0, NEVER_RETURNS: 8.0}.get(text, 60.0)
    started = time.monotonic()
    result = outcome(text, limits=dataclasses.replace(LIMITS, build_s=build_s, memory_bytes=512 << 20))
    assert result.status is status, result.reasons
    assert said in reason(result)
    assert result.verdict is None and not stage(result, "build").ok
    assert [(failure.side, failure.stage) for failure in result.failures] == [("candidate", "build")]
    assert time.monotonic() - started < 60


@pytest.mark.processes
def test_missing_ninja_is_the_machines_failure_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilers, "ninja", lambda: None)
    monkeypatch.setattr(compilers, "DEFAULT_PATH", "/nowhere")
    result = outcome(INLINE + "\n")
    assert result.status is Status.INFRA_ERROR
    assert reason(result).startswith("ninja is not installed: ")


def packed(index: object, content: bytes = b"") -> io.BytesIO:
    text = json.dumps(index).encode()
    return io.BytesIO(len(text).to_bytes(8, "big") + text + content)


@pytest.mark.parametrize(
    "index",
    [
        {"a": 1},
        [["a", 1, 0]],
        [["../a", 1, 0, False]],
        [["/etc/passwd", 1, 0, False]],
        [["a//b", 1, 0, False]],
        [["a\nb", 1, 0, False]],
        [["a", -1, 0, False]],
        [["a", 1, 1 << 63, False]],
        [["a", True, 0, False]],
        [["a", 1, 0, 1]],
        [["a", 1, 0, False], ["a", 2, 0, False]],
        [[f"a{number}", 1, 0, False] for number in range(caches.MOST_FILES + 1)],
        [["a" * 2000, 1, 0, False]],
    ],
    ids=str,
)
def test_forged_index_of_packed_caches_is_refused(index: object) -> None:
    with pytest.raises(CacheError):
        read_index(packed(index))


@pytest.mark.parametrize("data", [b"\xff" * 8, b"\0" * 7 + b"\4nope", b"\0" * 7 + b"\2[" + b"[" * 4])
def test_packed_caches_that_are_no_json_are_refused(data: bytes) -> None:
    with pytest.raises(CacheError):
        read_index(io.BytesIO(data))


def test_packing_keeps_times_and_modes_and_leaves_links_and_locks_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin, copy = tmp_path / "origin", tmp_path / "copy"
    (origin / "caches/extensions/k").mkdir(parents=True)
    library = origin / "caches/extensions/k/k.so"
    library.write_bytes(b"\x7fELF")
    library.chmod(0o755)
    os.utime(library, ns=(1, 1_234_567_890_123_456_789))
    (origin / "secret").symlink_to("/etc/passwd")
    os.mkfifo(origin / "pipe")
    (origin / "caches/extensions/k/lock").touch()
    copy.mkdir()
    monkeypatch.setenv("TMPDIR", str(origin))
    file = tmp_path / "packed"
    caches.pack(os.open(file, os.O_WRONLY | os.O_CREAT), 1 << 20)
    monkeypatch.setenv("TMPDIR", str(copy))
    caches.unpack(str(file))
    (found,) = [path for path in copy.rglob("*") if not path.is_dir()]
    assert found == copy / "caches/extensions/k/k.so" and found.read_bytes() == b"\x7fELF"
    assert found.stat().st_mtime_ns == 1_234_567_890_123_456_789 and os.access(found, os.X_OK)


def test_library_that_is_loaded_already_is_replaced_and_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton's helper is loaded by a process that was started ahead, and lies in the caches of a build too."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "build"))
    (tmp_path / "build" / "triton").mkdir(parents=True)
    (tmp_path / "build" / "triton" / "helper.so").write_bytes(b"from the build")
    packed = tmp_path / "packed"
    caches.pack(os.open(packed, os.O_WRONLY | os.O_CREAT), 1 << 20)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "later"))
    (tmp_path / "later" / "triton").mkdir(parents=True)
    helper = tmp_path / "later" / "triton" / "helper.so"
    helper.write_bytes(b"loaded here")
    with helper.open("rb") as loaded:
        caches.unpack(str(packed))
        assert loaded.read() == b"loaded here"
    assert helper.read_bytes() == b"from the build"
    assert [path.name for path in helper.parent.iterdir()] == ["helper.so"]


def test_what_a_module_leaves_is_kept_only_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large").write_bytes(bytes(1 << 20))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(CacheError, match="at most 0 MiB are kept"):
        caches.pack(os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT), 1 << 19)


def test_store_drops_what_was_used_longest_ago(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELSCI_STATE", str(tmp_path))
    made, report = tmp_path / "made", BuildReport(True, 1.0, False, "")
    made.write_bytes(bytes(1000))
    for number, key in enumerate(("old", "middle", "new")):
        BuildCache("modules", key, 10_000).keep(made, report)
        os.utime(tmp_path / "builds/modules" / key, (number, number))
    assert BuildCache("modules", "old", 10_000).fetch(tmp_path / "copy")
    BuildCache("modules", "newest", 3600).keep(made, report)
    assert {path.name for path in (tmp_path / "builds/modules").iterdir()} == {"old", "new", "newest"}


@pytest.mark.processes
def test_failure_outside_the_build_names_side_and_stage_and_what_compiles_nothing_is_not_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("runners.harness.processes.participant.START_S", 1.0)
    result = outcome("import time\ntime.sleep(900)\n" + PLAIN)
    assert result.status is Status.TIMEOUT
    assert reason(result).startswith("candidate, smallest: was not loaded: no answer within 1 s")
    assert [(failure.side, failure.stage) for failure in result.failures] == [("candidate", "smallest")]
    assert stage(result, "build").ok and stage(result, "build").seconds < 1
