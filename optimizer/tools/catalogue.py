"""List the tools, their arguments, and which of them a run offers. A new tool is one entry of TOOLS.

A tool that needs a runner names the effort of its job, which `optimizer.calls.tool_jobs` makes. The others are answered
from the database at once (`optimizer.tools.answers`). What a model sends is used as arguments and as nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from optimizer.llm.port import ToolSpec
from optimizer.search.machinery.tool_use import ToolLevel
from runners.dispatch.celery import CeleryDispatcher
from runners.dispatch.spool import SpoolDispatcher
from runners.job import Effort, Language

SUBMIT = "submit"
# Roles that write kernels; the others have nothing to build or to submit.
WRITERS = frozenset({"writer", "code", "debug", "solo"})
MAX_SOURCE_CHARACTERS = 512 * 1024


class Arguments(BaseModel):
    """Provide the base class of all arguments. Unknown ones are refused, so that a misspelt one is not ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class KernelArguments(Arguments):
    """Name the kernel that a tool works on."""

    source: str = Field(
        "",
        max_length=MAX_SOURCE_CHARACTERS,
        description="The complete file. Without source and edits, the kernel of your last call is taken.",
    )
    edits: str = Field(
        "",
        max_length=MAX_SOURCE_CHARACTERS,
        description="SEARCH/REPLACE blocks instead of a complete file. They change the kernel of your last call, or "
        "before that the kernel that you were given to change.",
    )
    # A plain text, because some servers refuse references, null and empty values in a schema.
    language: str = Field(
        "", max_length=10, description="cpp, hip, cuda, triton or python; only where it is not the task's."
    )


class BlockArguments(KernelArguments):
    """Name the kernel by the new content of the blocks that a planner has marked; the rest of the file stays."""

    source: str = Field(
        "",
        max_length=MAX_SOURCE_CHARACTERS,
        description="The new content of the marked block, or the complete file with no other line changed. Without any "
        "content, the kernel of your last call is taken.",
    )
    blocks: list[str] = Field(
        default=[],
        max_length=20,
        description="With several marked blocks, the new content of each, in their order.",
    )
    edits: str = Field(
        "",
        max_length=MAX_SOURCE_CHARACTERS,
        description="SEARCH/REPLACE blocks inside the marked blocks instead. They change the kernel of your last call, "
        "or before that the source with the marks.",
    )


class TimingArguments(KernelArguments):
    """Name the kernel to time, and the one that it is timed in turns with."""

    against: Literal["base", "last"] = Field(
        "base",
        description="The kernel that it takes turns with: base is the one that you were given to change, last that of "
        "your last timed and correct call, which tells two variants of yours apart.",
    )


class TimingBlockArguments(TimingArguments, BlockArguments):
    """Hold the same for a role that writes marked blocks."""


class SubmitArguments(KernelArguments):
    """Hold the answer to the question: a kernel and what its writer says about it."""

    title: str = Field("", max_length=200, description="A few words.")
    report: str = Field("", max_length=20_000, description="What you did and why, in a few sentences.")
    rubric: str = Field("", max_length=400, description="followed, partly or no, with one sentence.")


class SubmitBlockArguments(SubmitArguments, BlockArguments):
    """Hold the answer of a role that writes marked blocks."""

    report: str = Field(
        "",
        max_length=20_000,
        description="What you did and where it differs from the instruction, in at most forty words.",
    )
    rubric: str = Field(
        "",
        max_length=400,
        description="followed, partly or no; if not followed, what is missing, in a few words.",
    )


def _without_hash(number: object) -> object:
    """Return a kernel's number as prompts show it, #12, without the mark."""
    return number.strip().removeprefix("#") if isinstance(number, str) else number


class ReadKernelArguments(Arguments):
    """Name a kernel of the run."""

    number: Annotated[int, BeforeValidator(_without_hash)] = Field(
        ge=0, le=10**9, description="The kernel's number: 12 or #12."
    )


class SearchArguments(Arguments):
    """Hold a query."""

    query: str = Field(min_length=1, max_length=400, description="A few technical words.")
    limit: int = Field(5, ge=1, le=10, description="Pages at most.")


