"""Turn an agent's answer into a kernel worth evaluating: reject duplicates first, then repair failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from optimizer.search.base import CallView, Draft, History, KernelView
from optimizer.search.flow import Flow
from optimizer.search.machinery.novelty import find_duplicate
from runners.job import Language, Source

# How often a failed kernel goes back to its writer. The paper leaves this open; here it is a setting.
REPAIR_TRIES = 2

AskWriter = Callable[[str, Mapping[str, Any]], CallView]
MakeDraft = Callable[[str, CallView, Source], Draft]
MayAsk = Callable[[str], bool]


def propose(flow: Flow, key: str, call_key: str, ask: AskWriter, make: MakeDraft, tries: int = 2) -> Draft | None:
    """Ask for a kernel until it is new, and return it, or None when the agents gave up or kept repeating kernels.

    `ask(call_key, extra context)` requests an answer; the writer learns of a duplicate through `duplicate_of`. Raises
    Waiting.
    """
    extra: dict[str, Any] = {}
    for number in range(1 + tries):
        call = ask(call_key if number == 0 else f"{call_key}.new{number}", extra)
        if call.answer is None:
            return None
        source = source_in(call.answer, flow.history)
        duplicate = find_duplicate(source, flow.history, key)
        if duplicate is None:
            return make(key, call, source)
        # The writer learns which kernel it has repeated.
        extra = {"duplicate_of": duplicate.key}
    return None


def evaluate_with_repair(
    flow: Flow,
    key: str,
    call_key: str,
    ask: AskWriter,
    make: MakeDraft,
    may_repair: MayAsk,
    tries: int = REPAIR_TRIES,
) -> KernelView | None:
    """Propose and evaluate a kernel, and return failures to the writer with their message, at most `tries` times.

    Every try is a kernel of its own (`<key>.fix<n>`). `may_repair(call_key)` says whether a repair may be requested
    now. Return the last kernel, or None when there never was one. Raises Waiting.
    """
    last: KernelView | None = None
    for number in range(1 + tries):
        own, asked = (key, call_key) if number == 0 else (f"{key}.fix{number}", f"{call_key}.fix{number}")
        if number > 0 and not may_repair(asked):
            return last
        failed: dict[str, Any] = {"failed": last.key} if last else {}
        draft = propose(
            flow,
            own,
            asked,
            # Bind `failed` now: the lambda is called after the loop variable may have changed.
            lambda call, extra, failed=failed: ask(call, {**failed, **extra}),  # type: ignore[misc]
            make,
        )
        if draft is None:
            return last
        last = flow.evaluate(draft)
        if not last.failed:
            return last
    return last


def source_in(answer: Mapping[str, Any], history: History) -> Source:
    """Return the kernel in a writer's answer, in the language it names or else the run's."""
    language = answer.get("language") or target_language(history)
    return Source(Language(language), str(answer["source"]))


def target_language(history: History) -> Language:
    """Return the language of new kernels.

    This is the run's setting, else the target's native language if the problem accepts it, else the problem's first.
    """
    # Not every strategy has this setting.
    wanted = getattr(history.settings, "language", None)
    if wanted is not None:
        return Language(wanted)
    languages = tuple(history.problem.languages)
    natural = _natural_language(history.target)
    return natural if natural in languages or not languages else languages[0]


def _natural_language(target: str) -> Language:
    if target == "cpu":
        return Language.CPP
    return Language.HIP if target.startswith(("gfx", "mi3")) else Language.TRITON
