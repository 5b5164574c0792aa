"""Test answers of selector, designer and planner, good and bad."""

from __future__ import annotations

import json

import pytest

from optimizer.agents.answer_base import Basis
from optimizer.agents.answers import json_schema_of, parse_answer
from optimizer.agents.code_blocks import AnswerError
from optimizer.agents.role_answers import DesignerAnswer, PlanAnswer

SOURCE = "int f() {\n  int x = 1;\n  return x;\n}\n"
PLAN = """TITLE: Unroll the loop
INSTRUCTION: Unroll by four,
because the chain of adds limits.
GAIN: -5 to 30 %

```cpp
int f() {
  // <<<IMPROVE BEGIN>>>
  // advice: four accumulators
  int x = 1;
  // <<<IMPROVE END>>>
  return x;
}
```
"""


def plan(text: str, basis: str = SOURCE) -> PlanAnswer:
    answer = parse_answer("PlanAnswer", text, basis=Basis(basis, "cpp"))
    assert isinstance(answer, PlanAnswer)
    return answer


def test_a_plan_carries_title_instruction_gain_and_anchored_source() -> None:
    answer = plan(PLAN)
    assert answer.title == "Unroll the loop"
    assert answer.instruction.startswith("Unroll by four") and "limits" in answer.instruction
    assert (answer.predicted_min, answer.predicted_max) == (-5, 30)


def test_begins_and_ends_are_accepted_as_the_papers_appendix_writes_them() -> None:
    assert plan(PLAN.replace("BEGIN>", "BEGINS>").replace("END>", "ENDS>")).title


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (PLAN.replace("  // <<<IMPROVE BEGIN>>>\n", ""), "is missing"),
        (PLAN.replace("<<<IMPROVE END>>>", "<<<IMPROVE BEGIN>>>"), "occurs again"),
        (PLAN.replace("BEGIN", "X").replace("END", "BEGIN").replace("X", "END"), "stands before"),
        (PLAN.replace("int x = 1;", "int x = 2;"), "not in the source"),
        ("TITLE: no code at all", "code"),
    ],
)
def test_unusable_anchors_are_named_to_the_planner(broken: str, words: str) -> None:
    with pytest.raises(AnswerError, match=words):
        plan(broken)


def test_an_instruction_may_stand_in_the_block_alone() -> None:
    assert plan(PLAN[PLAN.index("```") :]).instruction == "four accumulators"


def designer(**changes: object) -> str:
    experiment = {"title": "t", "description": "d", "rubric": "r", "performance": [-3, 9], "innovation": 7}
    answer = {
        "analysis": "a",
        "avenues": [{"title": "t", "sentence": "s"}],
        "experiments": [{**experiment, **changes}] * 3,
    }
    return json.dumps(answer)


def test_negative_predicted_gains_are_honest_and_accepted() -> None:
    answer = parse_answer("DesignerAnswer", designer())
    assert isinstance(answer, DesignerAnswer) and answer.experiments[0].performance == [-3, 9]


@pytest.mark.parametrize(
    ("said", "gains"),
    [
        ("\N{MINUS SIGN}5 to 10 %", (-5, 10)),
        ("-10 % to -20 %", (-20, -10)),
        ("-500 to 3", (None, None)),
        (f"5 to {'9' * 400}", (None, None)),
        ("nan to inf", (None, None)),
    ],
    ids=["typeset minus", "both negative", "slower than never", "beyond every number", "none"],
)
def test_a_plans_gain_is_one_that_a_kernel_can_have_or_none(said: str, gains: tuple[float | None, ...]) -> None:
    answer = plan(PLAN.replace("-5 to 30 %", said))
    assert (answer.predicted_min, answer.predicted_max) == gains


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_a_gain_that_is_no_number_is_named_as_such(constant: str) -> None:
    with pytest.raises(AnswerError, match=f"{constant} is no number in JSON"):
        parse_answer("DesignerAnswer", designer().replace("-3", constant))


@pytest.mark.parametrize("change", [{"performance": [1]}, {"innovation": 101}, {"rubric": ""}, {"budget": 99}])
def test_a_designers_answer_outside_the_schema_is_refused_with_the_field_named(change: dict[str, object]) -> None:
    with pytest.raises(AnswerError, match=next(iter(change))):
        parse_answer("DesignerAnswer", designer(**change))


def test_json_schemas_for_servers_are_strict() -> None:
    schema = json_schema_of("DesignerAnswer")
    assert schema is not None
    assert schema["additionalProperties"] is False and set(schema["required"]) == set(schema["properties"])
