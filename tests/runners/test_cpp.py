"""Test the C++ backend: a library in a fraction of a second, a cache, a compiler that can't be led astray."""

from __future__ import annotations

import ctypes
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from runners.backends import Artefact, BuildRequest, backend_for, compiling
from runners.backends.cache import BuildCache
from runners.backends.compiling import exports
from runners.backends.disassembly import disassembler
from runners.errors import InfraFailure
from runners.job import BuildReport, Language, Limits, Source
from runners.wire import dumps

pytestmark = pytest.mark.processes

ADD = 'extern "C" void add(float* x) { x[0] += STEP; }\n// @tune STEP 1 2 5 default=2\n'


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELSCI_STATE", str(tmp_path / "state"))


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("job")
    made.chmod(0o755)
    return made


def build(folder: Path, text: str, **choice: object) -> Artefact:
    source = Source(Language.CPP, text, **choice)  # type: ignore[arg-type]
    return backend_for(Language.CPP).build(BuildRequest(source, "add", "cpu", folder, Limits(build_s=30)))


def call(artefact: Artefact) -> float:
    value = ctypes.c_float(0)
    ctypes.CDLL(str(artefact.path)).add(ctypes.byref(value))
    return value.value


def test_library_exports_the_symbol_and_takes_tunables_as_macros(tmp_path: Path) -> None:
    values = []
    for step in (None, 5):
        inner = tmp_path / str(step)
        inner.mkdir()
        values.append(call(build(inner, ADD, tunables={"STEP": step} if step else {})))
    assert values == [2.0, 5.0]


def test_second_build_comes_from_the_cache_and_other_flags_do_not(folder: Path) -> None:
    reports = [build(folder, ADD).report, build(folder, ADD).report, build(folder, ADD, flags=("-O1",)).report]
    assert [report.cached for report in reports] == [False, True, False]
    assert reports[0].artefact_hash == reports[1].artefact_hash


def test_failing_build_keeps_the_compilers_words(folder: Path) -> None:
    artefact = build(folder, "int x = ;")
    assert artefact.path is None and not artefact.report.ok
    # The file's name alone: the folder is the runner's, and another one at every build.
    assert re.search(r"^kernel\.cpp:1", artefact.report.log, re.MULTILINE)
    assert str(folder) not in artefact.report.log


