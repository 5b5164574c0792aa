"""Present a run's guidance to strategies and prompts."""

from __future__ import annotations

from collections import defaultdict

from optimizer.models import Guidance, KernelParent, LlmCall, Run
from optimizer.search.guidance import GuidanceView

# Reference of the instruction given when the run was started; later ones are numbered by their row.
FROM_THE_START = "guidance-0"


def guidance_views(run: Run) -> tuple[GuidanceView, ...]:
    """Return the current instructions, oldest first, starting with the one given when the run was started."""
    first = [GuidanceView(FROM_THE_START, run.guidance)] if run.guidance else []
    rows = list(run.guidance_notes.standing().select_related("author", "kernel"))
    # Read the family tree only where an instruction is limited to a lineage.
    edges = _children(run) if any(row.kernel_id for row in rows) else {}
    return (*first, *(_view(row, edges) for row in rows))


def taken_by(call: LlmCall | None) -> list[Guidance]:
    """Return the instructions that the call's prompt contained, oldest first."""
    taken = (call.context_report or {}).get("taken") or [] if call else []
    refs = [str(entry.get("ref", "")) for entry in taken if isinstance(entry, dict)]
    numbers = [ref.removeprefix("guidance-") for ref in refs if ref.startswith("guidance-")]
    wanted = [int(number) for number in numbers if number.isdecimal()]
    if call is None or not wanted:
        return []
    return list(Guidance.objects.filter(run=call.run_id, pk__in=wanted).select_related("author", "comment__thread"))


def _view(row: Guidance, children: dict[str, list[str]]) -> GuidanceView:
    lineage = _descendants(row.kernel.key, children) if row.kernel else None
    return GuidanceView(row.ref, row.text, str(row.author or ""), lineage)


def _children(run: Run) -> dict[str, list[str]]:
    edges: dict[str, list[str]] = defaultdict(list)
    for parent, child in KernelParent.objects.filter(kernel__run=run).values_list("parent__key", "kernel__key"):
        edges[parent].append(child)
    return edges


def _descendants(root: str, children: dict[str, list[str]]) -> frozenset[str]:
    """Return the kernel itself and all its descendants."""
    # Kernels may have two parents, so the same descendant can be reached more than once.
    found, waiting = {root}, [root]
    while waiting:
        fresh = [key for key in children.get(waiting.pop(), []) if key not in found]
        found.update(fresh)
        waiting += fresh
    return frozenset(found)
