"""Determine which two kernels and which two texts a diff compares, for the page and the API."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.http import Http404

from optimizer.access import access_kernel
from optimizer.diffs.positions import first_parents
from optimizer.diffs.rows import TextDiff, alone, compare
from optimizer.models import AuthorKind, Kernel, User
from optimizer.queries.own_builds import with_own_build

SOURCE = "source"
_PLACE = re.compile(r"(?:([0-9]{1,12})\.)?([0-9]{1,9})")


@dataclass(frozen=True)
class Preset:
    """Hold one choice of what to compare with. `kernel` is None where the run has no such kernel."""

    key: str
    label: str
    kernel: Kernel | None


@dataclass(frozen=True)
class Sides:
    """Hold the two kernels and texts; `old` is None where there is nothing to compare with."""

    old: Kernel | None
    new: Kernel
    diff: TextDiff
    language: str
    tabs: Sequence[str]


def other_of(user: User, new: Kernel, against: str, presets: Sequence[Preset] | None = None) -> Kernel | None:
    """Return the kernel to compare with, or None where the parent does not exist.

    `against` is a preset, a number of the same run, or `run.number`; empty means the parent. `presets` are the
    kernel's, where they are known already. Raises Http404 for a kernel that does not exist or that this person may
    not see.
    """
    # Every way to name a kernel ends in `access_kernel`, so no diff shows a kernel that the person may not see.
    if place := _PLACE.fullmatch(against):
        return access_kernel(user, int(place[1] or new.run_id), int(place[2]), "view")
    by_key = {preset.key: preset.kernel for preset in presets or presets_of(new)}
    if against and against not in by_key:
        raise Http404("Nothing of that name to compare with.")
    chosen = by_key[against or "parent"]
    return access_kernel(user, chosen.run_id, chosen.number, "view") if chosen else None


def presets_of(kernel: Kernel) -> list[Preset]:
    """Return the presets with which every kernel can be compared by name."""
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
        # A kernel is not compared with itself: the preset stays listed, but without a kernel.
        presets.append(Preset(key, label, None if other is None or other.pk == kernel.pk else other))
    return presets


def _seed_of(kernel: Kernel) -> Kernel | None:
    """Return the seed at the root of the kernel's first parents, or None."""
    ancestors = first_parents(kernel)
    root = ancestors[-1] if ancestors else None
    seeds = Kernel.objects.defer("source", "report", "meta").filter(author_kind=AuthorKind.SEED)
    return seeds.filter(pk=root).first() if root else None


def sides_of(old: Kernel | None, new: Kernel, text: str = SOURCE, ignore_space: bool = False) -> Sides:
    """Return the diff of both kernels' `text`: their source, or a compiler listing by name.

    Raises Http404 for a text that neither has.
    """
    now, was = assemblies(new), assemblies(old) if old else {}
    # Listings of either side are offered, as one that was removed is a difference too.
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
    """Return the compiler's listings of a kernel by name."""
    evaluation = getattr(kernel, "evaluation", None)
    result = with_own_build(evaluation.as_readable_result(), kernel.pk) if evaluation else None
    return result.build.assembly if result and result.build else {}
