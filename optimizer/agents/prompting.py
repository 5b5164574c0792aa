"""From an `Ask` to messages. Pure: the same ask, history and knowledge give the same prompt, but for the fence's mark.

Every role is a template in prompts/*.md, a function here that fills it, and nothing else. The version that is stored
with a call is the hash of the template and the language guide.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from optimizer.agents import sections
from optimizer.agents.knowledge import TOKEN_BUDGET, KnowledgeItem, Selection, choose_knowledge
from optimizer.llm.fence import NOTICE, Fencer
from optimizer.search.base import Ask, History, KernelView
from optimizer.search.machinery.proposals import target_language
from optimizer.search.machinery.seeds import seeds
from optimizer.search.scientist import AVENUES, EXPERIMENTS
from runners.job import Language

PROMPTS = Path(__file__).parent / "prompts"
GUIDANCE_HEADING = (
    "## Guidance from the team\n\nPeople who review this run ask for the following. Follow it, as far as the kernel "
    "stays correct and the task's rules are kept."
)
_USUAL_BRIEF = {"avenues": AVENUES, "experiments": EXPERIMENTS}
TABLE_ROWS = 60
"""Kernels in the selector's table at most; the fastest are kept."""


@dataclass(frozen=True)
class Prompt:
    """What is sent: `messages` for the provider; `version` names template and hash; `report` says what knowledge
    entered and what the budget kept out; `edit_base` is the text that SEARCH/REPLACE blocks refer to."""

    messages: list[dict[str, str]]
    version: str
    report: dict[str, Any] = field(default_factory=dict)
    edit_base: str = ""


@dataclass(frozen=True)
class Desk:
    """Everything a role's function may look at."""

    ask: Ask
    history: History
    fencer: Fencer
    selection: Selection
    language: Language

    @property
    def context(self) -> Mapping[str, Any]:
        """What the strategy said."""
        return self.ask.context

    def kernel(self, name: str) -> KernelView | None:
        """The kernel that the context names under `name`."""
        return self.history.kernel(str(self.context.get(name, "")))

    def shown(self, name: str, heading: str, *, source: bool = True) -> str:
        """That kernel as a section; empty where the context names none."""
        kernel = self.kernel(name)
        return sections.kernel(kernel, self.history, self.fencer, heading, source=source) if kernel else ""

    def task(self) -> str:
        """The task, and the machine that its kernels are measured on."""
        task = sections.task(self.history.problem, self.history.target, self.language, self.fencer)
        parts = (task, sections.machine(self.history), sections.objective(self.history))
        return "\n\n".join(part for part in parts if part)

    def knowledge(self) -> str:
        """The documents that were taken, under one heading."""
        documents = [item for item in self.selection.taken if item.scope != "guidance"]
        titled = [(f"{item.scope}: {item.title or item.ref}", item.text) for item in documents]
        return "## What is known\n\n" + sections.documents(titled, self.fencer) if titled else ""

    def guidance(self) -> str:
        """What the team asks for. Unlike all other words of others it is to be followed, so it stands outside the
        fences, as a quotation that cannot look like one."""
        said = [item for item in self.selection.taken if item.scope == "guidance"]
        quoted = [f"{item.title}:\n\n{sections.quoted(item.text)}" for item in said]
        return "\n\n".join([GUIDANCE_HEADING, *quoted]) if quoted else ""


def build_prompt(
    ask: Ask,
    history: History,
    knowledge: Sequence[KnowledgeItem] = (),
    *,
    fencer: Fencer | None = None,
    budget_tokens: int = TOKEN_BUDGET,
) -> Prompt:
    """The messages for an ask. Raises KeyError for a role nobody wrote a prompt for."""
    guided = [*knowledge, *_guidance(ask, history)]
    desk = Desk(ask, history, fencer or Fencer(), choose_knowledge(guided, budget_tokens), target_language(history))
    task, *rest = ROLES[ask.role](desk)
    parts = [part for part in (task, desk.guidance(), *rest) if part]
    messages = [
        {"role": "system", "content": f"{_template(ask.role)}\n\n{NOTICE}"},
        {"role": "user", "content": "\n\n".join(parts)},
    ]
    report = {**desk.selection.report(), "context": dict(ask.context)}
    return Prompt(messages, prompt_version(ask.role, desk.language), report, _edit_base(desk))


@cache
def prompt_version(role: str, language: Language) -> str:
    """`<role>@<hash>` over the role's template and the language guide."""
    text = _template(role) + sections.language_guide(language)
    return f"{role}@{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _selector(desk: Desk) -> list[str]:
    """Mission and table of times, no code (GPU Kernel Scientist §3.1)."""
    population = [k for key in desk.context["population"] if (k := desk.history.kernel(key))]
    fastest_first = sorted(population, key=lambda k: (k.time_us is None, k.time_us or 0.0))[:TABLE_ROWS]
    by_number = sorted(fastest_first, key=lambda k: k.number)
    return [desk.task(), "## Population\n\n" + sections.population_table(by_number, desk.history)]


def _designer(desk: Desk) -> list[str]:
    """Mission, Base's code, digest (§3.2)."""
    stagnant = (
        "The last rounds brought nothing. Leave the family of ideas that the experiments so far belong to: another "
        "algorithm, another memory layout, another mapping to the hardware."
        if desk.context.get("stagnant")
        else ""
    )
    much = "Answer with {avenues} avenues and {experiments} experiments.".format_map(
        {**_USUAL_BRIEF, **desk.context}
    )
    return [desk.task(), desk.knowledge(), desk.shown("base", "Base"), _tried(desk), stagnant, much]


