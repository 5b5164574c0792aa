"""Test that the entry point that a prompt asks for is the one that the harness calls."""

from __future__ import annotations

import inspect
import re

import pytest

from optimizer.agents import task_sections
from optimizer.agents.answers import parse_answer
from optimizer.agents.code_blocks import AnswerError
from optimizer.agents.delimiters import Delimiters
from runners import wire
from runners.job import Language, ProblemBundle
from runners.problems import load, open_bundle, shipped
from runners.problems.base import Argument, Problem, Role
from runners.problems.signature import FILE, CaseFigures, Signature, digest_of


def _entry(source: str) -> inspect.Signature:
    namespace: dict[str, object] = {}
    exec(source, namespace)  # noqa: S102 - a shipped reference of our own
    return inspect.signature(namespace["custom_kernel"])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", shipped())
def test_the_python_signature_of_a_prompt_is_that_of_the_problems_own_seed(name: str) -> None:
    problem = open_bundle(load(name))
    seed = next(seed for seed in problem.seeds if seed.name == "reference")
    text = task_sections.task(problem, "sm_90", Language.TRITON, Delimiters())
    asked = re.search(r"`custom_kernel\(([^)]*)\)`", text)
    assert asked, "the prompt names no entry point"
    assert asked.group(1).split(", ") == list(_entry(seed.source.text).parameters)


@pytest.mark.parametrize("language", [Language.TRITON, Language.PYTHON])
def test_no_language_guide_asks_for_one_tuple_that_only_a_foreign_format_has(language: Language) -> None:
    assert "custom_kernel(data)" not in task_sections.language_guide(language)


def test_the_longest_source_that_a_prompt_names_is_the_longest_that_an_answer_may_have() -> None:
    text = task_sections.task(open_bundle(load("softmax_rows")), "cpu", Language.CPP, Delimiters())
    (named,) = re.findall(r"source (\d+) KiB", text)
    longest = "x" * (1024 * int(named) - 1)
    assert parse_answer("KernelAnswer", f"```cpp\n{longest}\n```").model_dump()["source"].strip() == longest
    with pytest.raises(AnswerError, match=f"longer than {named} KiB"):
        parse_answer("KernelAnswer", f"```cpp\n{longest}xx\n```")


MODEL = """
class Model:
    pass

rows = 4096

def get_inputs(): ...
def get_init_inputs(): ...
"""


def _kernelbench(flops: dict[str, float]) -> Problem:
    arguments = (
        Argument("x", Role.INPUT, "float32", ("rows", "64"), value="0"),
        Argument("linear_weight", Role.PARAMETER, "float32", ("32", "64"), value="linear.weight"),
        Argument("eps", Role.SCALAR, "float64"),
        Argument("rows", Role.SIZE, "int64"),
        Argument("out", Role.OUTPUT, "float32", ("rows", "32")),
    )
    figures = {
        name: CaseFigures({"rows": rows, "eps": 1e-5}, flops, 1e6)
        for name, rows in (("reduced", 16), ("published", 4096))
    }
    signature = wire.dumps(Signature(digest_of(MODEL), "", arguments, figures))
    return open_bundle(
        ProblemBundle("1_Model", "kernelbench", "1_Model.py", {"1_Model.py": MODEL, FILE: signature})
    )


@pytest.mark.parametrize(
    ("language", "last"), [(Language.CPP, "float* out);"), (Language.CUDA, "float* out, void* stream);")]
)
def test_a_writer_in_a_compiled_language_sees_the_prototype(language: Language, last: str) -> None:
    text = task_sections.task(_kernelbench({"float32": 2e6}), "cpu", language, Delimiters())
    start = 'extern "C" void kernel(const float* x, const float* linear_weight, double eps, int64_t rows, '
    assert start + last in text
    assert "parameter, float32, 32 × 64, row-major, the same in every call, read-only" in text


def test_a_writer_in_python_sees_the_models_entry_point_and_no_prototype() -> None:
    text = task_sections.task(_kernelbench({}), "cpu", Language.PYTHON, Delimiters())
    assert "`ModelNew` with the constructor" in text and "custom_kernel(" not in text
    assert 'extern "C"' not in text


def test_a_writer_is_told_the_work_where_it_is_known() -> None:
    known = task_sections.task(_kernelbench({"float32": 2e6}), "cpu", Language.CPP, Delimiters())
    assert "2e+06 FLOP in the reference, 1e+06 bytes at least" in known
    unknown = task_sections.task(_kernelbench({}), "cpu", Language.CPP, Delimiters())
    assert "FLOP" not in unknown and "1e+06 bytes at least" in unknown


def test_a_native_problems_prototype_is_that_of_its_own_seed() -> None:
    problem = open_bundle(load("softmax_rows"))
    text = task_sections.task(problem, "cpu", Language.CPP, Delimiters())
    prototype = 'extern "C" void softmax_rows(const float* x, float* out, int64_t rows, int64_t cols)'
    assert f"{prototype};" in text
    seed = next(seed for seed in problem.seeds if seed.source.language is Language.CPP)
    assert prototype in " ".join(seed.source.text.split())