def test_failure_on_a_full_disk_says_nothing_of_the_source(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as full:
        full.setattr(compiling, "ROOM_BYTES", 1 << 60)  # more than any disk has free
        with pytest.raises(InfraFailure, match=r"MB are free in .* free some, or set TMPDIR"):
            build(folder, "int x = ;")
        assert build(folder, ADD).report.ok
    assert not build(folder, "int x = ;").report.ok


def test_what_a_full_disk_failed_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELSCI_STATE", str(tmp_path))
    cache, made = BuildCache("cpp", "key"), tmp_path / "made"
    full = BuildReport(False, 1.0, False, "ld: final link failed: No space left on device")
    cache.keep(made, full)
    entry = tmp_path / "builds/cpp/key"
    assert not entry.exists()
    entry.mkdir()
    (entry / "report.json").write_text(dumps(full))  # as versions before this one did
    assert cache.fetch(made) is None
    made.touch()
    cache.keep(made, BuildReport(True, 1.0, False, ""))
    assert cache.fetch(made)


def test_missing_symbol_is_a_failed_build_that_says_so(folder: Path) -> None:
    report = build(folder, "void other() {}").report
    assert not report.ok and 'extern "C" void add' in report.log


def test_compiler_sees_no_file_of_the_machine(folder: Path) -> None:
    secret = Path("/tmp") / f"secret-{folder.name}"
    secret.write_text("the_secret_words")
    try:
        report = build(folder, f'#include "{secret}"\n').report
    finally:
        secret.unlink()
    assert not report.ok and "the_secret_words" not in report.log


def test_a_compiler_is_silent_about_its_own_headers_and_still_warns_of_the_kernel(folder: Path) -> None:
    smaller = """#include <immintrin.h>
extern "C" void add(float* x) {
  __m512 a = _mm512_loadu_ps(x);
  int unused_one;
  _mm512_storeu_ps(x, _mm512_min_ps(a, _mm512_scalef_ps(a, a)));
}
"""
    report = build(folder, smaller, flags=("-O3", "-mavx512f")).report
    assert report.ok and "unused_one" in report.log and "avx512" not in report.log


def test_a_log_names_the_first_errors_of_many(folder: Path) -> None:
    log = build(folder, "\n".join(f"wrong{n} x{n};" for n in range(2000))).report.log
    assert "wrong0" in log and "wrong19" in log and "wrong30" not in log


def test_a_compiler_that_prints_without_end_is_stopped_with_that_reason(folder: Path) -> None:
    said = '#pragma GCC warning "' + 400 * "flood " + '"\n'
    report = build(folder, 600 * said).report
    assert not report.ok and re.search(r"the compiler was stopped: it printed [\d,]{9,} bytes", report.log)


def test_endless_compilation_is_stopped_and_not_kept_in_the_cache(folder: Path) -> None:
    text = "template<int N> struct F { static const long v = F<N-1>::v + F<N-2>::v; };\n" * 1
    bomb = text + "constexpr long f(long n) { return n < 2 ? n : f(n-1) + f(n-2); }\nconstexpr long x = f(60);\n"
    source = Source(Language.CPP, "// @flags -O0\n" + bomb)
    request = BuildRequest(source, "add", "cpu", folder, Limits(build_s=1.0))
    report = backend_for(Language.CPP).build(request).report
    assert not report.ok
    assert not backend_for(Language.CPP).build(request).report.cached or "stopped" not in report.log


@pytest.mark.parametrize(
    "flag",
    [
        "-O3",
        "-Ofast",
        "-march=native",
        "-ffast-math",
        "-fno-math-errno",
        "-funroll-loops",
        "-mprefer-vector-width=512",
    ],
)
def test_flags_on_the_list_are_taken(flag: str) -> None:
    assert backend_for(Language.CPP).complaints(Source(Language.CPP, "", flags=(flag,))) == []


@pytest.mark.parametrize(
    "flag",
    [
        "-I/",
        "-include",
        "x.h",
        "@file",
        "-fplugin=a",
        "-B/tmp",
        "-Wl,x",
        "-O3;ls",
        "-specs=x",
        "-xc",
        "-DX=1",
        "-S",
        "-o",
    ],
)
def test_every_other_flag_is_refused_in_the_choice_and_in_the_text(flag: str) -> None:
    backend = backend_for(Language.CPP)
    assert backend.complaints(Source(Language.CPP, "", flags=(flag,)))
    assert backend.complaints(Source(Language.CPP, f"// @flags -O3 {flag}\n"))


@pytest.mark.skipif(disassembler() is None, reason="needs objdump")
def test_the_report_holds_the_machine_code_without_addresses(folder: Path) -> None:
    report = build(folder, ADD).report
    (listing,) = report.assembly.values()
    assert "<add>:" in listing and "ret" in listing
    assert not re.search(r"^\s*[0-9a-f]+:", listing, re.MULTILINE)


@pytest.mark.skipif(disassembler() is None, reason="needs objdump")
def test_a_function_put_before_another_leaves_its_listing_as_it_was(tmp_path: Path) -> None:
    before = 'extern "C" int other(int x) { return x * 77 + 5; }\n'
    listings: list[str] = []
    for name, text in (("plain", ADD), ("shifted", before + ADD)):
        inner = tmp_path / name
        inner.mkdir()
        listings += build(inner, text).report.assembly.values()
    assert listings[0] in listings[1] and "<other>:" in listings[1]


def test_a_library_exports_what_it_defines_for_others(tmp_path: Path) -> None:
    text = (
        'extern "C" void inner_kernel() {}\n'
        'extern "C" void kernel_of_c() {}\n'
        "void mangled_kernel() {}\n"
        "static void kept_kernel() {}\n"
        'extern "C" void elsewhere_kernel();\n'
        'extern "C" void caller() { elsewhere_kernel(); kept_kernel(); }\n'
        'extern "C" void kernel() {}\n'
    )
    made = tmp_path / "made.so"
    command = ["g++", "-shared", "-fPIC", "-O0", "-x", "c++", "-", "-o", str(made)]
    subprocess.run(command, input=text, text=True, check=True)
    library = made.read_bytes()
    assert all(exports(library, name) for name in ("inner_kernel", "kernel_of_c", "caller", "kernel"))
    assert not any(exports(library, name) for name in ("mangled_kernel", "kept_kernel", "elsewhere_kernel", "kern"))


def test_a_file_that_is_no_library_or_is_cut_off_exports_nothing() -> None:
    whole = Path(sys.executable).resolve().read_bytes()
    heads = [whole[:100], whole[: len(whole) // 2], b"\x7fELF\x02\x01" + b"\xff" * 200]
    for broken in (b"", b"\x7fELF", b"!<arch>", *heads):
        assert not exports(broken, "PyObject_Repr") and not exports(broken, "")


def test_only_the_first_table_of_symbols_is_searched_in_a_file_that_claims_thousands() -> None:
    empty = struct.pack("<II16xQQI12x", 0, 11, 0, 1 << 40, 0)
    count = 60_000
    head = b"\x7fELF\x02\x01".ljust(0x28, b"\0") + struct.pack("<Q", 0x40)
    file = head.ljust(0x3A, b"\0") + struct.pack("<HH", 64, count) + b"\0\0"
    file = file.ljust(0x40, b"\0") + empty.ljust(64, b"\0") * count
    assert not exports(file, "kernel"), "all tables together would take hours"
