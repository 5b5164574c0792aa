"""Attack what reads kernels, findings and listings with texts on which searching takes quadratic time."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from optimizer.agents.delimiters import neutralise
from optimizer.calls.record import Stripper
from optimizer.diffs import rows
from optimizer.diffs.differ import Tag, apply, diff
from optimizer.models import Finding
from optimizer.runs.hot_loop import hot_loop
from optimizer.search.machinery.novelty import normalise
from optimizer.text.markdown import suggested_lines
from optimizer.views.knowledge import changes_of
from runners.backends import disassembly
from runners.backends.resources import AMD_MATRIX, PTX_MATRIX
from runners.emulation import rewriting
from runners.emulation.rewriting import rewritten
from runners.harness.verdict.library_calls import lacks_own_kernel
from runners.job import Language, Source
from runners.problems.forbidden import forbidden_in
from runners.problems.slow_reference import slow_loop
from tests.attack.growth import AT_ONCE, MOST_GROWTH, Reader, growth, repeated, seconds

FORBIDDEN = ["torch.topk", "F.linear", "Tensor.sort"]
KERNEL = "\nimport triton\ndef custom_kernel(x):\n    return {}\n"


def screened(text: str) -> object:
    return lacks_own_kernel(Source(Language.TRITON, text + KERNEL.format("a(x)")))


def screened_native(text: str) -> object:
    return lacks_own_kernel(Source(Language.CUDA, text))


def unprocessed(language: Language) -> Reader:
    return lambda text: normalise.__wrapped__(language, text)


def two_versions(text: str) -> object:
    return changes_of(Finding(text=text), Finding(text=text.replace("a", "b") + "\nend"))


def forbidden(text: str) -> object:
    return forbidden_in(text, FORBIDDEN)


def in_loop(text: str) -> object:
    return slow_loop(f"class Model:\n  def forward(self, x):\n    for t in range(9):\n      {text}\n")


def in_while(text: str) -> object:
    return slow_loop(f"def reference(x):\n  while x:\n    {text}\n")


def recorded(text: str) -> object:
    return Stripper([], ["ida"]).prose(text)


def jumps(characters: int) -> str:
    return "\n".join(f"L{n}: jmp L{n}\n s_branch L{n}" for n in range(characters // 24))


def listed(text: str) -> object:
    return disassembly._tidied(f"\n0000000000001000 <{text}>:\n  1000:\tjmp {text}\n")


def branched(text: str) -> object:
    return hot_loop({"sm_90": f"L1:\n{text}\n"})


def chained(characters: int) -> str:
    return "x" + ".topk()" * 100 + "".join(f"\ny{n} = x" + ".sort()" * 100 for n in range(characters // 700))


READERS = [
    pytest.param(suggested_lines, repeated("```suggestion\n"), id="suggestions without an end"),
    pytest.param(screened, repeated("a="), id="an assignment to thousands of names"),
    pytest.param(screened, repeated("b0=b1=1\n"), id="many assignments to the same names"),
    pytest.param(screened_native, repeated("dlopen("), id="opened libraries"),
    pytest.param(unprocessed(Language.CPP), repeated('"\\'), id="C strings without an end"),
    pytest.param(unprocessed(Language.CPP), repeated("/*\n"), id="C comments without an end"),
    pytest.param(unprocessed(Language.PYTHON), repeated('"\\'), id="Python strings without an end"),
    pytest.param(recorded, repeated("<<<<<<< SEARCH\n"), id="edits without an end in a recording"),
    pytest.param(suggested_lines, repeated("```suggestion\n````\n"), id="suggestions with other ends"),
    pytest.param(rewritten, repeated('"\\'), id="strings in emulated kernels"),
    pytest.param(neutralise, repeated("<"), id="brackets in a prompt"),
    pytest.param(neutralise, repeated(" ", "<<"), id="blanks behind brackets in a prompt"),
    pytest.param(AMD_MATRIX.findall, repeated("\n"), id="blank lines of AMD assembly"),
    pytest.param(PTX_MATRIX.findall, repeated("\n"), id="blank lines of PTX"),
    pytest.param(lambda text: hot_loop({"gfx942": text}), jumps, id="jumps"),
    pytest.param(rewriting._template, repeated('"\\'), id="literals of inline assembly"),
    pytest.param(rewriting._template, repeated('"\\', after="\nx"), id="literals of inline assembly over lines"),
    pytest.param(branched, repeated("BRA."), id="suffixes of a branch"),
    pytest.param(listed, repeated("1 <"), id="a symbol that looks like targets of jumps"),
    pytest.param(listed, repeated("<@plt", after=" x"), id="a symbol that looks like the linker's"),
    pytest.param(two_versions, repeated("a\nb\n"), id="versions of a finding"),
    pytest.param(forbidden, chained, id="chains of methods"),
    pytest.param(forbidden, repeated('"a";'), id="strings as statements on one line"),
    pytest.param(in_loop, repeated("x[t](t);"), id="subscripts in a reference's loop"),
    pytest.param(in_while, chained, id="chains in a reference's loop"),
]


@pytest.mark.parametrize(("read", "text_of"), READERS)
def test_the_time_of_reading_a_text_grows_with_its_length_alone(
    read: Reader, text_of: Callable[[int], str]
) -> None:
    assert growth(read, text_of, 4_000) <= MOST_GROWTH


def peeled(side: str, layers: int) -> list[str]:
    """Return lines of which every anchor of a comparison splits off the last two, so that regions shrink by those."""
    inner = [f"{side}{n % 7}" for n in range(8)]
    lines = [*inner, *(f"e{layers}",)]
    for n in range(layers - 1, 0, -1):
        lines += [f"e{n}", f"e{n + 1}", *inner[: n % 3]]
    return [*lines, "unique", "e1", f"{side}0"]


def test_texts_whose_anchors_split_off_single_lines_are_compared_in_linear_time() -> None:
    def compared(text: str) -> object:
        layers = len(text)
        return diff(peeled("l", layers), peeled("r", layers))

    assert growth(compared, repeated("x"), 4_000) <= MOST_GROWTH


def test_a_comparison_that_is_given_up_is_still_a_difference() -> None:
    one, other = peeled("l", 20_000), peeled("r", 20_000)
    opcodes = diff(one, other)
    assert apply(opcodes, one, other) == other
    assert any(code.tag is not Tag.EQUAL for code in opcodes)


def test_two_findings_of_48_kb_are_compared_within_two_seconds() -> None:
    one = "\n".join(f"{n % 97} is a fact about tiles" for n in range(2_000))
    other = "\n".join(f"{n % 89} is a fact about tiles" for n in range(2_000))
    assert seconds(lambda _: changes_of(Finding(text=one), Finding(text=other)), "") < 2


def test_a_python_candidate_of_10_kb_is_screened_within_a_second() -> None:
    assert seconds(screened, "a=" * 5_000 + "1") < 1


@pytest.mark.parametrize(
    ("pairs", "most_s"), [(15_000, 5), pytest.param(60_000, 20, marks=pytest.mark.long, id="half a megabyte")]
)
def test_a_comparison_of_many_alike_lines_takes_no_more_than_seconds(pairs: int, most_s: float) -> None:
    text = "x\ny\n" * pairs
    assert seconds(lambda _: rows.compare(f"1\n{text}", f"{text.replace('y', 'x')}2"), "") < most_s


def test_the_measurement_finds_a_comparison_of_every_line_with_every_other() -> None:
    """Use the control's own loop: `difflib.ndiff`, which findings were compared with, is fast in Python 3.14."""

    def compared(text: str) -> list[str]:
        others = text.replace("a", "b").splitlines()
        return [line for line in text.splitlines() if all(line != other for other in others)]

    assert growth(compared, lambda size: "\n".join(f"{n} a fact" for n in range(size // 10)), 1_500, AT_ONCE) > 1.5


def test_the_measurement_finds_the_pattern_that_searched_every_opened_library() -> None:
    """Use the earlier pattern of opened libraries, whose paths had no limit, as the control."""
    pattern = re.compile(r"dlopen\s*\([^)]*(cublas|cudnn)")
    assert growth(pattern.search, repeated("dlopen("), 1_000, AT_ONCE) > 1.5
