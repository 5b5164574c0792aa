"""Measure the prompts of the shipped recordings: their length, and how much of it a server has seen before.

    python -m benchmarks.prompts                   # a table by role
    python -m benchmarks.prompts --prompts DIR     # the prompts as files, too
    python -m benchmarks.prompts --records DIR     # other recordings than those that this version ships
    python -m benchmarks.prompts --answers FILE    # new answers to a recording's coder, beside what it wrote then

The recorded answers are played again in memory: kernels get times that fall by 3 % each, so that every version of this
product is asked the same questions about the same kernels. In each round, one kernel on which nothing was built fails
to compile. Hardware notes are left out, since they are not compared. The script also runs on older versions of the
product (from their own directory), which gives the figures before a change. Tokens are characters divided by four.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import gzip
import importlib
import importlib.util
import json
import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()

# ruff: noqa: E402 - prompts describe rows, and models need Django's settings first
from optimizer.agents.answers import parse_answer
from optimizer.agents.code_blocks import AnswerError, split_blocks
from optimizer.agents.knowledge import KnowledgeItem
from optimizer.agents.prompting import Prompt, build_prompt
from optimizer.search import STRATEGIES
from optimizer.search.base import (
    Ask,
    CallView,
    Draft,
    Finish,
    History,
    Hypothesise,
    HypothesisView,
    KernelView,
    Note,
)
from runners.job import BuildReport, CaseResult, Failure, JobResult, Language, Speedup, Status, Verdict
from runners.problems import load, open_bundle
from runners.problems.base import Purpose

# Where `Basis` is defined differs between versions; all of them know it here.
answers: Any = importlib.import_module("optimizer.agents.answers")

CHARACTERS_PER_TOKEN = 4
FIRST_US = 500.0
ENVIRONMENT = {
    "device": "x86-64 processor",
    "threads": 2,
    "vector": ["avx2", "fma", "avx512f"],
    "caches": {"L1": 32 << 10, "L2": 1 << 20},
}


def main() -> None:
    """Print one table for each recording."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=Path, help="write every prompt to this folder")
    parser.add_argument(
        "--records", type=Path, default=Path("optimizer/calls/records"), help="folder of recordings"
    )
    parser.add_argument("--answers", type=Path, help="file of answers to a recording's coder; print their lengths")
    options = parser.parse_args()
    if options.answers is not None:
        print(answers_report(options.answers, options.records))
        return
    folder = options.prompts
    for path in sorted(options.records.glob("*.json.gz")):
        name = path.name.removesuffix(".json.gz")
        played = played_from(path)
        print(report(name, played))
        if folder is not None:
            write(folder / name, played)


def played_from(path: Path) -> Played:
    """Return a recording after playing it, without hardware pages."""
    # Hardware pages are chosen inside, where this version has any.
    knowledge: Any = importlib.import_module("optimizer.agents.knowledge")
    knowledge.task_pages = lambda *_: []
    played = Played(json.loads(gzip.decompress(path.read_bytes())))
    played.play()
    return played


