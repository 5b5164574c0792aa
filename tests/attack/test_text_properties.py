"""Make up hostile texts and read them in every way: the time grows with the length alone, whatever is repeated."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.agents import answers
from optimizer.agents.answer_base import Basis
from optimizer.agents.delimiters import Delimiters
from optimizer.calls.record import Stripper
from optimizer.search.machinery.novelty import normalise
from optimizer.search.machinery.tuned_source import with_values
from optimizer.text.bounded_json import read_json
from optimizer.text.hostile_text import diagnostics_in, lookalikes_in, plain_log
from optimizer.text.markdown import suggested_lines
from optimizer.text.mentions import mentioned_names
from optimizer.tools.text_protocol import parse_calls
from runners.emulation.rewriting import rewritten
from runners.harness.verdict.library_calls import lacks_own_kernel
from runners.job import Language, Source
from runners.problems.forbidden import forbidden_in
from runners.problems.slow_reference import slow_loop
from runners.tunables import parse
from tests.attack.growth import MOST_GROWTH, Reader, growth, repeated

CHARACTERS = 2_000
UNIT = st.text("`~#*_<>=-+[](){}\"'\\/| \n\t\rab1:;,.@!?\x1b\u202eé", min_size=1, max_size=5) | st.sampled_from(
    ["TOOL: a\n", "REPORT:\n", "GAIN: 1\n", "@tune A 1 2\n", "// @tune A 1 2\n", "# @constraint 1\n", "#if\n", "a=",
     "<<<<<<< SEARCH\n", "=======\n", ">>>>>>> REPLACE\n", "<<<IMPROVE BEGIN>>>\n", "error: ", "a:1: error: b\n",
     "```suggestion\n", "asm(", "void kernel (", "dlopen(", "cublas", "x[0]", "if a:\n ", "a.b", "a()", "lambda:",
     "not ", "import a\n"]
)  # fmt: skip
AROUND = st.text("`~#\"'/*<x\\\n ", max_size=3)


def answered(schema: str) -> Reader:
    return lambda text: answers.parse_answer(schema, text, basis=Basis("a\nb\n" * 20, "cpp"))


def edited(text: str) -> str:
    return f"<<<<<<< SEARCH\n{text[: len(text) // 2]}\n=======\n>>>>>>> REPLACE\n"


READERS: dict[str, Reader] = {
    **{schema: answered(schema) for schema in ("KernelAnswer", "PlanAnswer", "DesignerAnswer", "FreeAnswer")},
    "kernel with prose": lambda text: answers.parse_answer("KernelAnswer", f"{text}\n```\na\n```\n"),
    "edits of it": lambda text: answers.parse_answer(
        "KernelAnswer",
        f"<<<<<<< SEARCH\n{text[: len(text) // 2]}\n=======\n>>>>>>> REPLACE\n",
        basis=Basis(text, "cpp"),
    ),
    "tool calls": parse_calls,
    "prompt": lambda text: Delimiters("0123456789abcdef").enclose(text, "log", len(text)),
    "log": plain_log,
    "diagnostics": diagnostics_in,
    "look-alikes": lookalikes_in,
    "mentions": mentioned_names,
    "JSON": read_json,
    "recording": lambda text: Stripper(["two words"], ["ida"]).prose(text),
    "suggestion": suggested_lines,
    "C++": lambda text: normalise.__wrapped__(Language.CPP, text),
    "Python": lambda text: normalise.__wrapped__(Language.PYTHON, text),
    "tunables": parse,
    "tuned": lambda text: with_values(Source(Language.CPP, text, {"A": 1})),
    "emulated": rewritten,
    "screened": lambda text: lacks_own_kernel(Source(Language.TRITON, text)),
    "screened CUDA": lambda text: lacks_own_kernel(Source(Language.CUDA, text)),
    "forbidden": lambda text: forbidden_in(text, ["torch.topk", "F.linear"]),
    "reference": slow_loop,
}


@pytest.mark.parametrize("name", READERS)
@given(unit=UNIT, before=AROUND, after=AROUND)
@settings(max_examples=8, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
def test_reading_takes_time_in_proportion(name: str, unit: str, before: str, after: str) -> None:
    assert growth(READERS[name], repeated(unit, before, after), CHARACTERS) <= MOST_GROWTH


@pytest.mark.long
@pytest.mark.parametrize("name", READERS)
@given(unit=UNIT, before=AROUND, after=AROUND)
@settings(max_examples=100, database=None, deadline=None, suppress_health_check=list(HealthCheck))
def test_reading_takes_time_in_proportion_at_length(name: str, unit: str, before: str, after: str) -> None:
    assert growth(READERS[name], repeated(unit, before, after), CHARACTERS) <= MOST_GROWTH
