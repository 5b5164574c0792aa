"""The shipped knowledge pages: what each declares is there, and its snippet builds, runs and holds what it promises."""

from __future__ import annotations

import re
import runpy
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from django.test import Client

from optimizer.knowledge import Page, Task, page, pages, pages_for, search_knowledge
from optimizer.knowledge.kinds import KINDS, kinds_of
from optimizer.knowledge.library import BOTTLENECKS, CHECK, OVERVIEW, TOPICS, read_page
from runners.backends import backend_for
from runners.backends.base import BuildRequest, SampleArgument
from runners.backends.cuda import cuobjdump
from runners.job import BuildReport, Language, Limits, Source
from runners.problems.base import TensorSpec
from runners.targets import TARGETS, target
from runners.verbs.building import build
from tests.optimizer.snippets import UNSUPPORTED, Outcome, compile_cuda, run_cpp, run_triton, snippets

# What snippets are built from, beside the runners.
OF_PAGES = pytest.mark.unchanged("optimizer/knowledge", "tests/optimizer/snippets.py")
# A snippet that computes what is expected of it.
EXACT = """
import torch
inputs = lambda device: [torch.ones(4)]
custom_kernel = expected = lambda x: x.double()
"""
# Snippets that are checked between the shipped ones, by name.
SPOILED = {
    "inexact": f"{EXACT}LIMIT = -1\n",
    "raising": "raise ValueError('no luck')\n",
    "dying": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "exact": f"{EXACT}LIMIT = 1\n",
}

every_page = pytest.mark.parametrize("one", pages(), ids=lambda one: one.name)


def each(*languages: Language) -> pytest.MarkDecorator:
    """Parametrise over the pages with a snippet in one of these languages."""
    return pytest.mark.parametrize("one", snippets(*languages), ids=lambda one: one.name)


def test_there_is_a_page_for_every_gpu_and_enough_of_them() -> None:
    assert len([one for one in pages() if one.topic != OVERVIEW]) >= 30
    for key in TARGETS:
        assert any(one.holds_for(key) and one.topic == OVERVIEW for one in pages()), key


@every_page
def test_a_page_declares_where_it_applies_and_where_it_comes_from(one: Page) -> None:
    assert one.title and len(one.text) > 500
    assert one.topic in TOPICS
    assert any(one.holds_for(key) for key in TARGETS)
    assert set(one.bottlenecks) <= BOTTLENECKS and set(one.kinds) <= KINDS.keys()
    assert one.sources and all(len(source) > 20 for source in one.sources)
    if one.topic != OVERVIEW:
        assert one.bottlenecks and one.kinds
        assert any("https://" in source for source in one.sources)


@pytest.mark.parametrize(
    ("word", "extension"), [("_mm512_", "avx512f"), ("_dpbf16_ps", "avx512_bf16"), ("_tile_loadd", "amx_tile")]
)
def test_a_page_whose_snippet_needs_an_instruction_set_says_so(word: str, extension: str) -> None:
    needing = [one for one in pages() if word in one.snippet]
    assert needing and all(extension in one.requires for one in needing)


@every_page
def test_a_page_has_a_snippet_with_a_check_or_says_what_the_machine_code_holds(one: Page) -> None:
    if one.topic == OVERVIEW:
        return
    assert one.path is not None and len(one.snippet) > 300
    if one.language is Language.HIP or not one.interpreted:
        assert one.emits  # nothing here can execute it
    if one.language is not Language.HIP:
        assert CHECK in one.path.read_text() and CHECK not in one.snippet


def test_a_page_without_targets_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text("title: x\ntopic: memory\nsource: y\n---\ntext\n")
    with pytest.raises(ValueError, match="targets"):
        read_page(tmp_path / "x.md")


def test_a_page_whose_snippet_is_interpreted_in_another_way_than_no_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text(
        "title: x\ntargets: cpu\ntopic: memory\nsource: y\ninterpreted: false\n---\ntext\n"
    )
    with pytest.raises(ValueError, match="interpreted is false"):
        read_page(tmp_path / "x.md")