class Played:
    """Play a recording again on an in-memory history. `prompts` are kept by the question's key."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.record = record
        self.strategy = STRATEGIES[record["strategy"]]
        self.problem = open_bundle(load(record["problem"]))
        self.answers = {call["key"]: call for call in record["calls"] if call["state"] == "answered"}
        published = "preset" in self.strategy.Settings.model_fields
        self.settings = self.strategy.Settings.model_validate(record["settings"] if published else {})
        self.failing = self._failing()
        self.kernels = [self._seed(seed, number) for number, seed in enumerate(self._seeds())]
        self.calls: dict[str, CallView] = {}
        self.hypotheses: dict[str, HypothesisView] = {}
        self.notes: list[KnowledgeItem] = []
        self.prompts: dict[str, Prompt] = {}
        self.roles: dict[str, str] = {}
        # Versions before this one took a new mark for every prompt.
        self.mark: dict[str, Any] = {"delimiters": delimiters()} if has_run_mark() else {}

    def play(self) -> None:
        """Ask and answer until the recording has nothing more to say."""
        for _ in range(500):
            steps = self.strategy.decide(self.history())
            if not sum([self._take(step) for step in steps]):
                return

    def history(self) -> History:
        """Return the run as it stands."""
        spent = sum(kernel.author_kind == "agent" for kernel in self.kernels)
        known = {field.name for field in dataclasses.fields(History)}
        recorded: dict[str, Any] = {"recorded": self._recorded()} if "recorded" in known else {}
        return History(
            self.problem, self.record["target"], self.settings, self.record["seed"], tuple(self.kernels),
            dict(self.calls), dict(self.hypotheses), self.record["evaluations"] - spent, **recorded,
        )  # fmt: skip

    def _recorded(self) -> dict[str, Any]:
        kind = importlib.import_module("optimizer.search.base").RecordedAsk
        asks = {
            key: kind(call["role"], call["context"], call["answer_schema"])
            for key, call in self.answers.items()
            if call.get("context")
        }
        # The coder is asked in today's form; the recorded form was the whole file.
        return {key: ask for key, ask in asks.items() if ask.role != "code"}

    def _failing(self) -> set[str]:
        """Return one kernel of each of the scientist's rounds on which nothing was built."""
        contexts = [call["context"] for call in self.answers.values()]
        used = {context.get(name) for context in contexts for name in ("base", "reference")}
        written = [key.replace(".w", ".k") for key, call in self.answers.items() if call["role"] == "writer"]
        return set({key.partition(".")[0]: key for key in written if key not in used}.values())

    def _take(self, step: Any) -> bool:
        if isinstance(step, Ask) and step.key not in self.calls:
            self._ask(step)
        elif isinstance(step, Draft) and all(kernel.key != step.key for kernel in self.kernels):
            self.kernels.append(self._evaluated(step))
        elif isinstance(step, Hypothesise) and step.key not in self.hypotheses:
            self.hypotheses[step.key] = _hypothesis(step)
        elif isinstance(step, Note) and all(note.ref != step.key for note in self.notes):
            self.notes.append(KnowledgeItem(step.key, step.scope, "", step.text))
        else:
            return False
        return not isinstance(step, Finish)

    def _ask(self, ask: Ask) -> None:
        prompt = build_prompt(ask, self.history(), self.notes, **self.mark)
        self.prompts[ask.key], self.roles[ask.key] = prompt, ask.role
        found = self.answers.get(ask.key)
        answer = self._answer(ask, found, prompt) if found else None
        self.calls[ask.key] = CallView(ask.key, ask.role, True, ask.context, answer)

    def _answer(self, ask: Ask, found: Mapping[str, Any], prompt: Prompt) -> dict[str, Any]:
        if ask.role == "selector":
            return self._selected(ask)
        basis = answers.Basis(prompt.edit_base, "cpp") if prompt.edit_base else None
        schema = "KernelAnswer" if ask.role == "code" else ask.answer_schema
        if ask.role == "plan" and "edit_language" not in {field.name for field in dataclasses.fields(Prompt)}:
            # Older versions did not check the anchors of a reference in another language.
            basis = None
        try:
            return parse_answer(schema, found["answer_text"], basis=basis).model_dump(mode="json")
        except AnswerError as error:
            raise SystemExit(f"{ask.key}: {error}") from error

    def _selected(self, ask: Ask) -> dict[str, Any]:
        """Return the recorded choice with the numbers of this run: recordings number kernels by their arrival."""
        numbers = {kernel.key: kernel.number for kernel in self.kernels}
        context = self.answers[f"{ask.key.partition('.')[0]}.design"]["context"]
        names = {"basis_code": "base", "basis_reference": "reference"}
        return {answer: numbers[context[name]] for answer, name in names.items()} | {"rationale": "as recorded"}

    def _seeds(self) -> list[Any]:
        return [seed for seed in self.problem.seeds if seed.source.language in {Language.CPP, Language.PYTHON}]

    def _seed(self, seed: Any, number: int) -> KernelView:
        draft = Draft(f"seed.{seed.name}", seed.source, author_kind="seed", title=seed.title)
        return self._view(draft, number, FIRST_US * (1 + number / 10))

    def _evaluated(self, draft: Draft) -> KernelView:
        """Give the kernel its outcome: it does not build, or is faster than all before."""
        number = len(self.kernels)
        if draft.key in self.failing:
            return self._failed(draft, number)
        view = self._view(draft, number, FIRST_US * 0.97**number)
        if view.hypothesis_key in self.hypotheses:
            known = self.hypotheses[view.hypothesis_key]
            self.hypotheses[view.hypothesis_key] = dataclasses.replace(known, measured_gain=3.0)
        return view

    def _failed(self, draft: Draft, number: int) -> KernelView:
        log = "kernel.cpp:42:7: error: 'undeclared' was not declared in this scope\n" + "  42 |  source line\n" * 40
        build = BuildReport(False, 0.4, False, log)
        failure = Failure(
            "candidate", "build", "kernel.cpp:42:7: error: 'undeclared' was not declared in this scope"
        )
        result = JobResult(
            "j", Status.BUILD_FAILED, reasons=["it does not build"], failures=[failure], build=build,
            environment=ENVIRONMENT,
        )  # fmt: skip
        return self._of(draft, number, Status.BUILD_FAILED, result)

    def _view(self, draft: Draft, number: int, time_us: float) -> KernelView:
        names = [case.name for case in self.problem.cases(self.record["target"], Purpose.BENCHMARK)]
        cases = [
            CaseResult(name, True, candidate_us=time_us, baseline_us=FIRST_US, roofline_us=90.0, roofline_share=0.5)
            for name in names
        ]
        speedup = Speedup(FIRST_US / time_us, 0.9, 1.1, "torch_eager", 1.02, Verdict.SAME)
        result = JobResult(
            "j", Status.CORRECT, speedup=speedup, cases=cases, build=BuildReport(True, 0.4, False, ""),
            environment=ENVIRONMENT,
        )  # fmt: skip
        return self._of(draft, number, Status.CORRECT, result, time_us, dict.fromkeys(names, time_us))

    def _of(
        self, draft: Draft, number: int, status: Status, result: JobResult, time_us: float | None = None,
        times_us: Mapping[str, float] | None = None,
    ) -> KernelView:  # fmt: skip
        return KernelView(
            draft.key, number, draft.parent_keys, draft.author_kind, draft.source, True, status, result, time_us,
            times_us or {}, draft.hypothesis_key, draft.title, draft.report, draft.meta,
        )  # fmt: skip


