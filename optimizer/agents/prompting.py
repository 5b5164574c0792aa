"""Turn an `Ask` into messages.

All functions are pure: equal ask, history and knowledge give the same prompt except for the mark of the delimiters,
which is the same for all prompts of a run. Every role is a template in prompts/*.md and a function here that fills it.
What stays the same comes first: servers charge little for a beginning that they have seen before. The version stored
with a call is the hash of the template and the language guide.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from optimizer.agents import sections, task_sections
from optimizer.agents.anchors import without_anchors
from optimizer.agents.delimiters import NOTICE, Delimiters
from optimizer.agents.knowledge import TOKEN_BUDGET, KnowledgeItem, Selection, knowledge_for
from optimizer.agents.task_sections import SOURCE_CAP
from optimizer.search.base import Ask, History, HypothesisView, KernelView
from optimizer.search.machinery.proposals import target_language
from optimizer.search.machinery.seeds import REFERENCE_KEY, seeds
from optimizer.search.machinery.winners import without_lost_trials
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
# Lines about earlier experiments and ideas; the newest are kept.
TRIED_LINES = 60
UNTRIED_LINES = 60
TRIED_CAP = 16_000


@dataclass(frozen=True)
class Prompt:
    """Hold what is sent.

    `messages` are for the provider. `version` names template and hash. `report` lists which knowledge was included
    and which the budget excluded. `edit_base` is the text to which the answer refers (SEARCH/REPLACE blocks, marked
    blocks), in the language `edit_language`.
    """

    messages: list[dict[str, str]]
    version: str
    report: dict[str, Any] = field(default_factory=dict)
    edit_base: str = ""
    edit_language: str = ""


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

    def shown(self, name: str, heading: str, *, near: KernelView | None = None) -> str:
        """Return that kernel as a section, or an empty text where the context names none."""
        kernel = self.kernel(name)
        return self.section(kernel, heading, near=near) if kernel else ""

    def section(self, kernel: KernelView, heading: str, *, near: KernelView | None = None) -> str:
        """Return a kernel as a section.

        Its source is a diff where it hardly differs from `near`. The task shows the reference already.
        """
        source = not sections.is_reference_of_task(kernel, self.history)
        return sections.kernel(kernel, self.history, self.delimiters, heading, source=source, near=near)

    def task(self) -> str:
        """Return the task, and the machine on which its kernels are measured."""
        task = task_sections.task(self.history.problem, self.history.target, self.language, self.delimiters)
        parts = (task, task_sections.machine(self.history), task_sections.objective(self.history))
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
    language = target_language(history)
    known = knowledge_for(ask, history, language, [*knowledge, *_guidance(ask, history)], budget_tokens)
    desk = Desk(ask, history, delimiters or Delimiters(), known, language)
    task, *rest = ROLES[ask.role](desk)
    # Guidance follows directly after the task: it should not be lost in a long prompt.
    parts = [part for part in (task, desk.guidance(), *rest) if part]
    messages = [
        {"role": "system", "content": f"{template(ask.role)}\n\n{NOTICE}"},
        {"role": "user", "content": "\n\n".join(parts)},
    ]
    report = {**desk.selection.report(), "context": dict(ask.context)}
    return Prompt(messages, prompt_version(ask.role, desk.language), report, *_edit_base(desk))


@cache
def template(name: str) -> str:
    """Return a text of prompts/*.md: that of a role, or `tools`."""
    return (PROMPTS / f"{name}.md").read_text().strip()


@cache
def prompt_version(role: str, language: Language) -> str:
    """Return `<role>@<hash>` over the role's template and the language guide."""
    text = template(role) + task_sections.language_guide(language)
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
    """Return task, naive port, findings, Base and Reference with one step of history, and experiment (section 3.3).

    A repair edits the failed attempt, which is therefore whole; Base hardly differs from it and is a diff.
    """
    naive = [k for k in seeds(desk.history) if k.key != REFERENCE_KEY and k.source.language == desk.language]
    shown = {desk.context.get("base"), desk.context.get("reference")}
    port = [
        sections.kernel(k, desk.history, desk.delimiters, "Direct port") for k in naive[:1] if k.key not in shown
    ]
    view = desk.history.hypotheses.get(str(desk.context["hypothesis"]))
    experiment = "## The experiment\n\n" + sections.hypothesis(view, desk.delimiters) if view else ""
    other = desk.context.get("reference") != desk.context["base"]
    failed = desk.kernel("failed")
    reference = desk.shown("reference", "Reference", near=failed or desk.kernel("base")) if other else ""
    # Everything up to the experiment is the same for all writers of a round.
    return [
        desk.task(),
        desk.knowledge(),
        *port,
        desk.shown("base", "Base", near=failed),
        reference,
        experiment,
        *_troubles(desk),
    ]


def _stark_window(desk: Desk) -> list[str]:
    """Return the window's kernels; node i comes last, nearest to the request (STARK, section 4.5).

    The paper shows every kernel in full. Here, kernels that failed are one line each, and near-identical ones a diff.
    """
    node = str(desk.context["node"])
    others = [key for key in desk.context["window"] if key != node]
    shown = [k for key in others if (k := desk.history.kernel(key))]
    failed = [k for k in shown if k.failed]
    return [
        *(desk.section(k, "From the tree", near=desk.kernel("node")) for k in shown if k not in failed),
        _failures(failed, desk),
        *_node(desk),
    ]


def _node(desk: Desk) -> list[str]:
    """Return the kernel to work on with its source, which a planner marks and a debugger edits.

    A coder gets the source with the planner's anchors instead.
    """
    kernel = desk.kernel("node")
    if kernel is None:
        return []
    is_shown = sections.is_reference_of_task(kernel, desk.history)
    source = desk.ask.role == "plan" or (desk.ask.role != "code" and not is_shown)
    heading = "The kernel to work on"
    return [sections.kernel(kernel, desk.history, desk.delimiters, heading, source=source)]


def _failures(kernels: Sequence[KernelView], desk: Desk) -> str:
    """Return kernels that failed, in one line each: what they tried, and why it did not work."""
    lines = [f"- #{k.number} {_one_line(_idea(k, desk.history))}: {sections.in_a_line(k)}" for k in kernels]
    enclosed = desk.delimiters.enclose("\n".join(lines), "ideas, and why their kernels failed")
    return f"### From the tree: failed\n\n{enclosed}" if lines else ""


def _idea(kernel: KernelView, history: History) -> str:
    view = history.hypotheses.get(kernel.hypothesis_key or "")
    return view.title if view and view.title else kernel.title


def _stark(desk: Desk) -> list[str]:
    """Return task, knowledge and window, for the planner and the single agent."""
    return [desk.task(), desk.knowledge(), *_stark_window(desk), *_troubles(desk)]


def _solo(desk: Desk) -> list[str]:
    """Return what the single agent sees: the window and, for Reflexion, its newest reflections."""
    calls = [desk.history.calls.get(str(key)) for key in desk.context.get("reflections", [])]
    texts = [str(call.answer["text"]) for call in calls if call is not None and call.answer is not None]
    enclosed = [desk.delimiters.enclose(text, "reflection", sections.REPORT_CAP) for text in texts]
    memory = "\n\n".join(["## Your reflections on earlier attempts, oldest first", *enclosed]) if enclosed else ""
    return [desk.task(), desk.knowledge(), memory, *_stark_window(desk), *_troubles(desk)]


def _reflect(desk: Desk) -> list[str]:
    """Return the attempt to reflect on, and the kernel that it was made from."""
    return [desk.task(), *_stark_window(desk)]


def _code(desk: Desk) -> list[str]:
    """Return the coder's prompt with the planner's anchored source and instruction (STARK, section 4.3)."""
    plan = desk.history.calls[str(desk.context["plan"])].answer or {}
    wanted = (
        "Answer with the new content of the marked blocks alone."
        if desk.ask.answer_schema == "BlockAnswer"
        else f"Answer with the first complete kernel in {desk.language.value}."
    )
    return [
        desk.task(),
        desk.knowledge(),
        *_stark_window(desk),
        *_troubles(desk),
        "## The plan\n\n" + desk.delimiters.enclose(str(plan.get("instruction", "")), "instruction", 20_000),
        desk.delimiters.enclose(str(plan.get("anchored", "")), "source with anchors", SOURCE_CAP),
        wanted,
    ]


def _debug(desk: Desk) -> list[str]:
    """Return code and logs of the failed node, and the plan that it implements."""
    node = desk.kernel("node")
    plan = str(node.meta.get("plan", "")) if node else ""
    return [*_stark(desk), "## Its plan\n\n" + desk.delimiters.enclose(plan, "instruction", 20_000) if plan else ""]


def _findings(desk: Desk) -> list[str]:
    """Return the kernels of a round, or the seeds before the first round."""
    number = int(desk.context["round"])
    mine = without_lost_trials(desk.history, [k for k in desk.history.kernels if _in_round(k, number)])
    if number == 0:
        shown = [desk.section(k, "Result") for k in mine]
    else:
        shown = [sections.kernel(k, desk.history, desk.delimiters, "Result", source=False) for k in mine]
    return [desk.task(), desk.knowledge(), "## Results", *shown]


def _digest(desk: Desk) -> list[str]:
    """Return the hardware notes that are to be condensed for this kernel."""
    return [desk.task(), desk.knowledge()]


def _meta(desk: Desk) -> list[str]:
    """Return the whole run as a table, with the measured experiments."""
    kernels = without_lost_trials(desk.history, desk.history.kernels)
    table = sections.population_table(kernels[-TABLE_ROWS:], desk.history)
    return [desk.task(), desk.knowledge(), "## The run so far\n\n" + table, _tried(desk)]


ROLES: Mapping[str, Callable[[Desk], list[str]]] = {
    "selector": _selector,
    "designer": _designer,
    "writer": _writer,
    "findings": _findings,
    "digest": _digest,
    "librarian": _digest,
    "plan": _stark,
    "code": _code,
    "debug": _debug,
    "solo": _solo,
    "reflect": _reflect,
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
    """Return the outcomes of the recorded experiments, newest last, and the ideas that were not tried."""
    kernels = _kernels_by_hypothesis(desk.history)
    views = list(desk.history.hypotheses.values())
    made = [f"- {_one_line(view.title)}: {_came_of(view, kernels)}" for view in views if view.key in kernels]
    open_ = [f"- {_one_line(view.title)}" for view in views if not view.chosen and view.key not in kernels]
    parts = []
    if made:
        label = "experiments and what came of them"
        parts.append(
            "## Tried so far\n\n" + desk.delimiters.enclose("\n".join(made[-TRIED_LINES:]), label, TRIED_CAP)
        )
    if open_:
        label = "ideas that were not tried"
        parts.append(
            "## Named and not tried\n\n" + desk.delimiters.enclose("\n".join(open_[-UNTRIED_LINES:]), label)
        )
    return "\n\n".join(parts)


def _kernels_by_hypothesis(history: History) -> Mapping[str, list[KernelView]]:
    found: dict[str, list[KernelView]] = defaultdict(list)
    for kernel in history.kernels:
        if kernel.hypothesis_key and kernel.finished:
            found[kernel.hypothesis_key].append(kernel)
    return found


def _came_of(view: HypothesisView, kernels: Mapping[str, Sequence[KernelView]]) -> str:
    """Return the measured gain beside the predicted one, or how the last kernel failed."""
    last = kernels[view.key][-1]
    predicted = ""
    if view.predicted_min is not None and view.predicted_max is not None:
        predicted = f" (predicted {view.predicted_min:g} to {view.predicted_max:g} %)"
    if view.measured_gain is not None:
        return f"{view.measured_gain:+.1f} %{predicted}, kernel #{last.number}"
    tries = f", after {len(kernels[view.key])} tries" if len(kernels[view.key]) > 1 else ""
    return f"{sections.in_a_line(last)}{tries}{predicted}, kernel #{last.number}"


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


def _edit_base(desk: Desk) -> tuple[str, str]:
    """Return the text to which an answer refers, and its language.

    A planner sets anchors in the node's source, a coder fills the marked blocks, and SEARCH/REPLACE blocks change the
    failed attempt, else base or node. Both are empty where the new kernel is written in another language.
    """
    node = desk.kernel("node")
    if desk.ask.role == "plan" and node is not None:
        return without_anchors(node.source.text), node.source.language.value
    if desk.ask.answer_schema == "BlockAnswer":
        plan = desk.history.calls[str(desk.context["plan"])].answer or {}
        return str(plan.get("anchored", "")), desk.language.value
    for name in ("failed", "base", "node"):
        kernel = desk.kernel(name)
        # SEARCH/REPLACE edits of a kernel in another language make no sense.
        if kernel is not None and kernel.source.language == desk.language:
            return without_anchors(kernel.source.text), desk.language.value
    return "", ""