def emitted(one: Page, code: str) -> None:
    """Assert that the machine code holds the instructions that the page promises."""
    for pattern in one.emits:
        assert re.search(pattern, code), f"no {pattern} in the machine code"


@pytest.mark.nvcc
@OF_PAGES
@pytest.mark.processes
@each(Language.CUDA)
def test_a_cuda_snippet_builds_and_uses_the_instructions_it_is_about(one: Page, tmp_path: Path) -> None:
    key = next(key for key in ("sm_90", "sm_80", "sm_100") if one.holds_for(key))
    built = compile_cuda(one, key, tmp_path / "code.cubin", "-cubin", "-Werror", "all-warnings")
    assert built.code == 0, built.output
    tool = cuobjdump()
    assert tool is not None
    shown = subprocess.run(
        [tool[0], "-sass", str(tmp_path / "code.cubin")], capture_output=True, text=True, check=True
    )
    emitted(one, shown.stdout)


@pytest.mark.hip
@OF_PAGES
@pytest.mark.processes
@each(Language.HIP)
def test_a_hip_snippet_builds_and_uses_the_instructions_it_is_about(one: Page) -> None:
    assert one.path is not None
    report = build(Source(Language.HIP, one.path.read_text()), target("gfx942"), None)
    assert report.ok and "warning" not in report.log, report.log
    assert all(kernel.vgpr_spills == 0 for kernel in report.kernels)
    emitted(one, "\n".join(report.assembly.values()))


@pytest.mark.processes
@each(Language.CPP)
def test_a_cpp_snippet_computes_what_it_says(one: Page, tmp_path: Path) -> None:
    outcome = run_cpp(one, tmp_path)
    if outcome.code == UNSUPPORTED:
        pytest.skip("this processor lacks the instructions; it compiles")
    assert outcome.code == 0, outcome.output