def report(name: str, played: Played) -> str:
    """Return a table: prompts by role, what writers of one round share, and what the coder writes."""
    lines = [f"\n{name}\n", "| role | prompts | tokens, mean | tokens, all |", "|---|---:|---:|---:|"]
    by_role: dict[str, list[int]] = defaultdict(list)
    for key, prompt in played.prompts.items():
        by_role[played.roles[key]].append(len(text_of(prompt)))
    for role, sizes in by_role.items():
        mean, total = sum(sizes) / len(sizes), sum(sizes)
        lines.append(f"| {role} | {len(sizes)} | {tokens(mean):,} | {tokens(total):,} |")
    everything = sum(sum(sizes) for sizes in by_role.values())
    lines.append(f"| all | {len(played.prompts)} | | {tokens(everything):,} |")
    for round_, share, common, shortest in shared_by_writers(played):
        lines.append(f"\nWriters of round {round_} share {common:,} of {shortest:,} characters ({share:.1%}).")
    if written := coder_tokens(played):
        whole, blocks, first, planned, excerpts = written
        lines.append(
            f"\nCoder: {tokens(whole):,} tokens as complete files, {tokens(blocks):,} as marked blocks "
            f"({blocks / whole:.1%}); {tokens(first):,} of both are the first kernel, which replaces the reference. "
            f"Planner: {tokens(planned):,} with the whole source, {tokens(excerpts):,} with the marked blocks "
            f"({excerpts / planned:.1%})."
        )
    return "\n".join(lines)


def shared_by_writers(played: Played) -> list[tuple[str, float, int, int]]:
    """Return, for each round of the scientist, what its writers' prompts have in common at their beginning."""
    rounds: dict[str, list[str]] = defaultdict(list)
    for key, prompt in played.prompts.items():
        # Repairs follow later and show the failed attempt.
        if played.roles[key] == "writer" and key.count(".") == 1:
            rounds[key.partition(".")[0]].append(text_of(prompt))
    found = []
    for round_, texts in rounds.items():
        common = common_start(texts)
        shortest = min(map(len, texts))
        found.append((round_, common / shortest, common, shortest))
    return found


def common_start(texts: list[str]) -> int:
    """Return how many characters the texts have in common at their beginning."""
    first, last = min(texts), max(texts)
    return next(
        (n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last))
    )


def coder_tokens(played: Played) -> tuple[int, int, int, int, int] | None:
    """Return the characters that coder and planner wrote, and those that they would write in today's form.

    The recorded kernels are expressed as new content of the lines that changed, together with the words around. A first
    kernel in another language than the reference is complete in both forms.
    """
    if "code" not in played.roles.values():
        return None
    whole = blocks = first = planned = excerpts = 0
    for key, call in played.answers.items():
        if call["role"] == "plan":
            planned += len(call["answer_text"])
            excerpts += len(excerpt_of(call["answer_text"]))
        if call["role"] != "code":
            continue
        kernel = next(one for one in played.kernels if one.key == key.partition(".")[0])
        parent = next(one for one in played.kernels if one.key == kernel.parent_keys[0])
        words = len(call["answer_text"]) - len(kernel.source.text)
        whole += len(call["answer_text"])
        if parent.source.language != kernel.source.language:
            first += len(call["answer_text"])
            blocks += len(call["answer_text"])
        else:
            blocks += words + changed_characters(parent.source.text, kernel.source.text)
    return whole, blocks, first, planned, excerpts


