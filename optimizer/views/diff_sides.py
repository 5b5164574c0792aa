"""Which two kernels a diff is of, and which two texts of theirs: what the page and the API ask in the same words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.http import Http404

from optimizer.access import access_kernel
from optimizer.diffs.rows import TextDiff, alone, compare
from optimizer.models import AuthorKind, Kernel, User
from optimizer.views.diff_threads import first_parents

SOURCE = "source"
_PLACE = re.compile(r"(?:([0-9]{1,12})\.)?([0-9]{1,9})")


@dataclass(frozen=True)
class Preset:
    """One choice of what to compare with. `kernel` is None where the run has no such kernel."""

    key: str
    label: str
    kernel: Kernel | None


@dataclass(frozen=True)
class Sides:
    """The two kernels and the two texts that are compared; `old` is None where there is nothing to compare with."""

    old: Kernel | None
    new: Kernel
    diff: TextDiff
    language: str
    tabs: Sequence[str]


def other_of(user: User, new: Kernel, against: str, presets: Sequence[Preset] | None = None) -> Kernel | None:
    """What to compare with: the preset, `number` of the same run or `run.number` that `against` names; without it the
    parent, and None where that is not there. Raises Http404 for a kernel that does not exist or not for this person.
    `presets` are the kernel's, where they are known already."""
    if place := _PLACE.fullmatch(against):
        return access_kernel(user, int(place[1] or new.run_id), int(place[2]), "view")
    by_key = {preset.key: preset.kernel for preset in presets or presets_of(new)}
    if against and against not in by_key:
        raise Http404("There is nothing of that name to compare with.")
    chosen = by_key[against or "parent"]
    return access_kernel(user, chosen.run_id, chosen.number, "view") if chosen else None


def presets_of(kernel: Kernel) -> list[Preset]:
    """What every kernel can be compared with by name."""
    run, light = kernel.run, Kernel.objects.defer("source", "report", "meta")
    best = light.filter(pk=run.best_kernel_id).first() if run.best_kernel_id else None
    found = {
        "parent": ("Parent", light.filter(child_links__kernel=kernel, child_links__rank=0).first()),
        "best": ("Best of the run", best),
        "seed": ("Its seed", _seed_of(kernel)),
        "reference": ("Reference", light.filter(run=run, key="seed.reference").first()),
        "none": ("Nothing", None),
    }
    presets = []
    for key, (label, other) in found.items():
        presets.append(Preset(key, label, None if other is None or other.pk == kernel.pk else other))
    return presets


def _seed_of(kernel: Kernel) -> Kernel | None:
    """The seed at the root of its first parents."""
    ancestors = first_parents(kernel)
    root = ancestors[-1] if ancestors else None
    seeds = Kernel.objects.defer("source", "report", "meta").filter(author_kind=AuthorKind.SEED)
    return seeds.filter(pk=root).first() if root else None


def sides_of(old: Kernel | None, new: Kernel, text: str = SOURCE, ignore_space: bool = False) -> Sides:
    """The diff of both kernels' `text`: their source, or a listing of the compiler's by its name. Raises Http404 for a
    text that neither has."""
    now, was = assemblies(new), assemblies(old) if old else {}
    tabs = list(dict.fromkeys([SOURCE, *now, *was]))
    if text not in tabs:
        raise Http404("There is no such text.")
    if text == SOURCE:
        language, before, after = new.language, old.source if old else None, new.source
    else:
        language, before, after = "assembly", was.get(text), now.get(text, "")
    diff = alone(after) if before is None else compare(before, after, ignore_space)
    return Sides(old, new, diff, language, tabs)


def assemblies(kernel: Kernel) -> Mapping[str, str]:
    """The compiler's listings of a kernel, by name."""
    evaluation = getattr(kernel, "evaluation", None)
    result = evaluation.as_readable_result() if evaluation else None
    return result.build.assembly if result and result.build else {}