def in_the_interpreter() -> list[Page]:
    """Return the pages whose snippet in Triton needs no GPU to be executed."""
    return [one for one in snippets(Language.TRITON) if one.interpreted]


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Return how the checks of all Triton snippets, and of `SPOILED` between them, ended in the interpreter."""
    folder, found = tmp_path_factory.mktemp("spoiled"), in_the_interpreter()
    between = [replace(found[0], name=name, path=folder / f"{name}.py") for name in SPOILED]
    for one in between:
        assert one.path is not None
        one.path.write_text(SPOILED[one.name])
    return run_triton([found[0], *between, *found[1:]], "cpu")


@pytest.mark.processes
@pytest.mark.parametrize("one", in_the_interpreter(), ids=lambda one: one.name)
def test_a_triton_snippet_computes_what_it_says_in_the_interpreter(
    one: Page, interpreted: dict[str, Outcome]
) -> None:
    outcome = interpreted[one.name]
    assert outcome.code == 0, outcome.output


@pytest.mark.processes
def test_a_triton_snippet_that_fails_says_how_and_spoils_no_other(interpreted: dict[str, Outcome]) -> None:
    found = {name: interpreted[name] for name in SPOILED}
    assert {name: outcome.code for name, outcome in found.items()} == {
        "inexact": 1, "raising": 1, "dying": -9, "exact": 0
    }  # fmt: skip
    assert "relative error 0, allowed -1" in found["inexact"].output
    assert "ValueError: no luck" in found["raising"].output and "luck" not in found["exact"].output
    assert all(interpreted[one.name].code == 0 for one in in_the_interpreter())


def triton_builds() -> list[object]:
    """Pair each Triton page with a GPU of each vendor for which it is; the general pages are part of the long form."""
    return [
        pytest.param(
            one, key, id=f"{one.name}-{key}", marks=[pytest.mark.long] if one.name.startswith("gpu/") else []
        )
        for one in snippets(Language.TRITON)
        for key in ("sm_90", "gfx942", "gfx950")
        if one.holds_for(key) and (key != "gfx950" or not one.holds_for("gfx942"))
    ]


@OF_PAGES
@pytest.mark.processes
@pytest.mark.parametrize(("one", "key"), triton_builds())
def test_a_triton_snippet_builds_for_the_gpus_it_is_about(one: Page, key: str, tmp_path: Path) -> None:
    report = built_triton(one, key, tmp_path)
    assert report.ok, report.log
    emitted(one, "\n".join(report.assembly.values()))


def built_triton(one: Page, key: str, folder: Path) -> BuildReport:
    """Build a snippet for a GPU that is not here, for the layouts of its own inputs."""
    assert one.path is not None
    tensors = runpy.run_path(str(one.path))["inputs"]("cpu")
    specs = [TensorSpec(str(t.dtype).removeprefix("torch."), tuple(t.shape), t.stride()) for t in tensors]
    sample = tuple(SampleArgument(spec) for spec in specs)
    folder.chmod(0o755)
    source = Source(Language.TRITON, one.path.read_text())
    return backend_for(Language.TRITON).build(BuildRequest(source, "", key, folder, Limits(), (sample,))).report


@pytest.mark.parametrize(
    ("query", "key", "wanted"),
    [
        ("wgmma descriptor swizzle", "sm_90", "sm_90/wgmma"),
        ("TMA tensor map", "sm_90", "sm_90/tma"),
        ("fp8 accumulation precision promotion", "sm_90-h200", "sm_90/fp8_promotion"),
        ("bank conflicts in LDS", "gfx942", "gfx942/lds_swizzle"),
        ("Gluon warp_specialize mbarrier warpgroup_mma", "sm_90", "sm_90/gluon"),
        ("sched_group_barrier", "gfx942", "gfx942/scheduling"),
        ("32x32 MFMA layout", "gfx942-mi325x", "gfx942/mfma_32x32"),
        ("matrix_instr_nonkdim kpack waves_per_eu", "gfx942", "gfx942/triton_knobs"),
        ("experts of different sizes grouped gemm", "sm_90", "gpu/grouped_gemm"),
        ("AMX tiles", "cpu", "cpu/amx"),
        ("kv cache block table", "gfx942", "gpu/paged_attention"),
    ],
)
def test_full_text_finds_the_page_that_is_meant(query: str, key: str, wanted: str) -> None:
    assert search_knowledge(query, key, 3)[0].name == wanted


def test_search_stays_on_the_target_and_within_its_limit() -> None:
    found = search_knowledge("matrix product shared memory", "gfx942", 4)
    assert len(found) == 4 and all(one.holds_for("gfx942") for one in found)
    assert search_knowledge("wgmma", "cpu", 5) == []
    assert len(search_knowledge("memory", "", 10**9)) <= 20


def test_pages_for_instruction_sets_that_the_machine_lacks_are_not_found() -> None:
    older, newer = frozenset({"avx2", "fma"}), frozenset({"avx2", "avx512f"})
    for vector in (None, newer):
        assert search_knowledge("AVX-512 masks for tails", "cpu", 3, vector)[0].name == "cpu/avx512"
    names = {one.name for one in search_knowledge("AVX-512 AMX tiles bf16", "cpu", 20, older)}
    assert names and not names & {"cpu/avx512", "cpu/avx512_bf16", "cpu/amx"}


def test_a_task_gets_no_pages_for_instruction_sets_that_its_machine_lacks() -> None:
    def names(*vector: str) -> set[str]:
        return {one.name for one in pages_for(Task("bf16 matmul and softmax", "cpu", vector=frozenset(vector)))}

    special = {"cpu/avx512", "cpu/avx512_bf16", "cpu/amx"}
    assert not names("avx2", "fma") & special
    assert names("avx2", "avx512f") & special == {"cpu/avx512"}
    assert names("avx512f", "avx512_bf16", "amx_tile", "amx_bf16") >= special


def test_pages_about_other_work_are_left_out_and_limits_decide_where_the_work_is_unknown() -> None:
    def names(text: str, *bottlenecks: str) -> set[str]:
        return {one.name for one in pages_for(Task(text, "cpu", bottlenecks=frozenset(bottlenecks)))}

    assert "cpu/register_tile" not in names("Row-wise softmax.", "compute")
    assert "cpu/register_tile" in names("Something else.", "compute")
    assert "cpu/register_tile" not in names("Something else.", "launch")
    assert names("Something else.") == {
        one.name for one in pages() if one.holds_for("cpu") and one.topic != OVERVIEW
    }


def test_pages_about_a_special_kind_of_work_are_for_that_kind_alone() -> None:
    def names(text: str) -> list[str]:
        return [one.name for one in pages_for(Task(text, "sm_90", Language.TRITON, frozenset({"compute"})))]

    special = {"sm_80/int4_weights", "sm_90/fp8_promotion", "gpu/grouped_gemm", "gpu/flash_attention"}
    product = names("bf16 matrix product with bias and GELU")
    assert not special & set(product)
    assert set(product[:2]) == {"sm_90/gluon", "sm_90/triton_descriptors"} and "gpu/persistent" in product
    assert "sm_80/int4_weights" in names("W4A16 matrix product")
    assert names("Causal attention, forward (bf16)")[0] == "gpu/flash_attention"
    for title in ("GQA decode attention with KV cache", "varlen flash attention"):
        assert "gpu/paged_attention" in names(title)
    for title in ("4-bit weight matmul (AWQ)", "MXFP4 matrix product", "NVFP4 GEMM"):
        assert "sm_80/int4_weights" in names(title)
    assert {"sm_90/wgmma", "gpu/grouped_gemm"} <= set(names("Mixture-of-experts MLP"))


@pytest.mark.parametrize("query", ["", "\0", "((((", "x" * 5_000_000, "zzzzqqq"])
def test_a_hostile_query_finds_nothing_and_does_not_fail(query: str) -> None:
    assert search_knowledge(query, "sm_90", 5) == []


def test_a_negative_limit_gives_nothing() -> None:
    assert search_knowledge("wgmma", "sm_90", -3) == []


def test_what_binds_the_kernel_decides_which_pages_come_first() -> None:
    text = "Row-wise softmax. Each row is normalised."
    bound = {word: pages_for(Task(text, "sm_90", None, frozenset({word}))) for word in ("memory", "launch")}
    assert "launch" in bound["launch"][0].bottlenecks
    assert "memory" in bound["memory"][0].bottlenecks


def test_a_matrix_product_in_cuda_gets_the_matrix_units() -> None:
    task = Task("bf16 matrix product (GEMM)", "sm_90", Language.CUDA, frozenset({"compute"}))
    assert {one.name for one in pages_for(task)[:4]} & {"sm_90/wgmma", "sm_90/warp_specialisation"}
    assert all(one.topic != OVERVIEW for one in pages_for(task))


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("F.softmax(x @ w)", {"softmax"}),
        ("grouped GEMM of experts (MoE)", {"matmul", "ragged"}),
        ("W4A16 linear layer", {"matmul", "quantised"}),
        ("summation of summaries", set()),
    ],
)
def test_kinds_of_work_are_told_by_whole_words(text: str, kinds: set[str]) -> None:
    assert kinds_of(text) == kinds


def test_every_page_is_found_by_its_own_title() -> None:
    for one in pages():
        assert one in search_knowledge(one.title, next(key for key in TARGETS if one.holds_for(key)), 3), one.name


def test_page_by_name() -> None:
    assert page("sm_90/wgmma").language is Language.CUDA
    with pytest.raises(KeyError):
        page("../../etc/passwd")


def test_people_read_and_search_the_pages_that_agents_get(pages: Client) -> None:
    listed = pages.get("/knowledge/pages/").content.decode()
    assert "/knowledge/pages/sm_90/wgmma/" in listed and "/knowledge/pages/cpu/amx/" in listed
    found = pages.get("/knowledge/pages/", {"q": "wgmma"}).content.decode()
    assert "/knowledge/pages/sm_90/wgmma/" in found and "/knowledge/pages/cpu/amx/" not in found
    assert "No matching pages" in pages.get("/knowledge/pages/", {"q": "zzzz\0<script>"}).content.decode()


def test_a_shipped_page_shows_its_snippet_and_sources(pages: Client) -> None:
    shown = pages.get("/knowledge/pages/gfx942/scheduling/").content.decode()
    assert "__builtin_amdgcn_s_setprio" in shown and "llvm.org" in shown
    assert pages.get("/knowledge/pages/gfx942/nothing/").status_code == 404