def answers_report(file: Path, records: Path) -> str:
    """Return a table of new answers to a recording's coder questions, in relation to what the coder had written.

    The file holds the recording's name as `record`, and below `forms` the answers by question for each form that was
    asked for. An answer that cannot be read is named as such. Raises OSError, and ValueError for other contents.
    """
    known = json.loads(gzip.decompress(file.read_bytes()))
    played = played_from(records / f"{known['record']}.json.gz")
    lines = []
    for form, written in known["forms"].items():
        before = {key: len(played.answers[key]["answer_text"]) for key in written}
        now, then = sum(map(len, written.values())), sum(before.values())
        spared = sum(_spared(text, played.prompts[key]) for key, text in written.items())
        lines.append(
            f"{form}: {now:,} of {then:,} characters, {now / then:.1%}; with the copied lines written out "
            f"{now + spared:,}, {(now + spared) / then:.1%}"
        )
        for key, text in written.items():
            lines.append(f"  {key}: {len(text):,} of {before[key]:,}, {_as_read(text, played.prompts[key])}")
    return "\n".join(lines)


def _as_read(text: str, prompt: Prompt) -> str:
    """Return what the product makes of a coder's answer, in words."""
    base = prompt.edit_base
    basis = answers.Basis(base, prompt.edit_language) if base else None
    try:
        answer = parse_answer("BlockAnswer" if base else "KernelAnswer", text, basis=basis)
    except AnswerError as error:
        return f"refused: {error}"
    length = len(answer.model_dump(mode="json")["source"])
    said = f"a kernel of {length:,} characters"
    return f"{said}, {text.count('COPY FROM')} copies" if base else said


def _spared(text: str, prompt: Prompt) -> int:
    """Return how many characters an answer would have more without copies."""
    copies: Any = importlib.import_module("optimizer.agents.copies")
    anchors: Any = importlib.import_module("optimizer.agents.anchors")
    base = prompt.edit_base
    return len(copies.text_with_copies(text, anchors.without_anchors(base))) - len(text) if base else 0


def changed_characters(before: str, after: str) -> int:
    """Count the characters of the lines that are new or different."""
    new = after.split("\n")
    matcher = difflib.SequenceMatcher(None, before.split("\n"), new, autojunk=False)
    return sum(
        len("\n".join(new[j1:j2])) for tag, _, _, j1, j2 in matcher.get_opcodes() if tag in {"replace", "insert"}
    )


def excerpt_of(answer: str) -> str:
    """Return a planner's answer without the source around its anchors."""
    blocks, prose = split_blocks(answer)
    lines = blocks[0].text.split("\n")
    begin = next(n for n, line in enumerate(lines) if "IMPROVE BEGIN" in line.upper())
    end = next(n for n, line in enumerate(lines) if "IMPROVE END" in line.upper())
    return "\n".join([prose, *lines[begin : end + 1]])


def write(folder: Path, played: Played) -> None:
    """Write the prompts as text files."""
    folder.mkdir(parents=True, exist_ok=True)
    for key, prompt in played.prompts.items():
        (folder / f"{key}.txt").write_text(text_of(prompt))


def text_of(prompt: Prompt) -> str:
    """Return all messages of a prompt as one text."""
    return "\n\n".join(message["content"] for message in prompt.messages)


def tokens(characters: float) -> int:
    """Convert characters to tokens, roughly."""
    return round(characters / CHARACTERS_PER_TOKEN)


def has_run_mark() -> bool:
    """Return whether this version uses one mark for all prompts of a run."""
    found = importlib.util.find_spec("optimizer.calls")
    return found is not None and hasattr(importlib.import_module("optimizer.calls.prepare"), "mark_of")


def delimiters() -> Any:
    """Return delimiters with a fixed mark of the usual length."""
    return importlib.import_module("optimizer.agents.delimiters").Delimiters("0123456789abcdef")


def _hypothesis(step: Hypothesise) -> HypothesisView:
    return HypothesisView(
        step.key, step.kind, step.title, step.basis_key, step.chosen, None, step.description, step.rubric,
        step.predicted_min, step.predicted_max, step.innovation, step.round,
    )  # fmt: skip


if __name__ == "__main__":
    main()
