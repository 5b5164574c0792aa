"""Turn an `Ask` into messages.

All functions are pure: equal ask, history and knowledge give the same prompt except for the random mark of the
delimiters. Every role is a template in prompts/*.md and a function here that fills it. The version stored with a call
is the hash of the template and the language guide.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from optimizer.agents import sections
from optimizer.agents.delimiters import NOTICE, Delimiters
from optimizer.agents.knowledge import TOKEN_BUDGET, KnowledgeItem, Selection, choose_knowledge
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
# Maximum number of kernels in the selector's table; the fastest are kept.
TABLE_ROWS = 60


@dataclass(frozen=True)
class Prompt:
    """Hold what is sent.

    `messages` are for the provider. `version` names template and hash. `report` lists which knowledge was included
    and which the budget excluded. `edit_base` is the text to which SEARCH/REPLACE blocks refer.
    """

    messages: list[dict[str, str]]
    version: str
    report: dict[str, Any] = field(default_factory=dict)
    edit_base: str = ""


@dataclass(frozen=True)
class Desk:
    """Hold everything that a role's function may use."""

    ask: Ask
    history: History
    delimiters: Delimiters
    selection: Selection
    language: Language

    @property
    def context(self) -> Mapping[str, Any]:
        """Return the context that the strategy gave."""
        return self.ask.context

    def kernel(self, name: str) -> KernelView | None:
        """Return the kernel that the context names under `name`, or None."""
        return self.history.kernel(str(self.context.get(name, "")))

    def shown(self, name: str, heading: str, *, source: bool = True) -> str:
        """Return that kernel as a section, or an empty text where the context names none."""
        kernel = self.kernel(name)
        return sections.kernel(kernel, self.history, self.delimiters, heading, source=source) if kernel else ""

    def task(self) -> str:
        """Return the task, and the machine on which its kernels are measured."""
        task = sections.task(self.history.problem, self.history.target, self.language, self.delimiters)
        parts = (task, sections.machine(self.history), sections.objective(self.history))
        return "\n\n".join(part for part in parts if part)

    def knowledge(self) -> str:
        """Return the selected documents under one heading."""
        documents = [item for item in self.selection.taken if item.scope != "guidance"]
        titled = [(f"{item.scope}: {item.title or item.ref}", item.text) for item in documents]
        return "## What is known\n\n" + sections.documents(titled, self.delimiters) if titled else ""

    def guidance(self) -> str:
        """Return the team's instructions as quotations.

        Unlike all other text from people, instructions are to be followed, so they are placed outside the delimiters,
        in a form that cannot be mistaken for one.
        """
        said = [item for item in self.selection.taken if item.scope == "guidance"]
        quoted = [f"{item.title}:\n\n{sections.quoted(item.text)}" for item in said]
        return "\n\n".join([GUIDANCE_HEADING, *quoted]) if quoted else ""


def build_prompt(
    ask: Ask,
    history: History,
    knowledge: Sequence[KnowledgeItem] = (),
    *,
    delimiters: Delimiters | None = None,
    budget_tokens: int = TOKEN_BUDGET,
) -> Prompt:
    """Build the messages for an ask. Raises KeyError for a role without a prompt."""
    guided = [*knowledge, *_guidance(ask, history)]
    desk = Desk(
        ask, history, delimiters or Delimiters(), choose_knowledge(guided, budget_tokens), target_language(history)
    )
    task, *rest = ROLES[ask.role](desk)
    # Guidance follows directly after the task: it should not be lost in a long prompt.
    parts = [part for part in (task, desk.guidance(), *rest) if part]
    messages = [
        {"role": "system", "content": f"{_template(ask.role)}\n\n{NOTICE}"},
        {"role": "user", "content": "\n\n".join(parts)},
    ]
    report = {**desk.selection.report(), "context": dict(ask.context)}
    return Prompt(messages, prompt_version(ask.role, desk.language), report, _edit_base(desk))


@cache
def prompt_version(role: str, language: Language) -> str:
    """Return `<role>@<hash>` over the role's template and the language guide."""
    text = _template(role) + sections.language_guide(language)
    return f"{role}@{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _selector(desk: Desk) -> list[str]:
    """Return mission and table of times, without code (GPU Kernel Scientist, section 3.1)."""
    population = [k for key in desk.context["population"] if (k := desk.history.kernel(key))]
    # Keep the fastest for the limit, then show them by number, so that the table reads as a history.
    fastest_first = sorted(population, key=lambda k: (k.time_us is None, k.time_us or 0.0))[:TABLE_ROWS]
    by_number = sorted(fastest_first, key=lambda k: k.number)
    return [desk.task(), "## Population\n\n" + sections.population_table(by_number, desk.history)]


