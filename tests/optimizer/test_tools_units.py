"""Test which tools a run offers, how calls are written in text, and which kernel they are about."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from optimizer.agents.answer_base import Basis
from optimizer.agents.answers import parse_answer
from optimizer.agents.code_blocks import AnswerError
from optimizer.agents.delimiters import Delimiters
from optimizer.calls.conversation import Toolbox, tools_notice
from optimizer.llm.port import RequestedTool
from optimizer.llm.tool_messages import StreamedCalls, call_in_text, text_messages
from optimizer.search import STRATEGIES
from optimizer.search.base import AS_PUBLISHED, History, KernelView, StrategySettings
from optimizer.tools.answers import answer
from optimizer.tools.catalogue import (
    TOOLS,
    BlockArguments,
    KernelArguments,
    ReadKernelArguments,
    SearchArguments,
    SubmitArguments,
    SubmitBlockArguments,
    for_blocks,
    tools_for,
)
from optimizer.tools.limits import Limits, Spent, left_in_words, used_up
from optimizer.tools.results import headline, in_words, status
from optimizer.tools.sources import Draft, answer_text, draft_of
from optimizer.tools.text_protocol import instruction, parse_calls, words_before
from runners.emulation import library as emulation
from runners.job import BuildReport, JobResult, KernelResources, Language, Source, Status

CPP = Language.CPP
ANCHORED = "int a;\n// <<<IMPROVE BEGIN>>>\nint slow;\n// <<<IMPROVE END>>>\nint z;\n"
ALWAYS = {"build", "read_kernel", "search_knowledge", "submit"}


def offered(level: str, dispatcher: str = "celery", target: str = "sm_90", language: Language = CPP) -> set[str]:
    return set(tools_for(level, "writer", dispatcher, target, language))  # type: ignore[arg-type]


def test_each_level_offers_what_its_name_says() -> None:
    assert offered("none") == set()
    assert offered("build") == ALWAYS | {"check"}
    assert offered("measure") == ALWAYS | {"check", "quick_time", "profile"}


@pytest.mark.parametrize("dispatcher", ["spool", "kernelbot"])
def test_where_the_device_is_far_only_what_can_be_done_here_is_offered(dispatcher: str) -> None:
    assert offered("build", dispatcher) == ALWAYS
    assert offered("build", dispatcher, language=Language.TRITON) == ALWAYS | {"check"}
    check = tools_for("build", "writer", dispatcher, "gfx942", Language.TRITON)["check"]
    assert check.interpreted and "interpreter" in check.description


def test_measuring_goes_through_a_spool_and_never_through_kernelbot() -> None:
    assert offered("measure", "spool") == ALWAYS | {"check", "quick_time", "profile"}
    assert offered("measure", "kernelbot") == ALWAYS
    assert not tools_for("measure", "writer", "spool", "gfx942", Language.TRITON)["check"].interpreted


def noticed(level: str, dispatcher: str = "celery", language: Language = CPP) -> str:
    tools = tools_for(level, "writer", dispatcher, "gfx942", language)  # type: ignore[arg-type]
    return tools_notice(Toolbox(tools, Limits(12, 120.0, 1000), language))


def test_a_prompt_promises_only_what_the_offered_tools_can_do() -> None:
    measure, build = noticed("measure"), noticed("build")
    assert "whether your kernel builds and is right on the public test cases, and how fast it is." in measure
    assert "whether your kernel builds and is right on the public test cases." in build
    assert all("and 120 seconds of the device. Build and check before" in notice for notice in (measure, build))
    far = noticed("build", "kernelbot")
    assert "whether your kernel builds. There are 12 tool calls for this kernel. Build before" in far
    assert "and 120 seconds of the interpreter." in noticed("build", "spool", Language.TRITON)


def test_a_build_counts_the_spills_of_every_vendor() -> None:
    amd = KernelResources("k", vgpr_spills=3, sgpr_spills=1)
    nvidia = KernelResources("k", registers=255, extra={"spill_store_bytes": 48})
    for kernel, said in ((amd, "4 spilled registers"), (nvidia, "48 bytes of spilled registers")):
        found = JobResult("j", Status.CORRECT, build=BuildReport(True, 0.1, False, "", kernels=[kernel, kernel]))
        twice = said.replace("48 ", "96 ").replace("4 spilled", "8 spilled")
        assert headline(TOOLS["build"], found) == f"Builds, {twice}"
    assert "spill_store_bytes 48" in in_words(TOOLS["build"], found)


def test_every_language_that_is_emulated_is_named_where_builds_are_offered() -> None:
    for language in emulation.LANGUAGES:
        assert language.label in TOOLS["build"].description


@pytest.mark.parametrize("role", ["selector", "designer", "plan", "findings", "digest", "meta"])
def test_roles_that_write_no_kernel_have_no_tools(role: str) -> None:
    assert not tools_for("measure", role, "celery", "cpu", CPP)


def test_new_runs_build_and_runs_as_published_have_no_tools() -> None:
    assert AS_PUBLISHED["tools"] == "none"
    for strategy in ("scientist", "stark", "islands", "sampling", "reflexion"):
        settings = STRATEGIES[strategy].Settings
        assert settings.model_validate({}).model_dump()["tools"] == "build"
        assert settings.model_validate({"preset": "as_published"}).model_dump()["tools"] == "none"


def test_schemas_are_plain_enough_for_every_server() -> None:
    for tool in [*TOOLS.values(), *for_blocks(TOOLS).values()]:
        text = json.dumps(tool.schema)
        assert not any(word in text for word in ("$ref", "anyOf", "null", '"title": {"title"', "Provide", "Hold"))
        assert all(field["description"] for field in tool.schema["properties"].values())


def test_calls_are_read_from_text_with_arguments_and_kernel() -> None:
    text = "I look.\n\nTOOL: read_kernel\nnumber: 3\n\n**TOOL:** `build`\n```cuda\nint x;\n```\n"
    assert parse_calls(text) == [
        RequestedTool("read_kernel", {"number": "3"}),
        RequestedTool("build", {"source": "int x;\n", "language": "cuda"}),
    ]
    assert words_before(text).strip() == "I look."


def test_the_instruction_shows_how_to_submit_without_repeating_the_kernel() -> None:
    (shown,) = [one for one in parse_calls(instruction([])) if one.name == "submit"]
    arguments = SubmitArguments.model_validate(dict(shown.arguments or {}))
    assert (arguments.title, arguments.report) == ("a few words", "what you did and why")
    built = Draft("int built;", CPP)
    basis = Basis("int given;\n", "cpp")
    assert draft_of(arguments, built, basis, CPP) == built


def test_a_call_inside_a_code_block_is_code() -> None:
    assert parse_calls("```cpp\nTOOL: build\n```\n") == []


def test_a_block_that_is_never_closed_is_explained() -> None:
    (call,) = parse_calls("TOOL: build\n```cpp\nint x;\n")
    assert "never closed" in call.fault


def test_a_call_survives_the_way_into_text_and_back() -> None:
    source = "int x; // ```\n"
    (call,) = parse_calls(call_in_text({"name": "build", "arguments": '{"source": "int x; // ```\\n"}'}))
    assert (call.name, call.arguments) == ("build", {"source": source})


def test_several_marked_blocks_survive_the_way_into_text_and_back() -> None:
    arguments = json.dumps({"blocks": ["int x;\n", "int y;\n"]})
    (call,) = parse_calls(call_in_text({"name": "build", "arguments": arguments}))
    assert call.arguments == {"blocks": ["int x;\n", "int y;\n"]}


def test_lines_that_end_as_on_windows_change_nothing() -> None:
    text = "I look.\r\nTOOL: read_kernel\r\nnumber: 3\r\n"
    assert parse_calls(text) == [RequestedTool("read_kernel", {"number": "3"})]
    assert words_before(text) == "I look."


@given(st.text(max_size=300))
def test_any_text_is_read_without_an_error(text: str) -> None:
    for one in (text, f"TOOL: build\n{text}", f"{text}\nTOOL: submit\n```\n{text}"):
        parse_calls(one)
        words_before(one)


def test_results_become_messages_of_the_user_where_there_are_no_tools() -> None:
    call = {"id": "c1", "name": "build", "arguments": '{"source": "int x;"}'}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Task."},
        {"role": "assistant", "content": "I look.", "tool_calls": [call, call]},
        {"role": "tool", "tool_call_id": "c1", "content": "One."},
        {"role": "tool", "tool_call_id": "c1", "content": "Two."},
    ]
    task, said, results = text_messages(messages)
    assert said["content"].startswith("I look.\n\nTOOL: build\n```\nint x;\n```")
    assert results == {"role": "user", "content": "One.\n\nTwo."} and set(task) == {"role", "content"}


@pytest.mark.parametrize("index", [None, 0])
def test_calls_of_servers_that_give_all_the_same_index_are_told_apart(index: int | None) -> None:
    calls = StreamedCalls()
    for reference in ("a", "b"):
        call = calls.call_for(index, reference, "build")
        call.reference, call.name = reference, "build"
        calls.call_for(index, "", "").arguments.append('{"source": "x"}')
    assert [call.reference for call in calls.finished()] == ["a", "b"]
    assert all(call.arguments == {"source": "x"} for call in calls.finished())


def test_edits_change_the_last_kernel_and_before_it_the_one_to_change() -> None:
    edits = KernelArguments(edits="<<<<<<< SEARCH\nint a;\n=======\nint b;\n>>>>>>> REPLACE\n")
    basis = Basis("int a;\n", "cpp")
    assert draft_of(edits, None, basis, CPP).text == "int b;\n"
    assert draft_of(edits, Draft("int a;\nint z;\n", CPP), basis, CPP).text == "int b;\nint z;\n"
    with pytest.raises(AnswerError, match="not in the kernel"):
        draft_of(edits, Draft("int c;\n", CPP), basis, CPP)
    with pytest.raises(AnswerError, match="no kernel to edit"):
        draft_of(edits, None, None, CPP)


def test_a_role_that_writes_marked_blocks_changes_nothing_else() -> None:
    block = for_blocks(tools_for("build", "code", "celery", "cpu", CPP))["build"].arguments.model_validate(
        {"source": "int fast;"}
    )
    assert isinstance(block, BlockArguments)
    assert draft_of(block, None, Basis(ANCHORED, "cpp"), CPP).text == "int a;\nint fast;\nint z;\n"
    with pytest.raises(AnswerError, match="1 blocks are marked"):
        draft_of(BlockArguments(blocks=["int x;", "int y;"]), None, Basis(ANCHORED, "cpp"), CPP)


def edit(old: str, new: str) -> str:
    return f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n"


def test_edits_of_marked_blocks_change_the_last_kernel_too() -> None:
    def edits(old: str, new: str) -> BlockArguments:
        return BlockArguments(edits=edit(old, new))

    basis = Basis(
        "#include <first>\n// <<<IMPROVE BEGIN>>>\nint slow;\n// <<<IMPROVE END>>>\nint unmarked;\n", "cpp"
    )
    one = draft_of(edits("int slow;", "int fast;\nint more;"), None, basis, CPP)
    assert one.text == "#include <first>\nint fast;\nint more;\nint unmarked;\n"
    two = draft_of(edits("int more;", "int most;"), one, basis, CPP)
    assert two.text == "#include <first>\nint fast;\nint most;\nint unmarked;\n"
    with pytest.raises(AnswerError, match="outside the marked blocks"):
        draft_of(edits("int unmarked;", "int changed;"), one, basis, CPP)
    with pytest.raises(AnswerError, match="not in the kernel"):
        draft_of(edits("int nowhere;", "int fast;"), one, basis, CPP)
    assert draft_of(BlockArguments(blocks=["int fast;\nint most;"]), one, basis, CPP) == two


def test_edits_of_a_source_that_is_marked_as_a_whole_change_the_last_kernel() -> None:
    basis = Basis("// <<<IMPROVE BEGIN>>>\nint slow_one;\nint slow_two;\n// <<<IMPROVE END>>>\n", "cpp")
    one = draft_of(BlockArguments(edits=edit("int slow_one;", "int fast_one;")), None, basis, CPP)
    both = draft_of(BlockArguments(edits=edit("int slow_two;", "int fast_two;")), one, basis, CPP)
    assert both.text == "int fast_one;\nint fast_two;\n"


def test_edits_cannot_hide_unmarked_lines_behind_what_looks_like_anchors() -> None:
    source = "int unmarked_one;\n// <<<IMPROVE BEGIN>>>\nint slow;\n// <<<IMPROVE END>>>\nint unmarked_two;\n"
    basis = Basis(source, "cpp")
    last = draft_of(BlockArguments(source="int fast;"), None, basis, CPP)
    hidden = "// advice: \\\nint unmarked_two;\n// <<<IMPROVE END>>>"
    assert draft_of(BlockArguments(edits=edit("int unmarked_two;", hidden)), last, basis, CPP).text == last.text
    marked = "// <<<IMPROVE BEGIN>>>\nint faster;\n// <<<IMPROVE END>>>"
    assert "IMPROVE" not in draft_of(BlockArguments(edits=edit("int fast;", marked)), last, basis, CPP).text


def test_edits_that_fit_the_given_source_alone_change_that_one_and_say_so() -> None:
    basis = Basis(
        "#include <first>\n// <<<IMPROVE BEGIN>>>\nint slow;\n// <<<IMPROVE END>>>\nint unmarked;\n", "cpp"
    )
    last = Draft("#include <first>\nint fast;\nint unmarked;\n", CPP)
    anew = BlockArguments(edits=edit("int slow;", "int faster;"))
    draft = draft_of(anew, last, basis, CPP)
    assert (draft.text, draft.is_original_edited) == ("#include <first>\nint faster;\nint unmarked;\n", True)
    assert not draft_of(anew, None, basis, CPP).is_original_edited, "there is no other kernel to take it for"
    assert not draft_of(BlockArguments(), draft, basis, CPP).is_original_edited, "it is the last kernel now"
    with pytest.raises(AnswerError, match="not in the kernel"):
        draft_of(SubmitBlockArguments(edits=edit("int slow;", "int faster;"), title="t"), last, basis, CPP)


@pytest.mark.parametrize(
    ("schema", "way"), [("BlockAnswer", "for each marked block"), ("KernelAnswer", "complete file")]
)
def test_the_instruction_names_the_form_in_which_kernels_are_taken(schema: str, way: str) -> None:
    tools = tools_for("build", "code", "celery", "cpu", CPP)
    offered = for_blocks(tools) if schema == "BlockAnswer" else tools
    told = instruction([tool.spec() for tool in offered.values()])
    assert f"either one fenced code block {'with the ' if way == 'complete file' else ''}{way}" in told
    assert "{" not in told.split("### ")[0]


@pytest.mark.parametrize("report", ["Plain.", "With a fence:\n```cpp\nint other;\n```\n", "TITLE: another"])
def test_a_submission_is_read_back_as_it_was_written(report: str) -> None:
    source = "int x; // ```` fences\n"
    text = answer_text(Draft(source, CPP), SubmitArguments(title="Two\nlines", report=report, rubric="followed"))
    answer = parse_answer("KernelAnswer", text).model_dump()
    assert answer["source"] == source and answer["language"] == "cpp" and answer["rubric_followed"] == "followed"


def test_limits_are_told_before_and_after_they_are_reached() -> None:
    limits = Limits(2, 10.0, 1000)
    assert left_in_words(limits, Spent(1, 4.0, 10)) == "Left for this question: 1 tool call, 6 s of the device."
    assert "2 tool calls" in used_up(limits, Spent(2)) and used_up(limits, Spent(0, 10.0)) == ""
    assert left_in_words(limits, Spent(1, 10.0)) == (
        "All 10 seconds of the device of this question are used up. "
        "Left for this question: 1 tool call, of tools that run no kernel."
    )
    assert "1,000 tokens" in used_up(limits, Spent(0, 0.0, 1000)) and used_up(limits, Spent()) == ""


@pytest.mark.parametrize(("vector", "found"), [(["avx2"], False), (["avx2", "avx512f"], True)])
def test_the_search_tool_leaves_out_instruction_sets_that_the_machine_lacks(vector: list[str], found: bool) -> None:
    result = JobResult("j", Status.CORRECT, environment={"vector": vector})
    kernel = KernelView("k", 1, (), "seed", Source(CPP, "int x;"), True, Status.CORRECT, result)
    history = History(None, "cpu", StrategySettings(), 0, [kernel])
    arguments = SearchArguments(query="AVX-512 masks for tails, AMX tiles", limit=10)
    told = answer("search_knowledge", arguments, history, [], Delimiters())
    assert ("AVX-512 masks for tails" in told) == found and "AMX tile registers" not in told


@pytest.mark.parametrize(
    "said",
    [
        "InterpreterError: NotImplementedError('inline_asm not supported in interpreter mode')",
        "NotImplementedError: tl.extra.cuda.smid is not computed by Triton's interpreter on a CPU",
        "AssertionError: Torch not compiled with CUDA enabled",
    ],
)
def test_a_kernel_that_the_interpreter_cannot_run_is_not_called_broken(said: str) -> None:
    check = tools_for("build", "code", "spool", "sm_90", Language.TRITON)["check"]
    build = BuildReport(False, 1.0, False, f"Traceback\n{said}", None)
    for result in (
        JobResult(
            "j", Status.CRASHED, reasons=[f"candidate, tests: wide: {said}\nTraceback (most recent call last):"]
        ),
        JobResult("j", Status.BUILD_FAILED, build=build, reasons=["does not build"]),
    ):
        told = in_words(check, result)
        assert told.startswith("Not checked") and said in told and "does not build" not in told.lower()
        assert headline(check, result) == "Not checked: the interpreter cannot run it"
        assert status(check, result) == ""
        # On a device the same words are a fault of the kernel.
        assert "Not checked" not in in_words(TOOLS["check"], result)


@pytest.mark.parametrize("number", [12, "12", "#12", " #12 "])
def test_a_kernel_is_named_by_its_number_with_or_without_its_mark(number: object) -> None:
    assert ReadKernelArguments.model_validate({"number": number}).number == 12


@pytest.mark.parametrize("number", ["", "#", "##12", "twelve", "#-1", None, [12]])
def test_what_is_no_number_of_a_kernel_is_refused(number: object) -> None:
    with pytest.raises(ValidationError):
        ReadKernelArguments.model_validate({"number": number})