@dataclass(frozen=True)
class Tool:
    """Describe one tool. `effort` is that of its job, None where no runner is needed.

    With `interpreted`, the job runs a Triton kernel by its interpreter on a CPU.
    """

    name: str
    description: str
    arguments: type[Arguments]
    effort: Effort | None = None
    profile: bool = False
    interpreted: bool = False

    @property
    def runs_kernels(self) -> bool:
        """Return whether the tool takes time of a device, or of the interpreter in its place."""
        return self.effort not in (None, Effort.BUILD)

    def spec(self) -> ToolSpec:
        """Return the tool as providers describe it to their models."""
        return ToolSpec(self.name, self.description, self.schema)

    @property
    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments, without what only documents it twice."""
        found = self.arguments.model_json_schema()
        fields = {
            name: {key: value for key, value in field.items() if key not in {"title", "default"}}
            for name, field in found["properties"].items()
        }
        # Its description is written for readers of this module.
        return {key: value for key, value in found.items() if key not in {"title", "description"}} | {
            "properties": fields
        }


TOOLS: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool(
            "build",
            "Compile a kernel for the target. Returns compiler messages, registers, spills, shared memory, occupancy, "
            "and a predicted time once enough kernels are measured. "
            "A HIP or CUDA kernel whose device is elsewhere also runs on the smallest cases, in emulation on the CPU.",
            KernelArguments,
            Effort.BUILD,
        ),
        Tool(
            "check",
            "Build a kernel and run it on the test cases, smallest first. Returns the first and the worst wrong "
            "element.",
            KernelArguments,
            Effort.CHECK,
        ),
        Tool(
            "quick_time",
            "Build, check and time a kernel for a short while, in turns with the kernel that you were given to change "
            "(or your last one) and with the baseline. Returns times and speedup by case; the interval is wider than "
            "an evaluation's.",
            TimingArguments,
            Effort.QUICK,
        ),
        Tool(
            "profile",
            "Like quick_time, and look closer at the slowest case: what the time is spent on and what limits it.",
            TimingArguments,
            Effort.QUICK,
            profile=True,
        ),
        Tool("read_kernel", "Show a kernel of this run: source, outcome, logs, times.", ReadKernelArguments),
        Tool("search_knowledge", "Search the notes on this hardware and on techniques.", SearchArguments),
        Tool(
            SUBMIT,
            "Answer with a kernel. It is evaluated in full, and your work on this question ends. Without a kernel, "
            "that of your last call is taken, which need not be repeated.",
            SubmitArguments,
        ),
    )
}
_INTERPRETED = replace(
    TOOLS["check"],
    interpreted=True,
    description="Run a kernel on the smallest cases with Triton's interpreter on a CPU, because the device is not "
    "here. Returns the first and the worst wrong element. Large cases and races are not seen, tuners take one of "
    "their configurations for each shape, and inline assembly cannot be run.",
)


_FOR_BLOCKS: dict[type[Arguments], type[Arguments]] = {
    KernelArguments: BlockArguments,
    TimingArguments: TimingBlockArguments,
    SubmitArguments: SubmitBlockArguments,
}


def for_blocks(tools: dict[str, Tool]) -> dict[str, Tool]:
    """Return the tools of a role whose answers are the content of marked blocks."""
    return {
        name: replace(tool, arguments=_FOR_BLOCKS.get(tool.arguments, tool.arguments))
        for name, tool in tools.items()
    }


def tools_for(level: ToolLevel, role: str, dispatcher: str, target: str, language: Language) -> dict[str, Tool]:
    """Return the tools that a role has, by name.

    A device that is reached through KernelBot is measured by others, who take whole submissions only. One behind a
    spool may take hours to answer, so it is used at the level `measure` alone. In both cases, Triton kernels can be
    checked here, by its interpreter.
    """
    if level == "none" or role not in WRITERS:
        return {}
    is_near = dispatcher == CeleryDispatcher.name
    measures = level == "measure" and (is_near or dispatcher == SpoolDispatcher.name)
    uses_device = is_near or measures
    is_interpreted = not uses_device and language is Language.TRITON and target != "cpu"
    offered = {"build", "read_kernel", "search_knowledge", SUBMIT}
    offered |= {"check"} if uses_device or is_interpreted else set()
    offered |= {"quick_time", "profile"} if measures else set()
    found = {name: tool for name, tool in TOOLS.items() if name in offered}
    return found | {"check": _INTERPRETED} if is_interpreted else found