def _designer(desk: Desk) -> list[str]:
    """Return mission, Base's code and digest (section 3.2)."""
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
    """Return task, naive port, findings, Base and Reference with one step of history, and experiment (section 3.3)."""
    naive = [
        k for k in seeds(desk.history) if k.key not in {"seed.reference"} and k.source.language == desk.language
    ]
    shown = {desk.context.get("base"), desk.context.get("reference")}
    port = [
        sections.kernel(k, desk.history, desk.delimiters, "Direct port") for k in naive[:1] if k.key not in shown
    ]
    view = desk.history.hypotheses.get(str(desk.context["hypothesis"]))
    experiment = "## The experiment\n\n" + sections.hypothesis(view, desk.delimiters) if view else ""
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
    """Return the window's kernels; node i comes last, nearest to the request (STARK, section 4.5)."""
    node = str(desk.context["node"])
    others = [key for key in desk.context["window"] if key != node]
    shown = [k for key in others if (k := desk.history.kernel(key))]
    return [
        *(sections.kernel(k, desk.history, desk.delimiters, "From the tree") for k in shown),
        desk.shown("node", "The kernel to work on"),
    ]


def _stark(desk: Desk) -> list[str]:
    """Return task, knowledge and window, for the planner and the single agent."""
    return [desk.task(), desk.knowledge(), *_stark_window(desk), *_troubles(desk)]


def _code(desk: Desk) -> list[str]:
    """Return the coder's prompt with the planner's anchored source and instruction (STARK, section 4.3)."""
    plan = desk.history.calls[str(desk.context["plan"])].answer or {}
    return [
        *_stark(desk),
        "## The plan\n\n" + desk.delimiters.enclose(str(plan.get("instruction", "")), "instruction", 20_000),
        desk.delimiters.enclose(str(plan.get("anchored", "")), "source with anchors", sections.SOURCE_CAP),
    ]


def _debug(desk: Desk) -> list[str]:
    """Return code and logs of the failed node, and the plan that it implements."""
    node = desk.kernel("node")
    plan = str(node.meta.get("plan", "")) if node else ""
    return [*_stark(desk), "## Its plan\n\n" + desk.delimiters.enclose(plan, "instruction", 20_000) if plan else ""]


def _findings(desk: Desk) -> list[str]:
    """Return the kernels of a round, or the seeds before the first round."""
    number = int(desk.context["round"])
    mine = [k for k in desk.history.kernels if _in_round(k, number)]
    shown = [sections.kernel(k, desk.history, desk.delimiters, "Result", source=number == 0) for k in mine]
    return [desk.task(), desk.knowledge(), "## Results", *shown]


def _digest(desk: Desk) -> list[str]:
    """Return the hardware notes that are to be condensed for this kernel."""
    return [desk.task(), desk.knowledge()]


def _meta(desk: Desk) -> list[str]:
    """Return the whole run as a table, with the measured experiments."""
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
    """Return why the writer is asked again: a failed attempt, or a duplicate of an existing kernel."""
    failed = desk.shown("failed", "Your last attempt failed")
    duplicate = desk.kernel("duplicate_of")
    repeated = (
        f"Your answer was the same kernel as #{duplicate.number}. Write a different one." if duplicate else ""
    )
    return [failed, repeated]


def _tried(desk: Desk) -> str:
    """Return recorded experiments with their measured gain, newest last."""
    views = [view for view in desk.history.hypotheses.values() if view.measured_gain is not None][-20:]
    lines = [f"- {_one_line(view.title)}: {view.measured_gain:+.1f} %" for view in views]
    if not lines:
        return ""
    return "## Tried so far\n\n" + desk.delimiters.enclose("\n".join(lines), "experiments and their measured gains")


def _one_line(text: str) -> str:
    return " ".join(text.split())[:160]


def _in_round(kernel: KernelView, number: int) -> bool:
    if number == 0:
        return kernel.author_kind == "seed"
    return kernel.key.startswith(f"r{number}.")


def _guidance(ask: Ask, history: History) -> list[KnowledgeItem]:
    """Return the instructions that apply to the kernels of this prompt."""
    about = _subjects(ask, history)
    return [
        KnowledgeItem(view.ref, "guidance", f"From {view.author or 'the team'}", view.text, "person")
        for view in history.guidance
        if view.holds_for(about)
    ]


def _subjects(ask: Ask, history: History) -> set[str]:
    """Return the keys of the kernels that a prompt is to improve or repair."""
    named = {str(ask.context[name]) for name in ("base", "node", "failed") if name in ask.context}
    view = history.hypotheses.get(str(ask.context.get("hypothesis", "")))
    return named | ({view.basis_key} if view and view.basis_key else set())


def _edit_base(desk: Desk) -> str:
    """Return the text to which SEARCH/REPLACE blocks refer: the failed attempt, else base or node.

    Returns an empty text where the new kernel is written in another language.
    """
    for name in ("failed", "base", "node"):
        kernel = desk.kernel(name)
        # SEARCH/REPLACE edits of a kernel in another language make no sense.
        if kernel is not None and kernel.source.language == desk.language:
            return kernel.source.text
    return ""


@cache
def _template(role: str) -> str:
    return (PROMPTS / f"{role}.md").read_text().strip()