def _writer(desk: Desk) -> list[str]:
    """Task, reference and naive port, findings, Base and Reference with one step of history, experiment (§3.3)."""
    naive = [
        k for k in seeds(desk.history) if k.key not in {"seed.reference"} and k.source.language == desk.language
    ]
    shown = {desk.context.get("base"), desk.context.get("reference")}
    port = [sections.kernel(k, desk.history, desk.fencer, "Direct port") for k in naive[:1] if k.key not in shown]
    view = desk.history.hypotheses.get(str(desk.context["hypothesis"]))
    experiment = "## The experiment\n\n" + sections.hypothesis(view, desk.fencer) if view else ""
    reference = (
        desk.shown("reference", "Reference") if desk.context.get("reference") != desk.context["base"] else ""
    )
    return [
        desk.task(),
        desk.knowledge(),
        *port,
        reference,
        desk.shown("base", "Base"),
        experiment,
        *_troubles(desk),
    ]


def _stark_window(desk: Desk) -> list[str]:
    """The window's kernels; node i comes last, nearest to the request (STARK §4.5)."""
    node = str(desk.context["node"])
    others = [key for key in desk.context["window"] if key != node]
    shown = [k for key in others if (k := desk.history.kernel(key))]
    return [
        *(sections.kernel(k, desk.history, desk.fencer, "From the tree") for k in shown),
        desk.shown("node", "The kernel to work on"),
    ]


def _stark(desk: Desk) -> list[str]:
    """Plan and single agent: task, knowledge, window."""
    return [desk.task(), desk.knowledge(), *_stark_window(desk), *_troubles(desk)]


def _code(desk: Desk) -> list[str]:
    """The coder sees the planner's anchored source and instruction (STARK §4.3)."""
    plan = desk.history.calls[str(desk.context["plan"])].answer or {}
    return [
        *_stark(desk),
        "## The plan\n\n" + desk.fencer.fence(str(plan.get("instruction", "")), "instruction", 20_000),
        desk.fencer.fence(str(plan.get("anchored", "")), "source with anchors", sections.SOURCE_CAP),
    ]


def _debug(desk: Desk) -> list[str]:
    """Code and logs of the failed node, and the plan it was to realise."""
    node = desk.kernel("node")
    plan = str(node.meta.get("plan", "")) if node else ""
    return [*_stark(desk), "## Its plan\n\n" + desk.fencer.fence(plan, "instruction", 20_000) if plan else ""]


def _findings(desk: Desk) -> list[str]:
    """After a round: its kernels; before the first: the seeds."""
    number = int(desk.context["round"])
    mine = [k for k in desk.history.kernels if _in_round(k, number)]
    shown = [sections.kernel(k, desk.history, desk.fencer, "Result", source=number == 0) for k in mine]
    return [desk.task(), desk.knowledge(), "## Results", *shown]


def _digest(desk: Desk) -> list[str]:
    """The hardware notes, to be boiled down for this kernel."""
    return [desk.task(), desk.knowledge()]


def _meta(desk: Desk) -> list[str]:
    """The whole run as a table, with what was tried."""
    table = sections.population_table(list(desk.history.kernels)[-TABLE_ROWS:], desk.history)
    return [desk.task(), desk.knowledge(), "## The run so far\n\n" + table, _tried(desk)]


ROLES: Mapping[str, Callable[[Desk], list[str]]] = {
    "selector": _selector,
    "designer": _designer,
    "writer": _writer,
    "findings": _findings,
    "digest": _digest,
    "plan": _stark,
    "code": _code,
    "debug": _debug,
    "solo": _stark,
    "meta": _meta,
}


def _troubles(desk: Desk) -> list[str]:
    """Why the writer is asked again: a failure to mend, or a kernel that exists already."""
    failed = desk.shown("failed", "Your last attempt failed")
    twin = desk.kernel("duplicate_of")
    repeated = f"Your answer was the same kernel as #{twin.number}. Write a different one." if twin else ""
    return [failed, repeated]


def _tried(desk: Desk) -> str:
    """Experiments on record with their measured gain, newest last."""
    views = [view for view in desk.history.hypotheses.values() if view.measured_gain is not None][-20:]
    lines = [f"- {_one_line(view.title)}: {view.measured_gain:+.1f} %" for view in views]
    if not lines:
        return ""
    return "## Tried so far\n\n" + desk.fencer.fence("\n".join(lines), "experiments and their measured gains")


def _one_line(text: str) -> str:
    return " ".join(text.split())[:160]


def _in_round(kernel: KernelView, number: int) -> bool:
    if number == 0:
        return kernel.author_kind == "seed"
    return kernel.key.startswith(f"r{number}.")


def _guidance(ask: Ask, history: History) -> list[KnowledgeItem]:
    """What people said that holds for the kernels this prompt is about."""
    about = _subjects(ask, history)
    return [
        KnowledgeItem(view.ref, "guidance", f"From {view.author or 'the team'}", view.text, "person")
        for view in history.guidance
        if view.holds_for(about)
    ]


def _subjects(ask: Ask, history: History) -> set[str]:
    """Keys of the kernels that a prompt is to improve or mend."""
    named = {str(ask.context[name]) for name in ("base", "node", "failed") if name in ask.context}
    view = history.hypotheses.get(str(ask.context.get("hypothesis", "")))
    return named | ({view.basis_key} if view and view.basis_key else set())


def _edit_base(desk: Desk) -> str:
    """The text that SEARCH/REPLACE blocks refer to: the failed attempt when there is one, else base or node; empty
    where the new kernel is written in another language."""
    for name in ("failed", "base", "node"):
        kernel = desk.kernel(name)
        if kernel is not None and kernel.source.language == desk.language:
            return kernel.source.text
    return ""


@cache
def _template(role: str) -> str:
    return (PROMPTS / f"{role}.md").read_text().strip()
